"""Many runs out of one: its rows are copied inside the database, each copy with ids of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.programs.lanes import POSTGRES

if TYPE_CHECKING:
    import asyncpg

TABLES = ("conversation", "message", "run", "step", "pending_action", "event")
"""What belongs to one run. The bytes of a request are found by what they are: all copies have the same."""
DIGITS = 8
"""The end of an id, which a copy's number takes: digits are letters of ids."""
PART = 100_000
"""Copies in one statement."""
IDS = "SELECT run.id, run.conversation_id, pending_action.id FROM run JOIN pending_action ON run_id = run.id"


def _insert(table: str, columns: Sequence[tuple[str, bool]], bodies: Sequence[str], series: str, own: str) -> str:
    """All copies of a table's rows. `columns` with whether they are text; `own` is what a copy's number adds to."""

    def value(name: str, is_text: bool) -> str:
        text = f"one.{name}"
        if name == own:
            return f"{text} + n"
        for body in bodies if is_text else ():
            text = f"replace({text}, '{body}', '{body[:-DIGITS]}' || {_padded(series)})"
        return text

    names = ", ".join(name for name, _ in columns)
    values = ", ".join(value(name, is_text) for name, is_text in columns)
    mine = " OR ".join(f"one.{name} LIKE '%{body}%'" for name, is_text in columns if is_text for body in bodies)
    return f"INSERT INTO {table} ({names}) SELECT {values} FROM {series} CROSS JOIN {table} AS one WHERE {mine}"


def _padded(series: str) -> str:
    return "lpad(n::text, 8, '0')" if series.startswith("generate") else "printf('%08d', n)"


def copy_runs(url: str, count: int) -> None:
    """So many more of the one run that the store holds, which waits for a person."""
    if count and url.startswith(POSTGRES):
        asyncio.run(_copy_on_postgres(url, count))
    elif count:
        _copy_on_sqlite(url.removeprefix("sqlite:///"), count)


def _copy_on_sqlite(path: str, count: int) -> None:
    series = "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s) AS s"
    connection = sqlite3.connect(path, isolation_level=None)
    bodies = [one.partition("_")[2] for one in connection.execute(IDS).fetchone()]
    connection.execute("BEGIN IMMEDIATE")
    for table in TABLES:
        rows = connection.execute(f"PRAGMA table_info({table})").fetchall()
        # The order of arrival is given by SQLite.
        columns = [(name, kind == "TEXT") for _, name, kind, *_ in rows if name != "arrival"]
        connection.execute(_insert(table, columns, bodies, series.format(count=count), own=""))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


async def _copy_on_postgres(url: str, count: int) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    bodies = [str(one).partition("_")[2] for one in await connection.fetchrow(IDS) or ()]
    for table in TABLES:
        columns = await _columns(connection, table)
        own = "arrival" if table == "pending_action" else ""
        # Of the first one alone: what was copied before does not hold its ids.
        for first in range(1, count + 1, PART):
            series = f"generate_series({first}, {min(first + PART - 1, count)}) AS n"
            await connection.execute(_insert(table, columns, bodies, series, own))
        await connection.execute(f"VACUUM ANALYZE {table}")
    await connection.execute("CHECKPOINT")
    await connection.close()


async def _columns(connection: asyncpg.Connection[asyncpg.Record], table: str) -> list[tuple[str, bool]]:
    rows = await connection.fetch(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_name = $1 AND is_generated = 'NEVER' ORDER BY ordinal_position",
        table,
    )
    return [(row["column_name"], row["data_type"] == "text") for row in rows]
