"""When the log is copied into the file. Not inside commits, as SQLite does by itself: that would add syncs to them.

A commit therefore costs one sync. A checkpoint costs two more and comes when nothing was appended for four ticks of
the event loop and the log holds more than 1,000 pages, or at 4,000 pages under load.
"""

from __future__ import annotations

import asyncio
import contextlib

from surefoot.errors import StoreError
from surefoot.store.sqlite.file import Busy, SqliteFile, wal_frames

IDLE_PAGES_MIN = 1_000
FORCED_PAGES_MIN = 4_000
FORCED_LOOK_ROWS = 1_000
"""The log is looked at under load each time so many rows were changed: a row is about two pages, often shared."""
IDLE_TICKS = 4


class Checkpointer:
    """Chooses the moment; never waits and never fails."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._commits = 0
        self._looked_at_row = 0
        self._copied = 0
        self._ticking = False
        self._closed = False

    def committed(self) -> None:
        """A batch was committed."""
        self._commits += 1
        rows = self._file.changes()
        if rows - self._looked_at_row >= FORCED_LOOK_ROWS:
            self._looked_at_row = rows
            self._copy_from(FORCED_PAGES_MIN)
        if not self._ticking:
            self._ticking = True
            self._again(0)

    def stop(self) -> None:
        """No more."""
        self._closed = True

    def _again(self, idle: int) -> None:
        asyncio.get_running_loop().call_soon(self._tick, self._commits, idle + 1)

    def _tick(self, commits: int, idle: int) -> None:
        if self._closed:
            return
        if commits != self._commits:
            self._again(0)
        elif idle < IDLE_TICKS:
            self._again(idle)
        else:
            self._ticking = False
            self._copy_from(IDLE_PAGES_MIN)

    def _copy_from(self, pages: int) -> None:
        # A reader or another process in the way: the next look comes with the next commit.
        with contextlib.suppress(Busy, StoreError):
            frames = wal_frames(self._file.path)
            # A log that was copied is used again from its start, unless a reader still needs it: then it grows on.
            if frames < self._copied:
                self._copied = 0
            if frames - self._copied > pages:
                self._file.all("checkpoint")
                self._copied = frames
