"""What does not depend on the machine: syncs and bytes a step, SQL statements, calls of functions, instructions.

System calls are counted by the small tracer of tests/counts, between the marks that each program prints.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from benchmarks.machine import Conditions, conditions
from benchmarks.peers import NAMES, Peers
from benchmarks.programs.counted import PerStep
from benchmarks.programs.lanes import Sample
from benchmarks.rounds import LOOP, OURS, PERFORM, ROOT, Program, ProgramFailed, environment, fresh_folder, run_program
from benchmarks.tables import Judged, grid, number
from tests.counts.tracer import Line, read_lines

TRACER = ROOT / "tests" / "counts" / "tracer.py"
SYNCS = ("fsync", "fdatasync")
STEPS = 20
RUNS = {1: 5, 64: 64}
"""Traced runs, by how many are at once."""
TURN_BARS = {1: (2.0, 2.0), 64: (0.25, 0.06)}
TURNS_SHORT, TURNS_LONG = 20, 30
TRACED_SECONDS_MAX = 300.0


@dataclass(frozen=True)
class Counted:
    """One program, a step: system calls that wait for the disk, bytes handed to it, and what only surefoot tells."""

    program: str
    at_once: int
    syncs: float
    bytes: float
    statements: float | None = None
    calls: float | None = None
    instructions: float | None = None


@dataclass(frozen=True)
class Counts:
    """All of them; `turn_syncs` by how many runs are at once."""

    on: Conditions
    rows: list[Counted]
    turn_syncs: dict[int, float]
    missing: dict[str, str] = field(default_factory=dict)


def measure(peers: Peers, tell: Callable[[str], None]) -> Counts:
    """Raises ProgramFailed, also where the system lets nobody trace a child."""
    on, rows = conditions(), []
    peer_programs = [
        program for program in peers.programs() if program.store == "sqlite" and not program.what.endswith("-threads")
    ]
    cells = [(program, at_once) for program in OURS for at_once in RUNS]
    # Peers join no commits of different runs, so more of them at once change nothing but the time that tracing takes.
    for program, at_once in [*cells, *((program, 1) for program in peer_programs)]:
        rows.append(_counted(program, at_once, RUNS[at_once]))
        tell(f"counted: {rows[-1].program}, {at_once} at once")
    return Counts(on, rows, {at_once: _turn_syncs(at_once) for at_once in RUNS}, dict(peers.missing))


def _counted(program: Program, at_once: int, runs: int) -> Counted:
    sample, calls = _traced(program, STEPS, at_once, runs)
    syncs = sum(call["call"] in SYNCS for call in calls) / sample.steps_done
    written = sum(call["result"] for call in calls if ".db" in call["path"] and "write" in call["call"])
    found = Counted(program.label, at_once, syncs, written / sample.steps_done)
    if program not in (PERFORM, LOOP):
        return found
    own = _per_step(program, at_once)
    instructions = _instructions(program, at_once)
    return Counted(found.program, at_once, syncs, found.bytes, own.statements, own.calls, instructions)


def _traced(program: Program, steps: int, at_once: int, runs: int) -> tuple[Sample, list[Line]]:
    """The sample, and the system calls of the counted runs."""
    folder = fresh_folder("counts")
    words = [program.what, str(folder), str(steps), str(at_once), str(runs), "0"]
    command = [str(program.python), "-m", f"benchmarks.programs.{program.module}", *words]
    out = folder / "calls.jsonl"
    done = subprocess.run(
        [sys.executable, str(TRACER), str(out), "--", *command],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        timeout=TRACED_SECONDS_MAX,
    )
    if done.returncode != 0:
        raise ProgramFailed(f"{program.label}, traced: {done.stderr.decode(errors='replace').strip()[-1000:]}")
    sample = msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Sample)
    calls = read_lines(out)
    begin, end = (_place(calls, word) for word in ("begin\n", "end\n"))
    shutil.rmtree(folder)
    return sample, calls[begin:end]


def _place(calls: list[Line], word: str) -> int:
    return next(place for place, call in enumerate(calls) if call["call"] == "write" and call["data"] == word)


def _turn_syncs(at_once: int) -> float:
    """Of a run of 30 turns, less one of 20: what a turn costs without start and end."""
    syncs = [
        sum(call["call"] in SYNCS for call in _traced(LOOP, 2 * turns, at_once, RUNS[at_once])[1])
        for turns in (TURNS_SHORT, TURNS_LONG)
    ]
    return (syncs[1] - syncs[0]) / (TURNS_LONG - TURNS_SHORT) / RUNS[at_once]


def _per_step(program: Program, at_once: int) -> PerStep:
    folder = fresh_folder("counted")
    line = run_program(program.python, "counted", program.what, str(folder), str(STEPS), str(at_once))
    shutil.rmtree(folder)
    return msgspec.json.decode(line, type=PerStep)


def _instructions(program: Program, at_once: int) -> float | None:
    """Instructions in user space, by `perf stat`; None where the machine does not count them."""
    if shutil.which("perf") is None:
        return None
    found = []
    for runs in (at_once, 3 * at_once):
        folder = fresh_folder("instructions")
        words = [program.what, str(folder), str(STEPS), str(at_once), str(runs), "0"]
        command = [str(program.python), "-m", f"benchmarks.programs.{program.module}", *words]
        perf = ["perf", "stat", "-x,", "-e", "instructions:u", *command]
        done = subprocess.run(perf, cwd=ROOT, env=environment(), capture_output=True, text=True)
        count = done.stderr.partition(",")[0]
        if done.returncode != 0 or not count.isdigit():
            return None
        found.append((int(count), msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Sample).steps_done))
    (short, short_steps), (long, long_steps) = found
    return (long - short) / (long_steps - short_steps)


def section(counts: Counts) -> str:
    """One table."""

    def told(value: float | None) -> str:
        return "" if value is None else number(value)

    rows = [
        (
            f"{row.program}, {row.at_once} at once",
            f"{row.syncs:.2f}" if row.at_once == 1 else f"{row.syncs:.3f}",
            number(row.bytes),
            told(row.statements),
            told(row.calls),
            told(row.instructions),
        )
        for row in counts.rows
    ]
    head = ("", "syncs", "bytes written", "SQL statements", "function calls", "instructions")
    text = (
        f"A step, start and end of its run of {STEPS} steps spread over its steps. Bytes are those of all writes to "
        "the database and its log. Statements and calls are counted inside the process, for surefoot only; "
        "instructions by `perf stat`, empty where the machine does not count them. `tests/counts` holds syncs, "
        "statements and bytes to their limits at every change."
    )
    turns = ", ".join(f"{value:.2f} with {at_once} at once" for at_once, value in counts.turn_syncs.items())
    missing = [f"**{NAMES[name]} is missing**: {why}" for name, why in counts.missing.items()]
    return "\n\n".join([*missing, text, grid(head, rows), f"Syncs a turn of the whole loop: {turns}."])


def judged(counts: Counts) -> list[Judged]:
    """Syncs a turn."""
    return [
        Judged(
            f"syncs a turn (a {TURNS_LONG}-turn run less a {TURNS_SHORT}-turn run), {at_once} at once",
            *TURN_BARS[at_once],
            got,
            f"**{got:.2f}**",
            ceiling=True,
        )
        for at_once, got in counts.turn_syncs.items()
    ]
