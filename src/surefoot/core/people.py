"""Answers of people. A decision binds to the action and its input_hash, is made once, and a stale one is refused."""

from __future__ import annotations

import msgspec

from surefoot.core import events as ev
from surefoot.core.decide import fail_run
from surefoot.core.draft import Draft
from surefoot.core.duplicates import Questions
from surefoot.core.ends import answer, can_be_looked_up, fail_step
from surefoot.core.payloads import ActionAnswer, result_body
from surefoot.core.policy import SWEEP_SECONDS
from surefoot.core.reconcile import Look, carry_evidence, conclude_found
from surefoot.core.state import (
    Action,
    ActionKind,
    ActionStatus,
    Resolution,
    Step,
    StepStatus,
    StepType,
    WaitsFor,
)
from surefoot.errors import AlreadyDecided, InvalidInput, NotAllowed, NotFound

CHOICES: dict[ActionKind, tuple[str, ...]] = {
    ActionKind.approve: ("approve", "reject"),
    ActionKind.resolve: ("happened", "did_not_happen", "give_up"),
    ActionKind.ask: ("answer", "reject"),
    ActionKind.duplicate: ("approve", "reject"),
}


class Decision(msgspec.Struct, frozen=True):
    """What a person decided. `key` is their Idempotency-Key; `input_hash`, where given, must be that of the action."""

    decision: str
    by: str
    reason: str | None = None
    key: str | None = None
    input_hash: str | None = None
    external_resource_id: str | None = None
    url: str | None = None
    value: bytes | None = None
    """JSON"""
    source: str = "program"
    """From where: written down and shown, and no part of what makes a repeat the same decision."""


def decide_action(d: Draft, action_id: str, decision: Decision, questions: Questions) -> None:
    """Record the one decision about an action and what it means for the step.

    Raises NotFound, AlreadyDecided (409, with what was decided), NotAllowed (`action_expired`, `input_changed`),
    InvalidInput (a decision that this kind of question does not take).
    """
    action = d.run.actions.get(action_id)
    if action is None:
        raise NotFound(f"no action {action_id}")
    check_decision(action, decision, d.at.wall)
    status = ActionStatus.rejected if decision.decision == "reject" else ActionStatus.approved
    d.emit(
        ev.ActionDecided(
            action_id,
            action.step_id,
            status,
            decision.decision,
            decision.by,
            decision_key=decision.key,
            source=decision.source,
        )
    )
    d.carry(ActionAnswer(action_id, reason=decision.reason, answer=decision.value))
    step = d.step(action.step_id)
    if action.kind is ActionKind.approve:
        _approve(d, step, action, decision)
    elif action.kind is ActionKind.resolve:
        _resolve(d, step, decision, questions)
    elif action.kind is ActionKind.ask:
        _answer(d, step, action, decision)


def is_replay(action: Action, decision: Decision) -> bool:
    """True if this is the recorded decision again (its reply was lost): same person, answer and Idempotency-Key."""
    recorded = (action.decision, action.decided_by, action.decision_key)
    return decision.key is not None and recorded == (decision.decision, decision.by, decision.key)


def check_decision(action: Action, decision: Decision, wall: float) -> None:
    """Raises where the action does not take this decision any more, or never did."""
    if decision.decision not in CHOICES[action.kind]:
        names = ", ".join(CHOICES[action.kind])
        raise InvalidInput(
            f"an action of kind {action.kind.value} is decided by one of: {names}", code="wrong_decision"
        )
    if action.status in (ActionStatus.approved, ActionStatus.rejected):
        later = ""
        if action.decision == "give_up":
            later = f"; what becomes known later still counts: report it under the operation key of {action.step_id}"
        raise AlreadyDecided(
            f"action {action.id} was decided already: {action.decision} by {action.decided_by}{later}",
            details={"decision": action.decision, "decided_by": action.decided_by, "status": action.status.value},
        )
    over = action.expires_wall is not None and wall >= action.expires_wall
    if action.status is ActionStatus.expired or over:
        why = action.why or "time"
        raise NotAllowed(
            f"action {action.id} has expired ({why}); look at the run for what it asks now",
            code="action_expired",
            details={"why": why},
        )
    if decision.input_hash is not None and decision.input_hash != action.input_hash:
        raise NotAllowed(
            f"action {action.id} is about other content than what was shown; show it again and decide on that",
            code="input_changed",
        )


def _approve(d: Draft, step: Step, action: Action, decision: Decision) -> None:
    if step.status is not StepStatus.waiting_for_approval or step.action_id != action.id:
        raise NotAllowed("the step does not wait for this action any more", code="action_expired")
    if decision.decision == "approve":
        d.emit(ev.StepReleased(step.id, action.id))
        return
    works = is_worked_on(step)
    text = "A person refused this call; "
    text += "what had been done for it until then stays done." if works else "it was not executed."
    if decision.reason:
        text += f" Reason: {decision.reason}"
    fail_step(d, step, "rejected", body=result_body(text, code="rejected"))
    if works:
        # An older version asked in the middle of it: a worker stops the run that works on the call.
        d.emit(ev.SweepScheduled(step.id, 0, 0.0))


def _resolve(d: Draft, step: Step, decision: Decision, questions: Questions) -> None:
    if not step.in_doubt or step.person_absent:
        raise NotAllowed("the step is not in doubt any more, or somebody has answered", code="action_expired")
    if decision.decision == "happened":
        _happened(d, step, decision, questions)
    elif decision.decision == "did_not_happen":
        carry_evidence(d, step, Look("absent", source="person", reason=decision.reason))
        d.emit(ev.EvidenceRecorded(step.id, "person", "absent"))
    else:
        d.emit(ev.StepGivenUp(step.id))
        if not step.answered:
            text = "The outcome of this call is not known; a person closed the question. Do not assume either way."
            answer(d, step, result_body(text, code="outcome_unknown"))
        _sweep_later(d, step.id)


def _happened(d: Draft, step: Step, decision: Decision, questions: Questions) -> None:
    resource, url = decision.external_resource_id, decision.url
    body = b"" if resource or url else result_body("A person confirmed that this happened.")
    look = Look("found", source="person", reason=decision.reason, resource_id=resource, url=url, body=body)
    carry_evidence(d, step, look)
    d.emit(ev.EvidenceRecorded(step.id, "person", "found", resource_id=resource, resource_url=url))
    conclude_found(d, step.id, look, questions, resolution=Resolution.happened, before=step)
    _sweep_later(d, step.id)


def _sweep_later(d: Draft, step_id: str) -> None:
    step = d.step(step_id)
    if step.sweep is None and can_be_looked_up(d, step):
        d.emit(ev.SweepScheduled(step_id, 0, SWEEP_SECONDS[0]))


def _answer(d: Draft, step: Step, action: Action, decision: Decision) -> None:
    if step.status is not StepStatus.waiting_for_approval or step.action_id != action.id:
        raise NotAllowed("the step does not wait for this action any more", code="action_expired")
    if step.type is StepType.model_call:
        again = decision.decision == "answer" and decision.value != b'"stop"'
        if again:
            d.emit(ev.StepReleased(step.id, action.id))
        else:
            fail_run(d, step.error_code or "model_unavailable")
    elif decision.decision == "reject":
        fail_step(d, step, "rejected", body=result_body("The person gave no answer.", code="rejected"))
    else:
        d.emit(ev.StepSucceeded(step.id))
        value = msgspec.json.decode(decision.value or b"null")
        answer(d, step, result_body(value))


def expire_due(d: Draft, questions: Questions) -> None:
    """Questions whose time is over: a call that waited for approval fails and the model is told."""
    for action in d.run.waiting_actions:
        if action.expires_wall is None or d.at.wall < action.expires_wall:
            continue
        if d.run.actions[action.id].status is not ActionStatus.waiting:
            continue  # it went with another question of its step
        step = d.step(action.step_id)
        if step.status is StepStatus.waiting_for_approval and step.action_id == action.id:
            if step.type is StepType.model_call:
                d.emit(ev.ActionExpired(action.id, step.id, "time"))
                fail_run(d, "question_expired")
                return
            if is_worked_on(step):
                # An older version asked in the middle of it: the run that works on the call goes on, and so does it.
                d.emit(ev.ActionExpired(action.id, step.id, "time"))
                d.emit(ev.StepReleased(step.id, action.id))
                continue
            text = _expired_text(step)
            fail_step(d, step, "expired", body=result_body(text, code="expired"), why="time")
        else:
            d.emit(ev.ActionExpired(action.id, step.id, "time"))


def is_worked_on(step: Step) -> bool:
    """Whether a run works on the call, or has: it is not asked about in the middle of that."""
    return step.rules.waits_for is WaitsFor.run and step.error_code is not None


def _expired_text(step: Step) -> str:
    if step.rules.waits_for is WaitsFor.signal:
        return f"The signal {step.target} did not come in time."
    if step.type is StepType.human_approval:
        return "Nobody answered in time."
    return "Nobody decided about this call in time; it was not executed."
