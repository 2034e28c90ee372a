"""What a worker looks for now and then, beside what is ready: what somebody else has left undone or set aside."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from surefoot.core.ids import run_of_step
from surefoot.core.reconcile import look_by_a_new_lookup
from surefoot.core.state import Run
from surefoot.errors import NotFound, SurefootError, Unreadable
from surefoot.runtime.children import POLL_SECONDS_MAX, tell_call
from surefoot.runtime.context import Context
from surefoot.runtime.deciding import handle_of

UNKNOWN_TOOL = "unknown_tool"
UNREADABLE = "unreadable"
ROUND_SECONDS = 15.0
"""So often a worker makes its round."""
SET_ASIDE_MAX = 100
"""Of the runs that others have set aside, at one round; the next one goes on behind."""
UNTOLD_MAX = 100
"""Of the calls that nobody has told of the end of their run, at one round."""
UNLOOKED_MAX = 100
"""Of the calls that nobody looks up though their tool has a lookup by now, at one round."""


class Rounds:
    """The rounds of one worker. `wants` says of a run whether the worker has room for it and can drive it, `take` takes
    its lease and drives it, whoever has set it aside by a code; `wake` is told of a run that has something to do.
    """

    def __init__(
        self,
        ctx: Context,
        wants: Callable[[Run | None], bool],
        take: Callable[[str, str], Awaitable[None]],
        wake: Callable[[str | None], None],
    ) -> None:
        self._ctx = ctx
        self._wants = wants
        self._take = take
        self._wake = wake
        self._due = 0.0
        self._behind = dict.fromkeys((UNKNOWN_TOOL, UNREADABLE), "")
        """Behind which run the rounds go on that look for those set aside, by the code."""
        self._unreadable: set[str] = set()
        self._unlooked: str | None = ""
        """Behind which call the round goes on that looks for those without a look; None where all were seen."""

    async def look(self) -> None:
        """Make a round where one is due. Raises StoreError."""
        now = self._ctx.doors.clock.now().mono
        if now < self._due:
            return
        self._due = now + ROUND_SECONDS
        if self._ctx.registry.calls_agents:
            await self._tell()
        if self._unlooked is not None:
            await self._look_up(self._unlooked)
        for code in self._behind:
            if self._wants(None):
                await self._take_set_aside(code)

    def unreadable(self, run_id: str) -> str:
        """This worker's drive of the run met what cannot be read: by which code it is to be set aside.

        It is none that the rounds take up again. What was met may lie behind the first steps of a drive, which would be
        made again and again.
        """
        self._unreadable.add(run_id)
        return UNREADABLE

    async def _tell(self) -> None:
        """Calls whose run has ended without their being told: the worker that was to do so has died, or was cut off
        from the store. They would look by themselves, ever more rarely.
        """
        for step_id in await self._ctx.store.untold_calls(self._ctx.tenant_id, POLL_SECONDS_MAX, UNTOLD_MAX):
            with contextlib.suppress(SurefootError):
                self._wake(await tell_call(self._ctx, step_id))

    async def _look_up(self, after: str) -> None:
        """Calls about which a person was asked since their tool had no lookup, and it has one by now.

        Once in the life of a worker, for its code stays what it is: beside one with other code, which asks a person
        again, it would be the same call again and again.
        """
        ctx = self._ctx
        found: list[str] = []
        if ctx.registry.looking:
            found = await ctx.store.unlooked_calls(ctx.tenant_id, ctx.registry.looking, after, UNLOOKED_MAX)
        for step_id in found:
            with contextlib.suppress(SurefootError):
                run_id = run_of_step(step_id)
                handle = await handle_of(ctx, run_id)
                await handle.decide(partial(look_by_a_new_lookup, step_id=step_id))
                self._wake(run_id)
        self._unlooked = found[-1] if len(found) == UNLOOKED_MAX else None

    async def _take_set_aside(self, code: str) -> None:
        """Take runs which a worker with other code has set aside, for want of a tool which this one has, or since a
        newer surefoot has written what this one reads.

        Workers of two states of the code work side by side during a deploy, and longer: the one that cannot is no
        reason for a run to stand still.
        """
        store, tenant = self._ctx.store, self._ctx.tenant_id
        found = await store.blocked_runs(tenant, code, self._behind[code], SET_ASIDE_MAX)
        self._behind[code] = found[-1] if len(found) == SET_ASIDE_MAX else ""
        for run_id in found:
            if code == UNREADABLE and run_id in self._unreadable:
                continue
            with contextlib.suppress(NotFound, Unreadable):
                if self._wants(await store.load(tenant, run_id)):
                    await self._take(run_id, code)
