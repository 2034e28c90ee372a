"""Commands on runs, steps and attempts. Each emits events on a Draft or raises NotAllowed; none knows a clock or I/O.

Ends of attempts are in attempts.py, doubt (lookups, resending, evidence) in reconcile.py, decisions in people.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import asdict, replace

from surefoot.core import events as ev, policy
from surefoot.core.draft import NOTE_PREFIX, Draft, approved_until
from surefoot.core.ends import answer, ask, expire_actions, fail_step, show_output
from surefoot.core.ids import call_id, operation_key, step_id
from surefoot.core.payloads import Ask, BlobPut, ClaimKey, MessageBody, RunResult, StepView, result_body
from surefoot.core.state import (
    ActionKind,
    ActionStatus,
    AttemptEnd,
    EffectClass,
    Resolution,
    Rules,
    Step,
    StepStatus,
    StepType,
    WaitsFor,
)
from surefoot.core.totals import NOTHING_SPENT, Spent, time_is_up, used_up
from surefoot.core.unread import left_for_another
from surefoot.errors import NotAllowed

MODEL_RULES = Rules(effect=EffectClass.read, settle_s=0.0, timeout_s=policy.MODEL_TIMEOUT_SECONDS)


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why a proposed call is not executed, in words for the model."""

    code: str
    text: str


def key_reused(key: str) -> Refusal:
    """Of a call whose business key another call holds, with other bytes."""
    return Refusal("key_reused", f"The key {key!r} was used by an earlier call with other arguments; nothing was sent.")


class ProposedCall(msgspec.Struct, frozen=True, gc=False):
    """A tool call that a model or a caller proposed, checked and hashed, before any question or send."""

    tool_name: str
    tool_version: str
    rules: Rules
    input_ref: str | None
    input_hash: str
    data: bytes | None
    """The exact request; None where it must not be stored (a refusal)."""
    safe_input: bytes
    identity_hash: str | None = None
    target: str | None = None
    credential: str | None = None
    business_key: str | None = None
    owner_step_id: str | None = None
    refusal: Refusal | None = None
    gate: Ask | None = None
    """The approval that the call waits for."""
    question: Ask | None = None
    """The call is a question to a person (`ask_person`): a step of type human_approval, answered by a value."""
    delay_s: float | None = None
    """The call begins that much later (`sleep`)."""
    result: bytes | None = None
    """The call only gives the run's result (JSON, redacted): it is answered at once."""


class Start(msgspec.Struct, frozen=True, gc=False):
    """What an intent needs from the worker."""

    token: int
    send_window_s: float
    """How long from now the lease lets a request begin."""
    account: str | None = None
    key_id: str | None = None


# Runs


def start_run(d: Draft, input_body: bytes | None) -> None:
    """After run_started: the user's message."""
    if input_body is not None:
        add_message(d, d.message_id(), "user", input_body)


def add_message(d: Draft, message_id: str, role: str, body: bytes) -> None:
    """A user message or a note: placed now, or queued until every call has its result.

    The id of a note begins with NOTE_PREFIX, and no other does. Raises RunEnded, and NotAllowed (`no_conversation`) for
    a performed call, in which nothing is ever said.
    """
    d.require_open()
    if not d.run.talks:
        raise NotAllowed("a performed call has no conversation: nobody would read it", code="no_conversation")
    assert (role == "note") == message_id.startswith(NOTE_PREFIX), f"a {role} called {message_id}"
    d.carry(MessageBody(message_id, body))
    _place_or_queue(d, message_id, role)


def take_notes(d: Draft, message_ids: Iterable[str]) -> None:
    """Notes that an earlier run of the conversation has left queued: placed or queued as those of this run."""
    for message_id in message_ids:
        if not d.run.ended and message_id not in d.run.queued:
            _place_or_queue(d, message_id, "note")


def _place_or_queue(d: Draft, message_id: str, role: str) -> None:
    if d.run.batch_open or d.run.queued:
        d.emit(ev.MessageQueued(message_id, role))
    else:
        d.emit(ev.MessageAppended(message_id, role, d.run.next_position))


def complete_run(d: Draft, result: bytes | None) -> None:
    """The run reached its result; None where a call gave it. Raises NotAllowed while a call or a message is open."""
    d.require_open()
    if d.run.batch_open or (d.run.queued and d.run.talks):
        raise NotAllowed("a run with an open call or an unread message does not complete", code="batch_open")
    d.settle_status()
    if result is not None:
        d.carry(RunResult(result))
    d.emit(ev.RunCompleted())


def fail_run(d: Draft, code: str) -> None:
    """The run ends without its result; open calls get theirs, what may have been sent goes on being settled."""
    d.require_open()
    close_calls(d, code)
    d.emit(ev.RunFailed(code))


def cancel_run(d: Draft, by: str) -> tuple[str, ...]:
    """The run is cancelled. Returns the steps whose calls may have been sent. Raises RunEnded if it is terminal."""
    d.require_open()
    sent = close_calls(d, "cancelled")
    d.emit(ev.RunCancelled(by, sent))
    return sent


def close_calls(d: Draft, code: str) -> tuple[str, ...]:
    """Give each open call its one result and fail what was not sent; the steps that may have been sent are returned."""
    sent: list[str] = []
    for step in sorted(d.run.steps.values(), key=lambda s: s.sequence):
        if not step.open_in_loop:
            continue
        if d.doubts(step):
            sent.append(step.id)
            text = "The outcome of this call was not known when the run ended."
            answer(d, step, result_body(text, code="outcome_unknown"))
            continue
        last = step.attempts[-1] if step.attempts else None
        cut = last is not None and last.end is None
        works = step.rules.waits_for is WaitsFor.run and step.status is StepStatus.pending
        body = result_body(f"This call was {'stopped' if cut or works else 'not executed'}: {code}.", code=code)
        number, end = (step.attempt, AttemptEnd.in_doubt) if cut else (None, None)
        fail_step(d, step, code, attempt=number, end=end, body=body, why="cancelled")
        if works:
            # The runs that work on it have to be stopped, by whoever ends this one or by a worker.
            d.emit(ev.SweepScheduled(step.id, 0, 0.0))
    return tuple(sent)


# Steps


def start_model_call(d: Draft, start: Start, input_hash: str, rules: Rules = MODEL_RULES) -> Step:
    """The next model call with its intent; queued messages get their place first. `rules` have its time-out.

    Raises NotAllowed (`turns_used_up`, `time_used_up`, `tokens_used_up`, `cost_used_up`) when a budget is spent: the
    caller fails the run; and (`batch_open`) while a call has no result.
    """
    d.require_open()
    if d.run.batch_open:
        raise NotAllowed("every call gets its result before the next model call", code="batch_open")
    d.place_queued()
    budget = used_up(d.run, d.run.limits, d.at.wall)
    if budget is not None:
        raise NotAllowed(budget[1], code=budget[0])
    sequence = d.run.step_count + 1
    new = step_id(d.run.id, sequence)
    d.emit(ev.StepCreated(new, sequence, StepType.model_call, rules, input_hash=input_hash))
    return start_step(d, new, start)


def record_model_answer(
    d: Draft, model_step: str, attempt: int, body: bytes, calls: Sequence[ProposedCall], spent: Spent = NOTHING_SPENT
) -> list[str]:
    """The model answered: its message, and a step for each call it proposes. Returns the new steps' ids."""
    step = d.step(model_step)
    _end_model_call(d, step, attempt, spent, None)
    position = d.run.next_position
    _say(d, step, "assistant", body)
    return [propose(d, call, step.sequence, index, position + 1 + index) for index, call in enumerate(calls)]


def record_summary(d: Draft, model_step: str, attempt: int, body: bytes, spent: Spent = NOTHING_SPENT) -> None:
    """A model call that was to shorten the history answered: from here on its summary stands for the older part."""
    step = d.step(model_step)
    _end_model_call(d, step, attempt, spent, "compact")
    _say(d, step, "summary", body)


def _end_model_call(d: Draft, step: Step, attempt: int, spent: Spent, purpose: str | None) -> None:
    if step.status is not StepStatus.running or step.attempt != attempt:
        raise NotAllowed("another attempt of this model call is the valid one", code="superseded")
    d.emit(ev.StepSucceeded(step.id, attempt=attempt, purpose=purpose, **asdict(spent)))


def _say(d: Draft, step: Step, role: str, body: bytes) -> None:
    message = d.message_id()
    d.carry(MessageBody(message, body))
    d.emit(ev.MessageAppended(message, role, d.run.next_position, step_id=step.id))


def _under_one_key(d: Draft, call: ProposedCall) -> ProposedCall:
    """Of the calls of one answer the first takes a business key; the others are answered from it, or refused."""
    if call.business_key is None or call.owner_step_id is not None or call.refusal is not None:
        return call
    taken = next((p for p in d.payloads if isinstance(p, ClaimKey) and p.operation_key == call.business_key), None)
    if taken is None:
        return call
    if taken.input_hash != call.input_hash:
        return replace(call, refusal=key_reused(call.business_key))
    return replace(call, owner_step_id=taken.step_id, gate=None)


def propose(d: Draft, call: ProposedCall, model_sequence: int, index: int, position: int | None) -> str:
    """Write one call down: pending, waiting for a person, or refused at once. Returns the new step's id."""
    call = _under_one_key(d, call)
    sequence = d.run.step_count + 1
    new = step_id(d.run.id, sequence)
    d.emit(
        ev.StepCreated(
            new,
            sequence,
            StepType.tool_call if call.question is None else StepType.human_approval,
            call.rules,
            tool_name=call.tool_name,
            tool_version=call.tool_version,
            call_id=call_id(d.run.id, model_sequence, index),
            position=position,
            operation_key=call.business_key or operation_key(d.run.id, new),
            input_hash=call.input_hash,
            input_ref=call.input_ref,
            identity_hash=call.identity_hash,
            target=call.target,
            credential=call.credential,
            owner_step_id=call.owner_step_id,
        )
    )
    d.carry(StepView(new, safe_input=call.safe_input))
    if call.data is not None and call.input_ref is not None and call.data != call.safe_input:
        # A view that shows the whole request is the request: its reference says so (store/requests.py).
        d.carry(BlobPut(call.input_ref, call.data))
    if call.refusal is not None:
        fail_step(d, d.step(new), call.refusal.code, body=result_body(call.refusal.text, code=call.refusal.code))
        return new
    if call.result is not None:
        d.emit(ev.StepSucceeded(new, is_result=True))
        d.carry(RunResult(call.result), StepView(new, safe_output=call.safe_input))
        answer(d, d.step(new), result_body("The result is taken."))
        return new
    if call.business_key is not None and call.owner_step_id is None:
        d.carry(ClaimKey(call.business_key, new, call.input_hash))
    if call.question is not None:
        # A signal that came first is not asked for: the step stays pending, and the worker hands the signal over.
        if call.rules.waits_for is None or not left_for_another(d.run, new):
            ask_question(d, new, call.question)
    elif call.gate is not None:
        ask_approval(d, new, call.gate)
    elif call.delay_s is not None:
        defer(d, new, call.delay_s, None)
    return new


def ask_question(d: Draft, step: str, question: Ask) -> None:
    """The step is a question, answered by a value: it waits for a person, or for a program."""
    d.emit(ev.StepWaitingForApproval(step, question.action_id))
    ask(d, step, ActionKind.ask, question)


def ask_approval(d: Draft, step: str, gate: Ask) -> None:
    """The step waits for a person; the new question takes the place of an open one, and of an earlier approval.

    Raises NotAllowed (`possibly_sent`) while an attempt may have been sent: an approval does not settle a doubt.
    """
    if d.step(step).doubtful_attempts and d.rules(d.step(step)).effect is not EffectClass.read:
        raise NotAllowed("the step may have been sent; find out what became of it first", code="possibly_sent")
    expire_actions(d, step, "superseded")
    d.emit(ev.StepWaitingForApproval(step, gate.action_id))
    ask(d, step, ActionKind.approve, gate)


def approval_over(d: Draft, step: Step) -> bool:
    """True if the step runs under an approval that is not valid at this instant."""
    if step.action_id is None:
        return False
    action = d.run.actions.get(step.action_id)
    if action is None or action.status is not ActionStatus.approved:
        return True
    if action.kind is not ActionKind.approve:
        return False  # an answered question, such as "try the model again", gives no approval that could end
    return action.expires_wall is not None and d.at.wall >= action.expires_wall


def start_step(d: Draft, step_id_: str, start: Start) -> Step:
    """The intent of the next attempt. From this commit on the call may have been sent.

    Raises RunEnded, and NotAllowed (`approval_expired`: ask again; `attempts_used_up`; `not_yet`; `account_changed`;
    `account_unknown`; `given_up`; `possibly_sent`: an earlier attempt may have acted, and nothing lets it be repeated).
    """
    d.require_open()
    step = d.step(step_id_)
    rules = d.rules(step)
    refusal = start_refusal(d, step, start)
    if refusal is not None:
        raise refusal
    until = approved_until(d.run, step)
    if until is not None:
        d.wall_before = until if d.wall_before is None else min(d.wall_before, until)
    timeout_s = max(rules.timeout_s, policy.ATTEMPT_SECONDS_MIN)
    d.emit(
        ev.StepStarted(
            step.id,
            attempt=step.attempt + 1,
            token=start.token,
            timeout_s=timeout_s,
            send_window_s=min(start.send_window_s, timeout_s),
            account=start.account,
            key_id=start.key_id,
            rules=d.other_rules(step),
        )
    )
    return d.step(step.id)


def start_refusal(d: Draft, step: Step, start: Start) -> NotAllowed | None:
    """Why the step's next attempt cannot begin at this instant, or None."""
    rules = d.rules(step)
    if step.status is StepStatus.pending and step.not_before > d.at.mono:
        return NotAllowed("the step is to wait", code="not_yet")
    if step.status is StepStatus.outcome_unknown and not step.in_doubt:
        # A person has closed the question: nothing is sent on it any more, whatever its class allows.
        return NotAllowed("the step was given up; its outcome stays unknown", code="given_up")
    if step.type is StepType.model_call and time_is_up(d.run, d.run.limits, d.at.wall):
        return NotAllowed("the run has used its seconds", code="time_used_up")
    if step.counted_attempts >= rules.attempts_max:
        return NotAllowed(f"the step has used its {rules.attempts_max} attempts", code="attempts_used_up")
    if approval_over(d, step):
        return NotAllowed("the approval of this step has expired; ask again", code="approval_expired")
    if step.account is not None and start.account is None:
        return NotAllowed("it is not known just now whose the credential is", code="account_unknown")
    if step.account is not None and start.account != step.account:
        return NotAllowed("the credential now belongs to another account", code="account_changed")
    if not _may_repeat(d, step, rules):
        return NotAllowed("an earlier attempt may have been sent; look first", code="possibly_sent")
    return None


def _may_repeat(d: Draft, step: Step, rules: Rules) -> bool:
    """The one gate before every send: no attempt may have acted, or the target drops repeats, or nothing is changed."""
    if rules.effect is EffectClass.read:
        return step.status is not StepStatus.running or step.attempts[-1].end is not None
    if not step.doubtful_attempts:
        return True
    usable = rules.effect is EffectClass.idempotent and policy.key_usable(step, rules, d.at)
    return usable and policy.attempts_over(step, d.at)


def answer_from_owner(
    d: Draft, step_id_: str, resource_id: str | None, url: str | None, body: bytes, safe_output: bytes | None = None
) -> None:
    """A business key that another step already answered: the same receipt, no second effect.

    Raises NotAllowed for a step that was sent itself.
    """
    step = d.step(step_id_)
    if step.attempts:
        raise NotAllowed("the step was sent itself; it is not answered from another", code="possibly_sent")
    d.emit(
        ev.StepSucceeded(step.id, external_resource_id=resource_id, resource_url=url, resolution=Resolution.answered_by)
    )
    show_output(d, step, body, safe_output)
    expire_actions(d, step.id, "settled")
    answer(d, step, body)


def defer(d: Draft, step_id_: str, delay_s: float, code: str | None) -> None:
    """A pending step starts later. Raises NotAllowed for any other: the end of an attempt has commands of its own."""
    if d.step(step_id_).status is not StepStatus.pending:
        raise NotAllowed("only a pending step is put off", code="illegal_transition")
    d.emit(ev.StepDeferred(step_id_, delay_s, code=code))
