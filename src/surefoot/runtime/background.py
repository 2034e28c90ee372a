"""What looks after something beside the work of a process, from `begin` to `stop`."""

from __future__ import annotations

import asyncio


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
