"""What the disk allows with no engine at all: two durable commits a step, its intent and its result.

`floor` commits each by itself. `floor-grouped` lets the transitions of all runs that wait share one commit, which is
the most that any engine with a writer in one process can do. One row of about 150 bytes a transition, no index but the
key. No state is kept and nothing is looked up: it is a floor, not a rival.

On SQLite: WAL, synchronous=FULL. On PostgreSQL, by asyncpg: connections that are held (a pool's would be reset between
uses, one more round trip), up to 8; grouped, one connection and one insert from `unnest` a batch.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from benchmarks.programs.lanes import PAYLOAD, Cell, Sample, Ticks, measured, tell

if TYPE_CHECKING:
    import asyncpg

Row = tuple[str, int, str, bytes]

TABLE = (
    "create table journal (run text, sequence int, kind text, body blob, primary key (run, sequence, kind)) "
    "without rowid"
)
INSERT = "insert into journal values (?, ?, ?, ?)"
BODY = json.dumps({"tool": "note", "arguments": {"text": PAYLOAD}}).encode()


POSTGRES_TABLE = (
    "create table journal (run text, sequence int, kind text, body bytea, primary key (run, sequence, kind))"
)
POSTGRES_INSERT = "insert into journal values ($1, $2, $3, $4)"
POSTGRES_INSERT_MANY = "insert into journal select * from unnest($1::text[], $2::int[], $3::text[], $4::bytea[])"
CONNECTIONS_MAX = 8


class Journal(Protocol):
    """`write` returns when all its rows are durable."""

    async def write(self, rows: list[Row]) -> None:
        """One transaction."""
        ...


class FileJournal:
    """A file of SQLite."""

    def __init__(self, cell: Cell) -> None:
        self._connection = sqlite3.connect(cell.folder / "floor.db", isolation_level=None)
        for statement in ("pragma journal_mode = wal", "pragma synchronous = full", TABLE):
            self._connection.execute(statement)

    async def write(self, rows: list[Row]) -> None:
        """One transaction, in place."""
        self._connection.execute("begin immediate")
        self._connection.executemany(INSERT, rows)
        self._connection.execute("commit")


class ServerJournal:
    """A database on PostgreSQL: a row by itself, or all of a batch in one statement."""

    def __init__(self) -> None:
        self._free: asyncio.Queue[asyncpg.Connection[asyncpg.Record]] = asyncio.Queue()

    async def open(self, url: str, connections: int) -> None:
        """Connect so often."""
        import asyncpg

        for _ in range(connections):
            self._free.put_nowait(await asyncpg.connect(url))
        connection = await self._free.get()
        await connection.execute(POSTGRES_TABLE)
        self._free.put_nowait(connection)

    async def write(self, rows: list[Row]) -> None:
        """One statement, by whichever connection is free."""
        connection = await self._free.get()
        if len(rows) == 1:
            await connection.execute(POSTGRES_INSERT, *rows[0])
        else:
            await connection.execute(POSTGRES_INSERT_MANY, *map(list, zip(*rows, strict=True)))
        self._free.put_nowait(connection)


@dataclass
class Grouped:
    """Transitions queue up while a commit is under way; the next commit takes all that wait."""

    journal: Journal

    def __post_init__(self) -> None:
        self._waiting: list[tuple[Row, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._writer = asyncio.ensure_future(self._write_forever())

    async def put(self, row: Row) -> None:
        """Durable on return."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((row, future))
        self._wake.set()
        await future

    async def _write_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(0)
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self.journal.write([row for row, _ in batch])
                for _, future in batch:
                    future.set_result(None)
                await asyncio.sleep(0)


async def _put(cell: Cell) -> Callable[[Row], Awaitable[None]]:
    journal: Journal
    grouped = cell.what == "floor-grouped"
    if cell.on_postgres:
        journal = ServerJournal()
        await journal.open(cell.place, 1 if grouped else min(cell.at_once, CONNECTIONS_MAX))
    else:
        journal = FileJournal(cell)
    if grouped:
        return Grouped(journal).put

    async def put(row: Row) -> None:
        await journal.write([row])
        await asyncio.sleep(0)

    return put


async def measure(cell: Cell) -> Sample:
    """`floor` or `floor-grouped`."""
    put = await _put(cell)

    async def run(name: str, ticks: Ticks) -> None:
        for number in range(cell.steps):
            await put((name, number, "intent", BODY))
            ticks.tick(name)
            await put((name, number, "result", BODY))

    return await measured(cell, run, steps_of_run=cell.steps)


if __name__ == "__main__":
    tell(asyncio.run(measure(Cell.of_arguments(sys.argv[1:]))))
