"""The connections of one store: one that writes, a few that read. Broken ones are replaced, after growing pauses."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from surefoot.doors import Clock
from surefoot.errors import StoreClosed, StoreError, StoreUnsupported
from surefoot.store.postgres import failures
from surefoot.store.postgres.address import Address, in_turn
from surefoot.store.postgres.bridge import Bridge
from surefoot.store.postgres.link import Link
from surefoot.store.postgres.server_clock import ServerClock
from surefoot.store.postgres.statements import Statements

T = TypeVar("T")

READERS_MAX = 3
OUTAGE_SECONDS_MAX = 10.0
"""So long a write or a read waits for a server that is not there."""
PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 1.0


class Links:
    """The connections. Made from inside the event loop that uses them."""

    def __init__(
        self, address: Address, texts: Statements, clock: Clock, server_clock: ServerClock, bridge: Bridge | None
    ) -> None:
        self.name = address.name
        self._address = address
        self._texts = texts
        self._clock = clock
        self._server_clock = server_clock
        self._bridge = bridge
        self._found = 0
        """Which of the address's servers answered last."""
        self._writer: Link | None = None
        self._idle: deque[Link] = deque()
        self._all: set[Link] = set()
        self._readers = asyncio.Semaphore(READERS_MAX)
        self._closed = False

    async def open(self, *, writes: bool = False) -> Link:
        """A new connection; tries again while the server is down, for OUTAGE_SECONDS_MAX.

        Raises StoreUnavailable, StoreUnsupported.
        """
        began, pause = self._clock.now().mono, PAUSE_SECONDS_MIN
        while True:
            self._check_open()
            try:
                link = await self._connect(writes)
                break
            except Exception as error:
                if isinstance(error, StoreUnsupported):
                    raise
                over = self._clock.now().mono - began >= OUTAGE_SECONDS_MAX
                if over or not failures.passes(error):
                    raise failures.unavailable(self.name, error) from error
            await self._clock.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)
        if self._closed:
            link.end()
            self._check_open()
        self._all = {other for other in self._all if not other.closed} | {link}
        return link

    async def _connect(self, writes: bool) -> Link:
        """One try at each server, the one that answered last in front. Raises what the last one did."""
        if not self._address.servers:
            return await Link.open(self._address, self._texts, self._server_clock, self._bridge, writes=writes)
        failed: Exception | None = None
        for server in in_turn(self._address.servers, self._found):
            self._check_open()
            try:
                link = await Link.open(
                    self._address, self._texts, self._server_clock, self._bridge, server=server, writes=writes
                )
            except Exception as error:
                if isinstance(error, StoreUnsupported) or not failures.passes(error):
                    raise
                failed = error
                continue
            self._found = server
            return link
        assert failed is not None, "there are servers"
        raise failed

    async def writer(self) -> Link:
        """The connection that writes."""
        if self._writer is None or self._writer.closed:
            self._writer = await self.open(writes=True)
        return self._writer

    @asynccontextmanager
    async def _reader(self) -> AsyncIterator[Link]:
        async with self._readers:
            link = self._idle.pop() if self._idle else None
            if link is None or link.closed:
                link = await self.open()
            try:
                yield link
            finally:
                if not link.closed and not self._closed:
                    self._idle.append(link)

    async def reading(self, function: Callable[[Link], Awaitable[T]]) -> T:
        """Read; once more on another connection where the first one broke. Raises StoreUnavailable, Unreadable,
        and InvalidInput for a text that no database holds.
        """
        for last in (False, True):
            self._check_open()
            async with self._reader() as link:
                try:
                    return await function(link)
                except StoreError:
                    raise
                except (asyncio.CancelledError, Exception) as error:
                    if failures.is_broken(error):
                        link.end()
                    if isinstance(error, asyncio.CancelledError):
                        raise
                    if (refused := failures.refused_value(error)) is not None:
                        raise refused from None
                    if last or not failures.is_broken(error):
                        raise failures.unavailable(self.name, error) from error
            # The others have most likely been lost with it.
            self._forget_idle()
        raise AssertionError("the second try returns or raises")

    def _forget_idle(self) -> None:
        idle, self._idle = self._idle, deque()
        for link in idle:
            link.end()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self.name} is closed. Open the store again")

    async def close(self) -> None:
        """End all of them in order."""
        self._closed = True
        for link in self._all:
            if not link.closed:
                await link.close()
        self._all.clear()

    def end(self) -> None:
        """End all of them at once."""
        self._closed = True
        for link in self._all:
            if not link.closed:
                link.end()
        self._all.clear()
