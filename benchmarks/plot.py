"""The picture of the speed table: ratios to the floor as bars on a logarithmic scale, as SVG by hand.

It has no background and takes its colours from the reader's light or dark setting.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.rounds import FLOOR, GROUPED, STORES
from benchmarks.speed import STEPS, Speed
from benchmarks.summary import Line, Spread, lines

PANELS = (
    (1, "1 run at once: steps/s over the floor of two commits a step"),
    (64, "64 runs at once: over the grouped floor"),
)
LABEL_WIDTH, BAR_WIDTH, ROW, HEAD, MARGIN = 330, 480, 26, 44, 12
DECADES = 3
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .head { font-weight: 600; }
  .axis { stroke: #8c959f; stroke-width: 1; }
  .grid { stroke: #8c959f; stroke-width: 1; stroke-dasharray: 2 4; }
  .ours { fill: #0969da; } .peer { fill: #9a6700; } .floor { fill: #8c959f; }
  .range { stroke: #1f2328; stroke-width: 1.5; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .ours { fill: #58a6ff; } .peer { fill: #d29922; } .range { stroke: #e6edf3; }
  }
"""


def drawn(speed: Speed) -> str:
    """The picture."""
    table = [line for line in lines(speed.measured) if line.steps == STEPS]
    parts: list[str] = []
    top = MARGIN
    for (at_once, title), store in itertools.product(PANELS, STORES):
        shown = [line for line in table if (line.at_once, line.store) == (at_once, store)]
        rows = [(line, value) for line in shown if (value := _ratio(line)) is not None]
        if rows:
            parts.append(_panel(top, f"{STORES[store]}: {title}", rows))
            top += HEAD + ROW * len(rows) + MARGIN
    width = LABEL_WIDTH + BAR_WIDTH + 90
    about = "Steps a second as ratios to the floors"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" width="{width}" height="{top}" '
        f'role="img" aria-label="{about}">\n<title>{about}</title>\n<style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _ratio(line: Line) -> Spread | None:
    return line.ratio_plain if line.at_once == 1 else line.ratio_grouped


def _x(value: float) -> float:
    """Where a ratio stands: 1 at the right end, each tenth of it one decade to the left."""
    place = 1 + math.log10(max(value, 10.0**-DECADES)) / DECADES
    return LABEL_WIDTH + BAR_WIDTH * min(max(place, 0.0), 1.15)


def _panel(top: float, title: str, rows: Sequence[tuple[Line, Spread]]) -> str:
    bottom = top + HEAD + ROW * len(rows)
    parts = [f'<text class="head" x="{MARGIN}" y="{top + 14}">{escape(title)}</text>']
    for decade in range(DECADES + 1):
        x = _x(10.0**-decade)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top + HEAD - 6}" y2="{bottom - 4}"/>')
        parts.append(f'<text x="{x:.1f}" y="{top + HEAD - 10}" text-anchor="middle">{10.0**-decade:g}</text>')
    for index, (line, value) in enumerate(rows):
        parts.append(_bar(top + HEAD + ROW * index, line, value))
    parts.append(f'<line class="axis" x1="{LABEL_WIDTH}" x2="{LABEL_WIDTH}" y1="{top + HEAD - 6}" y2="{bottom - 4}"/>')
    return "\n".join(parts)


def _bar(top: float, line: Line, value: Spread) -> str:
    floor = line.program in (FLOOR.label, GROUPED.label)
    kind = "floor" if floor else "ours" if line.program.startswith("surefoot") else "peer"
    middle = top + ROW / 2
    end = _x(value.median)
    label = escape(line.program.replace("`", ""))
    return "\n".join(
        (
            f'<text x="{LABEL_WIDTH - 8}" y="{middle + 2:.1f}" text-anchor="end">{label}</text>',
            f'<rect class="{kind}" x="{LABEL_WIDTH}" y="{top + 3:.1f}" width="{max(end - LABEL_WIDTH, 1):.1f}" '
            f'height="{ROW - 12}"/>',
            f'<line class="range" x1="{_x(value.least):.1f}" x2="{_x(value.most):.1f}" y1="{middle - 2:.1f}" '
            f'y2="{middle - 2:.1f}"/>',
            f'<text x="{max(end, _x(value.most)) + 6:.1f}" y="{middle + 2:.1f}">{value.median:.3g}</text>',
        )
    )
