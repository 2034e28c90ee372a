"""The real runtime with two workers on virtual doors: everything that befalls it is drawn from a seed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from surefoot.testing.simulation import Simulated, SimulationFailed, play, simulate
from tests.places import Place, parts

SEEDS = 500
PART = 20
DEPLOYS = 80
SHORT = 40
"""On PostgreSQL a story takes ten times as long; what it adds is the store, which each of them goes through."""
PROVE_SEEDS = int(os.environ.get("SUREFOOT_SEEDS", "5000"))
COMPLETED_SHARE_MIN = 0.9
SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize("first", parts(SEEDS, PART, SHORT))
def test_every_seed_holds_and_its_runs_get_through(first: int, place: Place) -> None:
    results = [simulate(seed, store=place.renewed()) for seed in range(first, first + PART)]
    assert share_completed(results) >= COMPLETED_SHARE_MIN


def share_completed(results: Sequence[Simulated]) -> float:
    """Of the runs that nobody cancelled. A simulation in which nothing succeeds would find nothing."""
    statuses = [status for result in results for status in result.statuses]
    return sum(result.completed for result in results) / len(statuses)


@pytest.mark.parametrize("seed", parts(SEEDS, 50, 100))
def test_the_same_seed_is_the_same_story(seed: int, place: Place) -> None:
    assert play(seed, store=place.renewed()).event_hash == play(seed, store=place.renewed()).event_hash


HOST = """
import opentelemetry.trace
from surefoot import effects, tool
@tool(effect=effects.opaque)
def charge() -> None:
    'A tool of a name that stories use.'
"""
"""What else a process may have loaded."""


def test_the_same_seed_is_the_same_story_in_another_process() -> None:
    code = "from surefoot.testing.simulation import play; print(*[play(seed).event_hash for seed in (3, 5, 8, 14, 27)])"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", f"{loaded}\n{code}"],
            env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed, loaded in (("1", ""), ("2", HOST))
    }
    assert hashes == {" ".join(play(seed).event_hash for seed in (3, 5, 8, 14, 27)) + "\n"}


def test_other_seeds_are_other_stories() -> None:
    assert len({play(seed).event_hash for seed in range(10)}) == 10


@pytest.mark.parametrize("workers", [1, 4])
def test_one_worker_and_four_hold_too(workers: int, place: Place) -> None:
    results = [simulate(seed, workers=workers, store=place.renewed()) for seed in range(PART)]
    assert share_completed(results) >= COMPLETED_SHARE_MIN


@pytest.mark.parametrize("first", parts(DEPLOYS, PART, PART))
def test_stories_hold_in_which_each_process_has_other_code(first: int, place: Place) -> None:
    results = [simulate(seed, deploys=True, store=place.renewed()) for seed in range(first, first + PART)]
    assert share_completed(results) >= COMPLETED_SHARE_MIN


def test_a_failing_seed_tells_how_to_play_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.testing.simulation.judge", lambda runs, outside: ["I1: two effects"])
    with pytest.raises(SimulationFailed, match=r"simulate --seed 4 --workers 2 --trace\nI1: two effects"):
        simulate(4)


def test_the_trace_tells_the_story() -> None:
    lines: list[str] = []
    simulate(3, trace=lines.append)
    assert any("POST" in line for line in lines)


@pytest.mark.sqlite_only("one seed, as it was found")
def test_who_is_asked_since_the_clocks_have_moved_apart_is_not_asked_in_vain() -> None:
    """The wall clock jumps by half an hour behind an intent of which nothing was sent: no absence is believed then."""
    simulate(4177)


@pytest.mark.prove
@pytest.mark.sqlite_only("on PostgreSQL fewer are played, since each takes longer")
def test_many_seeds_hold() -> None:
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(play, range(SEEDS, SEEDS + PROVE_SEEDS), chunksize=50))
    failed = [result for result in results if result.violations]
    for result in failed:
        print(SimulationFailed(result, 2))
    share = share_completed(results)
    print(f"{len(results)} seeds, {len(failed)} failed, {share:.1%} of the runs completed")
    assert failed == []
    assert share >= COMPLETED_SHARE_MIN
