"""Runs the programs in turn, cell by cell: A B C, then C B A, so that other work on the machine slows all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from benchmarks.programs.lanes import Sample

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "bench"
"""Virtual environments of the peers and the databases under test: on the disk that is measured."""
PROGRAM_SECONDS_MAX = 300.0
SECRET = "the-keyring-of-a-benchmark-is-known"
"""On SQLite it would be made beside the file; on PostgreSQL every process has to be given the same."""


@dataclass(frozen=True)
class Program:
    """One row of the table: `python -m benchmarks.programs.MODULE WHAT …` under the Python that has what it needs."""

    label: str
    module: str
    what: str
    python: Path = Path(sys.executable)
    store: str = "sqlite"
    """Beside whose floor it stands."""
    own_server: bool = False
    """It brings what it stores in, and only needs a folder for it."""


FLOOR = Program("floor: two commits a step", "floors", "floor")
GROUPED = Program("grouped floor", "floors", "floor-grouped")
PERFORM = Program("surefoot `perform()`", "ours", "perform")
LOOP = Program("surefoot, whole loop", "ours", "loop")
OURS = (FLOOR, GROUPED, PERFORM, LOOP)
STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


@dataclass(frozen=True)
class Effort:
    """How much is measured. Each cell of a round makes at least so many runs, and goes on for at least so long."""

    rounds: int
    runs_min: int
    seconds_min: float


FULL = Effort(rounds=5, runs_min=30, seconds_min=2.0)
QUICK = Effort(rounds=2, runs_min=3, seconds_min=0.3)

Shape = tuple[int, int]
"""Steps of a run, and runs at once."""


@dataclass(frozen=True)
class Measured:
    """The samples of one program in one shape, one for each round, in the order of the rounds."""

    program: str
    steps: int
    at_once: int
    samples: list[Sample]
    store: str = "sqlite"


class DatabaseMaker(Protocol):
    """What makes databases: benchmarks.postgres.Databases."""

    def fresh(self, template: str = "") -> str:
        """The URL of a new one."""
        ...

    def drop(self, url: str) -> None:
        """It is not needed any more."""
        ...


class ProgramFailed(Exception):
    """A program under measurement ended badly; what it said is the message."""


def fresh_folder(name: str) -> Path:
    """An empty folder for a database."""
    folder = BUILD / "data" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def environment() -> dict[str, str]:
    """Of all programs under measurement. Compiled files are kept, as an installed package has them."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT), "SUREFOOT_SECRET": SECRET}


def run_program(python: Path, module: str, *words: str, timeout: float = PROGRAM_SECONDS_MAX) -> bytes:
    """The last line that a program of benchmarks.programs prints. Raises ProgramFailed."""
    command = [str(python), "-m", f"benchmarks.programs.{module}", *words]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise ProgramFailed(f"{module} {words[0]} was not done after {timeout:g} s") from error
    if done.returncode != 0 or not done.stdout.strip():
        raise ProgramFailed(f"{module} {words[0]}: {done.stderr.decode(errors='replace').strip()[-2000:]}")
    return done.stdout.strip().splitlines()[-1]


@contextmanager
def fresh_place(program: Program, name: str, databases: DatabaseMaker | None) -> Iterator[str]:
    """An empty folder, or the URL of an empty database, for as long as this lasts."""
    if program.store == "sqlite" or program.own_server:
        folder = fresh_folder(name)
        yield str(folder)
        shutil.rmtree(folder, ignore_errors=True)
    else:
        assert databases is not None, "programs on PostgreSQL are measured where it runs"
        url = databases.fresh()
        yield url
        databases.drop(url)


def on_both(programs: Sequence[Program], databases: DatabaseMaker | None) -> list[Program]:
    """Programs on SQLite, and the same ones on PostgreSQL where it runs."""
    return [*programs, *([] if databases is None else [replace(program, store="postgres") for program in programs])]


def sample_of(program: Program, shape: Shape, effort: Effort, databases: DatabaseMaker | None) -> Sample:
    """One cell, once, on an empty database. Raises ProgramFailed."""
    steps, at_once = shape
    runs = max(effort.runs_min, at_once)
    with fresh_place(program, "speed", databases) as place:
        words = (program.what, place, str(steps), str(at_once), str(runs), str(effort.seconds_min))
        line = run_program(program.python, program.module, *words)
    return msgspec.json.decode(line, type=Sample)


def measure_rounds(
    programs: Sequence[Program],
    shapes: Sequence[Shape],
    effort: Effort,
    databases: DatabaseMaker | None,
    tell: Callable[[str], None],
) -> list[Measured]:
    """All programs in all shapes, interleaved. Raises ProgramFailed."""
    samples: dict[tuple[Shape, Program], list[Sample]] = {
        (shape, program): [] for shape in shapes for program in programs
    }
    for number in range(effort.rounds):
        order = programs if number % 2 == 0 else programs[::-1]
        for shape in shapes:
            for program in order:
                sample = sample_of(program, shape, effort, databases)
                samples[shape, program].append(sample)
                rate = sample.steps_done / sample.seconds
                where = STORES[program.store]
                what = f"{where}: {program.label}, {shape[1]} x {shape[0]} steps: {rate:,.0f} steps/s"
                tell(f"round {number + 1}/{effort.rounds}  {what}  (others used {sample.others:.1f} cores)")
    return [
        Measured(program.label, shape[0], shape[1], found, program.store) for (shape, program), found in samples.items()
    ]
