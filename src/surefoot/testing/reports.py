"""Evidence from outside: what others know of a call arrives by itself, early or late, twice and out of order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec

from surefoot.app import Surefoot
from surefoot.core.marker import keys_in
from surefoot.effects import Absent, Found, Receipt, Undetermined
from surefoot.errors import StoreError, SurefootError
from surefoot.testing.checker import key_of_request
from surefoot.testing.machine import Machine, Process
from surefoot.testing.wire import Applied, LogEntry, Received
from surefoot.testing.world import BOT, World

AGAIN_SECONDS = 1.5
AT_ONCE_SHARE = 0.25
SOON_SECONDS_MAX = 6.0
LATE_SECONDS_MAX = 120.0
UNSEEN_SECONDS_MAX = 45.0
"""So long somebody says that nothing is to be seen of a request: it is too early, or not everything is seen."""


class Told(msgspec.Struct, frozen=True):
    """One report: `entry` is what was made, None where nobody sees anything of the key."""

    key: str
    entry: Applied | None
    absent: bool = False


class Acknowledged(msgspec.Struct, frozen=True):
    """A report that was answered, and when (`clock.elapsed`)."""

    key: str
    resource_id: str
    at: float


Tell = Callable[[Surefoot, Told], Awaitable[bool]]
"""Tells it; whether it was taken down."""


class Reports:
    """What is reported in a story, and what of it was acknowledged."""

    def __init__(self, machine: Machine, world: World, seed: int, tell: Tell) -> None:
        self.acknowledged: list[Acknowledged] = []
        self._machine = machine
        self._world = world
        self._tell = tell
        self._dice = random.Random(f"{seed}:reports")
        self._due: list[Told] = []
        self._later = 0
        self._news = asyncio.Event()

    def begin(self) -> None:
        """Listen to the target, beside who does so already."""
        before = self._world.on_log

        def both(entry: LogEntry) -> None:
            if before is not None:
                before(entry)
            self._heard(entry)

        self._world.on_log = both

    @property
    def left(self) -> bool:
        """Whether something is still to be told."""
        return bool(self._due) or self._later > 0

    def _heard(self, entry: LogEntry) -> None:
        dice = self._dice
        if isinstance(entry, Received) and entry.method == "POST" and (key := _key(entry)) is not None:
            for _ in range(dice.choice((0, 1, 2, 3))):
                self._after(dice.uniform(0.0, UNSEEN_SECONDS_MAX), Told(key, None, absent=dice.random() < 0.7))
        if isinstance(entry, Applied) and entry.account == BOT.login and entry.request:
            key = entry.key or next(iter(keys_in(entry.text)), None)
            for _ in range(dice.choice((0, 0, 1, 2, 3)) if key is not None else 0):
                self._after(self._seconds(), Told(key or "", entry))

    def _seconds(self) -> float:
        chance, dice = self._dice.random(), self._dice
        if chance < AT_ONCE_SHARE:
            return 0.0
        return dice.uniform(0.0, SOON_SECONDS_MAX if chance < 0.6 else LATE_SECONDS_MAX)

    def _after(self, seconds: float, told: Told) -> None:
        self._later += 1

        def due() -> None:
            self._later -= 1
            # What comes later may be taken first.
            self._due.insert(int(self._dice.random() * (len(self._due) + 1)), told)
            self._machine.stir()
            self._news.set()

        self._machine.after(seconds, due)

    async def live(self, sf: Surefoot, process: Process) -> None:
        """Tell what is due, each until it is answered."""
        self._news = asyncio.Event()
        while True:
            if not self._due:
                await self._news.wait()
                self._news.clear()
                continue
            told = self._due[0]
            try:
                known = await self._tell(sf, told)
            except (StoreError, OSError) as problem:
                process.say(f"could not report {told.key}: {problem}")
                await process.doors.clock.sleep(AGAIN_SECONDS)
                # Whoever gets no answer says it again, perhaps behind others.
                self._due.remove(told)
                self._due.append(told)
                continue
            except SurefootError as refusal:
                process.say(f"is told about {told.key}: {refusal.code}")
            else:
                process.say(f"reported {told.key}: {'nothing' if told.entry is None else told.entry.resource_id}")
                if told.entry is not None and known:
                    made = str(told.entry.resource_id)
                    self.acknowledged.append(Acknowledged(told.key, made, self._machine.clock.elapsed))
            self._due.remove(told)


async def report(sf: Surefoot, told: Told) -> bool:
    """By `report`, as a program of the user's does that knows what became of a call."""
    if told.entry is not None:
        made = str(told.entry.resource_id)
        verdict: Found | Absent | Undetermined = Found(Receipt(resource_id=made, output={"id": made}))
    else:
        verdict = Absent(coverage="what a program sees") if told.absent else Undetermined("it cannot tell")
    await sf.report(told.key, verdict)
    return True


def _key(entry: Received) -> str | None:
    if key_of_request(entry) is None:
        return None
    return entry.headers.get("idempotency-key") or next(iter(keys_in(entry.body)), None)
