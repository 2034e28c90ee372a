"""From samples to the figures of the table: medians over the rounds, and ratios within each round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.programs.lanes import Sample
from benchmarks.rounds import FLOOR, GROUPED, Measured


@dataclass(frozen=True)
class Spread:
    """A figure over the rounds."""

    median: float
    least: float
    most: float


@dataclass(frozen=True)
class Line:
    """One line of the table. The ratios are of steps a second to those of the store's floors, round by round."""

    program: str
    store: str
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


def _cell(one: Measured) -> tuple[str, int, int]:
    return one.store, one.steps, one.at_once


def _line(one: Measured, everything: Sequence[Measured]) -> Line:
    def over(label: str) -> Spread | None:
        floors = [m for m in everything if m.program == label and _cell(m) == _cell(one)]
        if not floors:
            return None
        pairs = zip(one.samples, floors[0].samples, strict=True)
        return spread([steps_per_second(own) / steps_per_second(floor) for own, floor in pairs])

    def median(value: Callable[[Sample], float]) -> float:
        return statistics.median(value(sample) for sample in one.samples)

    turns = any(sample.turns_done for sample in one.samples)
    return Line(
        program=one.program,
        store=one.store,
        steps=one.steps,
        at_once=one.at_once,
        rate=spread([steps_per_second(sample) for sample in one.samples]),
        turn_rate=spread([turns_per_second(sample) for sample in one.samples]) if turns else None,
        gap_p50_ms=median(lambda sample: sample.gap_p50_ms),
        gap_p99_ms=median(lambda sample: sample.gap_p99_ms),
        fairness=median(lambda sample: sample.gap_p99_ms / sample.gap_p50_ms),
        cpu_us=median(lambda sample: sample.cpu_us_per_step),
        others=spread([sample.others for sample in one.samples]),
        ratio_plain=over(FLOOR.label),
        ratio_grouped=over(GROUPED.label),
    )
