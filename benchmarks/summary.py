"""From samples to the figures of the table: medians over the rounds, and ratios within each round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.programs.lanes import Sample
from benchmarks.rounds import FLOOR, GROUPED, LOOP, PERFORM, Measured


@dataclass(frozen=True)
class Spread:
    """A figure over the rounds."""

    median: float
    least: float
    most: float


@dataclass(frozen=True)
class Line:
    """One line of the table. `ratio` is to the floor that the line is judged by, round by round."""

    program: str
    steps: int
    at_once: int
    rate: Spread
    turn_rate: Spread | None
    gap_p50_ms: float
    gap_p99_ms: float
    fairness: float
    cpu_us: float
    others: Spread
    ratio_plain: Spread | None
    ratio_grouped: Spread | None
    turn_ratio_plain: Spread | None
    turn_ratio_grouped: Spread | None


@dataclass(frozen=True)
class Bar:
    """What is to be reached: the ratio of a row to a floor, first and in the end."""

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
FAIRNESS_FIRST, FAIRNESS_AIM = 3.0, 2.0


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value."""
    return Spread(statistics.median(values), min(values), max(values))


def steps_per_second(sample: Sample) -> float:
    """A step is a model call or a tool call of surefoot, a step of a peer, two commits of a floor."""
    return sample.steps_done / sample.seconds


def turns_per_second(sample: Sample) -> float:
    """A turn is a model call and a tool call."""
    return sample.turns_done / sample.seconds


def lines(measured: Sequence[Measured]) -> list[Line]:
    """The table, in the order of what was measured."""
    return [_line(one, measured) for one in measured]


def _line(one: Measured, everything: Sequence[Measured]) -> Line:
    def over(label: str, rate: Callable[[Sample], float]) -> Spread | None:
        floors = [m for m in everything if (m.program, m.steps, m.at_once) == (label, one.steps, one.at_once)]
        if not floors:
            return None
        pairs = zip(one.samples, floors[0].samples, strict=True)
        return spread([rate(own) / steps_per_second(floor) for own, floor in pairs])

    def median(value: Callable[[Sample], float]) -> float:
        return statistics.median(value(sample) for sample in one.samples)

    turns = any(sample.turns_done for sample in one.samples)
    return Line(
        program=one.program,
        steps=one.steps,
        at_once=one.at_once,
        rate=spread([steps_per_second(sample) for sample in one.samples]),
        turn_rate=spread([turns_per_second(sample) for sample in one.samples]) if turns else None,
        gap_p50_ms=median(lambda sample: sample.gap_p50_ms),
        gap_p99_ms=median(lambda sample: sample.gap_p99_ms),
        fairness=median(lambda sample: sample.gap_p99_ms / sample.gap_p50_ms),
        cpu_us=median(lambda sample: sample.cpu_us_per_step),
        others=spread([sample.others for sample in one.samples]),
        ratio_plain=over(FLOOR.label, steps_per_second),
        ratio_grouped=over(GROUPED.label, steps_per_second),
        turn_ratio_plain=over(FLOOR.label, turns_per_second) if turns else None,
        turn_ratio_grouped=over(GROUPED.label, turns_per_second) if turns else None,
    )


def reached(bar: Bar, table: Sequence[Line]) -> Spread | None:
    """The ratio that a bar of 20-step runs is held against; None where it was not measured."""
    for line in table:
        if (line.program, line.steps, line.at_once) == (bar.program, 20, bar.at_once):
            return line.ratio_plain if bar.floor == FLOOR.label else line.ratio_grouped
    return None
