"""DBOS: workflows of no-op steps, by its ordinary decorators. It commits a step's result, and no intent.

On SQLite `dbos` is its default, the rollback journal. `dbos-wal` is the same file switched to WAL beforehand by us.
`-threads` is its synchronous API, a thread for each workflow at once.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys

from dbos import DBOS, DBOSConfig, SetWorkflowID

from benchmarks.programs.lanes import PAYLOAD, Cell, Sample, Ticks, measured, measured_by_threads, tell

_TICKS: dict[str, Ticks] = {}


async def _note(run: str, number: int, text: str) -> str:
    _TICKS[run].tick(run)
    return f"{run}-{number}"


def _note_now(run: str, number: int, text: str) -> str:
    _TICKS[run].tick(run)
    return f"{run}-{number}"


note = DBOS.step()(_note)
note_now = DBOS.step()(_note_now)


async def _notes(run: str, steps: int) -> None:
    for number in range(steps):
        await note(run, number, PAYLOAD)


def _notes_now(run: str, steps: int) -> None:
    for number in range(steps):
        note_now(run, number, PAYLOAD)


notes = DBOS.workflow()(_notes)
notes_now = DBOS.workflow()(_notes_now)


def _file(cell: Cell) -> str:
    path = cell.folder / "dbos.db"
    if "-wal" in cell.what:
        connection = sqlite3.connect(path)
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table made_for_its_header (id)")
        connection.commit()
        connection.close()
    return f"sqlite:///{path}"


def launch(cell: Cell) -> None:
    """On a file or a database of its own, quiet."""
    url = cell.place.replace("postgresql:", "postgresql+psycopg:", 1) if cell.on_postgres else _file(cell)
    DBOS(config=DBOSConfig(name="bench", system_database_url=url, log_level="ERROR", console_log_level="ERROR"))
    DBOS.launch()


def measure(cell: Cell) -> Sample:
    """By coroutines or by threads."""

    async def run(name: str, ticks: Ticks) -> None:
        _TICKS[name] = ticks
        with SetWorkflowID(name):
            await notes(name, cell.steps)

    def run_now(name: str, ticks: Ticks) -> None:
        _TICKS[name] = ticks
        with SetWorkflowID(name):
            notes_now(name, cell.steps)

    if cell.what.endswith("-threads"):
        return measured_by_threads(cell, run_now, steps_of_run=cell.steps)
    return asyncio.run(measured(cell, run, steps_of_run=cell.steps))


if __name__ == "__main__":
    cell = Cell.of_arguments(sys.argv[1:])
    launch(cell)
    tell(measure(cell))
    # Its threads poll for a while after the end; what is measured is measured.
    os._exit(0)
