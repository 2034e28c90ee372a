"""Ends of attempts: the outcome of a call, sorted once into a closed set, becomes events. Late ends are evidence."""

from __future__ import annotations

from typing import Literal

import msgspec

from surefoot.core import events as ev
from surefoot.core import policy
from surefoot.core.decide import Start, fail_run, start_step
from surefoot.core.draft import Draft
from surefoot.core.ends import ask, fail_step, succeed_step
from surefoot.core.payloads import result_body
from surefoot.core.reconcile import Look, Questions, check_duplicates, late_end
from surefoot.core.state import ActionKind, AttemptEnd, EffectClass, Step, StepStatus, StepType


class Outcome(msgspec.Struct, frozen=True):
    """How one attempt of a tool call or a model call ended, sorted by the executor."""

    end: Literal["applied", "refused", "not_sent", "in_doubt"]
    code: str = ""
    look: Look | None = None
    """The receipt, for applied."""
    again_s: float | None = None
    """When it may begin again: for refused (None: never), not_sent and reads in doubt."""
    over: bool = True
    """False where the call may still be under way."""
    body: bytes = b""
    """What the model is told if the step fails of it."""


def is_current(step: Step, attempt: int) -> bool:
    """True while the attempt is the one under way, so that its end decides about the step."""
    return step.status is StepStatus.running and step.attempt == attempt


def record_outcome(d: Draft, step_id: str, attempt: int, outcome: Outcome, questions: Questions) -> None:
    """Write the end of an attempt. An end that comes late is evidence, and concludes only what is still open."""
    step = d.step(step_id)
    if not is_current(step, attempt):
        late_end(d, step, attempt, AttemptEnd(outcome.end), outcome.look, outcome.code or None, questions)
        return
    if outcome.end == "applied" and outcome.look is not None:
        _applied(d, step, attempt, outcome.look, questions)
    elif outcome.end == "in_doubt":
        _in_doubt(d, step, attempt, outcome)
    else:
        _without_effect(d, step, attempt, outcome)


def _applied(d: Draft, step: Step, attempt: int, look: Look, questions: Questions) -> None:
    known = step.receipts
    succeed_step(
        d,
        step,
        attempt=attempt,
        resource_id=look.resource_id,
        url=look.url,
        body=look.body,
        safe_output=look.safe_output,
    )
    check_duplicates(d, step.id, known, look, questions)


def _in_doubt(d: Draft, step: Step, attempt: int, outcome: Outcome) -> None:
    rules = d.rules(step)
    if rules.effect is not EffectClass.read:
        wait = 0.0
        if rules.effect is EffectClass.idempotent and step.counted_attempts > 1:
            wait = policy.backoff(step.counted_attempts - 1, 1.0)
        d.emit(ev.StepOutcomeUnknown(step.id, attempt, outcome.code, ended=outcome.over, look_s=wait))
    elif d.run.ended or step.counted_attempts >= rules.attempts_max:
        _read_used_up(d, step, attempt, outcome.code, outcome.body)
    else:
        delay = outcome.again_s or 0.0
        d.emit(ev.StepDeferred(step.id, delay, code=outcome.code, attempt=attempt, end=AttemptEnd.in_doubt))


def _without_effect(d: Draft, step: Step, attempt: int, outcome: Outcome) -> None:
    end = AttemptEnd(outcome.end)
    others = [a for a in step.doubtful_attempts if a.number != attempt]
    again_s = outcome.again_s
    if end is AttemptEnd.not_sent and sum(1 for a in step.attempts if a.end is end) >= policy.NOT_SENT_MAX:
        again_s = None
    if others and d.rules(step).effect is not EffectClass.read:
        # A refusal ends its own attempt only: what an earlier one did is still to be found out.
        d.emit(ev.AttemptEnded(step.id, attempt, end, outcome.code))
        d.emit(ev.StepOutcomeUnknown(step.id, others[-1].number, outcome.code, ended=False, look_s=again_s or 0.0))
    elif again_s is not None and not d.run.ended:
        d.emit(ev.StepDeferred(step.id, again_s, code=outcome.code, attempt=attempt, end=end))
    elif step.type is StepType.model_call and not d.run.ended:
        d.emit(ev.AttemptEnded(step.id, attempt, end, outcome.code))
        fail_run(d, outcome.code)
    else:
        fail_step(d, step, outcome.code, attempt=attempt, end=end, body=outcome.body)


def _read_used_up(d: Draft, step: Step, attempt: int, code: str, body: bytes) -> None:
    if step.type is StepType.model_call and not d.run.ended:
        d.emit(ev.AttemptEnded(step.id, attempt, AttemptEnd.in_doubt, code))
        fail_run(d, "model_unavailable")
    else:
        fail_step(d, step, code, attempt=attempt, end=AttemptEnd.in_doubt, body=body)


def ask_about_model(d: Draft, step_id: str, attempt: int, code: str, questions: Questions) -> None:
    """A model call failed of something that a person can mend: ask whether to try again or to stop."""
    step = d.step(step_id)
    if not is_current(step, attempt):
        return
    question = questions[ActionKind.ask]
    d.emit(ev.StepDeferred(step_id, 0.0, code=code, attempt=attempt, end=AttemptEnd.refused))
    d.emit(ev.StepWaitingForApproval(step_id, question.action_id))
    ask(d, step_id, ActionKind.ask, question)


def recover_step(d: Draft, step_id: str, *, owner_died: bool, start: Start | None) -> bool:
    """A step that says running and whose worker is gone: nobody wrote down an end.

    Reads and model calls begin their next attempt in this append where `start` is given; True if one began. Every other
    class opens a doubt; `owner_died` says whether the attempt is certainly over.
    """
    step = d.step(step_id)
    if step.status is not StepStatus.running:
        return False
    code = "worker_died" if owner_died else "lease_over"
    if d.rules(step).effect is not EffectClass.read:
        d.emit(ev.StepOutcomeUnknown(step.id, step.attempt, code, ended=owner_died))
        return False
    if d.run.ended or step.counted_attempts >= d.rules(step).attempts_max:
        body = result_body("The call could not be finished: its worker stopped each time.", code="attempts_used_up")
        _read_used_up(d, step, step.attempt, "attempts_used_up", body)
        return False
    if start is None:
        d.emit(ev.StepDeferred(step.id, 0.0, code=code, attempt=step.attempt, end=AttemptEnd.in_doubt))
        return False
    d.emit(ev.AttemptEnded(step.id, step.attempt, AttemptEnd.in_doubt, code))
    start_step(d, step.id, start)
    return True
