"""The server's clock as this process knows it, and its times by this process's own clock: the one place between them.

Every answer brings a reading of the server's clock, which was taken after the question was sent and before the answer
was received. From that come two bounds. `now()` counts on from the receipt, a little too slowly: it is never ahead of
the server. `local()` counts from the sending: the server's time has not come later than the local one that it gives.
So the way there and back, however long it took, can only shorten what this process believes it may still do.

A reading that neither the way nor the rates of the clocks explain means that the server's clock was set forward. A wait
that was measured by it is not known to have been one then, so no absence is believed on it (`stepped`).
"""

from __future__ import annotations

from surefoot.core.state import Instant
from surefoot.doors import Clock, SystemClock

DRIFT = 0.0005
"""By how much the rates of two clocks may differ: five times what is usual for machines without time service."""
MARGIN_SECONDS = 0.05
"""A deadline comes so much earlier by the local clock."""
STEP_SECONDS = 2.0
"""Less than that is no step: a primary and the standby that takes over have clocks of their own."""
WINDOW_SECONDS = 60.0
"""For so long the largest difference that was seen counts: a server's clock that is set back lengthens nothing."""


class ServerClock:
    """Both bounds. Where the clock door is not the system's (tests, simulations), its time is also the store's."""

    def __init__(self, clock: Clock, *, of_door: bool | None = None) -> None:
        self.of_door = type(clock) is not SystemClock if of_door is None else of_door
        self._clock = clock
        self._read_at = 0.0
        self._received = 0.0
        self._ahead: float | None = None
        self._ahead_before: float | None = None
        self._window_began = 0.0
        self._trip = 0.0
        """How long the way there and back was, of the reading that counts."""
        self._stepped_at = float("-inf")
        """What the server's clock said when it was last seen to have been set forward."""

    def boot_time(self) -> float:
        """The local clock: to be read before a statement is sent."""
        return self._clock.now().mono

    def note(self, clock: float, sent: float) -> None:
        """An answer brought the reading `clock`; its question was sent at the local time `sent`."""
        received = self._clock.now().mono
        lower = self._lower(received)
        slack = self._trip + 2 * DRIFT * (received - self._received) + STEP_SECONDS
        if self._ahead is not None and clock > lower + slack:
            self._stepped_at = clock
        if self._ahead is None or not clock <= lower <= clock + (received - sent):
            # The first one, a closer bound, or the server's clock was set back.
            self._read_at, self._received, self._trip = clock, received, received - sent
        self._note_ahead(clock - sent, received)

    def _note_ahead(self, ahead: float, local: float) -> None:
        if self._ahead is None or local - self._window_began >= WINDOW_SECONDS:
            self._ahead_before, self._ahead, self._window_began = self._ahead, ahead, local
        elif ahead > self._ahead:
            self._ahead = ahead

    def now(self) -> Instant:
        """A reading that is never ahead of the server's clock."""
        if self.of_door:
            return self._clock.now()
        at = self._lower(self._clock.now().mono)
        return Instant(at, at)

    def _lower(self, local: float) -> float:
        return self._read_at + max(local - self._received, 0.0) * (1.0 - DRIFT)

    def stepped(self, mono: float) -> bool:
        """Whether the server's clock was seen to be set forward since it said `mono`."""
        return not self.of_door and mono <= self._stepped_at

    def local(self, mono: float) -> float:
        """A local boot time at which the server's clock has certainly not passed `mono`."""
        if self.of_door or self._ahead is None:
            return mono
        ahead = self._ahead if self._ahead_before is None else max(self._ahead, self._ahead_before)
        return mono - ahead - MARGIN_SECONDS
