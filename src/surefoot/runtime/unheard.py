"""Leases that a worker has won without being told: the answer to its claim was lost, or nobody waited for it any more.
Nobody drives under them, and they would be in the way of all until their end. They are given back, and the next claim
takes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Coroutine
from contextlib import asynccontextmanager

from surefoot.core import policy
from surefoot.errors import CommitUnknown, StoreError
from surefoot.runtime.context import Context

LOOK_SECONDS_MAX = 5.0
"""A statement whose connection broke goes on with the server: so rarely it is looked for what it may have taken yet."""


class Unheard:
    """Of one worker. `driven` are the runs that it drives, `look_after` does something in the background, `wake` says
    that there may be something to claim.
    """

    def __init__(
        self,
        ctx: Context,
        worker_id: str,
        driven: Container[str],
        look_after: Callable[[Coroutine[None, None, None]], None],
        wake: Callable[[], None],
    ) -> None:
        self._ctx = ctx
        self._worker_id = worker_id
        self._driven = driven
        self._look_after = look_after
        self._wake = wake
        self._claims = asyncio.Lock()
        self._coming: list[str] = []
        """Runs whose leases are being won beside the claims; one may stand here twice."""

    @asynccontextmanager
    async def claiming(self) -> AsyncIterator[None]:
        """Around a claim and what begins to drive the runs that it gives."""
        async with self._claims:
            try:
                yield
            except (asyncio.CancelledError, CommitUnknown):
                self._look_after(self._give_back())
                raise

    @asynccontextmanager
    async def taking(self, run_id: str) -> AsyncIterator[None]:
        """The same around the lease of one run. What is born leased has it too: `come` and `came`."""
        self.come(run_id)
        try:
            yield
        except (asyncio.CancelledError, CommitUnknown):
            self._look_after(self._give_back())
            raise
        finally:
            self.came(run_id)

    def come(self, run_id: str) -> None:
        """The run may be leased to this worker from now on, though it is not driven yet."""
        self._coming.append(run_id)

    def came(self, run_id: str) -> None:
        """It is driven now, or somebody else's."""
        self._coming.remove(run_id)

    async def _give_back(self) -> None:
        """Until leases are found that nobody drives under, or any that were won then are over."""
        ctx, tries = self._ctx, 0
        until = ctx.doors.clock.now().mono + ctx.lease_s
        while ctx.doors.clock.now().mono < until:
            try:
                if await self._found():
                    return
            except StoreError as problem:
                ctx.log(f"worker {self._worker_id}: what its claim has won is not known yet ({problem}); looking again")
            tries += 1
            await ctx.doors.clock.sleep(policy.backoff(tries, 0.5, base_s=0.1, max_s=LOOK_SECONDS_MAX))

    async def _found(self) -> bool:
        ctx = self._ctx
        async with self._claims:
            held = await ctx.store.leases(ctx.tenant_id, self._worker_id)
            # What has come or was given back since the store was read has another token there, or none.
            idle = [run_id for run_id in held if run_id not in self._driven and run_id not in self._coming]
            for run_id in idle:
                ctx.log(f"run {run_id}: its lease was won by a claim without an answer; it is given back")
                await ctx.store.release(ctx.tenant_id, run_id, held[run_id])
        if idle:
            self._wake()
        return bool(idle)
