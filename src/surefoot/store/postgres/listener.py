"""Telling the other processes what has changed, and hearing of it: LISTEN and NOTIFY on a connection of its own.

A notification inside a commit would make all commits of the database wait for each other, so it follows the commit: at
most one each 20 ms, on the connection that listens, which does not wait for the disk. One that is lost costs time only:
whoever waits looks by itself, later. Behind a pooler nobody listens, and everybody looks more often.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

import msgspec

from surefoot.doors import Clock
from surefoot.errors import StoreError
from surefoot.store.postgres.link import Link
from surefoot.store.postgres.links import Links
from surefoot.store.postgres.writer import Server

CHANNEL = "surefoot"
COALESCE_SECONDS = 0.02
RUNS_MAX = 100
"""More runs than that are told as "some": a notification holds 8,000 bytes."""
TELLS_WITHOUT_EAR = 5
"""A process that writes more often gets a connection for telling; a command that writes once does without."""
LOST_SECONDS_MIN = 0.5
LOST_SECONDS_MAX = 10.0


class Told(msgspec.Struct, frozen=True):
    """What a notification says. `runs` is None for more than can be named."""

    by: str
    runs: list[str] | None


class Listener:
    """One process's ear and voice. `heard` is called with the runs that another process wrote to."""

    def __init__(
        self,
        links: Links,
        server: Server,
        clock: Clock,
        name: str,
        heard: Callable[[list[str] | None], None],
        session: Callable[[Link | None], None],
    ) -> None:
        self._links = links
        self._server = server
        self._clock = clock
        self._heard = heard
        self._session = session
        self._link: Link | None = None
        self._name = name
        """Of this process's store: what it tells is not news to itself."""
        self._task: asyncio.Task[None] | None = None
        self._told: set[str] = set()
        self._tells = 0
        self._telling: asyncio.Task[None] | None = None

    @property
    def listens(self) -> bool:
        """Whether notifications arrive just now."""
        return self._link is not None and not self._link.closed

    def start(self) -> None:
        """Listen from now on, if it does not already."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        pause, again = LOST_SECONDS_MIN, False
        while True:
            ended = asyncio.Event()
            with contextlib.suppress(StoreError):
                link = await self._links.open()
                if link.pooled:
                    await link.close()
                    return
                try:
                    await link.listen(self._server.texts.text("listen"), CHANNEL, self._hear, ended.set)
                    self._link = link
                    self._session(link)
                    if again:
                        # What was told meanwhile was not heard.
                        self._heard(None)
                    again = True
                    pause = LOST_SECONDS_MIN
                    await ended.wait()
                finally:
                    self._link = None
                    self._session(None)
                    link.end()
            await self._clock.sleep(pause)
            pause = min(pause * 2, LOST_SECONDS_MAX)

    def _hear(self, payload: str) -> None:
        try:
            told = msgspec.json.decode(payload, type=Told)
        except msgspec.DecodeError:
            # Another version's, or another program's: something has changed.
            self._heard(None)
            return
        if told.by != self._name:
            self._heard(told.runs)

    def tell(self, run_ids: Iterable[str]) -> None:
        """Others may want to look at these runs; with none, at what there is to do."""
        self._told.update(run_ids)
        self._tells += 1
        if self._tells == TELLS_WITHOUT_EAR:
            self.start()
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            await self._send()
            # What comes meanwhile goes with the next one.
            await self._clock.sleep(COALESCE_SECONDS)
        finally:
            self._telling = None
        if self._told:
            self.tell(())

    async def _send(self) -> None:
        runs, self._told = sorted(self._told), set()
        told = Told(self._name, runs if len(runs) <= RUNS_MAX else None)
        own = 0 if self._link is None else self._link.probe.pid
        params = {"channel": CHANNEL, "payload": msgspec.json.encode(told).decode(), "own": own}
        # One that is lost costs time only.
        with contextlib.suppress(Exception):
            if self._link is not None:
                await self._server.ask(self._link, "notify", params)
            else:
                await self._links.reading(lambda link: self._server.ask(link, "notify", params))

    async def stop(self) -> None:
        """Tell what is still to be told, then listen no more."""
        if self._telling is not None:
            self._telling.cancel()
        if self._told:
            await self._send()
        self.drop()

    def drop(self) -> None:
        """At once."""
        for task in (self._telling, self._task):
            if task is not None:
                task.cancel()
