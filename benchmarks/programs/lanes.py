"""One cell of the table: so many runs at once, so many steps each, and what was seen. Standard library only.

    python -m benchmarks.programs.floors WHAT PLACE STEPS AT_ONCE RUNS_MIN SECONDS_MIN

prints one line of JSON, a Sample. The place is an empty folder, or the URL of an empty database on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

WARM_RUNS = 3
SECONDS_MAX = 120.0
"""A cell starts no further run after this, however few there were."""
POSTGRES = "postgresql://"
PAYLOAD = "x" * 100
"""What each step is given, in the floors, in surefoot and in the peers."""


@dataclass(frozen=True)
class Cell:
    """What is asked of a program: runs of `steps` steps, `at_once` of them side by side, until both minima are met."""

    what: str
    place: str
    steps: int
    at_once: int
    runs_min: int
    seconds_min: float

    @property
    def on_postgres(self) -> bool:
        """Whether the place is a database."""
        return self.place.startswith(POSTGRES)

    @property
    def folder(self) -> Path:
        """The place, where it is a folder."""
        assert not self.on_postgres, self.place
        return Path(self.place)

    @classmethod
    def of_arguments(cls, words: list[str]) -> Cell:
        """The cell that a program's command line names."""
        what, place, steps, at_once, runs_min, seconds_min = words
        return cls(what, place, int(steps), int(at_once), int(runs_min), float(seconds_min))


@dataclass(frozen=True)
class Sample:
    """One measured cell. The gap is the time between the works of two neighbouring steps of one run, or the whole run
    where it has only one. CPU is user and system time of the process; `others` are the cores that other processes had.
    """

    what: str
    steps: int
    at_once: int
    runs: int
    steps_done: int
    turns_done: int
    seconds: float
    gap_p50_ms: float
    gap_p99_ms: float
    cpu_us_per_step: float
    others: float
    load: float


class Ticks:
    """When each step of each run did its work."""

    def __init__(self) -> None:
        self.of_run: dict[str, list[float]] = {}

    def tick(self, run: str) -> None:
        """Called where a step's work is done."""
        self.of_run.setdefault(run, []).append(time.perf_counter())

    def gaps(self) -> list[float]:
        """Seconds between neighbours within a run."""
        return [later - earlier for times in self.of_run.values() for earlier, later in itertools.pairwise(times)]

    @property
    def count(self) -> int:
        """Steps seen."""
        return sum(map(len, self.of_run.values()))


class Meter:
    """Hands out runs until the cell's minima are met, and sums up."""

    def __init__(self, cell: Cell, steps_of_run: int, turns_of_run: int) -> None:
        self.cell = cell
        self.ticks = Ticks()
        self._steps_of_run, self._turns_of_run = steps_of_run, turns_of_run
        self._lengths: list[float] = []
        mark("begin")
        self._began = time.perf_counter()
        self._cpu = cpu_seconds()
        self._busy = busy_seconds()

    def names(self) -> Iterator[str]:
        """The names of the runs to make, one after the other."""
        for number in itertools.count():
            passed = time.perf_counter() - self._began
            enough = number >= self.cell.runs_min and passed >= self.cell.seconds_min
            if enough or passed >= SECONDS_MAX:
                return
            yield f"run-{number}"

    def ended(self, began: float) -> None:
        """A run that began then (perf_counter) is over."""
        self._lengths.append(time.perf_counter() - began)

    def sample(self) -> Sample:
        """What was seen. Raises AssertionError where a step was lost or done twice."""
        seconds = time.perf_counter() - self._began
        mark("end")
        cpu = cpu_seconds() - self._cpu
        busy = busy_seconds() - self._busy
        runs = len(self._lengths)
        steps = runs * self._steps_of_run
        assert self.ticks.count == steps, f"{self.ticks.count} steps were seen in {runs} runs, not {steps}"
        gaps = sorted(self.ticks.gaps() if self._steps_of_run > 1 else self._lengths)
        return Sample(
            what=self.cell.what,
            steps=self.cell.steps,
            at_once=self.cell.at_once,
            runs=runs,
            steps_done=steps,
            turns_done=runs * self._turns_of_run,
            seconds=seconds,
            gap_p50_ms=quantile(gaps, 0.5) * 1e3,
            gap_p99_ms=quantile(gaps, 0.99) * 1e3,
            cpu_us_per_step=cpu / steps * 1e6,
            others=max(0.0, busy - cpu) / seconds,
            load=os.getloadavg()[0],
        )


def mark(word: str) -> None:
    """A line that stands among the system calls of a program, so that they can be counted between two of them."""
    os.write(1, f"{word}\n".encode())


def quantile(ordered: list[float], share: float) -> float:
    """The value below which this share of an ordered list lies."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cpu_seconds() -> float:
    """User and system time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def busy_seconds() -> float:
    """Core seconds that the machine has worked, all processes together; 0 where the system does not tell."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, *_rest = map(int, stat.read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


AsyncRun = Callable[[str, Ticks], Awaitable[None]]
"""Makes the run of this name and comes back when its result is durable."""


async def measured(cell: Cell, run: AsyncRun, *, steps_of_run: int, turns_of_run: int = 0) -> Sample:
    """Measure with coroutines, after a few runs that do not count."""
    for number in range(WARM_RUNS):
        await run(f"warm-{number}", Ticks())
    meter = Meter(cell, steps_of_run, turns_of_run)
    names = meter.names()

    async def lane() -> None:
        for name in names:
            began = time.perf_counter()
            await run(name, meter.ticks)
            meter.ended(began)

    await asyncio.gather(*(lane() for _ in range(cell.at_once)))
    return meter.sample()


def measured_by_threads(cell: Cell, run: Callable[[str, Ticks], None], *, steps_of_run: int) -> Sample:
    """The same for an API that blocks: a thread for each run at once."""
    for number in range(WARM_RUNS):
        run(f"warm-{number}", Ticks())
    meter = Meter(cell, steps_of_run, 0)
    names, lock = meter.names(), threading.Lock()

    def lane() -> None:
        while True:
            with lock:  # a generator must not be asked by two threads at once
                name = next(names, None)
            if name is None:
                return
            began = time.perf_counter()
            run(name, meter.ticks)
            meter.ended(began)

    with ThreadPoolExecutor(cell.at_once) as pool:
        for lane_done in [pool.submit(lane) for _ in range(cell.at_once)]:
            lane_done.result()
    return meter.sample()


def tell(sample: Sample) -> None:
    """The line that the caller reads."""
    sys.stdout.write(json.dumps(asdict(sample)) + "\n")
    sys.stdout.flush()
