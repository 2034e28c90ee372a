"""Waiting for a run from outside of it: until it has ended, or only a person can move it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

from surefoot.core.state import Run
from surefoot.errors import WaitTimeout
from surefoot.runtime.children import calls_run, may_rest, rests
from surefoot.runtime.context import Context
from surefoot.snapshot import RunSnapshot, read_snapshot

LOOK_AGAIN_SECONDS = 5.0
"""Who waits for a run looks again after this even if nothing was noticed."""
LOOK_AT_OTHERS_SECONDS = 0.5
"""The same where runs of other agents work for it: only their commits show what they come to."""
Until = Callable[[RunSnapshot], bool]


async def wait_for_rest(ctx: Context, run_id: str, timeout: float | None, *, driven: bool = False) -> Run:
    """Wait until the run has ended or only a person can move it; `timeout` in seconds. Raises WaitTimeout, NotFound.

    `driven`: this process has just begun to drive it, so that no first look is needed.
    """
    end = math.inf if timeout is None else ctx.doors.clock.now().mono + timeout
    look_s = LOOK_AGAIN_SECONDS
    with contextlib.closing(ctx.store.follow(run_id, may_rest, seen=driven)) as following:
        while True:
            run = await following.changed(min(end - ctx.doors.clock.now().mono, look_s))
            run = run or (await ctx.store.run(ctx.tenant_id, run_id)).run
            if await rests(ctx, run):
                return run
            look_s = LOOK_AT_OTHERS_SECONDS if calls_run(run) else LOOK_AGAIN_SECONDS
            if ctx.doors.clock.now().mono >= end:
                raise await _late(ctx, run)


async def wait_until(ctx: Context, run_id: str, until: Until, timeout: float | None) -> RunSnapshot:
    """Wait until `until(snapshot)`; `timeout` in seconds. Raises WaitTimeout, NotFound."""
    end = math.inf if timeout is None else ctx.doors.clock.now().mono + timeout
    version, look_s = 0, LOOK_AGAIN_SECONDS
    with contextlib.closing(ctx.store.follow(run_id)) as following:
        while True:
            run = await following.changed(min(end - ctx.doors.clock.now().mono, look_s))
            run = run or (await ctx.store.run(ctx.tenant_id, run_id)).run
            # A snapshot reads the whole run. Between two versions it says nothing new, of others' work aside.
            new, version = run.version != version or calls_run(run), run.version
            look_s = LOOK_AT_OTHERS_SECONDS if calls_run(run) else LOOK_AGAIN_SECONDS
            if new:
                snapshot = await read_snapshot(ctx, run_id, "en")
                if until(snapshot):
                    return snapshot
            if ctx.doors.clock.now().mono >= end:
                raise await _late(ctx, run)


async def _late(ctx: Context, run: Run) -> WaitTimeout:
    status = run.status.value
    blocked = (await ctx.store.run(ctx.tenant_id, run.id)).blocked_code
    if blocked is None:
        return WaitTimeout(f"run {run.id} is {status}; it goes on", details={"status": status})
    text = f"run {run.id} is {status}; {blocked_text(blocked)}"
    return WaitTimeout(text, details={"status": status, "blocked": blocked})


def blocked_text(code: str) -> str:
    """Why no worker goes on with a run that has not ended, and what to do, by the code of its block."""
    match code:
        case "unreadable":
            what = "a stored value cannot be read: see `surefoot doctor`"
        case "drive_failed":
            what = "driving it failed again and again: read the worker's log, mend the code, start a worker anew"
        case _:
            what = "no worker knew its agent, its version or a tool of it: start one with the code that does"
    return f"it stands still ({code}): {what}"
