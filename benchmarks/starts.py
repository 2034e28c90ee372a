"""How soon a process is there: what an import costs, and how long after its start it comes to an interrupted call.

The interrupted call is that of the kill tests, its response lost: surefoot's first act is to look, a peer's is to send
again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.kills import ON_POSTGRES, SUREFOOT, programs_of
from benchmarks.machine import Conditions, conditions
from benchmarks.peers import NAMES, PEERS, Peers
from benchmarks.postgres import Databases, version_of
from benchmarks.rounds import environment, fresh_folder
from benchmarks.summary import Spread, spread
from benchmarks.tables import Judged, grid, ratio
from benchmarks.target import Target, play

IMPORT_FLOOR = "import asyncio, sqlite3"
RESUME_FLOOR = "import pydantic, httpx, sqlite3"
IMPORTS = {
    "dbos": "from dbos import DBOS",
    "langgraph": "from langgraph.graph import StateGraph; from langgraph.checkpoint.sqlite import SqliteSaver",
}
RESUME_STEPS = (10, 1_000)
ROUNDS, ROUNDS_QUICK = 11, 3
IMPORT_FIRST_MS, IMPORT_AIM_MS = 60.0, 30.0
RESUME_FIRST, RESUME_AIM = 1.5, 0.4
THOUSAND_FIRST_MS, THOUSAND_AIM_MS = 30.0, 10.0


@dataclass(frozen=True)
class Timed:
    """Seconds of one thing in each round. `steps`: how many the run had done before (0: nothing was resumed)."""

    what: str
    steps: int
    seconds: list[float]


@dataclass(frozen=True)
class Starts:
    """Interleaved: the nth seconds of all of them are of one round."""

    on: Conditions
    imports: list[Timed]
    resumes: list[Timed]
    missing: dict[str, str] = field(default_factory=dict)


def measure(peers: Peers, databases: Databases | None, tell: Callable[[str], None], *, quick: bool) -> Starts:
    """Imports first, then resumes."""
    on, rounds = conditions(version_of(databases)), ROUNDS_QUICK if quick else ROUNDS
    commands = [(Path(sys.executable), IMPORT_FLOOR), (Path(sys.executable), "import surefoot")]
    commands += [(python, IMPORTS[name]) for name, python in peers.on_files().items()]
    imports = [Timed(command, 0, []) for _, command in commands]
    for _ in range(rounds):
        for timed, (python, command) in zip(imports, commands, strict=True):
            timed.seconds.append(_seconds(python, command))
    tell(f"imports: {rounds} rounds of {', '.join(['surefoot', *(PEERS[name] for name in peers.on_files())])}")
    return Starts(on, imports, _resumes(peers, databases, rounds, tell), dict(peers.missing))


def _seconds(python: Path, command: str) -> float:
    began = time.perf_counter()
    subprocess.run([str(python), "-c", command], env=environment(), check=True)
    return time.perf_counter() - began


@dataclass(frozen=True)
class _Interrupted:
    """A store as a killed process left it, and the program that goes on with it."""

    timed: Timed
    python: Path
    module: str
    left: Path
    databases: Databases | None
    database: str
    """Where it is on PostgreSQL, the URL; each resume has a copy."""


def _resumes(peers: Peers, databases: Databases | None, rounds: int, tell: Callable[[str], None]) -> list[Timed]:
    floor = Timed(RESUME_FLOOR, 0, [])
    target = Target()
    try:
        stories = [
            _interrupt(target, label, python, module, steps, databases if label == ON_POSTGRES else None)
            for label, python, module in programs_of(peers, databases)
            for steps in RESUME_STEPS
        ]
        for number in range(rounds):
            floor.seconds.append(_seconds(Path(sys.executable), RESUME_FLOOR))
            for story in stories:
                story.timed.seconds.append(_resume(target, story))
            tell(f"resume: round {number + 1}/{rounds}")
    finally:
        target.close()
    for story in stories:
        shutil.rmtree(story.left)
        if story.databases is not None:
            story.databases.drop(story.database)
    return [floor, *(story.timed for story in stories)]


def _interrupt(
    target: Target, label: str, python: Path, module: str, steps: int, databases: Databases | None
) -> _Interrupted:
    folder = fresh_folder(f"resume-{module}-{steps}{'-postgres' if databases is not None else ''}")
    database = databases.fresh() if databases is not None else ""
    target.comments.clear()
    target.kills_poster = True
    play(target, python, module, folder, steps, *([database] if database else []))
    assert len(target.comments) == 1, f"{label} did not come to its effect"
    return _Interrupted(Timed(label, steps, []), python, module, folder, databases, database)


def _resume(target: Target, story: _Interrupted) -> float:
    """From the start of a fresh process until the target hears of it."""
    folder = fresh_folder("resume")
    shutil.copytree(story.left, folder, dirs_exist_ok=True)
    # What the killed process left was on the disk. A copy is not, and its first sync would wait for all of it.
    os.sync()
    copy = story.databases.fresh(story.database) if story.databases is not None else ""
    words = [copy] if copy else []
    steps = story.timed.steps
    played = play(target, story.python, story.module, folder, steps, *words, until=lambda: bool(target.asked))
    shutil.rmtree(folder)
    if story.databases is not None:
        story.databases.drop(copy)
    assert played.asked_seconds is not None, f"{story.timed.what} did not go on: {played.said}"
    return played.asked_seconds


def section(starts: Starts) -> str:
    """Two tables."""
    missing = [f"**{NAMES[name]} is missing**: {why}" for name, why in starts.missing.items()]
    floor = starts.resumes[0]
    rows = [
        (
            f"`{timed.what}`" if timed is floor else f"{timed.what}, {timed.steps:,} steps done",
            _milliseconds(timed.seconds),
            "" if timed is floor else ratio(_ratios(timed, floor)),
        )
        for timed in starts.resumes
    ]
    return "\n\n".join(
        [
            *missing,
            f"Medians of {len(floor.seconds)} interleaved rounds [least..most], each a fresh process from its start.",
            grid(
                ("import", "until it is over"),
                [(f"`{timed.what}`", _milliseconds(timed.seconds)) for timed in starts.imports],
            ),
            "From the start of a process to its first request about the call whose response was lost: surefoot looks, "
            "the others send again. Steps before it have 1 KiB results.",
            grid(("resume", "first request after", "x the first row"), rows),
        ]
    )


def _ratios(timed: Timed, floor: Timed) -> Spread:
    return spread([own / base for own, base in zip(timed.seconds, floor.seconds, strict=True)])


def _milliseconds(seconds: Sequence[float]) -> str:
    one = spread([1e3 * value for value in seconds])
    return f"{one.median:.0f} ms [{one.least:.0f}..{one.most:.0f}]"


def judged(starts: Starts) -> list[Judged]:
    """The three bars of starts, by medians: one slow start of a busy machine says nothing."""
    floor, ours = starts.imports[0], starts.imports[1]
    more = 1e3 * (spread(ours.seconds).median - spread(floor.seconds).median)
    found = [
        Judged(
            f"`import surefoot` over `{IMPORT_FLOOR}`, ms more",
            IMPORT_FIRST_MS,
            IMPORT_AIM_MS,
            more,
            f"**{more:.0f}**",
            ceiling=True,
        )
    ]
    for program, store in ((SUREFOOT, "SQLite"), (ON_POSTGRES, "PostgreSQL")):
        if any(timed.what == program for timed in starts.resumes):
            found += _judged(starts, program, store)
    return found


def _judged(starts: Starts, program: str, store: str) -> list[Judged]:
    short, long = (timed for timed in starts.resumes if timed.what == program)
    first = _ratios(short, starts.resumes[0])
    thousands = (long.steps - short.steps) / 1_000
    growth = 1e3 * (spread(long.seconds).median - spread(short.seconds).median) / thousands
    return [
        Judged(
            f"{store}: start to the first look of a {short.steps}-step run over `{RESUME_FLOOR}`",
            RESUME_FIRST,
            RESUME_AIM,
            first.median,
            ratio(first),
            ceiling=True,
        ),
        Judged(
            f"{store}: each 1,000 steps more, ms",
            THOUSAND_FIRST_MS,
            THOUSAND_AIM_MS,
            growth,
            f"**{growth:.0f}**",
            ceiling=True,
        ),
    ]
