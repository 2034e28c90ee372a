"""Waiting in tests: until a condition holds, with a deadline. Nothing else in the tests sleeps. And forked children."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE_SECONDS = 0.005


def _must_go_on(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise AssertionError(f"waited in vain for: {what}")


async def eventually(condition: Callable[[], T], what: str = "the condition", *, seconds_max: float = 20.0) -> T:
    """The first true value of `condition`, polled on the event loop; AssertionError after `seconds_max`."""
    deadline = time.monotonic() + seconds_max
    while not (value := condition()):
        _must_go_on(deadline, what)
        await asyncio.sleep(PAUSE_SECONDS)
    return value


def eventually_sync(condition: Callable[[], T], what: str = "the condition", *, seconds_max: float = 20.0) -> T:
    """As `eventually`, for tests that have no event loop."""
    deadline = time.monotonic() + seconds_max
    while not (value := condition()):
        _must_go_on(deadline, what)
        time.sleep(PAUSE_SECONDS)
    return value


def in_a_forked_child(work: Callable[[], str]) -> str:
    """What `work` says in a forked child of this process; "" where it raised."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        text = told.read().decode()
    os.waitpid(child, 0)
    return text
