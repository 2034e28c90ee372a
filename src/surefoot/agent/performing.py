"""What a performed call came to: its receipt, or an error that says what is known and what to do next."""

from __future__ import annotations

import msgspec

from surefoot.core.state import ActionKind, ActionStatus, StepStatus
from surefoot.effects import Receipt
from surefoot.errors import ApprovalPending, OutcomeUnknown, PerformFailed
from surefoot.runtime.context import Context
from surefoot.store.port import StepRow


async def receipt_of(ctx: Context, run_id: str) -> Receipt:
    """The receipt of a run of kind perform. Raises ApprovalPending, OutcomeUnknown, PerformFailed."""
    row = (await ctx.store.steps(ctx.tenant_id, run_id))[0]
    step, details = row.step, {"run_id": run_id, "step_id": row.step.id}
    if step.status is StepStatus.succeeded:
        return _receipt(row)
    if step.status is StepStatus.failed:
        raise PerformFailed(
            f"{step.tool_name} was not applied ({step.error_code})", details={**details, "error_code": step.error_code}
        )
    for asked in await ctx.store.actions(ctx.tenant_id, status=ActionStatus.waiting.value, run_id=run_id):
        details["action_id"] = asked.action.id
        if asked.action.kind is ActionKind.approve:
            raise ApprovalPending(
                f"{step.tool_name} waits for a person: decide about {asked.action.id}, then perform again with its key",
                details=details,
            )
    raise OutcomeUnknown(
        f"{step.tool_name} may have been applied: step {step.id} is {step.status.value} and goes on being looked up",
        details=details,
    )


def _receipt(row: StepRow) -> Receipt:
    output = msgspec.json.decode(row.safe_output or b"null")
    if isinstance(output, dict) and "resource_id" in output:
        output = output.get("output")
    return Receipt(resource_id=row.step.external_resource_id, url=row.step.resource_url, output=output)
