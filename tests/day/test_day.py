"""A day in one process: 200 runs that sleep, wait for signals, call agents and are cancelled, under everything else."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from tests.day.play import DAY_RUNS, DAY_SECONDS, Played, play_day
from tests.places import Place, parts

SEEDS = 80
PART = 10
SHORT = 20
"""As many on PostgreSQL, where a day takes longer."""
DEPLOYS = 10
"""Days in which each process has another code."""
PROVE_SEEDS = int(os.environ.get("SUREFOOT_DAY_SEEDS", "500"))
PROVE_DAYS = 5
PROVE_DEPLOYED_DAYS = 3
COMPLETED_SHARE_MIN = 0.9
SUBJECTS = (
    "sleeps", "signals_waited_for", "signals_that_came_first", "late_signals", "refused_signals", "children", "ticks",
    "cancels", "effects",
)  # fmt: skip
"""What a day is about: each has to come up, or nothing was judged."""
DEPLOYED = (
    "sent_by_another_code", "sent_by_two_codes", "asked_again", "refused: unknown_tool", "refused: unknown_agent",
    "refused: invalid_arguments",
)  # fmt: skip
"""The same for days in which each process has another code."""


def judged(days: Sequence[Played]) -> Counter[str]:
    """What came up in them, if all of them hold and their runs get through."""
    failed = [f"seed {day.seed}: {violation}" for day in days for violation in day.violations]
    again = "play one again: python -m tests.day.play --seed N --trace, with --deploys where it has them"
    assert not failed, "\n".join([again, *failed])
    statuses = [status for day in days for status in day.statuses]
    assert statuses.count("completed") >= COMPLETED_SHARE_MIN * len(statuses)
    return sum((day.seen for day in days), Counter())


@pytest.mark.parametrize("first", parts(SEEDS, PART, SHORT))
def test_every_small_day_holds(first: int, place: Place) -> None:
    seen = judged([play_day(seed, store=place.renewed()) for seed in range(first, first + PART)])
    assert all(seen[subject] for subject in ("sleeps", "signals_waited_for", "children", "ticks", "effects")), seen


@pytest.mark.parametrize("first", parts(DEPLOYS, PART, DEPLOYS))
def test_every_small_day_holds_in_which_each_process_has_another_code(first: int, place: Place) -> None:
    seen = judged([play_day(seed, store=place.renewed(), deploys=True) for seed in range(first, first + PART)])
    assert all(seen[subject] for subject in ("effects", "children", "refused: unknown_tool")), seen


@pytest.mark.prove
def test_a_day_of_200_runs_holds(place: Place) -> None:
    seen = judged([play_day(0, runs=DAY_RUNS, seconds=DAY_SECONDS, store=place.url)])
    assert seen["runs"] >= DAY_RUNS and all(seen[subject] for subject in SUBJECTS), seen


def test_the_same_seed_is_the_same_day(place: Place) -> None:
    first, again, other = [play_day(seed, store=place.renewed()) for seed in (4, 4, 5)]
    assert first == again and first.event_hash != other.event_hash


@pytest.mark.prove
@pytest.mark.sqlite_only("on PostgreSQL fewer are played, since each takes longer")
def test_many_days_hold() -> None:
    with ProcessPoolExecutor() as pool:
        small = list(pool.map(play_day, range(SEEDS, SEEDS + PROVE_SEEDS), chunksize=10))
        whole = partial(play_day, runs=DAY_RUNS, seconds=DAY_SECONDS, workers=3)
        days = list(pool.map(whole, range(1, 1 + PROVE_DAYS)))
    seen = judged([*small, *days])
    print(f"{len(small)} small days and {len(days)} of {DAY_RUNS} runs hold: {dict(seen)}")
    assert all(seen[subject] for subject in SUBJECTS), seen


@pytest.mark.prove
@pytest.mark.sqlite_only("on PostgreSQL fewer are played, since each takes longer")
def test_many_days_hold_in_which_each_process_has_another_code() -> None:
    with ProcessPoolExecutor() as pool:
        play = partial(play_day, deploys=True)
        small = list(pool.map(play, range(DEPLOYS, DEPLOYS + PROVE_SEEDS), chunksize=10))
        whole = partial(play, runs=DAY_RUNS, seconds=DAY_SECONDS, workers=3)
        days = list(pool.map(whole, range(1, 1 + PROVE_DEPLOYED_DAYS)))
    seen = judged([*small, *days])
    print(f"{len(small)} small days and {len(days)} of {DAY_RUNS} runs hold under codes that change: {dict(seen)}")
    assert all(seen[subject] for subject in (*SUBJECTS, *DEPLOYED)), seen
