"""How often the disk is waited for: counted among the system calls of real programs, the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from surefoot import Surefoot
from tests.counts.tracing import Line, traced

SYNCS = ("fsync", "fdatasync")

pytestmark = [
    pytest.mark.sqlite_only("statements, bytes and syncs are counted where SQLite makes them"),
    pytest.mark.skipif(sys.platform != "linux", reason="system calls are counted by Linux's ptrace"),
]


async def _counted(folder: Path, *words: str) -> list[Line]:
    """The system calls between "begin" and "end" of a program of tests.counts.programs, on a store that exists."""
    folder.mkdir()
    url = f"sqlite:///{folder / 'app.db'}"
    async with Surefoot(url):
        pass
    lines = traced(folder / "calls.jsonl", *words[:1], url, *words[1:])
    marks = [i for i, line in enumerate(lines) if line["call"] == "write" and line["data"] in ("begin\n", "end\n")]
    assert len(marks) == 2, "the program marks what is counted"
    return lines[marks[0] : marks[1]]


async def _syncs(folder: Path, *words: str) -> int:
    return sum(line["call"] in SYNCS for line in await _counted(folder, *words))


async def test_syncs_of_a_run(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    twenty = await _syncs(tmp_path / "20", "turns", "20")
    thirty = await _syncs(tmp_path / "30", "turns", "30")
    record_property("figure", f"syncs: {twenty} for a run of 20 turns, {thirty} for one of 30")
    assert twenty <= 44
    assert thirty - twenty == 20


async def test_syncs_of_perform(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    start = await _syncs(tmp_path / "start", "start")
    ten = await _syncs(tmp_path / "10", "perform", "10")
    record_property("figure", f"syncs: {ten / 10:g} for a perform, of which {start} for its start")
    assert start == 1
    assert ten == 10 * (start + 1)


async def test_syncs_of_64_runs_at_once(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    syncs = await _syncs(tmp_path / "64", "turns", "10", "64")
    record_property("figure", f"syncs: {syncs / 640:.3f} a turn with 64 runs at once")
    assert syncs <= 0.25 * 640


async def test_the_tracer_sees_what_is_not_there(tmp_path: Path) -> None:
    """A count of nothing would always be small enough."""
    lines = await _counted(tmp_path / "1", "turns", "2")
    syncs = [line for line in lines if line["call"] in SYNCS]
    assert syncs, "no sync seen"
    assert all(line["path"].endswith("app.db-wal") and line["result"] == 0 for line in syncs), syncs
    assert all(line["entered"] < line["left"] for line in lines)
