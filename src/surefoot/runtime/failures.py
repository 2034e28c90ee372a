"""Drives that failed: how long their run rests, and from when on it is a bug that stays."""

from __future__ import annotations

from collections import Counter

from surefoot.core import policy
from surefoot.errors import StoreError, Unreadable

FAILURE_PAUSE_SECONDS_MAX = 60.0
STORE_PAUSE_SECONDS_MAX = 5.0
"""Behind what the store did not do: it may be back at any time, and nothing rests for long then."""
DRIVES_FAILED_MAX = 8
"""Drives of one run that fail in a row, by a bug and not by the store, before the run is set aside."""


def store_pause(tries: int) -> float:
    """Seconds until the store is asked again for what it did not do, the more the oftener it was asked in vain."""
    return policy.backoff(tries, 0.5, base_s=0.2, max_s=STORE_PAUSE_SECONDS_MAX)


class Failures:
    """Drives that failed in a row, by run, until one ends well. An outage of the store says nothing about a run."""

    def __init__(self) -> None:
        self._bugs: Counter[str] = Counter()
        self._outages: Counter[str] = Counter()

    def add(self, run_id: str, failure: BaseException) -> float:
        """One more; for how many seconds the run rests behind it."""
        if isinstance(failure, StoreError) and not isinstance(failure, Unreadable):
            self._outages[run_id] += 1
            return store_pause(self._outages[run_id] - 1)
        self._bugs[run_id] += 1
        return policy.backoff(self._bugs[run_id] - 1, 0.5, base_s=0.2, max_s=FAILURE_PAUSE_SECONDS_MAX)

    def stay(self, run_id: str) -> bool:
        """A bug that stays: the run is to say so, until a worker with other code starts."""
        return self._bugs[run_id] >= DRIVES_FAILED_MAX

    def over(self, run_id: str) -> None:
        """A drive ended well, or there will be none."""
        self._bugs.pop(run_id, None)
        self._outages.pop(run_id, None)
