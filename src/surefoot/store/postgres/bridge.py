"""A loop without sockets, such as a simulated process has, reaches the server through a thread with a real one.

A statement then holds the caller's loop until its answer is there, as SQLite does: the order of things is the loop's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")


class Bridge:
    """One thread with a real event loop, for the life of the process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: it has nothing of its own to finish.
        threading.Thread(target=self._loop.run_forever, name="surefoot-store", daemon=True).start()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Do it there, and wait here."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, function: Callable[[], object]) -> None:
        """Call a plain function there, and wait here."""

        async def calling() -> None:
            function()

        self.run(calling())


_made: list[Bridge] = []


def bridge_for(loop: asyncio.AbstractEventLoop) -> Bridge | None:
    """The bridge, where `loop` has no sockets; None where it needs none."""
    if type(loop).create_connection is not asyncio.AbstractEventLoop.create_connection:
        return None
    if not _made:
        _made.append(Bridge())
    return _made[0]
