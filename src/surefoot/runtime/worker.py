"""The worker: claims runs, renews leases, drives each run in a task, stops cleanly. No status logic.

A worker whose call does not end after its time-out stops claiming and asks to be replaced; its leases live on until its
process is gone, so that nothing is concluded about a call that may still act.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence

from surefoot.core import policy
from surefoot.core.redact import safe_error
from surefoot.core.state import Run
from surefoot.core.throttle import Throttle
from surefoot.doors import first_of
from surefoot.errors import NotFound, StoreError, SurefootError, Unreadable
from surefoot.runtime.children import tell_parent
from surefoot.runtime.context import Context
from surefoot.runtime.drive import Driver
from surefoot.runtime.failures import STORE_PAUSE_SECONDS_MAX, Failures, store_pause
from surefoot.runtime.handle import Handle
from surefoot.runtime.loop import Loop
from surefoot.runtime.rounds import UNKNOWN_TOOL, UNREADABLE, Rounds
from surefoot.runtime.throttles import Throttles
from surefoot.runtime.unheard import Unheard
from surefoot.store.access import Takes
from surefoot.store.port import Claimed

CAPACITY = 128
"""Runs that one worker drives at once."""
LOADED_AT_ONCE = 64
IDLE_POLL_SECONDS = 1.0
"""At least so often a worker looks for dead owners and missed wake-ups."""
STOP_GRACE_SECONDS = 10.0
LATE_LOOK_FRACTION = 1 / 12
"""Of a lease: how often a worker looks for leases that end soon while a renewal gets no answer."""

LoopFactory = Callable[[Run], Loop | None]
"""The logic for a run, or None where the code of now does not know its agent."""


class Worker:
    """Drives runs of one tenant. `agents` maps the names it knows to their versions."""

    def __init__(
        self,
        ctx: Context,
        worker_id: str,
        agents: Mapping[str, str],
        loops: LoopFactory,
        *,
        capacity: int = CAPACITY,
        throttle: Throttle | None = None,
    ) -> None:
        self.ctx = ctx
        self.id = worker_id
        self.stopping = False
        self.unhealthy: str | None = None
        """Why the worker claims nothing any more and has to be replaced."""
        self.drivers: dict[str, Driver] = {}
        self.on_drive: Callable[[str], None] | None = None
        """Called with the id of each run that this worker begins to drive; must not raise."""
        self._agents = agents
        self._loops = loops
        self._capacity = capacity
        self._throttles = Throttles(ctx.store, ctx.doors.clock, ctx.tenant_id, worker_id, ctx.lease_s, throttle)
        self._wake = asyncio.Event()
        self._claims = True
        self._tasks: list[asyncio.Task[None]] = []
        self._drives: dict[Driver, asyncio.Task[None]] = {}
        self._failures = Failures()
        self._rounds = Rounds(ctx, self._wants, self.take, self.wake)
        self.unheard = Unheard(ctx, worker_id, self.drivers, self.look_after, self.wake)
        """Leases that this worker has won without being told of it."""

    # Life

    async def start(self, *, claims: bool = True) -> None:
        """Register the process and keep leases alive; with `claims` take runs, blocked ones looked at again."""
        await self.ctx.store.register_worker(self.id, Takes(self.ctx.tenant_id, self._known()) if claims else None)
        self._claims = claims
        self._tasks = [asyncio.ensure_future(self._renew_forever())]
        if claims:
            await self.ctx.store.unblock(self.ctx.tenant_id)
            self._tasks.append(asyncio.ensure_future(self._claim_forever()))

    async def stop(self, grace_s: float = STOP_GRACE_SECONDS) -> None:
        """Stop claiming, let calls finish for `grace_s`, then tell them to stop and leave the rest in doubt."""
        self.stopping = True
        self._wake.set()
        # Also those that have lost their run to another drive of this process, and wait for a call's late end.
        for driver in list(self._drives):
            driver.stop()
        self._throttles.stop()
        try:
            await self._wait_claims(grace_s)
            for task in self._tasks[1:]:
                task.cancel()
            await self._wait_drives(grace_s)
            for driver in list(self._drives):
                driver.cancel()
            await self._wait_drives(grace_s)
        finally:  # also where it is cut off
            for driver in list(self._drives):
                driver.cancel()
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._throttles.close()

    async def _wait_claims(self, seconds: float) -> None:
        """A claim that is under way gives back what it gets: cut off, nobody would know what that is."""
        if self._claims and len(self._tasks) > 1:
            await first_of(asyncio.wait(self._tasks[1:2]), self.ctx.doors.clock.sleep(seconds))

    async def _wait_drives(self, seconds: float) -> None:
        if drives := list(self._drives.values()):
            await first_of(asyncio.wait(drives), self.ctx.doors.clock.sleep(seconds))

    def wake(self, run_id: str | None = None) -> None:
        """Something in this process may have made a run ready; `run_id` names one that is perhaps driven here."""
        if (driver := self.drivers.get(run_id or "")) is not None:
            driver.poke()
        self._wake.set()

    @property
    def free(self) -> int:
        """Runs that may be taken now."""
        return 0 if self.stopping or self.unhealthy is not None else self._capacity - len(self.drivers)

    # Claims

    async def _claim_forever(self) -> None:
        failures = 0
        while not self.stopping:
            try:
                await self._claim_and_rest(failures)
                failures = 0
            except Exception as problem:
                # Whatever it was: a worker that silently claims nothing any more would be worse.
                failures += 1
                self.ctx.log(
                    f"worker {self.id}: claiming failed ({safe_error(problem, self.ctx.redactor)}); trying again"
                )

    async def _claim_and_rest(self, failures: int) -> None:
        if failures:
            await self._back_off(failures)
        # Before the looks: what is told of behind them is no less a reason to look again.
        seen = self.ctx.store.foreign_count()
        self._wake.clear()
        claimed = await self._claim()
        await self._rounds.look()
        if not claimed:
            # One that is full could take nothing, and is woken by the end of what it drives.
            await self._rest(seen, await self._until_ready() if self.free > 0 else IDLE_POLL_SECONDS)

    async def _claim(self) -> list[Claimed]:
        if self.free <= 0:
            return []
        async with self.unheard.claiming():
            claimed = await self.ctx.store.claim(
                self.ctx.tenant_id, self.id, self._known(), self.ctx.lease_s, self.free
            )
            problem: Exception | None = None
            for place, one in enumerate(claimed):
                if place % LOADED_AT_ONCE == 0:
                    loaded = await self._loaded(claimed[place : place + LOADED_AT_ONCE])
                try:
                    await self.adopt(one, loaded.get(one.run_id))
                except Exception as failed:
                    # It is no reason to leave the others that were claimed with it without a driver.
                    problem = failed
                if one.run_id not in self.drivers:
                    # That took time: what was read of the others with it may be old.
                    loaded = {}
        if problem is not None:
            raise problem
        return claimed

    async def _loaded(self, claimed: Sequence[Claimed]) -> dict[str, Run]:
        """Several runs in one read. Those that it does not give are read by themselves, which says why."""
        found: Sequence[Run] = ()
        with contextlib.suppress(StoreError):
            if len(claimed) > 1:
                found = await self.ctx.store.load_all(self.ctx.tenant_id, [one.run_id for one in claimed])
        return {run.id: run for run in found}

    def _wants(self, run: Run | None) -> bool:
        """Whether there is room for a run, and this worker can drive it."""
        return self.free > 0 and (run is None or self._cannot_drive(run) is None)

    async def take(self, run_id: str, aside: str = UNKNOWN_TOOL) -> None:
        """Drive one run, unless it is leased, or set aside, but not by `aside`. Raises StoreError, NotFound."""
        async with self.unheard.taking(run_id):
            claimed = await self.ctx.store.claim_one(self.ctx.tenant_id, run_id, self.id, self.ctx.lease_s, aside)
            if claimed is not None:
                await self.adopt(claimed)

    def _known(self) -> dict[str, str]:
        """What this worker can drive: agents by their versions, and performed calls of its tools."""
        return {**self._agents, **dict.fromkeys(map("perform:{}".format, self.ctx.registry.tools), "")}

    async def _until_ready(self) -> float:
        mono, wall = await self.ctx.store.next_wake(self.ctx.tenant_id, self._known())
        now = self.ctx.store.now()
        waits = [IDLE_POLL_SECONDS]
        waits += [mono - now.mono] if mono is not None else []
        waits += [wall - now.wall] if wall is not None else []
        return max(min(waits), 0.02)

    async def _back_off(self, failures: int) -> None:
        """Wait, also where others write meanwhile: what they tell of is looked at, and is no reason to claim sooner."""
        now, jitter = self.ctx.doors.clock.now, self.ctx.doors.entropy.fraction()
        until = now().mono + policy.backoff(failures, jitter, base_s=0.1, max_s=STORE_PAUSE_SECONDS_MAX)
        while not self.stopping and (left := until - now().mono) > 0:
            self._wake.clear()
            await self._rest(self.ctx.store.foreign_count(), left)

    async def _rest(self, seen: int, delay: float) -> None:
        if self.stopping:
            return
        await first_of(self._wake.wait(), self.ctx.store.foreign_changed(seen, delay))
        if self.ctx.store.foreign_count() > seen:
            await self._poke_changed()

    async def _poke_changed(self) -> None:
        """Another process wrote: a driven run may have been cancelled or decided about."""
        if not self.drivers:
            return
        with contextlib.suppress(StoreError):
            versions = await self.ctx.store.versions(self.ctx.tenant_id, list(self.drivers))
            for run_id, driver in list(self.drivers.items()):
                if versions.get(run_id, 0) > driver.handle.run.version:
                    driver.poke()

    async def adopt(self, claimed: Claimed, run: Run | None = None) -> None:
        """Drive a run whose lease was won. Where it is not driven after all, the lease is given back: it would be
        nobody's, and in the way of all until its end. `run`: as read under that lease, just now. Raises StoreError.
        """
        until = self.ctx.store.local(claimed.lease_until)
        try:
            if not self.stopping:
                run = await self._adoptable(claimed, run)
        except BaseException:
            self.look_after(self._give_back(claimed.run_id, claimed.token, lambda: until))
            raise
        if self.stopping:
            await self._give_back(claimed.run_id, claimed.token, lambda: until)
        elif run is not None:
            loop = self._loops(run)
            assert loop is not None, "checked in _cannot_drive"
            self.drive(self.driver(run, loop, claimed))

    async def _adoptable(self, claimed: Claimed, run: Run | None) -> Run | None:
        """The run, unless it is none of this worker's."""
        tenant, run_id = self.ctx.tenant_id, claimed.run_id
        try:
            run = run or await self.ctx.store.load(tenant, run_id)
            problem = why = self._cannot_drive(run)
        except Unreadable as error:
            problem, why = UNREADABLE, f"unreadable: {error}"
        except NotFound:
            return None
        if problem is None:
            return run
        self.ctx.log(f"run {run_id}: not executed ({why}); see surefoot doctor")
        await self.ctx.store.block(tenant, run_id, claimed.token, problem)
        return None

    def driver(self, run: Run, loop: Loop, claimed: Claimed) -> Driver:
        """What drives a run that is in memory already, perhaps before its first commit."""
        handle = Handle(self.ctx.store, run, self.ctx.registry.of(run).rules, claimed.token)
        handle.alone = lambda: len(self.drivers) == 1
        driver = Driver(self.ctx, handle, loop, claimed.lease_until, self._throttles, owner_died=claimed.owner_died)
        if not self._claims:
            # What this process performs stays its own until only a person can move it.
            driver.held.hold_s = math.inf
        return driver

    def look_after(self, work: Coroutine[None, None, None]) -> None:
        """Do something for which nobody waits, unless the worker stops."""
        if self.stopping:
            work.close()
            return
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    def drive(self, driver: Driver, begun: Sequence[str] = ()) -> None:
        """Begin to drive. `begun` are steps whose intents were committed for it, and acknowledged."""
        run_id = driver.handle.run.id
        if (earlier := self.drivers.get(run_id)) is not None:
            # Its lease is over, and it has not been told yet: this worker has won the next one.
            earlier.lose()
        self.drivers[run_id] = driver
        if self.on_drive is not None:
            self.on_drive(run_id)
        self._drives[driver] = asyncio.get_running_loop().create_task(self._drive(driver, begun))

    def _cannot_drive(self, run: Run) -> str | None:
        if self._loops(run) is None:
            return "unknown_agent"
        known = self.ctx.registry.of(run).tools
        unknown = [s for s in run.steps.values() if s.tool_name and s.tool_name not in known and s.live]
        return UNKNOWN_TOOL if unknown else None

    async def _drive(self, driver: Driver, begun: Sequence[str]) -> None:
        run_id = driver.handle.run.id
        failure: BaseException | None = None
        try:
            await driver.drive(begun)
            failure = driver.failure
        except Exception as problem:
            failure = problem
        finally:
            try:
                await self._undriven(driver, failure)
            finally:
                # Whatever went wrong: a driver that is forgotten here would have its lease renewed for ever.
                if self.drivers.get(run_id) is driver:
                    del self.drivers[run_id]
                self._drives.pop(driver, None)
                if self.free <= 1 or failure is not None or not driver.handle.quiet:  # else nothing is new to claim
                    self._wake.set()

    async def _undriven(self, driver: Driver, failure: BaseException | None) -> None:
        """The run is not driven any more: give its lease back."""
        run_id, token = driver.handle.run.id, driver.handle.token
        if not await self._calls_over(driver):
            return
        if failure is not None:
            await self._drive_failed(driver, failure)
            return
        self._failures.over(run_id)
        with contextlib.suppress(SurefootError):
            # Told in vain, or not at all: a worker's next round does it.
            if (told := await tell_parent(self.ctx, driver.handle.run)) is not None:
                self.wake(told)
        if token is not None and not driver.released:
            with contextlib.suppress(SurefootError):
                await self.ctx.store.release(self.ctx.tenant_id, run_id, token)

    async def _calls_over(self, driver: Driver) -> bool:
        """Wait for calls that did not end in time, the lease being renewed meanwhile: they may still act.

        False where the worker stops first: the lease is kept, and the end of the process proves theirs.
        """
        calls = {call.done for call in driver.held.stuck.values() if not call.done.done()}
        while calls and not self.stopping:
            self._look_for_stuck()
            _, calls = await asyncio.wait(calls, timeout=IDLE_POLL_SECONDS)
        return not calls

    async def _drive_failed(self, driver: Driver, failure: BaseException) -> None:
        """Nothing was decided that is not in the store: the next claim goes on from there, after a pause."""
        run_id, token = driver.handle.run.id, driver.handle.token
        pause_s = self._failures.add(run_id, failure)
        name = failure.code if isinstance(failure, SurefootError) else type(failure).__name__
        self.ctx.log(f"run {run_id}: driving it failed ({name}: {self.ctx.redactor.text(str(failure))[:200]})")
        if token is None:
            return
        code = self._rounds.unreadable(run_id) if isinstance(failure, Unreadable) else None
        if not isinstance(failure, StoreError) and self._failures.stay(run_id):
            code = "drive_failed"
        if code is not None:
            with contextlib.suppress(SurefootError):
                await self.ctx.store.block(self.ctx.tenant_id, run_id, token, code)
                self._failures.over(run_id)
                self.ctx.log(f"run {run_id}: not driven any more ({code}); see surefoot doctor")
                return
        await self._give_back(run_id, token, lambda: driver.held.lease_until, pause_s)

    async def _give_back(self, run_id: str, token: int, until: Callable[[], float], pause_s: float = 0.0) -> None:
        """Give back a lease that drives nothing, after a pause where something failed; tried until it has ended."""
        tries = 0
        while True:
            if pause_s:
                await self.ctx.doors.clock.sleep(pause_s)
            try:
                return await self.ctx.store.release(self.ctx.tenant_id, run_id, token)
            except StoreError as problem:
                self.ctx.log(f"run {run_id}: its lease is not given back yet ({problem}); trying again")
            if self.stopping or self.ctx.doors.clock.now().mono >= until():
                return
            pause_s, tries = store_pause(tries), tries + 1

    # Leases

    async def _renew_forever(self) -> None:
        while True:
            try:
                await self.ctx.doors.clock.sleep(self.ctx.lease_s / 3)
                await self._renew()
            except Exception as problem:
                self.ctx.log(f"worker {self.id}: leases are not renewed ({safe_error(problem, self.ctx.redactor)})")
                self._give_up_late_leases(self.drivers)

    async def _renew(self) -> None:
        self._look_for_stuck()
        held = {i: d.handle.token for i, d in self.drivers.items() if d.handle.token is not None and not d.released}
        if not held:
            return
        renewing = asyncio.ensure_future(self.ctx.store.renew(self.ctx.tenant_id, held, self.ctx.lease_s))
        pause_s = self.ctx.lease_s * LATE_LOOK_FRACTION
        try:
            while not renewing.done():
                # A store may wait for longer than a lease lasts, and calls go on meanwhile.
                await first_of(asyncio.wait([renewing]), self.ctx.doors.clock.sleep(pause_s))
                if not renewing.done():
                    self._give_up_late_leases(self.drivers)
        finally:
            renewing.cancel()
        for run_id in held:
            self._renewed(run_id, held[run_id], renewing.result().get(run_id))
        self._give_up_late_leases(held)
        # Who claims nothing hears of others here alone; to who does, something may have been told between two looks.
        await self._poke_changed()

    def _renewed(self, run_id: str, token: int, until: float | None) -> None:
        driver = self.drivers.get(run_id)
        if driver is None or driver.handle.token != token or driver.released:
            return
        if until is None:
            driver.lose()
        else:
            driver.renewed(until)

    def _give_up_late_leases(self, among: Collection[str]) -> None:
        """A worker that could not renew, be it one lease whose row somebody holds, resets its calls before the end."""
        for driver in [self.drivers[run_id] for run_id in among if run_id in self.drivers]:
            if driver.held.left_s <= self.ctx.lease_s / 3 and not driver.held.lost:
                self.ctx.log(f"run {driver.handle.run.id}: its lease was not renewed in time; its calls are stopped")
                driver.lose()

    def _look_for_stuck(self) -> None:
        stuck = any(driver.stuck for driver in self.drivers.values())
        if self.unhealthy is not None and not stuck:
            # A worker inside another program cannot be replaced; once its calls have ended after all, it goes on.
            self.unhealthy = None
            self._wake.set()
        elif self.unhealthy is None and stuck:
            self.unhealthy = "a call does not end after its time-out"
            self.ctx.log(f"worker {self.id}: {self.unhealthy}; claiming nothing more, to be replaced")
