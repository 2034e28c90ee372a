"""Steps a second: surefoot, the floors and the peers in one interleaved run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.machine import Conditions, conditions
from benchmarks.peers import NAMES, Peers
from benchmarks.postgres import Databases, version_of
from benchmarks.rounds import (
    FLOOR,
    GROUPED,
    LOOP,
    OURS,
    PERFORM,
    STORES,
    Effort,
    Measured,
    Shape,
    measure_rounds,
    on_both,
)
from benchmarks.summary import Line, lines
from benchmarks.tables import Judged, grid, number, ratio, with_spread

STEPS = 20
"""Of the runs that the bars are about."""
FAIRNESS_FIRST, FAIRNESS_AIM = 3.0, 2.0


@dataclass(frozen=True)
class Speed:
    """What was measured, and which peers could not be."""

    on: Conditions
    effort: Effort
    measured: list[Measured]
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Bar:
    """The ratio of a row to a floor that is to be reached, first and in the end."""

    store: str
    program: str
    at_once: int
    floor: str
    first: float
    aim: float


BARS = (
    Bar("sqlite", PERFORM.label, 1, FLOOR.label, 0.6, 1.1),
    Bar("sqlite", LOOP.label, 1, FLOOR.label, 0.6, 1.1),
    Bar("sqlite", PERFORM.label, 64, GROUPED.label, 0.2, 0.5),
    Bar("sqlite", LOOP.label, 64, GROUPED.label, 0.2, 0.5),
    Bar("postgres", PERFORM.label, 1, FLOOR.label, 0.5, 0.85),
    Bar("postgres", LOOP.label, 1, FLOOR.label, 0.5, 0.85),
    Bar("postgres", PERFORM.label, 64, GROUPED.label, 0.15, 0.4),
    Bar("postgres", LOOP.label, 64, GROUPED.label, 0.15, 0.4),
)


def measure(
    peers: Peers, databases: Databases | None, shapes: Sequence[Shape], effort: Effort, tell: Callable[[str], None]
) -> Speed:
    """All rows in all shapes. Raises ProgramFailed."""
    on = conditions(version_of(databases))
    others = [program for program in peers.programs() if program.store == "sqlite" or databases is not None]
    found = measure_rounds([*on_both(OURS, databases), *others], shapes, effort, databases, tell)
    return Speed(on, effort, found, dict(peers.missing))


def section(speed: Speed) -> str:
    """One table for each number of steps and of runs at once, and for each store."""
    table = lines(speed.measured)
    shapes = list(dict.fromkeys((line.steps, line.at_once) for line in table))
    effort = speed.effort
    rounds = len(speed.measured[0].samples)
    parts = [
        f"{rounds} interleaved rounds; in each, a cell makes at least {effort.runs_min} runs (and as many as are at "
        f"once) and goes on for at least {effort.seconds_min:g} s. Medians over the rounds [least..most]; ratios are "
        "taken within each round. The gap lies between the works of neighbouring steps of one run; where a run has one "
        "step, it is the whole run. `others`: cores that other processes used meanwhile, a database server among them.",
        *(f"**{NAMES[name]} is missing**: {why}" for name, why in speed.missing.items()),
    ]
    for steps, at_once in shapes:
        runs = f"runs of {steps} steps" if steps > 1 else "runs of 1 step"
        for store, name in STORES.items():
            rows = [line for line in table if (line.store, line.steps, line.at_once) == (store, steps, at_once)]
            parts += [f"### {at_once} at once, {runs}, {name}", _table(rows)] if rows else []
    return "\n\n".join(parts)


def _table(table: Sequence[Line]) -> str:
    head = ("", "steps/s", "turns/s", "x floor", "x grouped floor", "gap p50", "p99", "p99/p50", "CPU a step", "others")
    rows = [
        (
            line.program,
            with_spread(line.rate),
            number(line.turn_rate.median) if line.turn_rate else "",
            ratio(line.ratio_plain),
            ratio(line.ratio_grouped),
            f"{number(line.gap_p50_ms)} ms",
            f"{number(line.gap_p99_ms)} ms",
            f"{line.fairness:.1f}",
            f"{number(line.cpu_us)} µs",
            f"{line.others.median:.1f} [{line.others.least:.1f}..{line.others.most:.1f}]",
        )
        for line in table
    ]
    return grid(head, rows)


def judged(speed: Speed) -> list[Judged]:
    """The bars of speed and of fairness, as far as their cells were measured."""
    table = lines(speed.measured)
    found = []
    for bar in BARS:
        line = _line(table, bar.store, bar.program, bar.at_once)
        got = None if line is None else line.ratio_plain if bar.floor == FLOOR.label else line.ratio_grouped
        if got is not None:
            what = (
                f"{STORES[bar.store]}: {bar.program}, {bar.at_once} at once: steps/s over the {bar.floor.split(':')[0]}"
            )
            found.append(Judged(what, bar.first, bar.aim, got.median, ratio(got), ceiling=False))
    for store, program in itertools.product(STORES, (PERFORM.label, LOOP.label)):
        line = _line(table, store, program, 64)
        if line is not None:
            what = f"{STORES[store]}: {program}, 64 at once: p99 of the gap over its p50"
            shown = f"**{line.fairness:.1f}**"
            found.append(Judged(what, FAIRNESS_FIRST, FAIRNESS_AIM, line.fairness, shown, ceiling=True))
    return found


def _line(table: Sequence[Line], store: str, program: str, at_once: int) -> Line | None:
    wanted = (store, program, STEPS, at_once)
    return next((line for line in table if (line.store, line.program, line.steps, line.at_once) == wanted), None)
