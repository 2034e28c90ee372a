"""Figures as Markdown, the same for the terminal and for README.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.summary import Spread


@dataclass(frozen=True)
class Judged:
    """A bar: what is to be reached first, what in the end, and what was measured. A ceiling is not to be exceeded."""

    what: str
    first: float
    aim: float
    got: float
    shown: str
    ceiling: bool

    @property
    def verdict(self) -> str:
        """In words."""
        sign = -1 if self.ceiling else 1
        if sign * self.got >= sign * self.aim:
            return "aim reached"
        return "passed" if sign * self.got >= sign * self.first else "**missed**"


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its columns in line, the first one to the left."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = cells
        aligned = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        return "| " + " | ".join([first.ljust(widths[0]), *aligned]) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return "\n".join([line(head), rule, *map(line, rows)])


def number(value: float) -> str:
    """Three figures that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def with_spread(value: Spread | None) -> str:
    """median [least..most]"""
    return "" if value is None else f"{number(value.median)} [{number(value.least)}..{number(value.most)}]"


def ratio(value: Spread | None) -> str:
    """median [least..most], two places."""
    return "" if value is None else f"**{value.median:.2f}** [{value.least:.2f}..{value.most:.2f}]"


def bars(judged: Sequence[Judged]) -> str:
    """What is to be reached, and what was."""
    rows = [
        (one.what, f"{'≤' if one.ceiling else '≥'} {one.first:g}", f"{one.aim:g}", one.shown, one.verdict)
        for one in judged
    ]
    return grid(("bar", "first", "aim", "measured", ""), rows)
