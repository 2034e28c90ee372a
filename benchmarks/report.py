"""README.md's figures: written between two marks from results.json, which keeps what was measured last of each part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks import counts, kills, speed, starts, storage, waiting, workers
from benchmarks.counts import Counts
from benchmarks.kills import Kills
from benchmarks.machine import Conditions, described, was_busy
from benchmarks.plot import drawn
from benchmarks.speed import Speed
from benchmarks.starts import Starts
from benchmarks.storage import Storage
from benchmarks.tables import Judged, bars
from benchmarks.waiting import Waiting
from benchmarks.workers import Workers

HERE = Path(__file__).parent
RESULTS, README, PICTURE = HERE / "results.json", HERE / "README.md", HERE / "speed.svg"
SHOWN = "![Steps a second as ratios to the floors](speed.svg)"
BUSY = (
    "**Measured while the machine was busy with other work: what is judged by time here has to be measured again.** "
    "Syncs, bytes and kill tests hold."
)
BEGIN, END = "<!-- figures: made by `make bench`, do not edit -->", "<!-- end of the figures -->"


@dataclass
class Results:
    """The parts; None for what was never measured."""

    speed: Speed | None = None
    counts: Counts | None = None
    kills: Kills | None = None
    starts: Starts | None = None
    storage: Storage | None = None
    waiting: Waiting | None = None
    workers: Workers | None = None


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
    judged: list[Judged] = []
    parts: list[str] = []
    if results.speed is not None:
        judged += speed.judged(results.speed)
        parts += _part("Steps a second", results.speed.on, f"{SHOWN}\n\n{speed.section(results.speed)}")
    if results.workers is not None:
        judged += workers.judged(results.workers)
        parts += _part("Worker processes on PostgreSQL", results.workers.on, workers.section(results.workers))
    if results.counts is not None:
        judged += counts.judged(results.counts)
        parts += _part("What no machine changes", results.counts.on, counts.section(results.counts))
    if results.storage is not None:
        judged += storage.judged(results.storage)
        parts += _part("Storage", results.storage.on, storage.section(results.storage))
    if results.starts is not None:
        judged += starts.judged(results.starts)
        parts += _part("Start and resume", results.starts.on, starts.section(results.starts))
    if results.waiting is not None:
        judged += waiting.judged(results.waiting)
        parts += _part("Runs that wait for a person", results.waiting.on, waiting.section(results.waiting))
    if results.kills is not None:
        judged += kills.judged(results.kills)
        parts += _part("Kill tests", results.kills.on, kills.section(results.kills))
    if not parts:
        return "Nothing was measured yet."
    timed = (results.speed, results.workers, results.starts, results.waiting)
    busy = [BUSY] if any(part is not None and was_busy(part.on) for part in timed) else []
    return "\n\n".join(["## Bars", *busy, bars(judged), *parts])


def _part(title: str, on: Conditions, text: str) -> list[str]:
    return [f"## {title}", described(on), text]
