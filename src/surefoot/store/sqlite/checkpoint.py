"""When the log is copied into the file. Not inside commits, as SQLite does by itself: that would add syncs to them.

A commit therefore costs one sync. A checkpoint costs two more and comes when nothing was appended for 5 ms and the
log holds more than 1,000 pages, or at 2,000 pages under load. A process that starts after a crash reads the whole log
first, so it must not grow as large as the load likes.
"""

from __future__ import annotations

import asyncio
import contextlib

from surefoot.errors import StoreError
from surefoot.store.sqlite.file import Busy, SqliteFile, wal_bytes, wal_frames

IDLE_PAGES_MIN = 1_000
FORCED_PAGES_MIN = 2_000
PAGE_BYTES = 4_096
IDLE_LOOK_ROWS = 200
FORCED_LOOK_ROWS = 400
"""The log is looked at each time so many rows were changed; a row is two or three pages of a run that is alone."""
IDLE_SECONDS = 0.005


class Checkpointer:
    """Chooses the moment; never waits and never fails."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._commits = 0
        self._looked_at_row = 0
        self._looked_at_byte = 0
        self._copied = 0
        self._ticking = False
        self._closed = False

    def committed(self) -> None:
        """A batch was committed."""
        self._commits += 1
        rows = self._file.changes() - self._looked_at_row
        if rows >= FORCED_LOOK_ROWS:
            self._copy_from(FORCED_PAGES_MIN)
        elif not self._ticking and (rows >= IDLE_LOOK_ROWS or self._has_grown()):
            self._ticking = True
            self._again()

    def stop(self) -> None:
        """No more."""
        self._closed = True

    def _has_grown(self) -> bool:
        """Few rows can be many pages."""
        return wal_bytes(self._file.path) - self._looked_at_byte > IDLE_PAGES_MIN * PAGE_BYTES

    def _again(self) -> None:
        asyncio.get_running_loop().call_later(IDLE_SECONDS, self._tick, self._commits)

    def _tick(self, commits: int) -> None:
        if self._closed:
            return
        if commits != self._commits:
            self._again()
            return
        self._ticking = False
        self._copy_from(IDLE_PAGES_MIN)

    def _copy_from(self, pages: int) -> None:
        # A reader or another process in the way: the next look comes with the next commit.
        self._looked_at_row = self._file.changes()
        self._looked_at_byte = wal_bytes(self._file.path)
        with contextlib.suppress(Busy, StoreError):
            frames = wal_frames(self._file.path)
            # A log that was copied is used again from its start, unless a reader still needs it: then it grows on.
            if frames < self._copied:
                self._copied = 0
            if frames - self._copied > pages:
                self._file.all("checkpoint")
                self._copied = frames
