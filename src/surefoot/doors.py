"""The four doors: commits, the clock, randomness and HTTP. Nothing else in surefoot touches the outside.

Faults come in here. Each passage calls `hook(name, "before")` and `hook(name, "after")`; a crash point is one such
call. Tests hand in doors of their own (`surefoot.testing`); a real process uses `system_doors()`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from surefoot.core.state import Instant as Instant

if TYPE_CHECKING:
    import httpcore

Hook = Callable[[str, Literal["before", "after"]], None]
"""Called at each door passage. May raise (a fault) or not return (a crash). The names are `commit`, `clock.sleep`,
`random`, `http.connect`, `http.send`, `http.reply`, `model`, `tool`, `lookup`."""


def no_hook(name: str, when: Literal["before", "after"]) -> None:
    """The hook of production: nothing happens."""


class Clock(Protocol):
    """The clock door."""

    def now(self) -> Instant:
        """Both clocks."""
        ...

    def boot_id(self) -> str:
        """Changes with every boot of the machine; times since boot of another boot mean nothing."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; a cancelled wait raises CancelledError."""
        ...


async def first_of(*waits: Awaitable[object]) -> None:
    """Wait until one of them is over, however it ended; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


class Entropy(Protocol):
    """The door of randomness: ids, tokens, jitter."""

    def token(self, count: int) -> bytes:
        """`count` unpredictable bytes."""
        ...

    def fraction(self) -> float:
        """A number in [0, 1), for jitter."""
        ...


class HttpTransport(Protocol):
    """Sends requests of one operation: the port of httpcore, whose import costs a third of what httpx costs.

    Raises `surefoot.effects.NotSent` or httpcore's ConnectError, ConnectTimeout or PoolTimeout only where no byte of
    the request left, `surefoot.effects.Refused` where the request cannot be formed; whatever else it raises is in
    doubt. A task that was cancelled before the first byte gets its CancelledError with a NotSent as its cause.
    """

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send `request` once; `request.extensions["deadline"]` is the boot time at which it has to be over."""
        ...

    async def aclose(self) -> None:
        """Close what is still open."""
        ...


class Timed(Protocol):
    """What a transport needs to know of an operation: its two times, and whether the request only reads."""

    @property
    def effect(self) -> str:
        """The name of the effect class."""
        ...

    @property
    def looking(self) -> bool:
        """True inside a lookup or a precondition: the request is a read, whatever the class is."""
        ...

    @property
    def first_byte_before(self) -> float:
        """Boot clock, seconds: no request starts later."""
        ...

    @property
    def last_byte_before(self) -> float:
        """Boot clock, seconds: nothing is written later."""
        ...


class HttpDoor(Protocol):
    """The HTTP door: what `surefoot.http.client(op)` sends through."""

    @property
    def clock(self) -> Clock:
        """The clock by which the operation's two times are judged and HTTP dates are read."""
        ...

    def transport(self, op: Timed) -> HttpTransport:
        """A transport for one client of one operation; it checks the operation's two times where bytes are written."""
        ...


class SystemClock:
    """The machine's clocks. Linux CLOCK_BOOTTIME and macOS CLOCK_MONOTONIC both run through sleep."""

    def __init__(self) -> None:
        self._clock_id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        self._boot_id: str | None = None

    def now(self) -> Instant:
        """Both clocks."""
        return Instant(time.clock_gettime(self._clock_id), time.time())

    def boot_id(self) -> str:
        """The kernel's id of this boot."""
        if self._boot_id is None:
            self._boot_id = _read_boot_id()
        return self._boot_id

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        await asyncio.sleep(max(seconds, 0.0))


class SystemEntropy:
    """The operating system's randomness."""

    def token(self, count: int) -> bytes:
        """`count` bytes of os.urandom."""
        return os.urandom(count)

    def fraction(self) -> float:
        """53 random bits as a fraction."""
        return int.from_bytes(os.urandom(7)) / (1 << 56)


def _read_boot_id() -> str:
    if sys.platform == "darwin":
        out = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=True
        )
        return out.stdout.strip()
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


class Doors(msgspec.Struct, frozen=True):
    """The doors of one Surefoot instance, handed down to everything that touches the outside."""

    clock: Clock
    entropy: Entropy
    http: HttpDoor
    hook: Hook = no_hook
