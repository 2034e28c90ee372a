"""What looks after something beside the work of a process, from `begin` to `stop`; and code of users, which may not end
what it is called by.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def from_inside(function: Callable[[], Awaitable[T]]) -> T:
    """What a user's function answers. Raises what it raises, and RuntimeError where it would have ended the task or the
    process of all others: by a `sys.exit`, or by a cancellation of its own, as of a pool that was closed.
    """
    try:
        return await function()
    except (SystemExit, KeyboardInterrupt) as problem:
        raise RuntimeError(type(problem).__name__) from problem
    except asyncio.CancelledError as stopped:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("it was stopped from inside") from stopped


def in_place(function: Callable[..., T], *args: object, **kwargs: object) -> T:
    """The same of a function that is called where it stands, and awaits nothing: whatever it raises that is no
    Exception is its own, and becomes a RuntimeError.
    """
    try:
        return function(*args, **kwargs)
    except Exception:
        raise
    except BaseException as problem:
        raise RuntimeError(type(problem).__name__) from problem


class Background:
    """A task of its own that runs `_forever`, which looks again after whatever goes wrong."""

    _task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """From now on."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._forever())

    async def stop(self) -> None:
        """Begin nothing more. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _forever(self) -> None:
        raise NotImplementedError
