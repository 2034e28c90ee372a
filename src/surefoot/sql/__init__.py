"""Effects in the user's own database: the operation key is written in the same transaction as the effect.

    @tool(effect=effects.lookup(find_order, settle=30))
    def place_order(op: Operation, article: str) -> Receipt:
        with psycopg.connect(DSN) as conn:
            number = …                                # the user's own statements
            receipt = Receipt(resource_id=str(number))
            sql.record(conn, op, receipt)             # last: the commit of this transaction is the effect
        return receipt

    def find_order(op: Operation) -> Found | Absent | Undetermined:
        with psycopg.connect(DSN) as conn:
            return sql.find(conn, op)

What an absent is worth here: the row and the effect are one commit, so no row means no effect, now. A transaction that
is still open is seen (`transaction_open`), one that has not begun is what settle is for. And if one comes later all the
same, the key is the primary key: the second of two transactions with one key is rolled back, so that there is never a
second effect. What cannot be seen is a database that was restored from an older copy.

Connections: `sqlite3.Connection`, and `psycopg.Connection` (psycopg 3, extra `surefoot[postgres]`). Both are for plain
functions; an `async` tool calls one with `asyncio.to_thread`. Nothing here commits.
"""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from surefoot.core.text import clean_text
from surefoot.core.values import encode_output
from surefoot.effects import Absent, Found, InDoubt, Operation, Receipt, Undetermined, Verdict
from surefoot.errors import InvalidInput
from surefoot.store.sqlfile import parse

__all__ = ["AlreadyRecorded", "Connection", "PostgresConnection", "create_table", "find", "record"]

OUTPUT_BYTES_MAX = 64 * 1024
"""What of a receipt's output is kept in the row; the rest is cut."""
_IDLE = 0
"""libpq's transaction status of a connection that is in no transaction."""


class PostgresCursor(Protocol):
    """What is used of psycopg's cursor."""

    @property
    def rowcount(self) -> int:
        """How many rows the statement wrote."""
        ...

    def fetchone(self) -> object:
        """The next row."""
        ...


class PostgresConnection(Protocol):
    """What is used of `psycopg.Connection`."""

    @property
    def autocommit(self) -> bool:
        """True: each statement is a transaction of its own."""
        ...

    @property
    def info(self) -> object:
        """Its `transaction_status` is libpq's."""
        ...

    def execute(self, query: bytes, params: Sequence[object] | None = None) -> PostgresCursor:
        """Run one statement."""
        ...

    def rollback(self) -> None:
        """End the transaction without its changes."""
        ...


Connection: TypeAlias = sqlite3.Connection | PostgresConnection


class AlreadyRecorded(InDoubt):
    """This key was committed by an earlier transaction. Let it leave the tool: the transaction rolls back, and the
    lookup finds what the earlier one did."""


class _Row(msgspec.Struct, frozen=True):
    resource_id: str | int | None = None
    url: str | None = None
    output: msgspec.Raw = msgspec.Raw(b"null")
    alone: bool = False


def create_table(conn: Connection) -> None:
    """Make the table `surefoot_operation` if it is missing, in the caller's transaction. Raises InvalidInput."""
    _run(conn, "create_table")


def record(conn: Connection, op: Operation, receipt: Receipt | None = None) -> None:
    """Write the operation key, and the receipt for the lookup, in the transaction that is open on `conn`.

    It and the effect end together: in a savepoint that is rolled back without the effect, the key is lost.

    Raises AlreadyRecorded where the key was committed before: let it leave the tool. Raises InvalidInput where `conn`
    is in no transaction, so that the effect may be committed already, and what the driver raises. Then the key is
    written by itself, and a lookup answers `not_in_transaction` from there on: no row would mean "absent", and the
    effect would be made again.
    """
    if _alone(conn):
        _run(conn, "record_alone", op.tenant_id, op.key, op.tool, op.run_id, op.step_id)
        raise InvalidInput(
            "the connection is in autocommit mode: begin a transaction before the effect, so that key and effect are "
            "one. What became of this call nobody can tell: a person is asked"
        )
    if not isinstance(conn, sqlite3.Connection):
        _run(conn, "hold", op.tenant_id, op.key)
    written = _run(conn, "record", op.tenant_id, op.key, op.tool, op.run_id, op.step_id, _encoded(receipt))
    if written.rowcount != 1:
        raise AlreadyRecorded("an earlier attempt of this operation is committed; this transaction must not be")


def find(conn: Connection, op: Operation) -> Verdict:
    """Whether a transaction with the operation's key was committed. Changes nothing.

    `conn` is in no transaction of its own: inside one, old data or the caller's own would be read. The reasons of an
    Undetermined: in_transaction, transaction_open (somebody writes just now; on SQLite, anybody), standby (this server
    follows another one and may lag), not_in_transaction (`record` was called outside of one). Raises what the driver
    raises, as where the table is missing; inside a lookup that means Undetermined too.
    """
    if _in_transaction(conn):
        return Undetermined("in_transaction", coverage="give the lookup a connection of its own")
    reason, row = _find_sqlite(conn, op) if isinstance(conn, sqlite3.Connection) else _find_postgres(conn, op)
    if reason:
        return Undetermined(reason)
    if not row:
        return Absent(coverage={"table": "surefoot_operation", "open_transactions": 0})
    kept = msgspec.json.decode(_text(row[0]), type=_Row)
    if kept.alone:
        return Undetermined("not_in_transaction", coverage="its key was recorded on a connection in autocommit mode")
    resource_id = None if kept.resource_id is None else str(kept.resource_id)
    receipt = Receipt(resource_id=resource_id, url=kept.url, output=msgspec.json.decode(kept.output))
    return Found(receipt, coverage={"table": "surefoot_operation", "recorded_at": _text(row[1])})


def _find_sqlite(conn: sqlite3.Connection, op: Operation) -> tuple[str, list[object]]:
    try:
        # The write lock, for the moment of the look: nobody else's transaction is open then.
        conn.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as busy:
        if busy.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        return "transaction_open", []
    try:
        return "", _values(_run(conn, "find", op.tenant_id, op.key).fetchone())
    finally:
        conn.rollback()


def _find_postgres(conn: PostgresConnection, op: Operation) -> tuple[str, list[object]]:
    try:
        free, standby = _values(_run(conn, "probe", op.tenant_id, op.key).fetchone())
        conn.rollback()
        if standby or not free:
            return "standby" if standby else "transaction_open", []
        # A transaction of its own: its view begins after every transaction that the probe could have seen has ended.
        standby, *row = _values(_run(conn, "find", op.tenant_id, op.key).fetchone())
        return "standby" if standby else "", row if row[0] is not None else []
    finally:
        conn.rollback()


def _in_transaction(conn: Connection) -> bool:
    if isinstance(conn, sqlite3.Connection):
        return conn.in_transaction
    _dialect(conn)
    return getattr(conn.info, "transaction_status", _IDLE) != _IDLE


def _alone(conn: Connection) -> bool:
    """Whether each statement is a commit of its own. A driver that opens transactions by itself is fine."""
    if isinstance(conn, sqlite3.Connection):
        # From Python 3.12 on, `autocommit` says it; -1 there means the older way, by isolation_level.
        mode = getattr(conn, "autocommit", -1)
        alone = mode is True or (mode == -1 and conn.isolation_level is None)
    else:
        _dialect(conn)
        alone = conn.autocommit
    return bool(alone) and not _in_transaction(conn)


def _run(conn: Connection, name: str, *values: object) -> sqlite3.Cursor | PostgresCursor:
    statement = _queries(_dialect(conn))[name]
    if isinstance(conn, sqlite3.Connection):
        cursor = conn.cursor()
        cursor.row_factory = None
        return cursor.execute(statement, values)
    # Late, since psycopg is an extra. A cursor of our own: the connection's factories are the user's.
    from psycopg import Connection as Psycopg, Cursor
    from psycopg.rows import tuple_row

    assert isinstance(conn, Psycopg), "looked at by _dialect"
    return Cursor(conn, row_factory=tuple_row).execute(statement.encode(), values)


def _dialect(conn: Connection) -> str:
    if isinstance(conn, sqlite3.Connection):
        return "sqlite"
    modules = {kind.__module__.partition(".")[0] for kind in type(conn).__mro__}
    if "psycopg" not in modules or inspect.iscoroutinefunction(getattr(type(conn), "execute", None)):
        raise InvalidInput(
            f"{type(conn).__name__} is not known here: give a sqlite3.Connection or a psycopg.Connection (psycopg 3, "
            "not its async one)"
        )
    return "postgres"


@cache
def _queries(dialect: str) -> Mapping[str, str]:
    return parse((Path(__file__).parent / f"{dialect}.sql").read_text(encoding="utf-8"))


def _values(row: object) -> list[object]:
    return list(row) if isinstance(row, tuple) else []


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _encoded(receipt: Receipt | None) -> str:
    """The receipt as it is read back. An id comes from a row as often as not: a number is as good as a text."""
    output, _ = encode_output(None if receipt is None else receipt.output, OUTPUT_BYTES_MAX)
    row = _Row(output=msgspec.Raw(output))
    if receipt is not None:
        resource_id, url = (
            None if part is None else clean_text(str(part)) for part in (receipt.resource_id, receipt.url)
        )
        row = _Row(resource_id, url, msgspec.Raw(output))
    return msgspec.json.encode(row).decode()
