"""What more worker processes are worth on PostgreSQL: the same runs, taken by one, two, three and four of them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.machine import Conditions, conditions
from benchmarks.postgres import Databases
from benchmarks.rounds import ROOT, ProgramFailed, environment, run_program
from benchmarks.summary import Spread, spread
from benchmarks.tables import Judged, grid, ratio, with_spread

PROCESSES, PROCESSES_QUICK = (1, 2, 3, 4), (1, 4)
RUNS, RUNS_QUICK = 512, 64
STEPS = 20
ROUNDS, ROUNDS_QUICK = 11, 1
FIRST, AIM = 1.2, 1.5
SECONDS_MAX = 600.0
POLL_SECONDS = 0.02
LEFT = b"SELECT EXISTS (SELECT 1 FROM run WHERE status NOT IN ('completed', 'failed', 'cancelled'))"


@dataclass(frozen=True)
class Taken:
    """So many processes, in each round: steps a second over all of them."""

    processes: int
    rates: list[float]


@dataclass(frozen=True)
class Workers:
    """Interleaved: the nth rate of all of them is of one round."""

    on: Conditions
    runs: int
    rows: list[Taken]


def measure(databases: Databases, tell: Callable[[str], None], *, quick: bool) -> Workers:
    """The runs are made beforehand, and each process may take its part of them. Raises ProgramFailed."""
    on, runs = conditions(databases.version), RUNS_QUICK if quick else RUNS
    rows = [Taken(processes, []) for processes in (PROCESSES_QUICK if quick else PROCESSES)]
    filled = databases.fresh()
    run_program(Path(sys.executable), "working", "fill", filled, str(runs), str(STEPS))
    for number in range(ROUNDS_QUICK if quick else ROUNDS):
        for row in rows if number % 2 == 0 else rows[::-1]:
            url = databases.fresh(filled)
            seconds = _seconds(url, row.processes, runs)
            databases.drop(url)
            row.rates.append(runs * (STEPS + 1) / seconds)
            tell(f"workers: {row.processes} processes: {row.rates[-1]:,.0f} steps/s")
    databases.drop(filled)
    return Workers(on, runs, rows)


def _seconds(url: str, processes: int, runs: int) -> float:
    """From the moment at which all may begin until the last run is durably completed."""
    capacity = -(-runs // processes)
    with _started(url, processes, capacity) as workers, psycopg.connect(url, autocommit=True) as connection:
        for worker in workers:
            assert worker.stdout is not None
            if worker.stdout.readline() != b"ready\n":
                raise ProgramFailed("a worker process did not become ready")
        began = time.perf_counter()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(b"go\n")
            worker.stdin.flush()
        while (row := connection.execute(LEFT).fetchone()) is not None and row[0]:
            passed = time.perf_counter() - began
            if passed > SECONDS_MAX or any(worker.poll() is not None for worker in workers):
                raise ProgramFailed(f"not all runs were completed by {processes} workers in {passed:.0f} s")
            time.sleep(POLL_SECONDS)
        return time.perf_counter() - began


@contextmanager
def _started(url: str, processes: int, capacity: int) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    words = [sys.executable, "-m", "benchmarks.programs.working", "work", url, str(capacity), str(STEPS)]
    workers = [
        subprocess.Popen(words, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(processes)
    ]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _over_one(workers: Workers, row: Taken) -> Spread:
    return spread([many / one for many, one in zip(row.rates, workers.rows[0].rates, strict=True)])


def section(workers: Workers) -> str:
    """A line for each number of processes."""
    rows = [
        (
            "1 process" if row.processes == 1 else f"{row.processes} processes",
            with_spread(spread(row.rates)),
            ratio(_over_one(workers, row)),
        )
        for row in workers.rows
    ]
    text = (
        f"{workers.runs} runs of {STEPS + 1} steps of the whole loop, made beforehand; each process takes its part of "
        "them at once. From the moment at which all may begin to the durable end of the last run. The server works on "
        "the same cores: two cores are busy with two processes already."
    )
    return f"{text}\n\n{grid(('', 'steps/s', 'x 1 process'), rows)}"


def judged(workers: Workers) -> list[Judged]:
    """The most processes over one."""
    most = workers.rows[-1]
    got = _over_one(workers, most)
    what = f"PostgreSQL: {most.processes} worker processes over 1, {workers.runs} runs: steps/s"
    return [Judged(what, FIRST, AIM, got.median, ratio(got), ceiling=False)]
