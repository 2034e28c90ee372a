"""What a step of surefoot costs that no machine changes: SQL statements, and calls of functions.

    python -m benchmarks.programs.counted perform|loop FOLDER STEPS AT_ONCE

Both are counted in a shorter and in a longer measurement; the difference is that of the runs between.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest import mock

from benchmarks.programs.lanes import Cell
from benchmarks.programs.ours import measure

RUNS_SHORT, RUNS_LONG = 1, 3
"""Times the runs at once."""


@dataclass(frozen=True)
class PerStep:
    """SQL statements with BEGIN and COMMIT; calls of Python and C functions, going on with a coroutine among them."""

    statements: float
    calls: float


class Counter:
    """Counts while in force."""

    def __init__(self) -> None:
        self.statements = 0
        self.calls = 0
        self._connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect(self, *args: object, **kwargs: object) -> sqlite3.Connection:
        """sqlite3.connect, with a count behind it."""
        connection = self._connect(*args, **kwargs)
        connection.set_trace_callback(self._statement)
        return connection

    def _statement(self, _text: str) -> None:
        self.statements += 1

    def call(self, _frame: object, event: str, _argument: object) -> None:
        """The interpreter's own hook."""
        self.calls += event in ("call", "c_call")


def count(cell: Cell) -> tuple[int, Counter]:
    """Steps done, and what they took, warm-up and start included."""
    counter = Counter()
    if not cell.on_postgres:
        cell.folder.mkdir(parents=True)
    with mock.patch("sqlite3.connect", counter.connect):
        sys.setprofile(counter.call)
        sample = asyncio.run(measure(cell))
        sys.setprofile(None)
    return sample.steps_done, counter


def main() -> None:
    """One line of JSON, a PerStep."""
    what, folder, steps, at_once = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    counts = [
        count(Cell(what, str(folder / str(times)), steps, at_once, times * at_once, 0.0))
        for times in (RUNS_SHORT, RUNS_LONG)
    ]
    (short_steps, short), (long_steps, long) = counts
    between = long_steps - short_steps
    per_step = PerStep((long.statements - short.statements) / between, (long.calls - short.calls) / between)
    sys.stdout.write(json.dumps(asdict(per_step)) + "\n")


if __name__ == "__main__":
    main()
