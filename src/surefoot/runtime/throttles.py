"""Throttles: what bounds the calls of a tenant over all its workers. A call waits here before its intent is written.

Each throttle has one gate in a process. The gate takes calls at once and tokens in blocks from the store, for as many
calls as wait here, and gives back what it has no use for; none of it is in the commits of a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from surefoot.core.throttle import TENANT, Throttle
from surefoot.doors import Clock, first_of
from surefoot.errors import StoreError
from surefoot.runtime.registry import RunnableTool
from surefoot.store.access import Wish
from surefoot.store.port import Store

WAIT_SECONDS_MAX = 10.0
"""A call that waits longer gives its run's lease back meanwhile."""
ASK_AGAIN_SECONDS = 0.25
"""Others do not tell when they give something back."""
LINGER_SECONDS = 0.5
"""What nobody here uses is kept so long: the next call is often near."""
BLOCK_MAX = 64
MARGIN_FRACTION = 0.1
"""Of a lease: what ends so soon lets no further call begin."""
TOKEN_SECONDS_MIN = 0.1
"""So long a token counts at least, however close they follow each other: a store takes its time to hand one out, and to
write an intent down. Counted more finely, each would be too late, and the call would never begin.
"""
AGAIN_MAX = 5
"""How often a call takes another token of one throttle because it waited for another throttle meanwhile."""


class _Waiter(msgspec.Struct, eq=False):
    """A call that waits at a gate. It gets the time by which it has to begin, or None where it may not."""

    future: asyncio.Future[float | None]
    takes_slot: bool
    """False: it has entered already, and waits for a token alone."""


class Place(msgspec.Struct, eq=False):
    """A call's place at a gate, from `enter` until `leave`."""

    gate: Gate
    until: float
    """The store's mono: a call that begins later would begin with those whose tokens are of then."""

    @property
    def in_time(self) -> bool:
        """Whether its token still counts."""
        return self.gate.now() <= self.until

    @property
    def lets_begin(self) -> bool:
        """Whether the call may begin now: its token counts, and what this process holds is not over."""
        return self.in_time and self.gate.holds

    async def wait_again(self, seconds: float) -> bool:
        """Take another token, and keep the place. False: not now."""
        until = await self.gate.wait(seconds, takes_slot=False)
        self.until = self.until if until is None else until
        return until is not None

    def leave(self) -> None:
        """The call is over, or did not begin."""
        self.gate.leave()


class Gate:
    """One throttle in this process."""

    def __init__(
        self, store: Store, clock: Clock, tenant_id: str, worker_id: str, name: str, throttle: Throttle, lease_s: float
    ) -> None:
        self.name = name
        self.throttle = throttle
        self.stopped = False
        self._store = store
        self._clock = clock
        self._tenant_id = tenant_id
        self._worker_id = worker_id
        self._lease_s = lease_s
        self._waiting: deque[_Waiter] = deque()
        self._under_way = 0
        self._slots = 0
        self._until = 0.0
        self._tokens: deque[float] = deque()
        self._idle_since = 0.0
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def now(self) -> float:
        """The store's mono."""
        return self._store.now().mono

    @property
    def holds(self) -> bool:
        """Whether what this process holds of calls at once is still its own."""
        return self.throttle.at_once is None or self.now() < self._until

    async def enter(self, seconds: float) -> Place | None:
        """Wait for a place, at most so long: the call may begin then, and `leave` is to be called after it."""
        until = await self.wait(seconds, takes_slot=True)
        return None if until is None else Place(self, until)

    async def wait(self, seconds: float, *, takes_slot: bool) -> float | None:
        """Wait for a token, and for one of the calls at once; by when the call has to begin. None: not now."""
        if self.stopped:
            return None
        waiter = _Waiter(asyncio.get_running_loop().create_future(), takes_slot)
        # Whoever has a slot goes first: those behind it may wait for that one.
        self._waiting.append(waiter) if takes_slot else self._waiting.appendleft(waiter)
        self._stir()
        timer = asyncio.ensure_future(self._over(waiter, seconds))
        try:
            return await asyncio.shield(waiter.future)
        except asyncio.CancelledError:
            if takes_slot and waiter.future.done() and waiter.future.result() is not None:
                self.leave()
            raise
        finally:
            timer.cancel()
            if not waiter.future.done():
                self._waiting.remove(waiter)
                waiter.future.cancel()

    async def _over(self, waiter: _Waiter, seconds: float) -> None:
        await self._clock.sleep(seconds)
        if not waiter.future.done():
            self._waiting.remove(waiter)
            waiter.future.set_result(None)

    def leave(self) -> None:
        """A call that had entered is over, or did not begin."""
        self._under_way -= 1
        self._idle_since = self._store.now().mono
        self._news.set()

    def stop(self) -> None:
        """Nobody enters any more."""
        self.stopped = True
        self._refuse_all()
        self._news.set()

    def _refuse_all(self) -> None:
        while self._waiting:
            self._waiting.popleft().future.set_result(None)

    def _stir(self) -> None:
        self._news.set()
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._work())

    async def close(self) -> None:
        """Give everything back."""
        self.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._slots:
            # In vain where the store is gone: what is not asked for again ends by itself.
            with contextlib.suppress(StoreError):
                await self._store.share(self._tenant_id, self._wish(0, 0))

    async def _work(self) -> None:
        """As long as somebody waits, is under way, or something is held."""
        while self._waiting or self._under_way or self._slots:
            self._news.clear()
            try:
                pause = await self._round()
            except StoreError:
                # What is held ends by itself, and so do the leases of the runs that hold it.
                pause = ASK_AGAIN_SECONDS
            if pause > 0:
                await self._rest(pause)

    async def _round(self) -> float:
        """Admit whom there is room for, ask for more or give back; seconds until the next round."""
        self._admit()
        now = self._store.now().mono
        slots, tokens = self._missing(now)
        if slots != self._slots or tokens or (self._slots and self._until - now < self._lease_s / 2):
            share = await self._store.share(self._tenant_id, self._wish(slots, tokens))
            self._slots, self._until = share.slots, share.until
            self._tokens.extend(share.tokens.times())
            self._admit()
        return self._pause(self._store.now().mono)

    def _missing(self, now: float) -> tuple[int, int]:
        """How many calls at once this process has a use for, and how many tokens more."""
        waiting = min(len(self._waiting), BLOCK_MAX)
        more = min(sum(waiter.takes_slot for waiter in self._waiting), BLOCK_MAX)
        used = 0 if self.throttle.at_once is None else min(self._under_way + more, self.throttle.at_once)
        if used < self._slots and now - self._idle_since < LINGER_SECONDS:
            used = self._slots
        return used, 0 if self.throttle.spacing_s is None else max(waiting - len(self._tokens), 0)

    def _wish(self, slots: int, tokens: int) -> Wish:
        return Wish(self._worker_id, self.name, self.throttle, slots, tokens, self._lease_s)

    def _admit(self) -> None:
        now = self._store.now().mono
        lasts = max(self.throttle.burst * (self.throttle.spacing_s or 0.0), TOKEN_SECONDS_MIN)
        while self._tokens and self._tokens[0] < now - lasts:
            # Too late: with those of now it would let more begin at once than was declared.
            self._tokens.popleft()
        while self._waiting and self._room(self._waiting[0], now):
            until = math.inf if self.throttle.spacing_s is None else self._tokens.popleft() + lasts
            waiter = self._waiting.popleft()
            self._under_way += waiter.takes_slot
            waiter.future.set_result(until)

    def _room(self, waiter: _Waiter, now: float) -> bool:
        if self.throttle.spacing_s is not None and not (self._tokens and self._tokens[0] <= now):
            return False
        if self.throttle.at_once is None or not waiter.takes_slot:
            return True
        return self._under_way < self._slots and now < self._until - self._lease_s * MARGIN_FRACTION

    def _pause(self, now: float) -> float:
        pause = max(self._until - self._lease_s / 2 - now, ASK_AGAIN_SECONDS) if self._slots else LINGER_SECONDS
        if self._waiting:
            pause = min(pause, ASK_AGAIN_SECONDS)
            if self._tokens:
                pause = min(pause, max(self._tokens[0] - now, 0.001))
        elif self._under_way < self._slots:
            pause = min(pause, LINGER_SECONDS)
        return pause

    async def _rest(self, seconds: float) -> None:
        await first_of(self._news.wait(), self._clock.sleep(seconds))


class Throttles:
    """All throttles of a process, by name. Without any, nothing here costs anything."""

    def __init__(
        self, store: Store, clock: Clock, tenant_id: str, worker_id: str, lease_s: float, tenant: Throttle | None = None
    ) -> None:
        self._make: Callable[[str, Throttle], Gate] = lambda name, throttle: Gate(
            store, clock, tenant_id, worker_id, name, throttle, lease_s
        )
        self._tenant = tenant
        self._gates: dict[str, Gate] = {}

    def bound(self, tool: RunnableTool) -> bool:
        """Whether a call of the tool passes any."""
        return self._tenant is not None or tool.throttle is not None

    def of(self, tool: RunnableTool) -> Mapping[str, Throttle]:
        """What the calls of a tool pass, by name, in the one order in which everybody takes them."""
        found = {} if tool.throttle is None else {tool.throttle.name or tool.name: tool.throttle}
        return found if self._tenant is None else {**found, TENANT: self._tenant}

    async def enter(self, tool: RunnableTool) -> list[Place] | None:
        """Wait until a call of the tool may begin; None after WAIT_SECONDS_MAX, or where the worker stops.

        Each of the places is to be left once the call is over. Cancelling the wait gives everything back.
        """
        entered: list[Place] = []
        try:
            for name, throttle in self.of(tool).items():
                place = await self._gate(name, throttle).enter(WAIT_SECONDS_MAX)
                if place is None:
                    leave(entered)
                    return None
                entered.append(place)
            if not await _all_in_time(entered):
                leave(entered)
                return None
        except BaseException:
            leave(entered)
            raise
        return entered

    def _gate(self, name: str, throttle: Throttle) -> Gate:
        known = self._gates.get(name)
        if known is None:
            known = self._gates[name] = self._make(name, throttle)
        known.throttle = throttle
        return known

    def stop(self) -> None:
        """Calls that wait do not begin any more."""
        for gate in self._gates.values():
            gate.stop()

    async def close(self) -> None:
        """Give everything back."""
        for gate in self._gates.values():
            await gate.close()


async def _all_in_time(places: Sequence[Place]) -> bool:
    """Whether all of them let the call begin now; a token that was taken before a wait at another gate is replaced."""
    for _ in range(AGAIN_MAX):
        late = [place for place in places if not place.in_time]
        if not late:
            return True
        for place in late:
            if not await place.wait_again(WAIT_SECONDS_MAX):
                return False
    return False


def leave(places: Sequence[Place]) -> None:
    """The call is over."""
    for place in places:
        place.leave()
