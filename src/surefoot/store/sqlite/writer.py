"""The one writer: what waits is joined in one transaction, once a loop tick, on the loop's own thread.

A lost guard has written nothing, so the others of its batch go on. What the database refuses only later (a unique key)
rolls the batch back, and it is replayed one by one under savepoints. Two jobs of one run never share a batch: the
second is decided on what the first has committed. Measured against a thread and savepoints: docs/decisions.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from surefoot.doors import Clock, Hook
from surefoot.errors import (
    CommitUnknown,
    Conflict,
    InvalidInput,
    StoreError,
    StoreUnavailable,
    SurefootError,
    Unreadable,
)
from surefoot.store.rows import FLUSH_ORDER, Values
from surefoot.store.sqlite.file import Busy, NotCommitted, SqliteFile

T = TypeVar("T")

BATCH_MAX = 512
BUSY_SECONDS_MAX = 30.0
PAUSE_SECONDS_MIN = 0.002
PAUSE_SECONDS_MAX = 0.05
_FLUSHED = frozenset(FLUSH_ORDER)


class Undo(Exception):
    """A job was refused after it had written something: the batch is replayed one by one."""

    def __init__(self, error: SurefootError) -> None:
        super().__init__(str(error))
        self.error = error


class Transaction:
    """What a job writes into: the file, and rows that wait until all guards of the batch were checked."""

    def __init__(self, file: SqliteFile, clock: Clock) -> None:
        self.file = file
        self.clock = clock
        self._jobs: list[dict[str, list[Values]]] = []

    def later(self, rows: dict[str, list[Values]]) -> None:
        """Rows that are written with those of the other jobs, a query at a time. They are left as they are."""
        self._jobs.append(rows)

    def flush(self) -> None:
        """Write them."""
        rows, self._jobs = _together(self._jobs), []
        assert rows.keys() <= _FLUSHED, "every query that may wait has its place in FLUSH_ORDER"
        for query in FLUSH_ORDER:
            values = rows.get(query)
            if values is not None:
                self.file.many(query, values)


def _together(jobs: list[dict[str, list[Values]]]) -> dict[str, list[Values]]:
    if len(jobs) == 1:
        return jobs[0]
    rows: dict[str, list[Values]] = {}
    for job in jobs:
        for query, values in job.items():
            waiting = rows.get(query)
            if waiting is None:
                rows[query] = list(values)
            else:
                waiting.extend(values)
    return rows


class Job(Generic[T]):
    """One thing to be written. `write` raises a SurefootError only while it has written nothing, else Undo."""

    run_id: str | None = None
    """The run whose row it guards, or waits for; one job for each run in a batch."""

    def __init__(self) -> None:
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def write(self, tx: Transaction) -> T:
        """Write, inside the transaction."""
        raise NotImplementedError

    def committed(self) -> None:
        """What it wrote is durable."""


class Call(Job[T]):
    """A job that is one function; with a `run_id` it comes behind all that was to be written to that run before."""

    def __init__(self, function: Callable[[Transaction], T], run_id: str | None = None) -> None:
        super().__init__()
        self.run_id = run_id
        self._function = function

    def write(self, tx: Transaction) -> T:
        """Call it."""
        return self._function(tx)


Outcome = tuple["Job[object]", object]
"""A job with its result, or with the exception that refused it."""


class Writer:
    """The queue and its transactions. `on_commit` is called once a durable batch, before the results are given."""

    def __init__(self, file: SqliteFile, clock: Clock, hook: Hook, on_commit: Callable[[], None]) -> None:
        self._file = file
        self._clock = clock
        self._hook = hook
        self._on_commit = on_commit
        self._queue: deque[Job[object]] = deque()
        self._scheduled = False
        self._busy_since: float | None = None
        self._pause = PAUSE_SECONDS_MIN
        self._waiting: asyncio.Task[None] | None = None

    def submit(self, job: Job[T], *, at_once: bool = False) -> asyncio.Future[T]:
        """Queue a job. Cancelling the wait for its future does not cancel the commit.

        `at_once`: nobody is likely to share its commit, so it does not wait a pass of the loop for others, nor its
        caller another one for the result.
        """
        at_once = at_once and not self._scheduled and not self._queue
        self._queue.append(job)  # type: ignore[arg-type]  # only Job.write gives the value that Job.future takes
        if at_once:
            self._scheduled = True
            self._flush()
        else:
            self._schedule()
        return job.future

    @property
    def busy(self) -> bool:
        """Whether it waits for another process's lock."""
        return self._busy_since is not None

    async def drain(self) -> None:
        """Wait until nothing is queued; what then cannot be written has told its own callers."""
        while self._queue:
            with contextlib.suppress(StoreError):
                await self.submit(Call(lambda tx: None))

    def drop(self) -> None:
        """Nothing more is written: what a process that dies does to its queue."""
        self._queue.clear()
        if self._waiting is not None:
            self._waiting.cancel()

    def _schedule(self) -> None:
        if not self._scheduled and self._queue:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        batch = self._take()
        if not batch:
            return
        try:
            self._deliver(self._transact(batch))
        except Busy as busy:
            self._wait(batch, busy)
            return
        except Exception as error:
            # Also a broken assumption of our own: the callers must hear of it, or they would wait for ever.
            _refuse(batch, error)
        self._busy_since = None
        self._pause = PAUSE_SECONDS_MIN
        self._schedule()

    def _take(self) -> list[Job[object]]:
        """Up to BATCH_MAX jobs in order, at most one for each run; the others stay in order."""
        batch: list[Job[object]] = []
        left: deque[Job[object]] = deque()
        runs: set[str] = set()
        while self._queue and len(batch) < BATCH_MAX:
            job = self._queue.popleft()
            if job.run_id is not None and job.run_id in runs:
                left.append(job)
                continue
            if job.run_id is not None:
                runs.add(job.run_id)
            batch.append(job)
        left.extend(self._queue)
        self._queue = left
        return batch

    # The transaction

    def _transact(self, batch: list[Job[object]]) -> list[Outcome]:
        """Raises Busy if nothing was begun, StoreError if nothing was written."""
        before = self._file.changes()
        self._file.begin()
        try:
            outcomes = self._decide(batch)
        except BaseException:
            self._file.rollback()
            raise
        if self._file.changes() == before:
            self._file.rollback()
            return outcomes
        failure = self._commit()
        if failure is None:
            return outcomes
        return [(job, value if isinstance(value, BaseException) else failure) for job, value in outcomes]

    def _decide(self, batch: list[Job[object]]) -> list[Outcome]:
        try:
            return self._joined(batch)
        except (Undo, sqlite3.IntegrityError, Unreadable, ValueError, OverflowError):
            self._file.rollback()
            self._file.begin()
            return [(job, self._apart(job)) for job in batch]

    def _joined(self, batch: list[Job[object]]) -> list[Outcome]:
        tx = Transaction(self._file, self._clock)
        outcomes: list[Outcome] = []
        for job in batch:
            try:
                outcomes.append((job, job.write(tx)))
            except StoreError:
                raise
            except SurefootError as refusal:
                outcomes.append((job, refusal))
        tx.flush()
        return outcomes

    def _apart(self, job: Job[object]) -> object:
        self._file.run("savepoint")
        result: object
        try:
            tx = Transaction(self._file, self._clock)
            result = job.write(tx)
            tx.flush()
        except StoreUnavailable:
            raise
        except (SurefootError, Undo, sqlite3.IntegrityError, ValueError, OverflowError) as error:
            self._file.run("savepoint_undo")
            result = _refusal(error)
        self._file.run("savepoint_release")
        return result

    def _commit(self) -> BaseException | None:
        """None if it is durable, else what the jobs are told."""
        where = self._file.path
        try:
            self._hook("commit", "before")
        except BaseException as error:
            self._file.rollback()
            if not isinstance(error, Exception):
                return error
            return StoreUnavailable(f"{where}: not committed ({error!r}). Nothing was written; try again")
        try:
            self._file.commit()
        except NotCommitted as error:
            if error.certain:
                return StoreUnavailable(f"{error}. Nothing was written; check the disk and its free space")
            return CommitUnknown(f"{error}. Whether it was written is not known: nothing is sent; read the row back")
        try:
            self._hook("commit", "after")
        except BaseException as error:
            self._on_commit()
            if not isinstance(error, Exception):
                return error
            return CommitUnknown(
                f"{where}: the answer to a commit was lost ({error!r}): nothing is sent; read the row back"
            )
        self._on_commit()
        return None

    def _deliver(self, outcomes: list[Outcome]) -> None:
        for job, value in outcomes:
            if isinstance(value, BaseException):
                _fail(job, value)
                continue
            job.committed()
            if not job.future.done():
                job.future.set_result(value)

    # Another process has the lock

    def _wait(self, batch: list[Job[object]], busy: Busy) -> None:
        now = self._clock.now().mono
        if self._busy_since is None:
            self._busy_since = now
        if now - self._busy_since >= BUSY_SECONDS_MAX:
            self._busy_since = None
            _refuse(batch, locked(self._file.path, busy))
            self._schedule()
            return
        self._queue.extendleft(reversed(batch))
        self._scheduled = True
        self._waiting = asyncio.get_running_loop().create_task(self._again())

    async def _again(self) -> None:
        try:
            await self._clock.sleep(self._pause)
        except Exception:
            # A fault of the clock door must not lose what is queued: the pause is over, that is all.
            self._pause = PAUSE_SECONDS_MAX
        except asyncio.CancelledError:
            batch, self._queue = list(self._queue), deque()
            _refuse(
                batch, StoreUnavailable(f"{self._file.path}: stopped while it waited for the lock. Nothing was written")
            )
            self._scheduled = False
            raise
        self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)
        self._flush()


def locked(path: str, busy: Busy) -> StoreUnavailable:
    """What is said after BUSY_SECONDS_MAX."""
    return StoreUnavailable(
        f"{path}: another process has held the lock for {BUSY_SECONDS_MAX:.0f} s ({busy}). Nothing was written; "
        "end the transaction that holds it (an sqlite3 shell, a backup), then try again"
    )


def _refuse(batch: list[Job[object]], error: Exception) -> None:
    for job in batch:
        _fail(job, error)


def _fail(job: Job[object], error: BaseException) -> None:
    if not job.future.done():
        job.future.set_exception(error)


def _refusal(error: Exception) -> SurefootError:
    if isinstance(error, SurefootError):
        return error
    if isinstance(error, Undo):
        return error.error
    if isinstance(error, sqlite3.IntegrityError) and error.sqlite_errorcode in (
        sqlite3.SQLITE_CONSTRAINT_UNIQUE,
        sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    ):
        return Conflict(f"somebody wrote the same first ({error}): reload and decide again")
    return InvalidInput(f"the store cannot take a value ({error}). Nothing was written")
