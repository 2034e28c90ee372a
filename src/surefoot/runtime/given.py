"""What a program gives to a method of Surefoot, checked before anything is begun with it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum

from surefoot.errors import InvalidInput

SEQUENCE_MAX = (1 << 63) - 1
"""The largest number of an event that a store can hold."""


def check_timeout(timeout: object) -> None:
    """A time to wait, in seconds; None and infinity are no bound. Raises InvalidInput.

    A wait for NaN seconds would be over at once and never, and keep its event loop from everything else.
    """
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not _seconds(timeout) >= 0:
        raise InvalidInput("timeout is in seconds and not negative, or left out")


def check_status(status: object, statuses: type[StrEnum]) -> None:
    """One of `statuses` by its word, or None for all. Raises InvalidInput.

    An empty list would be a wrong answer to a word that was mistyped.
    """
    known = [one.value for one in statuses]
    if status is not None and status not in known:
        raise InvalidInput(f"status is one of {', '.join(known)}, not {status!r}")


def called(one: object) -> str:
    """How an error calls what was given: a function by its name, anything else by its type; a repr may hold secrets."""
    name = getattr(one, "__qualname__", None)
    return repr(name) if isinstance(name, str) else f"an object of type {type(one).__name__}"


def check_lists(**lists: object) -> None:
    """Raises InvalidInput, naming the argument, where one thing was given in place of a list."""
    for name, given in lists.items():
        if not isinstance(given, Iterable):
            example = "[charge]" if name == "tools" else "[reviewer]" if name == "agents" else "[nightly]"
            raise InvalidInput(f"{name} is a list, such as {example}, not one {type(given).__name__}")


def check_after(after: object) -> None:
    """The number of an event, 0 for none. Raises InvalidInput."""
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after <= SEQUENCE_MAX:
        raise InvalidInput("after is the sequence of an event, a whole number from 0")


def _seconds(given: float) -> float:
    try:
        return float(given)
    except OverflowError:
        return math.nan
