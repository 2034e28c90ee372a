"""The one writer: what waits while a statement is under way is joined in the next one, on one connection.

A batch of decisions is one statement, and one commit. A lost guard writes nothing, so the others of its batch go on.
What the database refuses (a unique key, a value) refuses the whole statement, and each decision is then written alone;
so it is where somebody else holds the row of one of their runs for long, and that one waits without the others.
Two jobs of one run or of one conversation never share a batch: the second is decided on what the first committed.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from surefoot.core.state import Instant
from surefoot.doors import Clock, Hook
from surefoot.errors import CommitUnknown, StoreUnavailable, SurefootError
from surefoot.store.postgres import failures, link as link_module
from surefoot.store.postgres.failures import Locked, Spoiled, Unclear, Unsent, invalid
from surefoot.store.postgres.link import LOCK_SECONDS_ONCE, Link, Row
from surefoot.store.postgres.links import Links
from surefoot.store.postgres.server_clock import ServerClock
from surefoot.store.postgres.statements import Filling, Statements
from surefoot.store.rows import Values

T = TypeVar("T")

BATCH_MAX = 512
AGAIN_MAX = 5
"""How often one decision is written again that a concurrent transaction was in the way of."""


class Job(Generic[T]):
    """One thing to be written; its future is what the caller waits for."""

    def __init__(self) -> None:
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(self, value: T) -> None:
        """It is durable."""
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """It is not, or nobody knows."""
        if not self.future.done():
            self.future.set_exception(error)


class Decision(Job[T]):
    """A job that shares a statement with others of its kind."""

    turns_waited = 0
    """How often somebody else held its run's row; it is written alone then, and others between its turns."""
    creates = False
    """Whether it makes a run; else it appends to one."""
    run_id: str
    keys: frozenset[str]
    """What no other decision of a batch may have too."""
    guarded: Values
    """The row of its guard."""
    rows: Mapping[str, Sequence[Values]]

    @abstractmethod
    def value(self) -> T:
        """What the caller gets once it is durable; tells whoever follows the run."""

    @abstractmethod
    async def lost(self, link: Link, server: Server) -> T:
        """Its guard did not hold: what the caller gets, or the SurefootError that says why."""

    @abstractmethod
    async def refused(self, link: Link, server: Server, error: Spoiled) -> SurefootError:
        """Written alone it was refused by the database: what the caller is told."""


class Alone(Job[T]):
    """A job that is one function, with the writer's connection for itself. `tells` is whether others want to know."""

    def __init__(self, function: Callable[[Server, Link], Awaitable[T]], *, tells: bool) -> None:
        super().__init__()
        self.function = function
        self.tells = tells


class Server:
    """What jobs need beside the connection: texts of statements, the clock, the commit door."""

    def __init__(self, texts: Statements, clock: ServerClock, door: Clock, hook: Hook, name: str) -> None:
        self.texts = texts
        self.clock = clock
        self.name = name
        self._door = door
        self._hook = hook

    def values(self, names: Sequence[str], params: Mapping[str, object]) -> list[object]:
        """The parameters of a named query, in its order."""
        now = self._door.now() if self.texts.of_door else None
        return [_clock_value(now, name) if name in ("mono", "wall") and now else params[name] for name in names]

    async def ask(self, link: Link, name: str, params: Mapping[str, object], chosen: str = "") -> list[Row]:
        """The rows of a named query that reads, or that writes inside a transaction. Raises what the driver raises."""
        statement = self.texts.named(name, chosen)
        return await link.rows(statement.sql, self.values(statement.names, params))

    async def put(self, link: Link, name: str, params: Mapping[str, object]) -> list[Row]:
        """A named query that writes, and commits where it is not inside a transaction. Raises as `Link.write`."""
        statement = self.texts.named(name)
        sent = self.clock.boot_time()
        found = await link.write(statement.sql, self.values(statement.names, params))
        if found and isinstance(reading := found[0].get("clock"), float):
            self.clock.note(reading, sent)
        return found

    async def commit(self, link: Link, name: str, params: Mapping[str, object]) -> list[Row]:
        """The same as a commit of its own, through the commit door. Raises StoreUnavailable, CommitUnknown, Spoiled."""
        self.before()
        try:
            found = await self.put(link, name, params)
        except Unclear as unclear:
            raise unknown(unclear) from unclear
        self.after()
        return found

    def before(self) -> None:
        """The commit door opens. Raises StoreUnavailable: nothing was written."""
        try:
            self._hook("commit", "before")
        except Exception as error:
            raise StoreUnavailable(f"{self.name}: not committed ({error!r}). Nothing was written; try again") from error

    def after(self) -> None:
        """It was passed. Raises CommitUnknown."""
        try:
            self._hook("commit", "after")
        except Exception as error:
            raise CommitUnknown(
                f"{self.name}: the answer to a commit was lost ({error!r}): nothing is sent; read the row back"
            ) from error


def _clock_value(now: Instant, name: str) -> float:
    return now.mono if name == "mono" else now.wall


def unknown(unclear: Unclear) -> CommitUnknown:
    """What is told of a commit that may have happened."""
    return CommitUnknown(f"{unclear}. Whether it was written is not known: nothing is sent; read the row back")


class Writer:
    """The queue and its batches. `on_commit` is called once a durable batch, before the results are given, with the
    runs that it wrote to, or None for a commit of which nobody wants to know.
    """

    def __init__(self, links: Links, server: Server, on_commit: Callable[[Sequence[str] | None], None]) -> None:
        self._links = links
        self._server = server
        self._on_commit = on_commit
        self._queue: deque[Job[object]] = deque()
        self._working: asyncio.Task[None] | None = None

    def submit(self, job: Job[T]) -> asyncio.Future[T]:
        """Queue a job. Cancelling the wait for its future does not cancel the commit."""
        self._queue.append(job)  # type: ignore[arg-type]  # only the job itself gives the value that its future takes
        if self._working is None:
            # In the next round of the loop: what comes in this one is joined.
            self._working = asyncio.get_running_loop().create_task(self._work())
        return job.future

    @property
    def busy(self) -> bool:
        """Whether something waits or is under way."""
        return self._working is not None

    async def drain(self) -> None:
        """Wait until nothing is queued; what then cannot be written has told its own callers."""
        while self._working is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._working)

    def drop(self) -> None:
        """Nothing more is written: what a process that dies does to its queue."""
        self._queue.clear()
        if self._working is not None:
            self._working.cancel()

    async def _work(self) -> None:
        try:
            while self._queue:
                batch = self._take()
                try:
                    await self._write(batch)
                except BaseException as error:
                    # Also a broken assumption of our own: the callers must hear of it, or they would wait for ever.
                    for job in batch:
                        job.fail(error)
                    if isinstance(error, asyncio.CancelledError):
                        raise
        finally:
            self._working = None
            left, self._queue = self._queue, deque()
            for job in left:
                job.fail(StoreUnavailable(f"{self._server.name}: stopped. Nothing was written"))

    def _take(self) -> list[Job[object]]:
        """The next job alone, or up to BATCH_MAX decisions of its kind that share no key; the others stay in order."""
        first = self._queue.popleft()
        if not isinstance(first, Decision) or first.turns_waited:
            return [first]
        batch: list[Job[object]] = [first]
        keys = set(first.keys)
        left: deque[Job[object]] = deque()
        while self._queue and len(batch) < BATCH_MAX:
            job = self._queue.popleft()
            fits = isinstance(job, Decision) and job.creates == first.creates and not job.turns_waited
            if fits and isinstance(job, Decision) and keys.isdisjoint(job.keys):
                keys |= job.keys
                batch.append(job)
                continue
            left.append(job)
            if isinstance(job, Decision):
                # What comes later of the same run stays behind it.
                keys |= job.keys
        left.extend(self._queue)
        self._queue = left
        return batch

    async def _write(self, batch: Sequence[Job[object]]) -> None:
        link = await self._links.writer()
        if len(batch) == 1 and isinstance(alone := batch[0], Alone):
            value = await self._function(alone, link)
            self._on_commit(() if alone.tells else None)
            alone.done(value)
            return
        decisions = [job for job in batch if isinstance(job, Decision)]
        await self._joined(link, decisions)

    async def _function(self, job: Alone[object], link: Link) -> object:
        for last in (False, True):
            try:
                return await job.function(self._server, link)
            except SurefootError:
                raise
            except Spoiled as spoiled:
                if last or not spoiled.again:
                    raise invalid(spoiled) from spoiled
            except Unclear as unclear:
                raise unknown(unclear) from unclear
            except Exception as error:
                # Of what a job only asks, or had not asked yet: nothing was written.
                if not isinstance(error, Unsent) and not failures.is_broken(error):
                    raise failures.unavailable(self._server.name, error) from error
                link.end()
                if last:
                    raise failures.unavailable(self._server.name, error) from error
            link = await self._links.writer()
        raise AssertionError("the second try returns or raises")

    async def _joined(self, link: Link, batch: list[Decision[object]]) -> None:
        try:
            self._server.before()
            won = await self._statement(link, batch)
        except (Spoiled, Locked):
            await self._apart(batch)
            return
        except Unclear as unclear:
            raise unknown(unclear) from unclear
        await self._settle(link, batch, won)

    async def _statement(self, link: Link, batch: Sequence[Decision[object]]) -> set[int]:
        filling = Filling(batch[0].creates)
        for job in batch:
            filling.add(job.guarded, job.rows)
        shape, values = filling.finish()
        statement = self._server.texts.batch(shape)
        values += self._server.values(statement.names, {})
        try:
            sent = self._server.clock.boot_time()
            (answer,) = await link.write(statement.sql, values)
        except Unsent:
            link = await self._links.writer()
            sent = self._server.clock.boot_time()
            (answer,) = await self._once(link, statement.sql, values)
        won, reading = answer["won"], answer["clock"]
        assert isinstance(won, list) and isinstance(reading, float), "as the query says"
        self._server.clock.note(reading, sent)
        return set(won)

    async def _once(self, link: Link, sql: str, values: Sequence[object]) -> list[Row]:
        try:
            return await link.write(sql, values)
        except Unsent as unsent:
            raise StoreUnavailable(f"{unsent}. Nothing was written; try again") from unsent

    async def _settle(self, link: Link, batch: Sequence[Decision[object]], won: set[int]) -> None:
        failure: BaseException | None = None
        try:
            self._server.after()
        except BaseException as error:
            failure = error
        self._on_commit([job.run_id for number, job in enumerate(batch, 1) if number in won])
        for number, job in enumerate(batch, 1):
            if number in won:
                if failure is None:
                    job.done(job.value())
                else:
                    job.fail(failure)
        for number, job in enumerate(batch, 1):
            if number not in won:
                await self._tell_lost(link, job)

    async def _tell_lost(self, link: Link, job: Decision[object]) -> None:
        try:
            job.done(await self._why(link, job))
        except Exception as error:
            job.fail(error)

    async def _why(self, link: Link, job: Decision[object]) -> object:
        try:
            return await job.lost(link, self._server)
        except SurefootError:
            raise
        except Exception:
            # The connection broke behind the answer; the guard did not hold all the same.
            return await job.lost(await self._links.writer(), self._server)

    async def _apart(self, batch: list[Decision[object]]) -> None:
        """Each alone, in its order: whoever spoiled the batch is refused, the others are written."""
        for job in batch:
            try:
                await self._alone(job)
            except Locked as locked:
                self._later(job, locked)
            except Exception as error:
                job.fail(error)

    def _later(self, job: Decision[object], locked: Locked) -> None:
        """Behind what others have to write; as often as LOCK_SECONDS_MAX holds."""
        job.turns_waited += 1
        if job.turns_waited * LOCK_SECONDS_ONCE >= link_module.LOCK_SECONDS_MAX:
            job.fail(locked)
        else:
            self._queue.append(job)

    async def _alone(self, job: Decision[object]) -> None:
        for turn in range(AGAIN_MAX):
            link = await self._links.writer()
            try:
                won = await self._statement(link, [job])
            except Spoiled as spoiled:
                if spoiled.again and turn < AGAIN_MAX - 1:
                    continue
                if spoiled.again:
                    raise StoreUnavailable(
                        f"{self._server.name}: {spoiled}. Nothing was written; try again"
                    ) from spoiled
                raise await job.refused(link, self._server, spoiled) from spoiled
            except Unclear as unclear:
                raise unknown(unclear) from unclear
            await self._settle(link, [job], won)
            return
