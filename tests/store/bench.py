"""What a test of stores gets: stores on one database, a clock that it can move, and the commits counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from surefoot.core.state import Instant
from surefoot.doors import SystemClock
from surefoot.store.port import Store

When = Literal["before", "after"]


class ShiftedClock(SystemClock):
    """The machine's clocks, moved on by hand; another boot is another name."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = 0.0
        self.boot = super().boot_id()
        self.boot_shift = 0.0

    def now(self) -> Instant:
        at = super().now()
        return Instant(at.mono + self.shift + self.boot_shift, at.wall + self.shift)

    def boot_id(self) -> str:
        return self.boot

    def advance(self, seconds: float) -> None:
        self.shift += seconds

    def reboot(self, boot: str = "boot-2") -> None:
        """The boot clock starts at 100 s again; the wall clock goes on."""
        self.boot = boot
        self.boot_shift = 100.0 - super().now().mono - self.shift


class Commits:
    """The hook of the commit door: counts commits, and does what a test asks of the next ones."""

    def __init__(self) -> None:
        self.count = 0
        self.before: Callable[[], None] | None = None
        self.after: Callable[[], None] | None = None

    def __call__(self, name: str, when: When) -> None:
        assert name == "commit"
        act = self.before if when == "before" else self.after
        if when == "after":
            self.count += 1
        if act is not None:
            act()


class Bench(Protocol):
    """One database under test."""

    clock: ShiftedClock
    commits: Commits

    async def open(self) -> Store:
        """Another store on the same database, as another process would have it."""
        ...
