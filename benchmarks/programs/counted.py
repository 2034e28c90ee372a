"""What a step of surefoot costs that no machine changes: SQL statements, and calls of functions.

    python -m benchmarks.programs.counted perform|loop PLACE STEPS AT_ONCE

The place is a folder, or the URLs of two empty databases on PostgreSQL with a comma between.

Both are counted in a shorter and in a longer measurement; the difference is that of the runs between.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from unittest import mock

from benchmarks.programs.lanes import POSTGRES, Cell
from benchmarks.programs.ours import measure
from surefoot.store.postgres.link import Link, Row
from surefoot.store.postgres.writer import Server

RUNS_SHORT, RUNS_LONG = 1, 3
"""Times the runs at once."""


@dataclass(frozen=True)
class PerStep:
    """SQL statements with BEGIN and COMMIT; calls of Python and C functions, going on with a coroutine among them;
    commits that wait for the disk.
    """

    statements: float
    calls: float
    commits: float


class Counter:
    """Counts while in force."""

    def __init__(self) -> None:
        self.statements = 0
        self.calls = 0
        self.commits = 0
        self._connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect(self, *args: object, **kwargs: object) -> sqlite3.Connection:
        """sqlite3.connect, with a count behind it."""
        connection = self._connect(*args, **kwargs)
        connection.set_trace_callback(self._statement)
        return connection

    def _statement(self, text: str) -> None:
        self.statements += 1
        self.commits += text == "COMMIT"

    def on_postgres(self) -> ExitStack:
        """Counts where the store's connections are asked, and where its writer has passed a commit."""
        rows, script, after = Link.rows, Link.script, Server.after

        async def counted_rows(link: Link, sql: str, values: Sequence[object] = ()) -> list[Row]:
            self.statements += 1
            return await rows(link, sql, values)

        async def counted_script(link: Link, sql: str) -> None:
            self.statements += 1
            await script(link, sql)

        def counted_after(server: Server) -> None:
            self.commits += 1
            after(server)

        patched = ExitStack()
        patched.enter_context(mock.patch.object(Link, "rows", counted_rows))
        patched.enter_context(mock.patch.object(Link, "script", counted_script))
        patched.enter_context(mock.patch.object(Server, "after", counted_after))
        return patched

    def call(self, _frame: object, event: str, _argument: object) -> None:
        """The interpreter's own hook."""
        self.calls += event in ("call", "c_call")


def count(cell: Cell) -> tuple[int, Counter]:
    """Steps done, and what they took, warm-up and start included."""
    counter = Counter()
    if not cell.on_postgres:
        cell.folder.mkdir(parents=True)
    with mock.patch("sqlite3.connect", counter.connect), counter.on_postgres():
        sys.setprofile(counter.call)
        sample = asyncio.run(measure(cell))
        sys.setprofile(None)
    return sample.steps_done, counter


def main() -> None:
    """One line of JSON, a PerStep."""
    what, place, steps, at_once = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    times = (RUNS_SHORT, RUNS_LONG)
    places = place.split(",") if place.startswith(POSTGRES) else [f"{place}/{number}" for number in times]
    counts = [
        count(Cell(what, own, steps, at_once, number * at_once, 0.0)) for own, number in zip(places, times, strict=True)
    ]
    (short_steps, short), (long_steps, long) = counts
    between = long_steps - short_steps
    per_step = PerStep(
        (long.statements - short.statements) / between,
        (long.calls - short.calls) / between,
        (long.commits - short.commits) / between,
    )
    sys.stdout.write(json.dumps(asdict(per_step)) + "\n")


if __name__ == "__main__":
    main()
