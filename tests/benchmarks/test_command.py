"""The benchmark's command works: measured shortly, judged by nobody. No time is asserted."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.plot import drawn
from benchmarks.programs.lanes import Cell, Meter
from benchmarks.report import PICTURE, README, load, with_figures
from benchmarks.tables import Judged

ROOT = Path(__file__).parents[2]


def _command(*words: str) -> str:
    """What a short look without peers prints."""
    command = [sys.executable, "-m", "benchmarks", "--quick", "--no-peers", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_quick_run_measures_surefoot_beside_its_floors() -> None:
    before = README.read_bytes()
    shown = _command("--only", "speed", "--rounds", "1", "--steps", "4", "--at-once", "1,4")
    for row in ("floor: two commits a step", "grouped floor", "surefoot `perform()`", "surefoot, whole loop"):
        assert sum(line.startswith(f"| {row} ") for line in shown.splitlines()) == 4, shown
    for store, at_once in itertools.product(("SQLite", "PostgreSQL"), (1, 4)):
        assert f"### {at_once} at once, runs of 4 steps, {store}" in shown
    assert README.read_bytes() == before, "a look is not published"


def test_one_and_more_workers_complete_the_same_runs() -> None:
    shown = _command("--only", "workers")
    for row in ("1 process", "4 processes"):
        assert sum(line.startswith(f"| {row} ") for line in shown.splitlines()) == 1, shown


@pytest.mark.real_process
def test_the_kill_tests_end_with_one_effect_each() -> None:
    shown = _command("--only", "kills")
    for program in ("surefoot", "surefoot on PostgreSQL"):
        (line,) = (line for line in shown.splitlines() if line.startswith(f"| {program}, a tool with a lookup "))
        assert line.count("1 effect, completed") == 2, shown


def test_the_readme_holds_the_figures_that_were_kept() -> None:
    text, kept = README.read_text(encoding="utf-8"), load()
    assert with_figures(text, kept) == text, "run: python -m benchmarks --render"
    if kept.speed is not None:
        assert PICTURE.read_text(encoding="utf-8") == drawn(kept.speed), "run: python -m benchmarks --render"


def test_a_lost_step_is_not_counted_as_done(tmp_path: Path) -> None:
    meter = Meter(Cell("loop", str(tmp_path), steps=2, at_once=1, runs_min=1, seconds_min=0.0), 2, 1)
    (name,) = meter.names()
    meter.ticks.tick(name)
    meter.ended(0.0)
    with pytest.raises(AssertionError, match="1 steps were seen in 1 runs, not 2"):
        meter.sample()


def test_a_bar_is_judged_by_its_side() -> None:
    def verdict(got: float, *, ceiling: bool) -> str:
        first, aim = (3.0, 2.0) if ceiling else (2.0, 3.0)
        return Judged("it", first, aim, got, "", ceiling=ceiling).verdict

    assert [verdict(got, ceiling=False) for got in (1.9, 2.0, 3.0)] == ["**missed**", "passed", "aim reached"]
    assert [verdict(got, ceiling=True) for got in (3.1, 3.0, 2.0)] == ["**missed**", "passed", "aim reached"]
