"""Waiting for a run from outside of it: until it has ended, or only a person can move it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from surefoot.core.state import TERMINAL, Run, RunStatus
from surefoot.errors import InvalidInput, Unreadable, WaitTimeout
from surefoot.runtime.children import calls_run, may_rest, rests
from surefoot.runtime.context import Context
from surefoot.runtime.given import check_status
from surefoot.snapshot import RunSnapshot, blocked_code, read_snapshot
from surefoot.store.port import Following

if TYPE_CHECKING:
    from surefoot.agent.agent import Agent

T = TypeVar("T")

LOOK_AGAIN_SECONDS = 5.0
"""Who waits for a run looks again after this even if nothing was noticed."""
REST_SECONDS_MIN = 1e-6
"""A timer of less than the clock can tell would be over at once, again and again."""
LOOK_AT_OTHERS_SECONDS = 0.5
"""The same where runs of other agents work for it: only their commits show what they come to."""
Until = Callable[[RunSnapshot], bool]


async def wait_for_rest(
    ctx: Context,
    run_id: str,
    timeout: float | None,
    *,
    driven: Run | None = None,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> Run | None:
    """Wait until the run has ended or only a person can move it; `timeout` in seconds. Raises WaitTimeout, NotFound.

    The run as this process committed it, or None where it was read. `driven` is the run as this process has just begun
    to drive it: no first look is needed, unless it was born at rest, which nothing that follows would tell. `meanwhile`
    is called now and then.
    """
    seen = driven is not None and not may_rest(driven)

    async def resting(run: Run) -> Run | None:
        if await rests(ctx, run):
            return run
        if meanwhile is not None:
            await meanwhile()
        return None

    run, ours = await _wait(ctx, run_id, timeout, ctx.store.follow(run_id, may_rest, seen=seen), resting)
    return run if ours else None


async def wait_until(ctx: Context, run_id: str, until: Until | str, timeout: float | None) -> RunSnapshot:
    """Wait until `until(snapshot)`, or for a status, which an end of the run ends too; `timeout` in seconds.

    Raises WaitTimeout, NotFound, and InvalidInput for what is neither.
    """
    fits, version = _fits(until), 0

    async def fitting(run: Run) -> RunSnapshot | None:
        nonlocal version
        # A snapshot reads the whole run. Between two versions it says nothing new, of others' work aside.
        new, version = run.version != version or calls_run(run), run.version
        snapshot = await read_snapshot(ctx, run_id, "en") if new else None
        return snapshot if snapshot is not None and fits(snapshot) else None

    return (await _wait(ctx, run_id, timeout, ctx.store.follow(run_id), fitting))[0]


def _fits(until: object) -> Until:
    if isinstance(until, str):
        check_status(until, RunStatus)
        return lambda snapshot: snapshot.status == until or snapshot.status in TERMINAL
    if not callable(until):
        raise InvalidInput('until is a status, such as "completed", or a function of the snapshot, or left out')
    return until


async def _wait(
    ctx: Context, run_id: str, timeout: float | None, follower: Following, found: Callable[[Run], Awaitable[T | None]]
) -> tuple[T, bool]:
    """Until `found` has something: asked of the run as it stands now, and whenever it may have changed.

    That, and whether it is of the run as this process committed it.
    """
    end = math.inf if timeout is None else ctx.doors.clock.now().mono + timeout
    look_s = LOOK_AGAIN_SECONDS
    try:
        while True:
            committed = await follower.changed(min(end - ctx.doors.clock.now().mono, look_s))
            run = committed or (await ctx.store.run(ctx.tenant_id, run_id)).run
            if (what := await found(run)) is not None:
                return what, committed is not None
            look_s = LOOK_AT_OTHERS_SECONDS if calls_run(run) else LOOK_AGAIN_SECONDS
            if end - ctx.doors.clock.now().mono < REST_SECONDS_MIN:
                raise await _late(ctx, run)
    finally:
        follower.close()


async def _late(ctx: Context, run: Run) -> WaitTimeout:
    status = run.status.value
    blocked = blocked_code(await ctx.store.run(ctx.tenant_id, run.id), ctx.store.now())
    if blocked is None and calls_run(run) and (children := await ctx.store.children(ctx.tenant_id, run.id)).unreadable:
        what = f"{children.unreadable[0].id}, which works for it, cannot be read: see `surefoot doctor`"
        return WaitTimeout(f"run {run.id} is {status}; {what}", details={"status": status, "blocked": Unreadable.code})
    if blocked is None:
        what = "what was waited for did not come before its end" if run.ended else "it goes on"
        return WaitTimeout(f"run {run.id} is {status}; {what}", details={"status": status})
    text = f"run {run.id} is {status}; {blocked_text(blocked)}"
    return WaitTimeout(text, details={"status": status, "blocked": blocked})


def takes(ctx: Context, agents: Mapping[str, Agent], run: Run) -> bool:
    """Whether a worker with this code takes the run: it knows its agent and version, or its performed tool."""
    if run.kind == "perform":
        return run.agent in ctx.registry.tools
    agent = agents.get(run.agent)
    return agent is not None and agent.version == run.agent_version


def blocked_text(code: str) -> str:
    """Why no worker goes on with a run that has not ended, and what to do, by the code of its block."""
    match code:
        case "unreadable":
            what = "a stored value cannot be read: see `surefoot doctor`"
        case "no_worker":
            what = "it is ready, and no worker takes it: start one with the code of its agent and version (its tool)"
        case "drive_failed":
            what = "driving it failed again and again: read the worker's log, mend the code, start a worker anew"
        case _:
            what = "no worker knew its agent, its version or a tool of it: start one with the code that does"
    return f"it stands still ({code}): {what}"
