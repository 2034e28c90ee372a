"""The proof that a worker's processes are dead: a lock file that only a living process can hold.

A vanished process id proves nothing: a forked child may still send. `flock` belongs to the open file, which forked
children share, so a free lock means that the process and all of them are gone. A stopped process keeps its lock.
Programs that close what they inherit (Python's subprocess does) are no children in this sense: a tool that starts
programs says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re

from surefoot.errors import StoreUnavailable

_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_NAMES_MAX = 10_000


class Lock:
    """A lock that this process holds until it ends, or until `release`. `owner` is the worker's name in the leases.

    The name is unique to this one holding: two processes with the same worker id never share a proof.
    """

    __slots__ = ("_descriptor", "name", "owner", "path", "recorded")

    def __init__(self, path: str, name: str, owner: str, descriptor: int) -> None:
        self.path = path
        self.name = name
        self.owner = owner
        self.recorded = False
        """Whether the table of workers has it for certain."""
        self._descriptor = descriptor

    def remove(self) -> None:
        """The worker has stopped and holds nothing: the file goes, then the lock."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.release()

    def release(self) -> None:
        """The lock goes, the file stays: what happens to a process that dies."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def take(folder: str, worker_id: str) -> Lock:
    """A new lock for a worker of this process. Raises StoreUnavailable if the folder cannot be written."""
    stem = f"{_OTHER.sub('_', worker_id)[:60]}-{hashlib.sha256(worker_id.encode()).hexdigest()[:8]}-{os.getpid()}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for number in range(_NAMES_MAX):
            lock = _try_take(folder, f"{stem}.{number}", worker_id)
            if lock is not None:
                return lock
    except OSError as error:
        raise StoreUnavailable(
            f"cannot write lock files in {folder}: {error}. Make room there, and the folder writable"
        ) from error
    raise StoreUnavailable(f"{folder} is full of lock files of process {os.getpid()}: remove those of dead workers")


def _try_take(folder: str, name: str, worker_id: str) -> Lock | None:
    path = os.path.join(folder, name)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # A program that keeps its descriptors counts as one of ours: it may hold a socket as well.
    os.set_inheritable(descriptor, True)
    return Lock(path, name, f"{worker_id}#{name.rpartition('-')[2]}", descriptor)


def is_free(folder: str, name: str) -> bool:
    """True only if the lock file exists and nobody holds it. A file that cannot be opened proves nothing."""
    try:
        descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
    except OSError:
        return False
    try:
        # Shared, so that two who look at the same time do not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def worker_of(owner: str) -> str:
    """The worker id of a lease owner."""
    return owner.rpartition("#")[0] or owner
