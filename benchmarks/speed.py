"""Steps a second: surefoot, the floors and the peers in one interleaved run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.machine import Conditions, conditions
from benchmarks.peers import PEERS, Peers
from benchmarks.rounds import FLOOR, GROUPED, LOOP, OURS, PERFORM, Effort, Measured, Shape, measure_rounds
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

    program: str
    at_once: int
    floor: str
    first: float
    aim: float


BARS = (
    Bar(PERFORM.label, 1, FLOOR.label, 0.6, 1.1),
    Bar(LOOP.label, 1, FLOOR.label, 0.6, 1.1),
    Bar(PERFORM.label, 64, GROUPED.label, 0.2, 0.5),
    Bar(LOOP.label, 64, GROUPED.label, 0.2, 0.5),
)


def measure(peers: Peers, shapes: Sequence[Shape], effort: Effort, tell: Callable[[str], None]) -> Speed:
    """All rows in all shapes. Raises ProgramFailed."""
    on = conditions()
    found = measure_rounds([*OURS, *peers.programs()], shapes, effort, tell)
    return Speed(on, effort, found, dict(peers.missing))


def section(speed: Speed) -> str:
    """One table for each number of steps and of runs at once."""
    table = lines(speed.measured)
    shapes = list(dict.fromkeys((line.steps, line.at_once) for line in table))
    effort = speed.effort
    rounds = len(speed.measured[0].samples)
    parts = [
        f"{rounds} interleaved rounds; in each, a cell makes at least {effort.runs_min} runs (and as many as are at "
        f"once) and goes on for at least {effort.seconds_min:g} s. Medians over the rounds [least..most]; ratios are "
        "taken within each round. The gap lies between the works of neighbouring steps of one run; where a run has one "
        "step, it is the whole run. `others`: cores that other processes used meanwhile.",
        *(f"**{PEERS[name]} is missing**: {why}" for name, why in speed.missing.items()),
    ]
    for steps, at_once in shapes:
        runs = f"runs of {steps} steps" if steps > 1 else "runs of 1 step"
        parts.append(f"### {at_once} at once, {runs}")
        parts.append(_table([line for line in table if (line.steps, line.at_once) == (steps, at_once)]))
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
        line = _line(table, bar.program, bar.at_once)
        got = None if line is None else line.ratio_plain if bar.floor == FLOOR.label else line.ratio_grouped
        if got is not None:
            what = f"{bar.program}, {bar.at_once} at once: steps/s over the {bar.floor.split(':')[0]}"
            found.append(Judged(what, bar.first, bar.aim, got.median, ratio(got), ceiling=False))
    for program in (PERFORM.label, LOOP.label):
        line = _line(table, program, 64)
        if line is not None:
            what = f"{program}, 64 at once: p99 of the gap over its p50"
            shown = f"**{line.fairness:.1f}**"
            found.append(Judged(what, FAIRNESS_FIRST, FAIRNESS_AIM, line.fairness, shown, ceiling=True))
    return found


def _line(table: Sequence[Line], program: str, at_once: int) -> Line | None:
    wanted = (program, STEPS, at_once)
    return next((line for line in table if (line.program, line.steps, line.at_once) == wanted), None)
