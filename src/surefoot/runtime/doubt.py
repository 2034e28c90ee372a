"""After doubt: look, resend under the same key, believe a person, or ask one; by the step's class, never by hope."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from surefoot.core import policy
from surefoot.core.decide import Start
from surefoot.core.draft import Draft
from surefoot.core.reconcile import (
    POLL_SECONDS_MAX,
    Look,
    ask_what_happened,
    believe_person,
    next_for_doubt,
    record_look,
    resend,
    wait_for_doubt,
)
from surefoot.core.state import STEP_ENDS, Resolution, Step, StepStatus
from surefoot.errors import NotAllowed
from surefoot.runtime.children import stop_children
from surefoot.runtime.held import Held
from surefoot.runtime.late import less_undone
from surefoot.runtime.look import look
from surefoot.runtime.questions import Questions
from surefoot.runtime.registry import RunnableTool

WAIT_SECONDS_MIN = 0.2
KEY_PASSED_ON = "key_passed_on"
"""Why it is not said whose an effect is: another call has the key now."""
SENDS = frozenset({"resend", "believe_person"})
"""What of a doubt begins a further attempt."""


async def settle_step(held: Held, step: Step) -> list[str]:
    """What the step's class allows now; a step that has ended owes a later look only. Returns the steps begun."""
    if step.rules.waits_for is not None:
        return await stop_children(held, step)
    tool = held.tools[step.tool_name]
    await held.resolve_account(step, tool)
    closed = step.status in STEP_ENDS or step.resolution is Resolution.given_up
    draft = Draft(held.run, held.ctx.store.now(), rules=held.tools.rules)
    if not closed and next_for_doubt(draft, step, live=False).action != "ask":
        # Perhaps it is sent again. A person is asked even where the request cannot be read any more.
        await held.difference(step, tool)
    questions = await held.questions(step)
    doubt = next_for_doubt(draft, step, live=False, approved=_approved(held, step))
    if closed or (tool.effect.lookup is not None and doubt.action == "look"):
        return await _look(held, step, tool, questions)
    if doubt.action in SENDS and not await held.enter(step):
        return []
    begun: list[str] = []
    try:
        if doubt.action in SENDS:
            # The credential may be another's by now: a call is for one account, and a key's repeats are dropped in one.
            await held.other_account(step, tool)
        begun = await held.decide(_without_look(held, step.id, questions), step_id=step.id) or []
    finally:
        if step.id not in begun:
            held.leave(step.id)
    return begun


def _without_look(held: Held, step_id: str, questions: Questions) -> Callable[[Draft], list[str]]:
    def command(d: Draft) -> list[str]:
        step = d.step(step_id)
        if step.status is not StepStatus.outcome_unknown or step.resolution is Resolution.given_up:
            # Somebody has told meanwhile what became of it.
            return held.go_on(d)
        doubt = next_for_doubt(d, step, live=step_id in held.stuck, approved=_approved(held, step))
        start = held.start(step)
        if doubt.action == "resend" and start is not None:
            return _resent(d, step_id, start, questions)
        if doubt.action == "believe_person":
            begun = believe_person(d, step_id, _anew(held, step))
            return [step_id] if begun else held.go_on(d)
        if doubt.action in ("ask", "look"):
            # Without a lookup there is nothing to look with.
            ask_what_happened(d, step_id, questions)
        else:
            wait_for_doubt(d, step_id, max(doubt.delay_s, WAIT_SECONDS_MIN))
        return []

    return command


def _approved(held: Held, step: Step) -> bool:
    """False where a person approved another call than this process would make, or has to be asked now."""
    return held.is_as_meant(step, held.tools[step.tool_name])


def _anew(held: Held, step: Step) -> Start | None:
    """What the next attempt needs after an absence; None where it has to be seen first what has changed meanwhile."""
    tool = held.tools[step.tool_name]
    if tool.precondition is not None or not held.is_as_meant(step, tool):
        return None
    return held.start(step)


def _resent(d: Draft, step_id: str, start: Start, questions: Questions) -> list[str]:
    try:
        resend(d, step_id, start)
    except NotAllowed as refusal:
        if refusal.code == "account_unknown":
            # The target drops repeats of a key perhaps only within one account.
            wait_for_doubt(d, step_id, policy.backoff(d.step(step_id).looks, 0.5, max_s=POLL_SECONDS_MAX))
            return []
        # Another account, no attempts left, an approval that is over: the key alone is no reason any more.
        if d.step(step_id).person_absent:
            _take_word(d, d.step(step_id))
        else:
            ask_what_happened(d, step_id, questions)
        return []
    return [step_id]


def _take_word(d: Draft, step: Step) -> None:
    """A person has denied it, and is not asked again: once that can be believed, the call waits to begin anew."""
    try:
        believe_person(d, step.id, None)
    except NotAllowed:
        left_s = policy.settle_left(step, d.rules(step), d.at)
        wait_for_doubt(d, step.id, max(left_s, policy.backoff(step.looks, 0.5, max_s=POLL_SECONDS_MAX)))


async def _look(held: Held, step: Step, tool: RunnableTool, questions: Questions) -> list[str]:
    if tool.effect.lookup is None:
        answer = Look("undetermined", reason="no_lookup")
    else:
        # Before the look and behind it: the credential may be put right while it looks.
        before = await held.other_account(step, tool)
        answer = await look(held.ctx, held.run.id, step, tool, await held.arguments(step))
        if answer.verdict == "found":
            answer = await less_undone(held.ctx, step, answer)
        if answer.verdict == "found" and step.status is StepStatus.failed:
            answer = await _without_anothers(held, step, answer)
        if answer.verdict == "absent" and (why := before or await held.other_account(step, tool)) is not None:
            answer = replace(answer, verdict="undetermined", reason=why)
    jitter = held.ctx.doors.entropy.fraction()

    def command(d: Draft) -> list[str]:
        now = d.step(step.id)
        start = None if d.run.ended else _anew(held, now)
        live = step.id in held.stuck
        begun = record_look(d, step.id, answer, live=live, start=start, questions=questions, jitter=jitter)
        return [step.id, *held.go_on(d)] if begun else held.go_on(d)

    return await held.decide(command, step_id=step.id) or []


async def _without_anothers(held: Held, step: Step, answer: Look) -> Look:
    """What was found of a failed step, less what is another's: once it had failed, another call may have taken its key.

    Said to have been applied after all, it would be undone with what the other one was to make.
    """
    store, tenant = held.ctx.store, held.ctx.tenant_id
    holder = await store.key_owner(tenant, step.operation_key)
    if holder is None or holder.step_id == step.id:
        return answer
    other = (await store.step(tenant, holder.step_id)).step
    if other.status is StepStatus.failed and not other.attempts:
        return answer
    found = ((answer.resource_id, answer.url), *answer.also)
    left = [(one, url) for one, url in found if one is not None and one not in other.receipts]
    if other.status is not StepStatus.succeeded or not other.receipts or not left:
        return replace(answer, verdict="undetermined", reason=KEY_PASSED_ON, resource_id=None, url=None, also=())
    (resource_id, url), *others = left
    return replace(answer, resource_id=resource_id, url=url, also=tuple(others))
