"""Storage against the length of a run: what a step leaves, and what is written for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.machine import Conditions, conditions
from benchmarks.peers import NAMES, PEERS, Peers, version
from benchmarks.postgres import Databases, version_of
from benchmarks.programs.grown import PAYLOAD_BYTES, Grown
from benchmarks.rounds import Program, fresh_place, run_program
from benchmarks.tables import Judged, grid, number

SUREFOOT = "surefoot, whole loop"
ON_POSTGRES = "surefoot on PostgreSQL, whole loop"
STEPS, STEPS_QUICK = (100, 1_000, 3_000), (100, 300)
STEPS_MAX = {"langgraph": 1_000}
"""Its storage grows with the square: 3,000 steps would write 11 GB."""
GROWTH_FIRST, GROWTH_AIM = 1.1, 1.02
FACTOR_FIRST, FACTOR_AIM = 3.0, 1.5


@dataclass(frozen=True)
class Stored:
    """One run."""

    program: str
    grown: Grown


@dataclass(frozen=True)
class Storage:
    """One run of each length."""

    on: Conditions
    runs: list[Stored]
    missing: dict[str, str] = field(default_factory=dict)


def measure(peers: Peers, databases: Databases | None, tell: Callable[[str], None], *, quick: bool) -> Storage:
    """Raises ProgramFailed."""
    on, runs = conditions(version_of(databases)), []
    programs = [(SUREFOOT, Path(sys.executable), "ours")]
    programs += [(ON_POSTGRES, Path(sys.executable), "ours")] if databases is not None else []
    programs += [(f"{PEERS[name]} {version(name)}", python, name) for name, python in peers.on_files().items()]
    for label, python, name in programs:
        for steps in STEPS_QUICK if quick else STEPS:
            if steps > STEPS_MAX.get(name, steps):
                continue
            program = Program(label, f"storage_{name}", "", python, "postgres" if label == ON_POSTGRES else "sqlite")
            with fresh_place(program, "storage", databases) as place:
                line = run_program(python, program.module, place, str(steps))
            runs.append(Stored(label, msgspec.json.decode(line, type=Grown)))
            tell(f"storage: {label}, {steps:,} steps: {runs[-1].grown.database_bytes / steps:,.0f} bytes a step")
    return Storage(on, runs, dict(peers.missing))


def section(storage: Storage) -> str:
    """A line for each run."""
    rows = [
        (
            f"{run.program}, {run.grown.steps:,} steps",
            number(run.grown.database_bytes / run.grown.steps),
            f"{run.grown.database_bytes / run.grown.steps / PAYLOAD_BYTES:.1f}",
            number(run.grown.file_bytes / run.grown.steps),
            number(run.grown.written_bytes / run.grown.steps),
            f"{1e3 * run.grown.seconds / run.grown.steps:.1f} ms",
        )
        for run in storage.runs
    ]
    text = (
        f"One run, each of whose steps has {PAYLOAD_BYTES:,} bytes of its own: in surefoot a model's call and a tool's "
        "result in turn, in the peers a result. On the disk: the database and its log, still open; written: what the "
        "process handed to the disk; on PostgreSQL, the tables with their indexes, the whole database, and what the "
        "server's log of writes grew by. LangGraph's run of 3,000 steps is left out: it would write 11 GB."
    )
    head = ("", "database a step", "over the payload", "on the disk", "written a step", "time a step")
    missing = [f"**{NAMES[name]} is missing**: {why}" for name, why in storage.missing.items()]
    return "\n\n".join([*missing, text, grid(head, rows)])


def judged(storage: Storage) -> list[Judged]:
    """Growth and size, of the two longest runs on each store."""
    found: list[Judged] = []
    for program, store in ((SUREFOOT, "SQLite"), (ON_POSTGRES, "PostgreSQL")):
        ours = [run.grown for run in storage.runs if run.program == program]
        found += _judged(store, *ours[-2:]) if ours else []
    return found


def _judged(store: str, short: Grown, long: Grown) -> list[Judged]:
    growth = (long.database_bytes / long.steps) / (short.database_bytes / short.steps)
    factor = long.database_bytes / long.steps / PAYLOAD_BYTES
    what = f"{store}: bytes a step at {long.steps:,} steps over those at {short.steps:,}"
    return [
        Judged(what, GROWTH_FIRST, GROWTH_AIM, growth, f"**{growth:.2f}**", ceiling=True),
        Judged(
            f"{store}: database over payload at {long.steps:,} steps",
            FACTOR_FIRST,
            FACTOR_AIM,
            factor,
            f"**{factor:.2f}**",
            ceiling=True,
        ),
    ]
