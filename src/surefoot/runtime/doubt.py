"""After doubt: look, resend under the same key, believe a person, or ask one; by the step's class, never by hope."""

from __future__ import annotations

from collections.abc import Callable

from surefoot.core.decide import Start
from surefoot.core.draft import Draft
from surefoot.core.reconcile import (
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
from surefoot.runtime.look import look
from surefoot.runtime.questions import Questions
from surefoot.runtime.registry import RunnableTool

WAIT_SECONDS_MIN = 0.2
SENDS = frozenset({"resend", "believe_person"})
"""What of a doubt begins a further attempt."""


async def settle_step(held: Held, step: Step) -> list[str]:
    """What the step's class allows now; a step that has ended owes a later look only. Returns the steps begun."""
    if step.rules.waits_for is not None:
        return await stop_children(held, step)
    tool = held.tools[step.tool_name]
    await held.resolve_account(step, tool)
    questions = await held.questions(step)
    draft = Draft(held.run, held.ctx.store.now(), rules=held.tools.rules)
    closed = step.status in STEP_ENDS or step.resolution is Resolution.given_up
    if tool.effect.lookup is not None and (closed or next_for_doubt(draft, step, live=False).action == "look"):
        return await _look(held, step, tool, questions)
    if not closed and next_for_doubt(draft, step, live=False).action in SENDS and not await held.enter(step):
        return []
    begun: list[str] = []
    try:
        begun = await held.decide(_without_look(held, step.id, questions), step_id=step.id) or []
    finally:
        if step.id not in begun:
            held.leave(step.id)
    return begun


def _without_look(held: Held, step_id: str, questions: Questions) -> Callable[[Draft], list[str]]:
    def command(d: Draft) -> list[str]:
        step = d.step(step_id)
        if step.status is not StepStatus.outcome_unknown or step.resolution is Resolution.given_up:
            ask_what_happened(d, step_id, questions)
            return []
        doubt = next_for_doubt(d, step, live=step_id in held.stuck)
        start = held.start(step)
        if doubt.action == "resend" and start is not None:
            return _resent(d, step_id, start, questions)
        if doubt.action == "believe_person":
            return [step_id] if believe_person(d, step_id, start, questions) else held.go_on(d)
        if doubt.action in ("ask", "look"):
            # Without a lookup there is nothing to look with.
            ask_what_happened(d, step_id, questions)
        else:
            wait_for_doubt(d, step_id, max(doubt.delay_s, WAIT_SECONDS_MIN))
        return []

    return command


def _resent(d: Draft, step_id: str, start: Start, questions: Questions) -> list[str]:
    try:
        resend(d, step_id, start)
    except NotAllowed:
        # Another account, no attempts left, an approval that is over: the key alone is no reason any more.
        ask_what_happened(d, step_id, questions)
        return []
    return [step_id]


async def _look(held: Held, step: Step, tool: RunnableTool, questions: Questions) -> list[str]:
    answer = await look(held.ctx, held.run.id, step, tool, await held.arguments(step))
    jitter = held.ctx.doors.entropy.fraction()

    def command(d: Draft) -> list[str]:
        now = d.step(step.id)
        start = None if d.run.ended or tool.precondition is not None else held.start(now)
        live = step.id in held.stuck
        begun = record_look(d, step.id, answer, live=live, start=start, questions=questions, jitter=jitter)
        return [step.id, *held.go_on(d)] if begun else held.go_on(d)

    return await held.decide(command, step_id=step.id) or []
