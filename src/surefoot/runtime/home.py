"""Where a program's Surefoot may be used: in the process and on the event loop that opened it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import TypeVar

from surefoot.errors import InvalidInput

T = TypeVar("T")


class Home:
    """A process and an event loop: none before `settle`."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def settle(self, *, is_open: bool) -> None:
        """Here it is opened. Raises InvalidInput where it is open already: the first store would never be closed."""
        if is_open and not self.forked:
            raise InvalidInput("this Surefoot is open already: use that one, or make another")
        self._pid, self._loop = os.getpid(), asyncio.get_running_loop()

    @property
    def forked(self) -> bool:
        """Whether this is a child of that process: its connections are the parent's, and are left alone."""
        return self._pid is not None and os.getpid() != self._pid

    def check(self) -> None:
        """Raises InvalidInput elsewhere. A connection that two processes or two threads use is not what it says."""
        if self.forked:
            raise InvalidInput(
                "this Surefoot was opened before the fork, and is its parent's: open another one in this process, or "
                "start it with multiprocessing's `spawn`"
            )
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is not self._loop:
            raise InvalidInput(
                "this Surefoot belongs to the event loop that opened it: call it there, from another thread with "
                "asyncio.run_coroutine_threadsafe(…, loop), or open another one here"
            )


def run_sync(main: Coroutine[object, object, T]) -> T:
    """Run one coroutine to its end, for scripts: `surefoot.run_sync(main())`."""
    return asyncio.run(main)
