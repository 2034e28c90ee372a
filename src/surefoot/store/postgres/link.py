"""One connection: its opening and what is asked of the server then, statements, transactions, and what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar, cast

import asyncpg
import msgspec

from surefoot.errors import StoreError, StoreUnavailable, StoreUnsupported
from surefoot.store.postgres import failures
from surefoot.store.postgres.address import CONNECT_SECONDS_MAX, Address
from surefoot.store.postgres.bridge import Bridge
from surefoot.store.postgres.failures import Unclear, Unsent
from surefoot.store.postgres.server_clock import ServerClock
from surefoot.store.postgres.statements import Statements

T = TypeVar("T")
Row = Mapping[str, object]

LOCK_SECONDS_MAX = 10.0
LOCK_SECONDS_ONCE = 0.25
"""So long one decision waits for its run's row at a time: then the others have their turn (append_guard)."""
STATEMENT_SECONDS_MAX = 30.0
ANSWER_SECONDS_MAX = STATEMENT_SECONDS_MAX + 5.0
"""Longer than the server works on a statement: after it the connection counts as lost."""
IDLE_SECONDS_MAX = 60.0
"""Inside a transaction, by the server: a process that was stopped holds no locks for longer."""
PREPARED_MAX = 200
PLAN_AGAIN_USES = 64
PLAN_AGAIN_FACTOR = 8
VERSION_MIN = 140_000
_STRONG = frozenset({"on", "remote_apply"})
_WARNINGS = frozenset({"01000", "57P01"})
"""What a server says when it stops waiting for a synchronous standby: the commit stands here, perhaps nowhere else."""


class Probe(msgspec.Struct, frozen=True):
    """What a server says of itself."""

    pid: int
    version: int
    standby: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    encoding: str
    clock: float
    began: float | None
    booted: float


class _Prepared:
    """A prepared statement; after `plans_again` uses it is prepared, and so planned, anew."""

    __slots__ = ("plans_again", "statement", "uses")

    def __init__(self, statement: asyncpg.prepared_stmt.PreparedStatement[asyncpg.Record], plans_again: int) -> None:
        self.statement = statement
        self.plans_again = plans_again
        self.uses = 0


class Link:
    """A connection that is ready for use. One statement at a time."""

    def __init__(
        self, connection: asyncpg.Connection[asyncpg.Record], name: str, texts: Statements, bridge: Bridge | None
    ) -> None:
        self.name = name
        self.pooled = False
        self.probe: Probe
        self.texts = texts
        self._connection = connection
        self._bridge = bridge
        self._prepared: dict[str, _Prepared] = {}
        self._prepared_count = 0
        self._warned = ""
        self._settings = ""
        self._inside = False

    @classmethod
    async def open(
        cls,
        address: Address,
        texts: Statements,
        clock: ServerClock,
        bridge: Bridge | None,
        *,
        server: int | None = None,
        writes: bool = False,
    ) -> Link:
        """Connect and see whether the server may be relied upon. One that `writes` has its statements planned once.

        `server` is the number of one of those that the address names. Each is tried by itself: the driver's own time
        is one for all of them, and the first one that is silent would use it up.

        Raises StoreUnsupported for a server that must not be used, and what the driver raises.
        """
        host, port = (None, None) if server is None else address.servers[server]
        try:
            work = asyncpg.connect(
                address.dsn,
                host=host,
                port=port,
                timeout=address.connect_s,
                command_timeout=ANSWER_SECONDS_MAX,
                statement_cache_size=0,
                server_settings={"application_name": "surefoot"},
            )
            connection = bridge.run(work) if bridge is not None else await work
        except (ValueError, asyncpg.ClientConfigurationError) as error:
            if isinstance(error, OSError):
                # A certificate that does not fit is a ValueError too.
                raise
            # Its text may hold a part of the URL.
            raise StoreUnavailable(
                f"{address.name}: the driver does not understand the store's URL, or cannot read a file that it names. "
                "Check its options and the certificates"
            ) from None
        link = cls(connection, address.name, texts, bridge)
        try:
            await link._begin(address.pooled, clock, writes)
        except BaseException:
            link.end()
            raise
        return link

    async def _begin(self, pooled: bool, clock: ServerClock, writes: bool) -> None:
        sent = clock.boot_time()
        (row,) = await self._done(self._connection.fetch(self.texts.text("probe")))
        self.probe = msgspec.convert(dict(row.items()), Probe)
        check(self.name, self.probe)
        clock.note(self.probe.clock, sent)
        # A pooler gives out a number of its own.
        self.pooled = pooled or self._connection.get_server_pid() != self.probe.pid
        self._connection.add_log_listener(self._log)
        strong = self.probe.synchronous_commit in _STRONG
        numbers: dict[str, object] = {
            "synchronous_commit": self.probe.synchronous_commit if strong else "on",
            "lock_ms": int(LOCK_SECONDS_MAX * 1000),
            "statement_ms": int(STATEMENT_SECONDS_MAX * 1000),
        }
        self._settings = self.texts.text("transaction_settings" if self.pooled else "begin")
        if self.pooled:
            self._settings = self.texts.text("transaction_settings", **numbers)
        else:
            idle = {"idle_ms": int(IDLE_SECONDS_MAX * 1000)}
            await self._done(self._connection.execute(self.texts.text("session_settings", **numbers, **idle)))
            if writes:
                await self._done(self._connection.execute(self.texts.text("writer_settings")))

    def _log(self, connection: object, message: asyncpg.PostgresLogMessage) -> None:
        code = str(getattr(message, "sqlstate", "") or "")
        if str(getattr(message, "severity_en", "")) == "WARNING" and code in _WARNINGS:
            self._warned = str(message)

    @property
    def closed(self) -> bool:
        """Whether the other side has gone, or it was ended here."""
        return self._connection.is_closed()

    async def _done(self, work: Coroutine[object, object, T]) -> T:
        return self._bridge.run(work) if self._bridge is not None else await work

    # Statements

    async def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """The rows of a statement. Raises what the driver raises."""
        return cast("list[Row]", await self._done(self._fetch(sql, values)))

    async def _fetch(self, sql: str, values: Sequence[object]) -> list[asyncpg.Record]:
        if self.pooled:
            # Parsed anew with each use: the next transaction may be served by another process of the server.
            return await self._connection.fetch(sql, *values)
        known = self._prepared.get(sql)
        if known is None or known.uses >= known.plans_again:
            known = await self._prepare(sql, known)
        known.uses += 1
        return await known.statement.fetch(*values)

    async def _prepare(self, sql: str, known: _Prepared | None) -> _Prepared:
        # Named: without a name the driver would have it parsed anew with each use.
        self._prepared_count += 1
        statement = await self._connection.prepare(sql, name=f"surefoot_{self._prepared_count}")
        if len(self._prepared) >= PREPARED_MAX:
            self._prepared.pop(next(iter(self._prepared)))
        # A plan that was made for small tables is bad for large ones, and is not made anew before they are analysed.
        again = PLAN_AGAIN_USES if known is None else known.plans_again * PLAN_AGAIN_FACTOR
        self._prepared[sql] = made = _Prepared(statement, again)
        return made

    async def script(self, sql: str) -> None:
        """Statements without values or answers. Raises what the driver raises."""
        await self._done(self._connection.execute(sql))

    async def write(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """One statement that is durable when its answer is there; inside a transaction it is so with the transaction.

        Raises Spoiled, Unclear, Unsent, StoreUnavailable, Unreadable.
        """
        if self._inside:
            return await self._sorted(self.rows(sql, values))
        if self.pooled:
            async with self.transaction():
                return await self._sorted(self.rows(sql, values))
        if sql not in self._prepared:
            await self._announced(self._done(self._prepare(sql, None)))
        self._warned = ""
        found = await self._sorted(self.rows(sql, values))
        self._check_warned()
        return found

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Several statements, durable together at the end. Raises as `write` does."""
        self._warned = ""
        await self._announced(self.script(self._settings))
        self._inside = True
        try:
            yield
        except BaseException as error:
            self._inside = False
            await self._roll_back(error)
            raise
        self._inside = False
        try:
            await self._sorted(self.script(self.texts.text("commit")))
        except StoreError as error:
            # Whatever a server says of a COMMIT that it did not finish: what became of it is not known.
            raise Unclear(str(error), broken=False) from error
        self._check_warned()

    async def _roll_back(self, error: BaseException) -> None:
        if isinstance(error, Unclear) and error.broken:
            self.end()
            return
        try:
            await self.script(self.texts.text("rollback"))
        except Exception:
            # The server forgets the transaction with the connection.
            self.end()

    async def _announced(self, work: Coroutine[object, object, object]) -> None:
        """What comes before anything can be committed. Raises Unsent, StoreUnavailable, Unreadable."""
        try:
            await work
        except (asyncio.CancelledError, Exception) as error:
            if failures.is_broken(error):
                self.end()
            if isinstance(error, asyncio.CancelledError):
                raise
            if failures.is_broken(error):
                raise Unsent(f"{self.name}: {failures.said(error)}") from error
            raise failures.unavailable(self.name, error) from error

    async def _sorted(self, work: Coroutine[object, object, T]) -> T:
        try:
            return await work
        except (asyncio.CancelledError, Exception) as error:
            found = failures.sort_write(self.name, error)
            if isinstance(found, Unclear) and found.broken:
                self.end()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise found from error

    def _check_warned(self) -> None:
        if self._warned:
            raise Unclear(f"{self.name}: {self._warned}", broken=False)

    # The end

    async def close(self) -> None:
        """End it in order."""
        try:
            await self._done(self._connection.close(timeout=CONNECT_SECONDS_MAX))
        except Exception:
            self.end()

    def end(self) -> None:
        """End it at once, whatever it was doing."""
        if self._bridge is not None:
            self._bridge.call(self._connection.terminate)
        else:
            self._connection.terminate()

    async def listen(self, settings: str, channel: str, told: Callable[[str], None], ended: Callable[[], None]) -> None:
        """Call `told` with each payload from now on, and `ended` when the connection has gone.

        Raises StoreUnavailable. Not for a loop without sockets.
        """
        try:
            await self._connection.execute(settings)
            await self._connection.add_listener(channel, lambda link, pid, name, payload: told(str(payload)))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise failures.unavailable(self.name, error) from error
        self._connection.add_termination_listener(lambda link: ended())


def check(name: str, probe: Probe) -> None:
    """Raises StoreUnsupported for a server that may lose what it has acknowledged, StoreUnavailable for a standby."""
    if probe.version < VERSION_MIN:
        raise StoreUnsupported(f"{name} is PostgreSQL {probe.version // 10_000}: surefoot needs 14 or newer")
    if probe.encoding != "UTF8":
        raise StoreUnsupported(f"{name} stores {probe.encoding}: create a database with the encoding UTF8")
    for setting, value in (("fsync", probe.fsync), ("full_page_writes", probe.full_page_writes)):
        if value != "on":
            raise StoreUnsupported(
                f"{name} runs with {setting} = {value}: what it acknowledges may be lost, and with it the proof "
                f"that a call was sent. Set {setting} = on in postgresql.conf"
            )
    if probe.standby:
        raise StoreUnavailable(f"{name} is a standby, which takes no writes. Connect to the primary")
