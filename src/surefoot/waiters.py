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
                raise _late(run)


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
                raise _late(run)


def _late(run: Run) -> WaitTimeout:
    status = run.status.value
    return WaitTimeout(f"run {run.id} is {status}; it goes on", details={"status": status})
