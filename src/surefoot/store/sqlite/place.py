"""Whether the files of a store are still where they were opened.

A file that is moved, removed or replaced while it is open stays open: commits would go on into something that nobody
else sees and no restart finds. Without its log or shared memory two processes would write the file beside each other.
"""

from __future__ import annotations

import os

from surefoot.errors import StoreUnavailable

_LOG = "-wal"
_PARTS = ("", _LOG, "-shm")
"""SQLite keeps the latter two for as long as any process has the file open."""


class Place:
    """The files at a path, as they were when this process opened them."""

    def __init__(self, path: str) -> None:
        self._pid = os.getpid()
        self._folder = os.path.dirname(path) or "."
        self._log = path + _LOG
        self._linked = os.path.islink(path)
        """The files are in another folder then."""
        self._files = tuple((path + part, _identity(path + part)) for part in _PARTS)
        self._quiet: tuple[int, int, int] | None = None
        """The folder, and when a name in it changed last, where the files were found as they were after that."""

    def check(self) -> None:
        """Raises StoreUnavailable if one of them is another one now, or gone, or this is a forked child."""
        if os.getpid() != self._pid:
            # POSIX gives a child none of the locks: it would write beside its parent.
            raise StoreUnavailable(
                f"{self._files[0][0]} was opened before the fork, by the parent of this process. Nothing was written; "
                "open the store in this process"
            )
        # Each move, removal or replacement changes the folder's own time: while that stands still, so do the files.
        if self._quiet is None or _changed(self._folder) != self._quiet:
            self._look()

    def _look(self) -> None:
        # In this order. Times are coarse: a later change shows in the folder's only once the log has a later one.
        log, folder = _changed(self._log), _changed(self._folder)
        passed = folder is not None and log is not None and log[2] > folder[2]
        self._quiet = folder if passed and not self._linked else None
        for path, opened in self._files:
            if opened is not None and _identity(path) != opened:
                self._quiet = None
                raise StoreUnavailable(
                    f"{path} was moved, removed or replaced while this process had it open. Nothing was written; stop "
                    "every process that uses the store, put the file back or restore a backup, and start them again"
                )


def _identity(path: str) -> tuple[int, int] | None:
    found = _changed(path)
    return None if found is None else found[:2]


def _changed(path: str) -> tuple[int, int, int] | None:
    """What is there, and when it was changed last (nanoseconds), by the time that nobody can set: whoever puts a backup
    back sets the other one.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns
