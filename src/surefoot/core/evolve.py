"""What an event means: `evolve(run, event, at, version)` and `replay(events)`. A status comes from the tables only.

Events hold durations; `at` is the store's clock at their commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from surefoot.core import events as ev
from surefoot.core.state import (
    Action,
    ActionStatus,
    Attempt,
    AttemptEnd,
    Instant,
    Resolution,
    Run,
    RunStatus,
    Step,
    StepStatus,
    StepType,
)
from surefoot.core.totals import add_totals
from surefoot.core.transitions import RUN, RUN_CHANGES, STEP
from surefoot.core.unread import signal_received, signal_taken
from surefoot.errors import NotAllowed, Unreadable


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event as it was stored."""

    run_id: str
    sequence: int
    version: int
    at: Instant
    event: ev.AnyEvent


def evolve(run: Run, event: ev.AnyEvent, at: Instant) -> Run:
    """The run after `event`. Raises NotAllowed (`illegal_transition`) for a pair that the tables do not list."""
    if isinstance(event, ev.StepEvent):
        before = run.steps.get(event.step_id)
        after = _created(run, event) if isinstance(event, ev.StepCreated) else _evolve_step(before, event, at)
        steps = {**run.steps, after.id: after}
        if before is not None:
            run = replace(run, steps=steps, event_sequence=run.event_sequence + 1)
            return add_totals(run, event) if type(event) is ev.StepSucceeded else run
        return replace(
            run,
            steps=steps,
            step_count=max(run.step_count, after.sequence),
            next_position=max(run.next_position, (after.position or 0) + 1),
            turns=run.turns + (after.type is StepType.model_call),
            event_sequence=run.event_sequence + 1,
        )
    return _RUN_EVENTS[type(event)](replace(run, event_sequence=run.event_sequence + 1), event, at)


def begin(event: ev.RunStarted, at: Instant) -> Run:
    """The run that run_started makes."""
    return Run(
        tenant_id=event.tenant_id,
        id=event.run_id,
        conversation_id=event.conversation_id,
        agent=event.agent,
        agent_version=event.agent_version,
        kind=event.kind,
        status=RunStatus.running,
        version=1,
        event_sequence=1,
        step_count=0,
        next_position=event.position,
        started=at,
        limits=event.limits,
        parent_step_id=event.parent_step_id,
    )


def replay(recorded: Iterable[Recorded]) -> Run:
    """The run that its events make, with every step and action it ever had: what the rows are checked against.

    Raises Unreadable if the events do not begin with run_started, have a gap, or hold an illegal transition.
    """
    run: Run | None = None
    for line in recorded:
        if run is None:
            if not isinstance(line.event, ev.RunStarted) or line.sequence != 1:
                raise Unreadable(f"run {line.run_id}: the events do not begin with run_started")
            run = begin(line.event, line.at)
            continue
        if line.sequence != run.event_sequence + 1:
            raise Unreadable(f"run {line.run_id}: event {line.sequence} follows {run.event_sequence}")
        try:
            run = replace(evolve(run, line.event, line.at), version=line.version)
        except (NotAllowed, KeyError) as error:
            raise Unreadable(f"run {line.run_id}: event {line.sequence} cannot follow: {error}") from error
    if run is None:
        raise Unreadable("a run without events")
    return run


def forget_closed(run: Run) -> Run:
    """The run without what no later decision needs: ended steps that are not looked up again and about which nothing is
    asked, and actions that are settled."""
    if not run.actions:
        steps = {key: step for key, step in run.steps.items() if step.live}
        return run if len(steps) == len(run.steps) else replace(run, steps=steps)
    asked = {a.step_id for a in run.actions.values() if a.status is ActionStatus.waiting}
    steps = {key: step for key, step in run.steps.items() if step.live or key in asked}
    bound = {step.action_id for step in steps.values()}
    actions = {
        key: action
        for key, action in run.actions.items()
        if action.status is ActionStatus.waiting or (key in bound and action.status is ActionStatus.approved)
    }
    if len(steps) == len(run.steps) and len(actions) == len(run.actions):
        return run
    return replace(run, steps=steps, actions=actions)


# Steps


def _illegal(text: str) -> NotAllowed:
    return NotAllowed(text, code="illegal_transition")


def _evolve_step(step: Step | None, event: ev.StepEvent, at: Instant) -> Step:
    if step is None:
        raise _illegal(f"{type(event).__name__} for step {event.step_id}, which does not exist")
    kind = type(event)
    if kind in _STATUS_EVENTS:
        target = STEP.get((step.status, kind))
        if target is None:
            raise _illegal(f"a step that is {step.status.value} does not take {kind.__struct_config__.tag}")
        step = replace(step, status=target)
    return _STEP_EVENTS[kind](step, event, at)


def _created(run: Run, event: ev.StepCreated) -> Step:
    if event.step_id in run.steps or event.sequence != run.step_count + 1:
        raise _illegal(f"step {event.step_id} is number {event.sequence}, and {run.step_count} are there already")
    return Step(
        id=event.step_id,
        sequence=event.sequence,
        type=event.step_type,
        status=STEP[None, ev.StepCreated],
        rules=event.rules,
        tool_name=event.tool_name,
        tool_version=event.tool_version,
        call_id=event.call_id,
        position=event.position,
        operation_key=event.operation_key,
        input_hash=event.input_hash,
        input_ref=event.input_ref,
        identity_hash=event.identity_hash,
        target=event.target,
        credential=event.credential,
        owner_step_id=event.owner_step_id,
    )


def _waiting(step: Step, event: ev.StepWaitingForApproval, at: Instant) -> Step:
    return replace(step, action_id=event.action_id, look_at=None, doubt_since=None, person_absent=False)


def _released(step: Step, event: ev.StepReleased, at: Instant) -> Step:
    return replace(step, not_before=0.0)


def _started(step: Step, event: ev.StepStarted, at: Instant) -> Step:
    if event.attempt != step.attempt + 1:
        raise _illegal(f"attempt {event.attempt} of step {step.id} follows attempt {step.attempt}")
    attempt = Attempt(
        number=event.attempt,
        token=event.token,
        account=event.account,
        key_id=event.key_id,
        started=at if event.since_wall is None else at.earlier(event.since_wall),
        first_byte_before=at.mono + event.send_window_s,
        last_byte_before=at.mono + event.timeout_s,
    )
    return replace(
        step,
        rules=event.rules or step.rules,
        attempt=event.attempt,
        attempts=(*step.attempts, attempt),
        account=event.account or step.account,
        look_at=None,
        doubt_since=None,
        looks=0,
        person_absent=False,
        error_code=None,
        resolution=None,
    )


def _deferred(step: Step, event: ev.StepDeferred, at: Instant) -> Step:
    step = _end_attempt(step, event.attempt, event.end, event.code, at)
    return replace(
        step,
        not_before=at.mono + event.delay_s,
        error_code=event.code,
        look_at=None,
        doubt_since=None,
        person_absent=False,
    )


def _unknown(step: Step, event: ev.StepOutcomeUnknown, at: Instant) -> Step:
    attempts = tuple(_doubted(a, event, at) if a.number == event.attempt else a for a in step.attempts)
    return replace(
        step,
        attempts=attempts,
        doubt_since=at.mono,
        look_at=at.mono + event.look_s,
        looks=0,
        error_code=event.code,
    )


def _doubted(attempt: Attempt, event: ev.StepOutcomeUnknown, at: Instant) -> Attempt:
    ended = attempt.ended
    if event.died:
        # Nobody saw the death. It came before now, and a living process would have written nothing after that time.
        ended = min(at.mono, attempt.last_byte_before)
    elif event.ended and ended is None:
        ended = at.mono
    if attempt.end is not None:
        return replace(attempt, ended=ended)
    return replace(attempt, end=AttemptEnd.in_doubt, code=event.code, ended=ended)


def _succeeded(step: Step, event: ev.StepSucceeded, at: Instant) -> Step:
    step = _end_attempt(step, event.attempt, AttemptEnd.applied if event.attempt else None, None, at)
    seen = event.external_resource_id
    return replace(
        step,
        external_resource_id=seen or step.external_resource_id,
        resource_url=event.resource_url if seen else event.resource_url or step.resource_url,
        resolution=event.resolution,
        purpose=event.purpose,
        receipts=_with(step.receipts, seen),
        look_at=None,
        doubt_since=None,
        error_code=None,
    )


def _failed(step: Step, event: ev.StepFailed, at: Instant) -> Step:
    step = _end_attempt(step, event.attempt, event.end, event.error_code, at)
    return replace(step, error_code=event.error_code, resolution=event.resolution, look_at=None, doubt_since=None)


def _given_up(step: Step, event: ev.StepGivenUp, at: Instant) -> Step:
    if step.status is not StepStatus.outcome_unknown:
        raise _illegal("only a step whose outcome is unknown can be given up")
    return replace(step, resolution=Resolution.given_up, person_absent=False, look_at=None)


def _attempt_ended(step: Step, event: ev.AttemptEnded, at: Instant) -> Step:
    return _look_now(_end_attempt(step, event.attempt, event.end, event.code, at), at)


def _look_now(step: Step, at: Instant) -> Step:
    """What was waited for is known: a look that is planned is due at once."""
    if not step.in_doubt or step.look_at is None:
        return step
    return replace(step, look_at=min(step.look_at, at.mono))


def _looked(step: Step, event: ev.LookupAnswered, at: Instant) -> Step:
    attempts = step.attempts
    if event.concluded and event.verdict == "absent":
        attempts = tuple(replace(a, absent=True) if a.possibly_sent else a for a in attempts)
    look_at = None if event.next_look_s is None else at.mono + event.next_look_s
    return replace(step, attempts=attempts, looks=step.looks + 1, look_at=look_at)


def _evidence(step: Step, event: ev.EvidenceRecorded, at: Instant) -> Step:
    if event.verdict == "found":
        return _receipt(step, event, at)
    if event.source == "person" and event.verdict == "absent":
        return replace(step, person_absent=True, look_at=at.mono)
    return step if event.source == "lookup" else _look_now(step, at)


def _receipt(step: Step, event: ev.ReceiptRecorded | ev.EvidenceRecorded, at: Instant) -> Step:
    known = step.external_resource_id or event.resource_id
    # The link of another effect is none of the step's: its id and its link name one.
    link = event.resource_url if event.resource_id in (None, known) else None
    return replace(
        step,
        receipts=_with(step.receipts, event.resource_id),
        external_resource_id=known,
        resource_url=step.resource_url or link,
    )


def _duplicate(step: Step, event: ev.DuplicateDetected, at: Instant) -> Step:
    receipts = step.receipts
    for resource in event.resource_ids:
        receipts = _with(receipts, resource)
    return replace(step, receipts=receipts)


def _sweep(step: Step, event: ev.SweepScheduled, at: Instant) -> Step:
    look_at = None if event.delay_s is None else at.mono + event.delay_s
    return replace(step, sweep=event.sweep, look_at=look_at)


def _with(receipts: tuple[str, ...], resource: str | None) -> tuple[str, ...]:
    return receipts if resource is None or resource in receipts else (*receipts, resource)


def _end_attempt(step: Step, number: int | None, end: AttemptEnd | None, code: str | None, at: Instant) -> Step:
    if number is None or end is None:
        return step
    attempts = tuple([_with_end(a, end, code, at) if a.number == number else a for a in step.attempts])
    return replace(step, attempts=attempts)


def _with_end(attempt: Attempt, end: AttemptEnd, code: str | None, at: Instant) -> Attempt:
    ended = at.mono if attempt.ended is None else attempt.ended
    # A receipt proves a look wrong that found nothing.
    absent = attempt.absent and end is not AttemptEnd.applied
    return replace(attempt, end=end, code=code, ended=ended, absent=absent)


# Runs, actions, messages


def _status_changed(run: Run, event: ev.RunStatusChanged, at: Instant) -> Run:
    if event.from_status is not run.status or (event.from_status, event.to_status) not in RUN_CHANGES:
        raise _illegal(f"a run that is {run.status.value} does not become {event.to_status.value}")
    return replace(run, status=event.to_status)


def _ended(run: Run, event: ev.RunCompleted | ev.RunFailed | ev.RunCancelled, at: Instant) -> Run:
    target = RUN.get((run.status, type(event)))
    if target is None:
        raise _illegal(f"a run that is {run.status.value} does not take {type(event).__struct_config__.tag}")
    return replace(run, status=target, error_code=event.error_code if isinstance(event, ev.RunFailed) else None)


def _requested(run: Run, event: ev.ActionRequested, at: Instant) -> Run:
    if event.action_id in run.actions:
        raise _illegal(f"action {event.action_id} exists already: a changed question is a new one")
    action = Action(
        id=event.action_id,
        step_id=event.step_id,
        kind=event.kind,
        input_hash=event.input_hash,
        permission=event.permission,
        expires_wall=None if event.expires_s is None else at.wall + event.expires_s,
    )
    return replace(run, actions={**run.actions, action.id: action})


def _decided(run: Run, event: ev.ActionDecided, at: Instant) -> Run:
    action = replace(
        _waiting_action(run, event.action_id),
        status=event.status,
        decision=event.decision,
        decided_by=event.by,
        decided_from=event.source,
        decision_key=event.decision_key,
    )
    return replace(run, actions={**run.actions, action.id: action})


def _expired(run: Run, event: ev.ActionExpired, at: Instant) -> Run:
    action = replace(_waiting_action(run, event.action_id), status=ActionStatus.expired, why=event.why)
    return replace(run, actions={**run.actions, action.id: action})


def _waiting_action(run: Run, action_id: str) -> Action:
    action = run.actions.get(action_id)
    if action is None or action.status is not ActionStatus.waiting:
        raise _illegal(f"action {action_id} is not waiting")
    return action


def _queued(run: Run, event: ev.MessageQueued, at: Instant) -> Run:
    return replace(run, queued=(*run.queued, event.message_id))


def _appended(run: Run, event: ev.MessageAppended, at: Instant) -> Run:
    steps = run.steps
    if event.role == "tool_result":
        step = steps.get(event.step_id or "")
        if step is None or step.answered:
            raise _illegal(f"call {event.call_id} is not open or has its result already")
        if event.position != step.position or event.call_id != step.call_id:
            raise _illegal(f"the result of call {step.call_id} stands at {step.position}, not at {event.position}")
        steps = {**steps, step.id: replace(step, answered=True)}
    elif run.batch_open or event.position != run.next_position:
        raise _illegal(
            f"a message does not stand between a call and its result, nor out of its order ({event.position})"
        )
    return replace(
        run,
        steps=steps,
        queued=tuple([q for q in run.queued if q != event.message_id]),
        result_step_id=None if event.role == "user" else run.result_step_id,
        next_position=max(run.next_position, event.position + 1),
    )


def _started_again(run: Run, event: ev.RunStarted, at: Instant) -> Run:
    raise _illegal("a run starts once")


_STATUS_EVENTS = frozenset(kind for _, kind in STEP)
_STEP_EVENTS: dict[type[ev.StepEvent], Callable[..., Step]] = {
    ev.StepWaitingForApproval: _waiting,
    ev.StepReleased: _released,
    ev.StepStarted: _started,
    ev.StepDeferred: _deferred,
    ev.StepOutcomeUnknown: _unknown,
    ev.StepSucceeded: _succeeded,
    ev.StepFailed: _failed,
    ev.StepGivenUp: _given_up,
    ev.AttemptEnded: _attempt_ended,
    ev.LookupAnswered: _looked,
    ev.EvidenceRecorded: _evidence,
    ev.ReceiptRecorded: _receipt,
    ev.DuplicateDetected: _duplicate,
    ev.SweepScheduled: _sweep,
}
_RUN_EVENTS: dict[type[ev.Event], Callable[..., Run]] = {
    ev.RunStarted: _started_again,
    ev.RunStatusChanged: _status_changed,
    ev.RunCompleted: _ended,
    ev.RunFailed: _ended,
    ev.RunCancelled: _ended,
    ev.ActionRequested: _requested,
    ev.ActionDecided: _decided,
    ev.ActionExpired: _expired,
    ev.SignalReceived: signal_received,
    ev.SignalTaken: signal_taken,
    ev.MessageQueued: _queued,
    ev.MessageAppended: _appended,
}
