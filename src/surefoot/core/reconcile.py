"""Doubt: what a lookup, a late end or a report means, and what may be done next. Only these rules let us send again."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from surefoot.core import events as ev, policy
from surefoot.core.decide import Start, approval_over, start_refusal, start_step
from surefoot.core.draft import Draft
from surefoot.core.duplicates import Questions, ask_about_duplicate
from surefoot.core.ends import ask, expire_actions, fail_step, note, open_question, succeed_step
from surefoot.core.payloads import EvidenceDetail, result_body
from surefoot.core.state import (
    STEP_ENDS,
    ActionKind,
    AttemptEnd,
    EffectClass,
    Instant,
    Resolution,
    Step,
    StepStatus,
    StepType,
)
from surefoot.errors import NotAllowed

POLL_SECONDS_MAX = 30.0
"""How rarely a call that has not ended is asked after."""


class Look(msgspec.Struct, frozen=True, gc=False):
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
    began: float | None = None
    """mono (the store's clock), read before the look began: what it did not see then may have come since. None: now."""


class Doubt(msgspec.Struct, frozen=True, gc=False):
    """What to do about a step in doubt, now or after `delay_s`."""

    action: Literal["look", "resend", "believe_person", "ask", "wait"]
    delay_s: float = 0.0


def next_for_doubt(d: Draft, step: Step, *, live: bool, approved: bool = True) -> Doubt:
    """What the step's class allows. `live`: an attempt of it still runs in this process.

    Without `approved` the code of now is not the one that a person has approved: the key is no reason to send by it.
    """
    rules = d.rules(step)
    over = not live and policy.attempts_over(step, d.at)
    left = policy.settle_left(step, rules, d.at)
    closed = d.run.ended or step.resolution is Resolution.given_up
    if rules.effect is EffectClass.idempotent and approved and not closed:
        usable = policy.key_usable(step, rules, d.at) and step.counted_attempts < rules.attempts_max
        if usable and step.error_code != policy.NO_RESEND and not approval_over(d, step):
            wait = max(policy.over_in(step, d.at), (step.look_at or 0.0) - d.at.mono)
            return Doubt("resend") if over and wait <= 0 else Doubt("wait", _poll(step, wait))
    if rules.has_lookup:
        return Doubt("look")
    if step.person_absent:
        return Doubt("believe_person") if over and left <= 0 else Doubt("wait", _poll(step, left))
    return Doubt("ask")


def _poll(step: Step, left: float) -> float:
    """Until `left` is over; where only the end of a call is waited for, again and again with back-off."""
    return left if left > 0 else policy.backoff(step.looks, 0.5, max_s=POLL_SECONDS_MAX)


def resend(d: Draft, step_id: str, start: Start) -> None:
    """The next attempt under the same key with the same bytes; the target drops a repeat.

    Raises NotAllowed (`resend_refused`, or what `start_step` raises).
    """
    step = d.step(step_id)
    if next_for_doubt(d, step, live=False).action != "resend":
        raise NotAllowed("the key may not be sent again", code="resend_refused")
    start_step(d, step_id, start)


def record_look(
    d: Draft, step_id: str, look: Look, *, live: bool, start: Start | None, questions: Questions, jitter: float
) -> bool:
    """A look at the target was answered. True if the next attempt began in this append (it needs `start`)."""
    step = d.step(step_id)
    carry_evidence(d, step, look)
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
    began = _began(d, look)
    doubt = _why_not_earned(d, step, live, began) if look.verdict == "absent" else (look.reason or "undetermined")
    if doubt is None:
        d.emit(ev.LookupAnswered(step_id, "absent", concluded=True))
        return after_absent(d, step_id, start)
    if step.person_absent and _time_earned(d, step, live, began):
        return believe_person(d, step_id, start)
    _keep_looking(d, step, look.verdict, doubt, questions, jitter)
    return False


def _began(d: Draft, look: Look) -> Instant:
    """When the look began: a worker that was stopped in the middle of one must not take it for a look of now."""
    return d.at if look.began is None else replace(d.at, mono=min(look.began, d.at.mono))


def carry_evidence(d: Draft, step: Step, look: Look) -> None:
    """Keep why we believe what we believe, as a row beside the events."""
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


def _time_earned(d: Draft, step: Step, live: bool, began: Instant) -> bool:
    return not live and policy.attempts_over(step, began) and policy.settle_left(step, d.rules(step), began) <= 0


def _why_not_earned(d: Draft, step: Step, live: bool, began: Instant) -> str | None:
    if live or not policy.attempts_over(step, began):
        return "attempt_not_over"
    if policy.settle_left(step, d.rules(step), began) > 0:
        return "settling"
    if policy.clocks_drifted(step, d.at):
        return "clocks_drifted"
    return None


def _keep_looking(d: Draft, step: Step, verdict: str, reason: str, questions: Questions, jitter: float) -> None:
    rules = d.rules(step)
    delay = policy.look_delay(step, rules, d.at, jitter)
    d.emit(ev.LookupAnswered(step.id, verdict, reason=reason, next_look_s=delay))
    waited = d.at.mono - (d.at.mono if step.doubt_since is None else step.doubt_since)
    asked = open_question(d, step.id, ActionKind.resolve) is not None
    if waited >= rules.ask_after_s and not asked and not step.person_absent:
        ask(d, step.id, ActionKind.resolve, questions[ActionKind.resolve])


def ask_what_happened(d: Draft, step_id: str, questions: Questions) -> None:
    """Neither key nor lookup can tell: ask a person, never resend alone. Raises NotAllowed without a doubt."""
    if not d.step(step_id).in_doubt:
        raise NotAllowed("the step is not in doubt", code="illegal_transition")
    d.emit(ev.LookupAnswered(step_id, "undetermined", reason="no_lookup"))
    if open_question(d, step_id, ActionKind.resolve) is None:
        ask(d, step_id, ActionKind.resolve, questions[ActionKind.resolve])


def wait_for_doubt(d: Draft, step_id: str, delay_s: float) -> None:
    """Nothing can be done yet; look again after `delay_s`."""
    d.emit(ev.LookupAnswered(step_id, "undetermined", reason="attempt_not_over", next_look_s=delay_s))


def look_by_a_new_lookup(d: Draft, step_id: str) -> None:
    """A person was asked since there was no lookup, and the code of now has one: it looks too, behind the question.

    Nothing is written where that is not so, or somebody looks already. Nothing is sent for it, by its key, either.
    """
    step = d.run.steps.get(step_id)
    if step is None or step.status is not StepStatus.outcome_unknown or step.look_at is not None:
        return
    if step.resolution is not Resolution.given_up and next_for_doubt(d, step, live=False).action == "look":
        d.emit(ev.LookupAnswered(step_id, "undetermined", reason="lookup_added", next_look_s=0.0))


def believe_person(d: Draft, step_id: str, start: Start | None) -> bool:
    """A person said that it did not happen, settle is over, and the look that was owed found nothing.

    Raises NotAllowed (`settling`) before.
    """
    step = d.step(step_id)
    if not step.person_absent or not _time_earned(d, step, False, d.at):
        raise NotAllowed("a person's word is believed after the settle time only", code="settling")
    d.emit(ev.LookupAnswered(step_id, "absent", reason="person", concluded=True))
    return after_absent(d, step_id, start)


def after_absent(d: Draft, step_id: str, start: Start | None) -> bool:
    """Every attempt that may have been sent is proven absent: again under the same key, or an end with that proof."""
    step = d.step(step_id)
    assert not step.doubtful_attempts, f"step {step_id} may have been sent; nothing is concluded absent"
    if d.run.ended or step.resolution is Resolution.given_up:
        body = result_body("It is now certain that this call was not applied.", code="not_applied")
        fail_step(d, step, "not_applied", body=body, resolution=Resolution.not_applied)
        return False
    if step.counted_attempts >= d.rules(step).attempts_max:
        body = result_body("The call was tried as often as allowed and was not applied.", code="attempts_used_up")
        fail_step(d, step, "attempts_used_up", body=body, resolution=Resolution.not_applied)
        return False
    expire_actions(d, step_id, "superseded")
    if start is None or start_refusal(d, step, start) is not None:
        # Also where its approval is over: who asks for a new one reads first what is to be shown.
        d.emit(ev.StepDeferred(step_id, 0.0, code="absent"))
        return False
    start_step(d, step_id, start)
    return True


def receipt_body(look: Look) -> bytes:
    """What the model is told of a receipt that came without the tool's own output."""
    known = {"resource_id": look.resource_id, "url": look.url}
    return result_body({name: value for name, value in known.items() if value} or "This call was applied.")


def conclude_found(
    d: Draft,
    step_id: str,
    look: Look,
    questions: Questions,
    *,
    resolution: Resolution | None,
    before: Step | None = None,
) -> None:
    """The effect exists. What is open is concluded; what has ended gets a receipt; two effects are a duplicate.

    A call that has not begun is not made a second time: its key came before, or the store is an older copy. A step
    whose attempt is under way keeps the evidence until that attempt has its end (`conclude_known`). `before` is the
    step without this look, where its evidence was recorded first.
    """
    step = d.step(step_id)
    before = before or step
    if step.status is StepStatus.failed:
        _applied_after_all(d, before, look, questions)
    elif step.status is StepStatus.succeeded:
        if before.external_resource_id is None and look.resource_id is not None:
            # A person had said that it happened, without its id: here it is.
            d.emit(ev.ReceiptRecorded(step_id, look.resource_id, look.url))
    elif step.status is not StepStatus.running and (step.attempts or _acts(d, step)):
        succeed_step(
            d,
            step,
            attempt=None,
            resource_id=look.resource_id,
            url=look.url,
            body=look.body or receipt_body(look),
            safe_output=look.safe_output,
            resolution=resolution,
        )
    check_duplicates(d, before, look, questions)


def _acts(d: Draft, step: Step) -> bool:
    """Whether it is a call that makes what can be found."""
    return step.type is StepType.tool_call and d.rules(step).effect is not EffectClass.read


def _applied_after_all(d: Draft, step: Step, look: Look, questions: Questions) -> None:
    told = open_question(d, step.id, ActionKind.duplicate) is not None
    if look.resource_id in step.receipts or (look.resource_id is None and told):
        return
    d.emit(ev.ReceiptRecorded(step.id, look.resource_id, look.url))
    note(d, result_body(f"A call that had counted as failed was applied after all: {look.url or look.resource_id}."))
    # All that was found, for its answer is the last word about it: also what was left before, or could not be undone.
    found: dict[str | None, str | None] = {one: None for one in step.receipts}
    found.update({step.external_resource_id: step.resource_url} if step.resource_url else {})
    ask_about_duplicate(d, step, questions, {**found, look.resource_id: look.url, **dict(look.also)})


def conclude_known(d: Draft, step_id: str) -> bool:
    """A receipt of the step came while its last attempt was under way, which has ended without one: the step succeeded.

    False where nothing is known.
    """
    step = d.step(step_id)
    applied = bool(step.receipts) or any(a.end is AttemptEnd.applied for a in step.attempts)
    if not applied or not (step.in_doubt or step.status is StepStatus.running):
        return False
    look = Look("found", source="worker", resource_id=step.external_resource_id, url=step.resource_url)
    succeed_step(
        d,
        step,
        attempt=None,
        resource_id=look.resource_id,
        url=look.url,
        body=receipt_body(look),
        safe_output=None,
        resolution=Resolution.found,
    )
    return True


def check_duplicates(d: Draft, before: Step, look: Look, questions: Questions) -> None:
    """More than one resource under one key, and at least one of them was not known to the step `before` this look."""
    step = d.step(before.id)
    links = dict[str | None, str | None]()
    links[before.external_resource_id] = before.resource_url
    links[step.external_resource_id] = step.resource_url
    links[look.resource_id] = look.url
    links.update(look.also)
    seen = dict.fromkeys((*step.receipts, *(i for i in links if i is not None)))
    if len(seen) < 2 or all(i in before.receipts for i in seen):
        return
    urls = tuple(url for i in seen if (url := links.get(i)) is not None)
    d.emit(ev.DuplicateDetected(step.id, tuple(seen), urls))
    asked = open_question(d, step.id, ActionKind.duplicate)
    if asked is not None and any(action.id == asked for action in d.before.waiting_actions):
        # It shows fewer than there are, and its answer would be about all of them.
        d.emit(ev.ActionExpired(asked, step.id, "superseded"))
    ask_about_duplicate(d, step, questions, {i: links.get(i) for i in seen})


def _record_sweep(d: Draft, step: Step, look: Look, questions: Questions) -> None:
    # A look that began before the step ended may answer now; the sweep that is owed keeps its time then.
    left = None if step.look_at is None or step.look_at <= d.at.mono else step.look_at - d.at.mono
    d.emit(ev.LookupAnswered(step.id, look.verdict, reason=look.reason, next_look_s=left, resource_id=look.resource_id))
    if look.verdict == "found":
        conclude_found(d, step.id, look, questions, resolution=Resolution.found)
    if step.sweep is None or left is not None:
        return
    sweep = step.sweep + 1
    if sweep < len(policy.SWEEP_SECONDS):
        d.emit(ev.SweepScheduled(step.id, sweep, policy.SWEEP_SECONDS[sweep]))
    else:
        d.emit(ev.SweepScheduled(step.id, sweep))


def _late_evidence(d: Draft, step: Step, look: Look, questions: Questions) -> None:
    _emit_evidence(d, step, look)
    if look.verdict == "found":
        conclude_found(d, step.id, look, questions, resolution=Resolution.found, before=step)


def _emit_evidence(d: Draft, step: Step, look: Look) -> None:
    d.emit(ev.EvidenceRecorded(step.id, look.source, look.verdict, resource_id=look.resource_id, resource_url=look.url))


def record_report(d: Draft, step_id: str, look: Look, questions: Questions) -> bool:
    """Evidence from elsewhere (a report, a webhook): found is concluded, everything else wakes the owner to look.

    False where it is known already: nothing is written then.
    """
    step = d.step(step_id)
    if _is_known(step, look):
        return False
    carry_evidence(d, step, look)
    _late_evidence(d, step, look, questions)
    return True


def _is_known(step: Step, look: Look) -> bool:
    """Found again what was found: the same ids; for a step that succeeded also the same link alone, or neither."""
    if look.verdict != "found" or any(resource_id not in step.receipts for resource_id, _ in look.also):
        return False
    if look.resource_id is not None:
        return look.resource_id in step.receipts
    return step.status is StepStatus.succeeded and look.url in (None, step.resource_url)


def late_end(
    d: Draft,
    step: Step,
    attempt: int,
    end: AttemptEnd,
    look: Look | None,
    code: str | None,
    questions: Questions,
    *,
    again_s: float | None = None,
) -> None:
    """The end of an attempt that is not the one under way any more: evidence, which may settle what is in doubt.

    Where it is known already, and for a read, whose late end nobody needs, nothing more than the end is written.
    """
    mine = next((a for a in step.attempts if a.number == attempt), None)
    if mine is None or mine.end in (AttemptEnd.applied, AttemptEnd.refused, AttemptEnd.not_sent):
        return
    if end is AttemptEnd.in_doubt and mine.end is end and mine.ended is not None:
        return
    d.emit(ev.AttemptEnded(step.id, attempt, end, code))
    if d.rules(step).effect is EffectClass.read:
        return
    if end is AttemptEnd.applied:
        look = look or Look("found", source="worker")
        carry_evidence(d, step, look)
        _late_evidence(d, d.step(step.id), look, questions)
        _ask_about_a_repeat(d, d.step(step.id), attempt, questions)
    elif end is not AttemptEnd.in_doubt:
        _without_doubt(d, d.step(step.id), end, code, again_s)


def _ask_about_a_repeat(d: Draft, step: Step, applied: int, questions: Questions) -> None:
    """Another attempt may have acted besides the one that certainly did, and no later look can tell: a person can."""
    rules = d.rules(step)
    others = [a for a in step.doubtful_attempts if a.number != applied]
    if others and rules.effect is not EffectClass.idempotent and not rules.has_lookup:
        ask_about_duplicate(d, step, questions, {step.external_resource_id: step.resource_url})


def _without_doubt(d: Draft, step: Step, end: AttemptEnd, code: str | None, again_s: float | None) -> None:
    if step.status is not StepStatus.outcome_unknown or step.doubtful_attempts:
        return
    goes_on = not d.run.ended and step.resolution is not Resolution.given_up
    if goes_on and again_s is not None and step.counted_attempts < d.rules(step).attempts_max:
        expire_actions(d, step.id, "superseded")
        d.emit(ev.StepDeferred(step.id, again_s, code=code))
    elif goes_on and end is AttemptEnd.refused:
        body = result_body(f"The target refused the call: {code}.", code=code or "refused")
        fail_step(d, step, code or "refused", body=body, resolution=Resolution.not_applied)
    else:
        after_absent(d, step.id, None)
