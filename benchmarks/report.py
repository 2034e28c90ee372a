"""README.md's figures: written between two marks from results.json, which keeps what was measured last of each part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks import speed
from benchmarks.machine import described
from benchmarks.plot import drawn
from benchmarks.speed import Speed
from benchmarks.tables import bars

HERE = Path(__file__).parent
RESULTS, README, PICTURE = HERE / "results.json", HERE / "README.md", HERE / "speed.svg"
BEGIN, END = "<!-- figures: made by `make bench`, do not edit -->", "<!-- end of the figures -->"


@dataclass
class Results:
    """The parts; None for what was never measured."""

    speed: Speed | None = None


def load() -> Results:
    """What was measured last."""
    return msgspec.json.decode(RESULTS.read_bytes(), type=Results) if RESULTS.exists() else Results()


def save(results: Results) -> None:
    """Keep it, and write README.md and the picture anew."""
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    README.write_text(with_figures(README.read_text(encoding="utf-8"), results), encoding="utf-8")
    if results.speed is not None:
        PICTURE.write_text(drawn(results.speed), encoding="utf-8")


def with_figures(text: str, results: Results) -> str:
    """README.md with these figures. Raises ValueError where the marks are not in it."""
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"README.md lacks its marks: {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{figures(results)}\n\n{END}{after}"


def figures(results: Results) -> str:
    """All that was measured, as Markdown."""
    judged = [] if results.speed is None else speed.judged(results.speed)
    parts = ["## Bars", bars(judged)] if judged else ["Nothing was measured yet."]
    if results.speed is not None:
        parts += [
            "## Steps a second",
            "![Steps a second as ratios to the floors](speed.svg)",
            described(results.speed.on),
            speed.section(results.speed),
        ]
    return "\n\n".join(parts)
