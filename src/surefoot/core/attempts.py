"""Ends of attempts: the outcome of a call, sorted once into a closed set, becomes events. Late ends are evidence."""

from __future__ import annotations

from typing import Literal

import msgspec

from surefoot.core import events as ev, policy
from surefoot.core.decide import Start, fail_run, start_refusal, start_step
from surefoot.core.draft import Draft
from surefoot.core.duplicates import Questions
from surefoot.core.ends import ask, fail_step, succeed_step
from surefoot.core.payloads import result_body
from surefoot.core.reconcile import Look, check_duplicates, conclude_known, late_end, receipt_body
from surefoot.core.state import ActionKind, AttemptEnd, EffectClass, Step, StepStatus, StepType
from surefoot.errors import NotAllowed


class Outcome(msgspec.Struct, frozen=True, gc=False):
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
    """What the model is told if the step fails of it; empty: a plain sentence with the code."""


def is_current(step: Step, attempt: int) -> bool:
    """True while the attempt is the one under way, so that its end decides about the step."""
    return step.status is StepStatus.running and step.attempt == attempt


def record_outcome(d: Draft, step_id: str, attempt: int, outcome: Outcome, questions: Questions) -> None:
    """Write the end of an attempt. An end that comes late is evidence, and concludes only what is still open."""
    step = d.step(step_id)
    if not is_current(step, attempt):
        late_end(
            d,
            step,
            attempt,
            AttemptEnd(outcome.end),
            outcome.look,
            outcome.code or None,
            questions,
            again_s=outcome.again_s,
        )
    elif outcome.end == "applied":
        _applied(d, step, attempt, outcome.look or Look("found", source="worker"), questions)
    elif outcome.end == "in_doubt":
        _in_doubt(d, step, attempt, outcome)
    else:
        _without_effect(d, step, attempt, outcome)


def _applied(d: Draft, step: Step, attempt: int, look: Look, questions: Questions) -> None:
    succeed_step(
        d,
        step,
        attempt=attempt,
        resource_id=look.resource_id,
        url=look.url,
        body=look.body or receipt_body(look),
        safe_output=look.safe_output,
    )
    check_duplicates(d, step, look, questions)


def _in_doubt(d: Draft, step: Step, attempt: int, outcome: Outcome) -> None:
    rules = d.rules(step)
    if rules.effect is not EffectClass.read:
        wait = 0.0
        if rules.effect is EffectClass.idempotent and step.counted_attempts > 1:
            wait = policy.backoff(step.counted_attempts - 1, 1.0)
        d.emit(ev.StepOutcomeUnknown(step.id, attempt, outcome.code, ended=outcome.over, look_s=wait))
        conclude_known(d, step.id)
    elif d.run.ended or step.counted_attempts >= rules.attempts_max:
        _read_used_up(d, step, attempt, outcome.code, outcome.body or _plain(outcome.code))
    else:
        delay = outcome.again_s or 0.0
        d.emit(ev.StepDeferred(step.id, delay, code=outcome.code, attempt=attempt, end=AttemptEnd.in_doubt))


def _without_effect(d: Draft, step: Step, attempt: int, outcome: Outcome) -> None:
    end = AttemptEnd(outcome.end)
    if step.receipts or any(a.end is AttemptEnd.applied for a in step.attempts):
        d.emit(ev.AttemptEnded(step.id, attempt, end, outcome.code))
        conclude_known(d, step.id)
        return
    others = [a for a in step.doubtful_attempts if a.number != attempt]
    again_s = outcome.again_s
    ends = sum(1 for a in step.attempts if a.end is end)
    if again_s is not None and end is AttemptEnd.refused:
        # A target that asks for no wait at all is not asked without end and without pause.
        again_s = max(again_s, policy.backoff(ends, 0.0) if ends else 0.0)
    if end is AttemptEnd.not_sent and ends >= policy.NOT_SENT_MAX:
        again_s = None
    if others and d.rules(step).effect is not EffectClass.read:
        # A refusal ends its own attempt only: what an earlier one did is still to be found out.
        d.emit(ev.AttemptEnded(step.id, attempt, end, outcome.code))
        code = policy.NO_RESEND if again_s is None else outcome.code
        d.emit(ev.StepOutcomeUnknown(step.id, others[-1].number, code, ended=False, look_s=again_s or 0.0))
    elif again_s is not None and not d.run.ended:
        d.emit(ev.StepDeferred(step.id, again_s, code=outcome.code, attempt=attempt, end=end))
    elif step.type is StepType.model_call and not d.run.ended:
        d.emit(ev.AttemptEnded(step.id, attempt, end, outcome.code))
        fail_run(d, outcome.code)
    else:
        fail_step(d, step, outcome.code, attempt=attempt, end=end, body=outcome.body or _plain(outcome.code))


def _plain(code: str) -> bytes:
    return result_body(f"This call was not executed: {code}.", code=code)


def _read_used_up(d: Draft, step: Step, attempt: int, code: str, body: bytes) -> None:
    if step.type is StepType.model_call and not d.run.ended:
        d.emit(ev.AttemptEnded(step.id, attempt, AttemptEnd.in_doubt, code))
        # Who is to look at what: the provider failed as often as allowed, or the worker was gone the last time.
        fail_run(d, code if code == "attempts_used_up" else "model_unavailable")
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
    class opens a doubt; `owner_died` says whether the attempt is certainly over. Where it was not the first worker of
    the step that is gone, it goes on after a pause.
    """
    step = d.step(step_id)
    if step.status is not StepStatus.running:
        return False
    code = "worker_died" if owner_died else "lease_over"
    pause_s = policy.pause_of_lost(step)
    if d.rules(step).effect is not EffectClass.read:
        wait_s = pause_s if d.rules(step).effect is EffectClass.idempotent else 0.0
        d.emit(ev.StepOutcomeUnknown(step.id, step.attempt, code, ended=owner_died, died=owner_died, look_s=wait_s))
        conclude_known(d, step.id)
        return False
    if d.run.ended or step.counted_attempts >= d.rules(step).attempts_max:
        body = result_body("The call could not be finished: its worker stopped each time.", code="attempts_used_up")
        _read_used_up(d, step, step.attempt, "attempts_used_up", body)
        return False
    d.emit(ev.AttemptEnded(step.id, step.attempt, AttemptEnd.in_doubt, code))
    if start is None or pause_s or start_refusal(d, d.step(step.id), start) is not None:
        d.emit(ev.StepDeferred(step.id, pause_s, code=code))
        return False
    start_step(d, step.id, start)
    return True


def count_as_sent(d: Draft, step_id: str, token: int, since_wall: float, code: str) -> None:
    """A call may have been sent since `since_wall`, beside what is known of it: a copy of the store was put back, and
    others knew more (`restored`); or what was tried was declared a read, and is none by the code of now
    (`declared_anew`).

    From here on it is in doubt like any other: looked up, resent under its key, or asked about, and its settle time
    begins. Raises NotAllowed for a step that is neither pending nor in doubt.
    """
    step = d.step(step_id)
    if step.status is not StepStatus.pending and not step.in_doubt:
        raise NotAllowed("only a call that waits or is in doubt counts as sent after all", code="illegal_transition")
    d.emit(
        ev.StepStarted(
            step.id,
            attempt=step.attempt + 1,
            token=token,
            timeout_s=0.0,
            send_window_s=0.0,
            account=step.account,
            since_wall=since_wall,
            rules=d.other_rules(step),
        )
    )
    d.emit(ev.StepOutcomeUnknown(step.id, step.attempt + 1, code, ended=True))


def end_used_up(d: Draft, step_id: str) -> None:
    """A pending step that may not begin again (`attempts_used_up`, as where the code of now allows fewer) fails.

    Nothing of it is in doubt. A model call takes the run with it. Raises NotAllowed for a step that is not pending.
    """
    step = d.step(step_id)
    if step.status is not StepStatus.pending or d.run.ended:
        raise NotAllowed("only a pending step ends like this", code="illegal_transition")
    if step.type is StepType.model_call:
        fail_run(d, "attempts_used_up")
    else:
        text = "The call was tried as often as allowed."
        fail_step(d, step, "attempts_used_up", body=result_body(text, code="attempts_used_up"))
