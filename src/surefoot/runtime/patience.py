"""Asking again for what is not there yet: at once at first, and the longer it takes, the more rarely."""

from __future__ import annotations

NAMES_MAX = 10_000


class Patience:
    """Since when something has been asked for in vain, by a name. What a process knows of it ends with the process."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def pause_s(self, name: str, now: float, share: float, least_s: float, most_s: float) -> float:
        """Seconds until it is to be asked for again: a `share` of the time that it has taken so far, within bounds.

        `now` is a boot time. The first time begins with this call.
        """
        since = self._since.get(name)
        if since is None:
            if len(self._since) >= NAMES_MAX:
                # The oldest are most likely asked for by nobody any more.
                del self._since[next(iter(self._since))]
            since = self._since[name] = now
        return min(max((now - since) * share, least_s), most_s)

    def over(self, name: str) -> None:
        """It is there."""
        self._since.pop(name, None)
