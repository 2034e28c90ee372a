"""What a performed call came to: its receipt, or an error that says what is known and what to do next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from surefoot.agent.starting import PERFORM, NewRun
from surefoot.agent.tools import ToolCall
from surefoot.core.ids import run_of_step
from surefoot.core.state import (
    STEP_ENDS,
    ActionKind,
    ActionStatus,
    Limits,
    Resolution,
    Run,
    RunStatus,
    Step,
    StepStatus,
)
from surefoot.core.values import canonical, digest
from surefoot.effects import Receipt
from surefoot.errors import ApprovalPending, Conflict, InvalidInput, OutcomeUnknown, PerformFailed, WaitTimeout
from surefoot.runtime.context import Context
from surefoot.runtime.execute import shown_receipt
from surefoot.runtime.loop import Answer
from surefoot.runtime.ready import OWNER_GIVEN_UP

PERFORMS_MAX = 1_000
"""How often one key may be performed again after it failed."""


def business_key(call: object, key: str | None) -> str | None:
    """The operation key of a call under the caller's `key`, else under the tool's own; None where neither names one.

    Raises InvalidInput for what is no call, and for a key that the tool's function should not have made.
    """
    if not isinstance(call, ToolCall):
        raise InvalidInput(f"perform takes a call, such as charge.call(amount_cents=900), not {call!r}")
    return f"{call.tool.name}:{key}" if key is not None else call.tool.operation_key(call.arguments)


async def performing_run(
    create: Callable[[NewRun], Awaitable[tuple[Run, bool]]],
    call: ToolCall,
    business_key: str | None,
    by: str,
    once_for: str | None = None,
) -> Run:
    """The run of this call and key. One that failed, with proof that nothing happened, is not an answer for ever; one
    that somebody has cancelled is, for whoever stopped it meant its key. With `once_for` it is begun once for that
    alone, whatever it came to, and whatever was asked under the key before.

    Raises KeyReused, InvalidInput.
    """
    if call.tool.waits_for is not None:
        raise InvalidInput(f"{call.tool.name} is for agents: it waits inside a run; start a run instead")
    asked = digest(canonical([call.tool.name, call.arguments]))
    for number in range(PERFORMS_MAX):
        key = None if business_key is None else f"perform{number or ''}:{business_key}"
        if once_for is not None:
            key = f"perform:{once_for}:{digest(canonical([business_key, asked]))}"
        new = NewRun(
            agent=call.tool.name,
            version=call.tool.version,
            kind=PERFORM,
            limits=Limits(),
            by=by,
            key=key,
            asked=asked,
            call=call,
            business_key=business_key,
            asks_owner=False,
        )
        try:
            run, _ = await create(new)
        except Conflict:
            # Another call holds the key, from an agent perhaps: this one is answered from it, or refused.
            run, _ = await create(msgspec.structs.replace(new, asks_owner=True))
        if key is None or once_for is not None or run.status is not RunStatus.failed:
            return run
    raise InvalidInput(f"this key failed {PERFORMS_MAX} times; mend what the error_code of its last run names")


async def receipt_of(ctx: Context, run_id: str, run: Run | None, answer: Answer | None) -> Receipt:
    """The receipt of a run of kind perform; `run` is what this process wrote that it came to, with its `answer`.

    What is known from a read alone is told once it is there to stay. Raises ApprovalPending, OutcomeUnknown,
    PerformFailed.
    """
    if run is not None and answer is not None and run.version == answer.version and answer.output is not None:
        return shown_receipt(answer.step, answer.output)
    row = (await ctx.store.steps(ctx.tenant_id, run_id))[0]
    if run is None and row.step.status in STEP_ENDS and await ctx.store.confirm():
        row = (await ctx.store.steps(ctx.tenant_id, run_id))[0]
    step, details = row.step, {"run_id": run_id, "step_id": row.step.id}
    if step.status is StepStatus.succeeded:
        return shown_receipt(step, row.safe_output)
    if step.error_code == OWNER_GIVEN_UP or step.resolution is Resolution.given_up:
        raise OutcomeUnknown(
            f"{step.tool_name} may have been applied under this key: a person has given up finding out; use a new key "
            "once you know that it was not",
            details=details,
        )
    if step.status is StepStatus.failed:
        reason = msgspec.json.decode(row.safe_output or b"null")
        why = f": {reason}" if isinstance(reason, str) else ""
        raise PerformFailed(
            f"{step.tool_name} was not applied ({step.error_code}){why}",
            details={**details, "error_code": step.error_code, "reason": reason},
        )
    waiting = await ctx.store.actions(ctx.tenant_id, status=ActionStatus.waiting.value, run_id=run_id)
    for asked in waiting.whole():
        details["action_id"] = asked.action.id
        if asked.action.kind is ActionKind.approve:
            raise ApprovalPending(
                f"{step.tool_name} waits for a person: decide about {asked.action.id}, then perform again with its key",
                details=details,
            )
    if step.status is StepStatus.pending and not step.doubtful_attempts:
        asks = await _asked_about_owner(ctx, step, details)
        raise WaitTimeout(
            f"{step.tool_name} has not begun ({step.error_code or 'waiting'}): nothing of it was sent, and step "
            f"{step.id} goes on; {asks}perform again with its key for the answer",
            code="not_sent_yet",
            details=details,
        )
    raise OutcomeUnknown(f"{step.tool_name} may have been applied: {_what_next(step, details)}", details=details)


async def _asked_about_owner(ctx: Context, step: Step, details: dict[str, str]) -> str:
    """What to do first where a person is asked about the call that has the key; its question is named in `details`."""
    owner = step.owner_step_id
    if owner is None:
        return ""
    waiting = await ctx.store.actions(ctx.tenant_id, status=ActionStatus.waiting.value, run_id=run_of_step(owner))
    for asked in waiting.whole():
        if asked.action.step_id == owner:
            details["action_id"] = asked.action.id
            return f"a person is asked about the call that has its key: answer {asked.action.id}, then "
    return ""


def _what_next(step: Step, details: Mapping[str, str]) -> str:
    if step.status is StepStatus.running:
        return f"step {step.id} is still under way; perform again with its key for the answer"
    if (asked := details.get("action_id")) is not None:
        looks = "it is looked up, and" if step.rules.has_lookup else "nobody can look it up, so"
        return f"{looks} a person is asked what happened: answer {asked}, then perform again with its key"
    return f"step {step.id} is being looked up; perform again with its key for the answer"
