"""What SQLite alone takes for the rows of surefoot: nothing that writes the same records can be faster.

    python -m benchmarks.programs.replayed perform|loop FOLDER AT_ONCE [ROUNDS]

FOLDER is an empty one. In each round: the floor of so many runs at once (grouped, where there is more than one),
surefoot, and then whatever surefoot wrote once more, by a bare connection into an empty file: the same statements with
the same values, in the same transactions and with the same checkpoints. Prints a line for each, the medians.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from benchmarks.programs import floors, ours
from benchmarks.programs.lanes import Cell, cpu_seconds

STEPS = 20
ROUNDS = 5
RUNS_MIN = 60
SECONDS_MIN = 1.0
READS = ("SELECT", "WITH")
READ_ONLY, ITS_END = "BEGIN", "ROLLBACK"
"""A transaction that only reads; those that write say IMMEDIATE."""


class Written(NamedTuple):
    """A statement and the rows of values that it was executed with."""

    sql: str
    rows: list[object]
    many: bool


class Recording(sqlite3.Connection):
    """A connection that keeps what is written through it."""

    written: list[Written]

    def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:
        """Note it, unless it reads."""
        words = sql.strip()
        if words != READ_ONLY and not words.startswith(READS):
            self.written.append(Written(sql, [parameters], many=False))
        return super().execute(sql, parameters)  # type: ignore[arg-type]  # as the caller has it

    def executemany(self, sql: str, parameters: Iterable[object], /) -> sqlite3.Cursor:
        """Note it."""
        rows = list(parameters)
        self.written.append(Written(sql, rows, many=True))
        return super().executemany(sql, rows)  # type: ignore[arg-type]  # as the caller has it


class Spent(NamedTuple):
    """Microseconds of a step: on the clock, and of the processor."""

    wall: float
    cpu: float


def recorded(cell: Cell) -> tuple[Spent, list[Written]]:
    """Surefoot's own figures, and what it wrote, warm-up included."""
    written: list[Written] = []
    connect = sqlite3.connect

    def recording(path: str, **words: object) -> sqlite3.Connection:
        connection = connect(path, factory=Recording, **words)  # type: ignore[call-overload]  # as the caller has it
        connection.written = written
        return connection  # type: ignore[no-any-return]  # a Recording

    with mock.patch("sqlite3.connect", recording):
        sample = asyncio.run(ours.measure(cell))
    return Spent(sample.seconds / sample.steps_done * 1e6, sample.cpu_us_per_step), written


def replayed(written: list[Written], path: Path) -> Spent:
    """The same by a bare connection. What is done before the first run comes into being is not counted."""
    with closing(sqlite3.connect(path, isolation_level=None, cached_statements=256)) as connection:
        steps, began, cpu = 0, 0.0, 0.0
        for sql, rows, many in written:
            if not began and sql.startswith("INSERT INTO run "):
                began, cpu = time.perf_counter(), cpu_seconds()
            if sql.strip() == ITS_END and not connection.in_transaction:
                continue
            if many:
                connection.executemany(sql, rows)  # type: ignore[arg-type]  # as they were
            else:
                connection.execute(sql, rows[0]).fetchall()  # type: ignore[arg-type]  # as they were
            if sql.startswith("INSERT INTO step "):
                steps += len(rows)
        return Spent((time.perf_counter() - began) / steps * 1e6, (cpu_seconds() - cpu) / steps * 1e6)


def main(what: str, folder: str, at_once: str, rounds: str = str(ROUNDS)) -> None:
    """Measure and print."""
    seen: dict[str, list[Spent]] = {"floor": [], what: [], "its rows": []}
    for number in range(int(rounds)):
        place = Path(folder) / str(number)
        for name in ("floor", "ours"):
            (place / name).mkdir(parents=True)
        cell = partial(Cell, steps=STEPS, at_once=int(at_once), runs_min=RUNS_MIN, seconds_min=SECONDS_MIN)
        grouped = "floor-grouped" if int(at_once) > 1 else "floor"
        floor = asyncio.run(floors.measure(cell(grouped, str(place / "floor"))))
        seen["floor"].append(Spent(floor.seconds / floor.steps_done * 1e6, floor.cpu_us_per_step))
        own, written = recorded(cell(what, str(place / "ours")))
        seen[what].append(own)
        seen["its rows"].append(replayed(written, place / "replayed.db"))
    for name, all_spent in seen.items():
        wall, cpu = (statistics.median(column) for column in zip(*all_spent, strict=True))
        ratio = statistics.median([f.wall / s.wall for f, s in zip(seen["floor"], all_spent, strict=True)])
        print(f"{name:10} {wall:7.1f} µs a step, {cpu:7.1f} of CPU, {ratio:5.2f} of the floor's steps a second")


if __name__ == "__main__":
    main(*sys.argv[1:])
