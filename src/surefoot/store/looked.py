"""How far the questions were looked through that a hook is to be told of, so that the next look begins there."""

from __future__ import annotations

import math

Key = tuple[str, str]
"""Tenant and hook."""

LAG_SECONDS = 60.0
"""A question may become visible so much later than one that came behind it: two commits of two processes."""
WHOLE_SECONDS = 300.0
"""So often everything that waits is looked through all the same: what took longer to become visible is found then."""


class Looked:
    """Of this process, for each tenant and hook. Times are of one clock, seconds; places are arrivals of questions."""

    def __init__(self) -> None:
        self._behind: dict[Key, int] = {}
        self._next: dict[Key, tuple[float, int]] = {}
        self._whole: dict[Key, float] = {}

    def behind(self, key: Key) -> int:
        """All that arrived up to there was told of, or will be tried again."""
        return self._behind.get(key, 0)

    def begin(self, key: Key, now: float) -> int:
        """Where a look has to begin: 0 where everything is to be looked through."""
        return 0 if now - self._whole.get(key, -math.inf) >= WHOLE_SECONDS else self.behind(key)

    def nothing(self, key: Key, now: float, began: int, newest: int) -> None:
        """A look that began there found nothing; `newest` was the newest question then."""
        if began == 0:
            self._whole[key] = now
        at, place = self._next.setdefault(key, (now, newest))
        if now - at >= LAG_SECONDS:
            self._behind[key] = place
            self._next[key] = (now, newest)
