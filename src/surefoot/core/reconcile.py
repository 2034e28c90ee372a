"""Doubt: what a lookup, a late end or a report means, and what may be done next. Nothing is resent but by these rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from surefoot.core import events as ev
from surefoot.core import policy
from surefoot.core.decide import Start, approval_over, start_step
from surefoot.core.draft import Draft
from surefoot.core.ends import ask, expire_actions, fail_step, note, open_question, succeed_step
from surefoot.core.payloads import Ask, EvidenceDetail, result_body
from surefoot.core.state import (
    STEP_ENDS,
    ActionKind,
    AttemptEnd,
    EffectClass,
    Resolution,
    Step,
    StepStatus,
)
from surefoot.errors import NotAllowed

Questions = Mapping[ActionKind, Ask]
"""Prepared questions; at most one of each kind is asked."""


class Look(msgspec.Struct, frozen=True):
    """An answer about the world: from a lookup, a webhook, a report, a worker or a person."""

    verdict: Literal["found", "absent", "undetermined"]
    source: str = "lookup"
    reason: str | None = None
    resource_id: str | None = None
    url: str | None = None
    also: tuple[tuple[str, str | None], ...] = ()
    """Further effects of the same key: (id, link)."""
    detail: bytes = b"{}"
    body: bytes = b""
    """The tool result, if this is a receipt."""
    safe_output: bytes | None = None


class Doubt(msgspec.Struct, frozen=True):
    """What to do about a step in doubt, now or after `delay_s`."""

    action: Literal["look", "resend", "believe_person", "ask", "wait"]
    delay_s: float = 0.0


def next_for_doubt(d: Draft, step: Step, *, live: bool) -> Doubt:
    """What the step's class allows. `live`: an attempt of it still runs in this process."""
    rules = d.rules(step)
    over = not live and policy.attempts_over(step, d.at)
    left = policy.settle_left(step, rules, d.at)
    if rules.effect is EffectClass.idempotent and not d.run.ended and step.resolution is not Resolution.given_up:
        usable = policy.key_usable(step, rules, d.at) and step.counted_attempts < rules.attempts_max
        if usable and not approval_over(d, step):
            return Doubt("resend") if over else Doubt("wait", 1.0)
    if rules.has_lookup:
        return Doubt("look")
    if step.person_absent:
        return Doubt("believe_person") if over and left <= 0 else Doubt("wait", max(left, 1.0))
    return Doubt("ask")


def resend(d: Draft, step_id: str, start: Start) -> None:
    """The next attempt under the same key with the same bytes; the target drops a repeat."""
    step = d.step(step_id)
    if next_for_doubt(d, step, live=False).action != "resend":
        raise NotAllowed("the key may not be sent again", code="resend_refused")
    start_step(d, step_id, start)


def record_look(
    d: Draft, step_id: str, look: Look, *, live: bool, start: Start | None, questions: Questions, jitter: float
) -> bool:
    """A look at the target was answered. True if the next attempt began in this append (it needs `start`)."""
    step = d.step(step_id)
    _carry_evidence(d, step, look)
    if step.status in STEP_ENDS or step.resolution is Resolution.given_up:
        _record_sweep(d, step, look, questions)
        return False
    if step.status is not StepStatus.outcome_unknown:
        _late_evidence(d, step, look, questions)
        return False
    if look.verdict == "found":
        d.emit(ev.LookupAnswered(step_id, "found", resource_id=look.resource_id))
        conclude_found(d, step_id, look, questions, resolution=Resolution.found)
        return False
    doubt = _why_not_earned(d, step, live) if look.verdict == "absent" else (look.reason or "undetermined")
    if doubt is None:
        d.emit(ev.LookupAnswered(step_id, "absent", concluded=True))
        return after_absent(d, step_id, start, questions)
    if step.person_absent and _time_earned(d, step, live):
        return believe_person(d, step_id, start, questions)
    _keep_looking(d, step, look.verdict, doubt, questions, jitter)
    return False


def _carry_evidence(d: Draft, step: Step, look: Look) -> None:
    d.carry(
        EvidenceDetail(
            step.id,
            step.attempt or None,
            look.verdict,
            look.source,
            look.reason,
            look.resource_id,
            look.url,
            look.detail,
        )
    )


def _time_earned(d: Draft, step: Step, live: bool) -> bool:
    return not live and policy.attempts_over(step, d.at) and policy.settle_left(step, d.rules(step), d.at) <= 0


def _why_not_earned(d: Draft, step: Step, live: bool) -> str | None:
    if live or not policy.attempts_over(step, d.at):
        return "attempt_not_over"
    if policy.settle_left(step, d.rules(step), d.at) > 0:
        return "settling"
    if policy.clocks_drifted(step, d.at):
        return "clocks_drifted"
    return None


def _keep_looking(d: Draft, step: Step, verdict: str, reason: str, questions: Questions, jitter: float) -> None:
    rules = d.rules(step)
    delay = policy.look_delay(step, rules, d.at, jitter)
    d.emit(ev.LookupAnswered(step.id, verdict, reason=reason, next_look_s=delay))
    waited = d.at.mono - (d.at.mono if step.doubt_since is None else step.doubt_since)
    if waited >= rules.ask_after_s and open_question(d, step.id) is None and not step.person_absent:
        ask(d, step.id, ActionKind.resolve, questions[ActionKind.resolve])


def ask_what_happened(d: Draft, step_id: str, questions: Questions) -> None:
    """Neither key nor lookup can tell: ask a person, never resend alone."""
    d.emit(ev.LookupAnswered(step_id, "undetermined", reason="no_lookup"))
    if open_question(d, step_id) is None:
        ask(d, step_id, ActionKind.resolve, questions[ActionKind.resolve])


def wait_for_doubt(d: Draft, step_id: str, delay_s: float) -> None:
    """Nothing can be done yet; look again after `delay_s`."""
    d.emit(ev.LookupAnswered(step_id, "undetermined", reason="attempt_not_over", next_look_s=delay_s))


def believe_person(d: Draft, step_id: str, start: Start | None, questions: Questions) -> bool:
    """A person said that it did not happen, settle is over, and the look that was owed found nothing."""
    step = d.step(step_id)
    if not step.person_absent or not _time_earned(d, step, False):
        raise NotAllowed("a person's word is believed after the settle time only", code="settling")
    d.emit(ev.LookupAnswered(step_id, "absent", reason="person", concluded=True))
    return after_absent(d, step_id, start, questions)


def after_absent(d: Draft, step_id: str, start: Start | None, questions: Questions) -> bool:
    """Every attempt that may have been sent is proven absent: again under the same key, or an end with that proof."""
    step = d.step(step_id)
    if d.run.ended:
        body = result_body("It is now certain that this call was not applied.", code="not_applied")
        fail_step(d, step, "not_applied", body=body, resolution=Resolution.not_applied)
        return False
    if step.counted_attempts >= d.rules(step).attempts_max:
        body = result_body("The call was tried as often as allowed and was not applied.", code="attempts_used_up")
        fail_step(d, step, "attempts_used_up", body=body, resolution=Resolution.not_applied)
        return False
    if approval_over(d, step):
        question = questions[ActionKind.approve]
        expire_actions(d, step_id, "superseded")
        d.emit(ev.StepWaitingForApproval(step_id, question.action_id))
        ask(d, step_id, ActionKind.approve, question)
        return False
    expire_actions(d, step_id, "superseded")
    if start is None:
        d.emit(ev.StepDeferred(step_id, 0.0, code="absent"))
        return False
    start_step(d, step_id, start)
    return True


def conclude_found(d: Draft, step_id: str, look: Look, questions: Questions, *, resolution: Resolution | None) -> None:
    """The effect exists. What is open is concluded; what has ended gets a receipt; two effects are a duplicate."""
    step = d.step(step_id)
    known = step.receipts
    if step.status is StepStatus.failed:
        d.emit(ev.ReceiptRecorded(step_id, look.resource_id, look.url))
        note(d, result_body(f"A call that had counted as failed was applied after all: {look.url or look.resource_id}."))
        _ask_about_duplicate(d, step, questions)
    elif step.status is StepStatus.outcome_unknown or (step.status is not StepStatus.running and step.attempts):
        if step.status is not StepStatus.succeeded:
            succeed_step(
                d,
                step,
                attempt=None,
                resource_id=look.resource_id,
                url=look.url,
                body=look.body or result_body({"resource_id": look.resource_id, "url": look.url}),
                safe_output=look.safe_output,
                resolution=resolution,
            )
    check_duplicates(d, step_id, known, look, questions)


def check_duplicates(d: Draft, step_id: str, known: tuple[str, ...], look: Look, questions: Questions) -> None:
    """More than one resource under one key, and at least one of them not reported yet."""
    step = d.step(step_id)
    links: dict[str | None, str | None] = {look.resource_id: look.url, **dict(look.also)}
    if step.external_resource_id is not None and step.resource_url is not None:
        links.setdefault(step.external_resource_id, step.resource_url)
    seen = dict.fromkeys((*step.receipts, *(i for i in links if i is not None)))
    if len(seen) < 2 or all(i in known for i in seen):
        return
    urls = tuple(url for i in seen if (url := links.get(i)) is not None)
    d.emit(ev.DuplicateDetected(step_id, tuple(seen), urls))
    _ask_about_duplicate(d, step, questions)


def _ask_about_duplicate(d: Draft, step: Step, questions: Questions) -> None:
    if open_question(d, step.id, ActionKind.duplicate) is None and ActionKind.duplicate in questions:
        ask(d, step.id, ActionKind.duplicate, questions[ActionKind.duplicate])


def _record_sweep(d: Draft, step: Step, look: Look, questions: Questions) -> None:
    d.emit(ev.LookupAnswered(step.id, look.verdict, reason=look.reason, resource_id=look.resource_id))
    if look.verdict == "found":
        if step.status is StepStatus.failed and look.resource_id in step.receipts:
            check_duplicates(d, step.id, step.receipts, look, questions)
        else:
            conclude_found(d, step.id, look, questions, resolution=step.resolution or Resolution.found)
    sweep = (d.step(step.id).sweep or 0) + 1
    if sweep < len(policy.SWEEP_SECONDS):
        d.emit(ev.SweepScheduled(step.id, sweep, policy.SWEEP_SECONDS[sweep]))
    else:
        d.emit(ev.SweepScheduled(step.id, sweep))


def _late_evidence(d: Draft, step: Step, look: Look, questions: Questions) -> None:
    if look.verdict != "found":
        return
    d.emit(ev.EvidenceRecorded(step.id, look.source, look.verdict, resource_id=look.resource_id))
    conclude_found(d, step.id, look, questions, resolution=Resolution.found)


def record_report(d: Draft, step_id: str, look: Look, questions: Questions) -> bool:
    """Evidence from elsewhere (a report, a webhook): found is concluded, everything else wakes the owner to look.

    False where it is known already: nothing is written then.
    """
    step = d.step(step_id)
    if look.verdict == "found" and look.resource_id is not None and look.resource_id in step.receipts:
        return False
    _carry_evidence(d, step, look)
    known = step.receipts
    d.emit(ev.EvidenceRecorded(step_id, look.source, look.verdict, resource_id=look.resource_id))
    if look.verdict == "found":
        conclude_found(d, step_id, look, questions, resolution=Resolution.found)
        if d.step(step_id).status is StepStatus.succeeded:
            check_duplicates(d, step_id, known, look, questions)
    return True


def late_end(d: Draft, step: Step, attempt: int, end: AttemptEnd, look: Look | None, code: str | None, questions: Questions) -> None:
    """The end of an attempt that is not the one under way any more: evidence, which may settle what is in doubt."""
    mine = next((a for a in step.attempts if a.number == attempt), None)
    if mine is None or mine.end in (AttemptEnd.applied, AttemptEnd.refused, AttemptEnd.not_sent):
        return
    d.emit(ev.AttemptEnded(step.id, attempt, end, code))
    if end is AttemptEnd.applied and look is not None:
        _carry_evidence(d, step, look)
        _late_evidence(d, d.step(step.id), look, questions)
    elif end is not AttemptEnd.in_doubt:
        _without_doubt(d, d.step(step.id), end, code, questions)


def _without_doubt(d: Draft, step: Step, end: AttemptEnd, code: str | None, questions: Questions) -> None:
    if step.status is not StepStatus.outcome_unknown or step.doubtful_attempts:
        return
    if end is AttemptEnd.refused and not d.run.ended:
        body = result_body(f"The target refused the call: {code}.", code=code or "refused")
        fail_step(d, step, code or "refused", body=body, resolution=Resolution.not_applied)
    else:
        after_absent(d, step.id, None, questions)
