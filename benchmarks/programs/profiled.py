"""Where the time of surefoot goes, 64 runs at once.

    python -m benchmarks.programs.profiled sampled|counted perform|loop FOLDER STEPS AT_ONCE RUNS_MIN SECONDS_MIN

`sampled` looks at the stack each millisecond of CPU. A look waits for the end of the C function that is under way, so
each look weighs the CPU time since the last one: own time of a Python function contains the C functions that it calls.
`counted` runs under cProfile, which makes small functions look dear, but counts calls, those of C functions too.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import signal
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType

from benchmarks.programs.lanes import Cell
from benchmarks.programs.ours import measure

INTERVAL_SECONDS = 0.001
LIBRARY = Path(asyncio.__file__).parents[1]
ROOT = Path(__file__).parents[2]

Place = tuple[str, int, str]
"""File, first line and name of a function."""


@dataclass(frozen=True)
class Spent:
    """CPU of one function, in seconds: in itself, and with all that it called. Calls are 0 where nobody counted."""

    file: str
    line: int
    name: str
    own: float
    total: float
    calls: int


@dataclass(frozen=True)
class Profile:
    """All functions that were seen, and how many steps were done meanwhile (those of the warm-up are few)."""

    steps_done: int
    functions: list[Spent]


class Sampler:
    """While in force, looks at the stack by a timer that counts CPU time."""

    def __init__(self) -> None:
        self.own: defaultdict[Place, float] = defaultdict(float)
        self.total: defaultdict[Place, float] = defaultdict(float)
        self._last = time.process_time()

    def __enter__(self) -> Sampler:
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)
        self._last = time.process_time()
        return self

    def __exit__(self, *_raised: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)

    def _look(self, _number: int, frame: FrameType | None) -> None:
        now = time.process_time()
        weight, self._last = now - self._last, now
        seen: set[Place] = set()
        top = True
        while frame is not None:
            code = frame.f_code
            place = (code.co_filename, code.co_firstlineno, code.co_qualname)
            if top:
                self.own[place] += weight
                top = False
            seen.add(place)
            frame = frame.f_back
        for place in seen:
            self.total[place] += weight


def sampled(cell: Cell) -> Profile:
    """By looks at the stack."""
    with Sampler() as sampler:
        sample = asyncio.run(measure(cell))
    functions = [
        Spent(_short(file), line, name, sampler.own[file, line, name], total, 0)
        for (file, line, name), total in sampler.total.items()
    ]
    return Profile(sample.steps_done, functions)


def counted(cell: Cell) -> Profile:
    """By cProfile."""
    profiler = cProfile.Profile()
    sample = profiler.runcall(asyncio.run, measure(cell))
    functions = [
        Spent(*_place(entry.code), own=entry.inlinetime, total=entry.totaltime, calls=entry.callcount)
        for entry in profiler.getstats()
    ]
    return Profile(sample.steps_done, functions)


def _place(code: CodeType | str) -> Place:
    """Of a function; a C function has a name only."""
    if isinstance(code, str):
        return "", 0, code
    return _short(code.co_filename), code.co_firstlineno, code.co_qualname


def _short(file: str) -> str:
    """Below the repository or the standard library: where a machine keeps its files is nobody's business."""
    path = Path(file)
    for above in (ROOT, LIBRARY):
        if path.is_relative_to(above):
            return str(path.relative_to(above))
    return path.name


def main() -> None:
    """One line of JSON, a Profile."""
    how = {"sampled": sampled, "counted": counted}[sys.argv[1]]
    sys.stdout.write(json.dumps(asdict(how(Cell.of_arguments(sys.argv[2:])))) + "\n")


if __name__ == "__main__":
    main()
