"""Look at the target: run a tool's lookup and turn whatever it does into one of three verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from surefoot.core.reconcile import Look
from surefoot.core.redact import safe_error
from surefoot.core.state import Step
from surefoot.core.values import encode_output
from surefoot.effects import Absent, Found, Receipt, Undetermined
from surefoot.errors import SurefootError
from surefoot.runtime.context import LOOK_TIMEOUT_SECONDS, Context
from surefoot.runtime.execute import Call, is_async, receipt_look, redact_json, wait_call
from surefoot.runtime.registry import RunnableTool
from surefoot.runtime.tracing import VERDICT

COVERAGE_BYTES_MAX = 8 * 1024


async def look(ctx: Context, run_id: str, step: Step, tool: RunnableTool, arguments: dict[str, object]) -> Look:
    """One look for the step's key. Never raises but CancelledError: an exception inside a lookup is Undetermined."""
    with ctx.tracing.look(run_id, step) as span:
        found = await _look(ctx, run_id, step, tool, arguments)
        span.note(VERDICT, found.verdict)
        return found


async def _look(ctx: Context, run_id: str, step: Step, tool: RunnableTool, arguments: dict[str, object]) -> Look:
    began = ctx.store.now().mono
    op = ctx.operation(run_id, step, None)
    try:
        ctx.doors.hook("lookup", "before")
        answer = await _bounded(ctx, Call(tool.make_lookup(op, arguments), is_async=is_async(tool.effect.lookup)))
        ctx.doors.hook("lookup", "after")
        verdict = verdict_look(ctx, answer, source="lookup")
    except Exception as problem:
        return _undetermined(ctx, f"exception: {safe_error(problem, ctx.redactor)}")
    if verdict.verdict == "absent" and any(ctx.store.stepped(a.started.mono) for a in step.doubtful_attempts):
        # The times in which the call was to arrive were measured by a clock that has jumped over them.
        return msgspec.structs.replace(verdict, verdict="undetermined", reason="clocks_drifted", began=began)
    return msgspec.structs.replace(verdict, began=began)


async def _bounded(ctx: Context, call: Call) -> object:
    """The answer, or an error after LOOK_TIMEOUT_SECONDS; the call is told to stop in either case."""
    try:
        if not await wait_call(ctx.doors, call, LOOK_TIMEOUT_SECONDS):
            raise SurefootError("the lookup did not answer in time", code="lookup_timeout")
        return call.done.result()
    except asyncio.CancelledError as stopped:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Nobody told us to stop: something inside the lookup was cancelled, such as a pool that was closed.
        text = f"the lookup was stopped from inside ({safe_error(stopped, ctx.redactor)})"
        raise SurefootError(text, code="lookup_cancelled") from None
    finally:
        call.cancel()


def verdict_look(ctx: Context, answer: object, *, source: str) -> Look:
    """A lookup's answer, or a reported one, as evidence. Anything but the three verdicts is Undetermined."""
    if isinstance(answer, Found) and isinstance(answer.receipt, Receipt):
        found = receipt_look(answer.receipt, ctx.redactor, source=source)
        # Read leniently: what was found stays found, however the rest of the verdict is made.
        others = answer.also if isinstance(answer.also, tuple | list) else ()
        looks = [receipt_look(other, ctx.redactor, source=source) for other in others if isinstance(other, Receipt)]
        also = tuple((other.resource_id, other.url) for other in looks if other.resource_id is not None)
        return msgspec.structs.replace(found, also=also, detail=_detail(ctx, answer.coverage))
    if isinstance(answer, Absent):
        return Look("absent", source=source, detail=_detail(ctx, answer.coverage))
    if isinstance(answer, Undetermined):
        reason = ctx.redactor.text(str(answer.reason))[:200]
        return Look("undetermined", source=source, reason=reason, detail=_detail(ctx, answer.coverage))
    return _undetermined(ctx, f"the lookup answered {type(answer).__name__}, not Found, Absent or Undetermined")


def _undetermined(ctx: Context, reason: str) -> Look:
    return Look("undetermined", reason=ctx.redactor.text(reason)[:200])


def _detail(ctx: Context, coverage: str | Mapping[str, object]) -> bytes:
    data, _ = encode_output({"coverage": coverage}, COVERAGE_BYTES_MAX)
    return redact_json(ctx.redactor, data)
