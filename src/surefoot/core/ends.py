"""How a call gets its one result, a step its end, and a question its asking and its going. Used by every command."""

from __future__ import annotations

import msgspec

from surefoot.core import events as ev
from surefoot.core.draft import NOTE_PREFIX, Draft
from surefoot.core.payloads import AS_TOLD, ActionView, Ask, MessageBody, StepView, shows
from surefoot.core.policy import SWEEP_SECONDS
from surefoot.core.state import (
    STEP_ENDS,
    ActionKind,
    AttemptEnd,
    EffectClass,
    Resolution,
    Step,
    StepType,
)


def answer(d: Draft, step: Step, body: bytes) -> None:
    """The one result of a call, at its reserved place; a note instead where the call has its result already.

    A model call and a call outside any conversation are answered elsewhere.
    """
    step = d.step(step.id)
    if step.type is StepType.model_call or not d.run.talks:
        return
    if step.answered or step.position is None:
        note(d, _about(step, body))
        return
    message = d.message_id()
    d.carry(MessageBody(message, body))
    d.emit(ev.MessageAppended(message, "tool_result", step.position, step_id=step.id, call_id=step.call_id))


def _gets_result(d: Draft, step: Step) -> bool:
    """Whether what is said of the step now is its call's one result."""
    return step.type is not StepType.model_call and d.run.talks and not step.answered and step.position is not None


def _about(step: Step, body: bytes) -> bytes:
    """The same body, naming the call that it is about: a note stands far from it."""
    told = msgspec.json.decode(body, type=dict[str, msgspec.Raw]) if body[:1] == b"{" else {}
    known = told.get("content", msgspec.Raw(body or b"null"))
    content = {"tool": step.tool_name, "call_id": step.call_id, "became_known": known}
    return msgspec.json.encode({"code": None, "is_error": False, **told, "content": content})


def note(d: Draft, body: bytes) -> None:
    """A note to the model at the conversation's next legal place; one of a terminal run is for the run that is under
    way by now (`take_notes`), or comes next.
    """
    if not d.run.talks:
        return
    message = NOTE_PREFIX + d.message_id().removeprefix("msg_")
    d.carry(MessageBody(message, body))
    if d.run.ended or d.run.batch_open or d.run.queued:
        d.emit(ev.MessageQueued(message, "note"))
    else:
        d.emit(ev.MessageAppended(message, "note", d.run.next_position))


def succeed_step(
    d: Draft,
    step: Step,
    *,
    attempt: int | None,
    resource_id: str | None,
    url: str | None,
    body: bytes,
    safe_output: bytes | None,
    resolution: Resolution | None = None,
) -> None:
    """There is a receipt: the step succeeded, its questions are settled, its call has its result or a note."""
    d.emit(
        ev.StepSucceeded(
            step.id, attempt=attempt, external_resource_id=resource_id, resource_url=url, resolution=resolution
        )
    )
    show_output(d, step, body, safe_output)
    if d.run.ended or step.answered:
        d.emit(ev.ReceiptRecorded(step.id, resource_id, url))
    expire_actions(d, step.id, "settled")
    answer(d, step, body)
    owe_sweep(d, step.id)


def show_output(d: Draft, step: Step, body: bytes, safe_output: bytes | None) -> None:
    """Keep what people see of the result; before `answer` with its body, which may be the same bytes."""
    if safe_output is not None:
        shown = AS_TOLD if _gets_result(d, step) and shows(body, safe_output) else safe_output
        d.carry(StepView(step.id, safe_output=shown))


def fail_step(
    d: Draft,
    step: Step,
    code: str,
    *,
    body: bytes,
    attempt: int | None = None,
    end: AttemptEnd | None = None,
    resolution: Resolution | None = None,
    why: str = "settled",
) -> None:
    """The step failed, with proof that nothing happened (any more); its call is told."""
    _assert_no_doubt(d, step, attempt, end)
    d.emit(ev.StepFailed(step.id, code, attempt=attempt, end=end, resolution=resolution))
    expire_actions(d, step.id, why)
    if not d.run.talks:
        # No conversation keeps why: whoever performs it again is told from here.
        d.carry(StepView(step.id, safe_output=bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw])["content"])))
    answer(d, step, body)
    owe_sweep(d, step.id)


def _assert_no_doubt(d: Draft, step: Step, attempt: int | None, end: AttemptEnd | None) -> None:
    """Doubt is never `failed`. Whoever comes here with one has forgotten to look."""
    proven = attempt if end in (AttemptEnd.refused, AttemptEnd.not_sent) else None
    doubt = [a.number for a in d.doubts(d.step(step.id)) if a.number != proven]
    assert not doubt, f"step {step.id} is to fail, but its attempts {doubt} may have been sent"


def owe_sweep(d: Draft, step_id: str) -> None:
    """A step that was sent more than once, or concluded absent, is looked up again after it ended."""
    step = d.step(step_id)
    if step.status not in STEP_ENDS or step.sweep is not None or not can_be_looked_up(d, step):
        return
    absent = any(a.absent for a in step.attempts)
    if absent or len(step.doubtful_attempts) > 1:
        d.emit(ev.SweepScheduled(step_id, 0, SWEEP_SECONDS[0]))


def can_be_looked_up(d: Draft, step: Step) -> bool:
    """Whether a later look may be made: whoever ends a call need not have the code that looks."""
    rules = d.rules(step)
    return rules.effect is not EffectClass.read and (rules.has_lookup or step.rules.has_lookup)


def ask(d: Draft, step_id: str, kind: ActionKind, question: Ask) -> None:
    """Ask a person; the decision will bind to the step's input_hash.

    A question about what happened does not expire: doubt is closed by evidence or by a person, never by time.
    """
    step = d.step(step_id)
    expires = kind in (ActionKind.approve, ActionKind.ask)
    d.emit(
        ev.ActionRequested(
            question.action_id,
            step_id,
            kind,
            step.input_hash,
            permission=question.permission,
            expires_s=question.expires_s if expires else None,
        )
    )
    d.carry(ActionView(question.action_id, question.arguments, question.preview))


def open_question(d: Draft, step_id: str, kind: ActionKind | None = None) -> str | None:
    """The id of the step's open question, if there is one."""
    for action in d.run.waiting_actions:
        if action.step_id == step_id and (kind is None or action.kind is kind):
            return action.id
    return None


def expire_actions(d: Draft, step_id: str, why: str, *, keep: ActionKind | None = None) -> None:
    """The step moved on: its open questions are gone. `keep` names a kind that stays open. Duplicates stay."""
    for action in d.run.waiting_actions:
        if action.step_id == step_id and action.kind not in (keep, ActionKind.duplicate):
            d.emit(ev.ActionExpired(action.id, step_id, why))
