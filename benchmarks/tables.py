"""The figures as Markdown, the same for the terminal and for README.md."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.summary import BARS, Line, Spread, reached


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its columns in line, the first one to the left."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return (
            "| "
            + " | ".join((first, *(cell.strip().rjust(w) for cell, w in zip(others, widths[1:], strict=True))))
            + " |"
        )

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


def speed_tables(table: Sequence[Line]) -> str:
    """One table for each number of steps and of runs at once."""
    shapes = list(dict.fromkeys((line.steps, line.at_once) for line in table))
    return "\n\n".join(
        f"### {at_once} at once, {_steps(steps)}\n\n"
        + _speed([line for line in table if (line.steps, line.at_once) == (steps, at_once)])
        for steps, at_once in shapes
    )


def _steps(steps: int) -> str:
    return f"runs of {steps} steps" if steps > 1 else "runs of 1 step"


def _speed(table: Sequence[Line]) -> str:
    head = (
        "",
        "steps/s",
        "turns/s",
        "x floor",
        "x grouped floor",
        "gap p50",
        "p99",
        "p99/p50",
        "CPU µs a step",
        "others",
    )
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
            number(line.cpu_us),
            f"{line.others.median:.1f} [{line.others.least:.1f}..{line.others.most:.1f}]",
        )
        for line in table
    ]
    return grid(head, rows)


def bars_table(table: Sequence[Line]) -> str:
    """What is to be reached, and what was."""
    rows = []
    for bar in BARS:
        got = reached(bar, table)
        if got is None:
            continue
        row = f"{bar.program}, {bar.at_once} at once, over the {bar.floor.split(':')[0].replace('floor, ', '')} floor"
        verdict = "aim reached" if got.median >= bar.aim else "passed" if got.median >= bar.first else "**missed**"
        rows.append(
            (row.replace("the floor floor", "the floor"), f"{bar.first:g}", f"{bar.aim:g}", ratio(got), verdict)
        )
    return grid(("bar", "first", "aim", "measured", ""), rows) if rows else ""
