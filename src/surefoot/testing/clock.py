"""A clock that a test moves: the clock door, and how far the real world has come beside it."""

from __future__ import annotations

import asyncio
import heapq

from surefoot.core.state import Instant

WALL_AT_START = 1_700_000_000.0
MONO_AT_START = 1_000.0


class ManualClock:
    """Time stands still until it is moved. Sleepers wake in the order of their times, equal ones as they came.

    `wall` and `mono` are the first readings, in seconds. `elapsed` and `true_wall` are the time outside of the machine:
    neither a changed wall clock nor another boot moves them back.
    """

    def __init__(self, *, wall: float = WALL_AT_START, mono: float = MONO_AT_START) -> None:
        self.elapsed = 0.0
        """Seconds since this clock was made."""
        self._started = wall
        self._mono_offset = mono
        self._wall_offset = wall
        self._boots = 1
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._tie = 0

    def now(self) -> Instant:
        """Both clocks of the machine."""
        return Instant(self._mono_offset + self.elapsed, self._wall_offset + self.elapsed)

    @property
    def true_wall(self) -> float:
        """The time outside of the machine, in seconds since 1970: what a target writes on what it makes."""
        return self._started + self.elapsed

    def boot_id(self) -> str:
        """Another one after each `reboot`."""
        return f"boot-{self._boots}"

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved so far. Nothing moves it but `advance` and `run_for`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tie += 1
        heapq.heappush(self._sleepers, (self.elapsed + max(seconds, 0.0), self._tie, future))
        if seconds <= 0:
            self._wake()
        await future

    def next_due(self) -> float | None:
        """After how many seconds the next sleeper wakes; None if nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return max(self._sleepers[0][0] - self.elapsed, 0.0) if self._sleepers else None

    def advance(self, seconds: float) -> None:
        """Move both clocks on, and wake who is due. Raises ValueError for a negative time."""
        if seconds < 0:
            raise ValueError("time goes forward; jump_wall moves the wall clock alone, in both directions")
        self.elapsed += seconds
        self._wake()

    async def run_for(self, seconds: float) -> None:
        """Let `seconds` pass sleeper by sleeper, so that one who wakes early may sleep and wake again in between."""
        end = self.elapsed + seconds
        await _let_others_run()
        while (due := self.next_due()) is not None and self.elapsed + due <= end:
            self.advance(due)
            await _let_others_run()
        self.advance(end - self.elapsed)
        await _let_others_run()

    def jump_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock, forward or back; the boot clock does not notice."""
        self._wall_offset += seconds

    def reboot(self, mono: float = 1.0) -> None:
        """The machine was started again: another boot id, and the boot clock begins anew at `mono` seconds."""
        self._boots += 1
        self._mono_offset = mono - self.elapsed

    def _wake(self) -> None:
        while self._sleepers and self._sleepers[0][0] <= self.elapsed:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)


async def _let_others_run() -> None:
    """Whoever was woken runs until it waits again, unless that takes a hundred rounds of the loop."""
    for _ in range(100):
        await asyncio.sleep(0)
