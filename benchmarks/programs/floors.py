"""What the disk allows with no engine at all: two durable commits a step, its intent and its result.

`floor` commits each by itself. `floor-grouped` lets the transitions of all runs that wait share one commit, which is
the most that any engine with a writer in one process can do. SQLite, WAL, synchronous=FULL, one row of about 150 bytes
a transition, no index but the key. No state is kept and nothing is looked up: it is a floor, not a rival.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.programs.lanes import PAYLOAD, Cell, Sample, Ticks, measured, tell

Row = tuple[str, int, str, bytes]

TABLE = (
    "create table journal (run text, sequence int, kind text, body blob, primary key (run, sequence, kind)) "
    "without rowid"
)
INSERT = "insert into journal values (?, ?, ?, ?)"
BODY = json.dumps({"tool": "note", "arguments": {"text": PAYLOAD}}).encode()


class Journal:
    """The file. `write` returns when all its rows are durable."""

    def __init__(self, cell: Cell) -> None:
        self._connection = sqlite3.connect(cell.folder / "floor.db", isolation_level=None)
        for statement in ("pragma journal_mode = wal", "pragma synchronous = full", TABLE):
            self._connection.execute(statement)

    def write(self, rows: list[Row]) -> None:
        """One transaction."""
        self._connection.execute("begin immediate")
        self._connection.executemany(INSERT, rows)
        self._connection.execute("commit")


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
                self.journal.write([row for row, _ in batch])
                for _, future in batch:
                    future.set_result(None)
                await asyncio.sleep(0)


def _put(cell: Cell, journal: Journal) -> Callable[[Row], Awaitable[None]]:
    if cell.what == "floor-grouped":
        return Grouped(journal).put

    async def put(row: Row) -> None:
        journal.write([row])
        await asyncio.sleep(0)

    return put


async def measure(cell: Cell) -> Sample:
    """`floor` or `floor-grouped`."""
    put = _put(cell, Journal(cell))

    async def run(name: str, ticks: Ticks) -> None:
        for number in range(cell.steps):
            await put((name, number, "intent", BODY))
            ticks.tick(name)
            await put((name, number, "result", BODY))

    return await measured(cell, run, steps_of_run=cell.steps)


if __name__ == "__main__":
    tell(asyncio.run(measure(Cell.of_arguments(sys.argv[1:]))))
