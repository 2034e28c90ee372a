"""Every door passage of the standard story is a crash point, and is hit before and after."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from surefoot.testing.crash import Aftermath, Scenario, attempt, crash_points, record
from surefoot.testing.story import standard_scenario
from tests.places import Place

POINTS = Path(__file__).with_name("points.txt")
PARTS = 8


def test_the_list_of_points_is_the_one_that_was_checked_in() -> None:
    """A new passage is a new place to crash: look at it, then write the list anew by `python -m tests.crash.points`."""
    assert POINTS.read_text(encoding="utf-8").splitlines() == [str(point) for point in record(standard_scenario())]


def test_every_passage_has_a_before_and_an_after() -> None:
    names = {(point.name, point.when) for point in record(standard_scenario())}
    assert {name for name, when in names if when == "before"} == {name for name, when in names if when == "after"}


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("proven", [True, False], ids=["death_proven", "lease_runs_out"])
def test_the_story_holds_through_a_crash_at_every_point(part: int, proven: bool, place: Place) -> None:
    scenario = standard_scenario(proven=proven, store=place.renewed)
    failed = [attempt(scenario, (point,)) for point in record(scenario)[part::PARTS]]
    assert [f"#{at[0].place} {at[0]}: {text}" for at, text in filter(None, failed)] == []


@pytest.mark.prove
@pytest.mark.sqlite_only("on PostgreSQL fewer are played, since each takes longer")
def test_the_story_holds_through_a_crash_at_every_ordered_pair_of_points() -> None:
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(crash_twice, range(len(record(standard_scenario())))))
    failed = [text for _, texts in results for text in texts]
    print(f"{sum(count for count, _ in results)} ordered pairs of crashes, {len(failed)} failed")
    assert failed == []


def crash_twice(place: int) -> tuple[int, list[str]]:
    """Crash at one point, then once at each point of what follows: how many there are, and what does not hold."""
    scenario = standard_scenario()
    first = record(scenario)[place]
    points = record(scenario, after=(first,))
    failed = [attempt(scenario, (first, second)) for second in points]
    return len(points), [f"#{at[0].place} {at[0]}, then {at[1]}: {text}" for at, text in filter(None, failed)]


def test_a_story_that_does_not_hold_fails_before_anything_is_crashed() -> None:
    standard = standard_scenario()
    wrong = Scenario(standard.agents, standard.target, check=_wanted_nothing_posted)
    with pytest.raises(AssertionError, match="something was posted"):
        crash_points(wrong)


def _wanted_nothing_posted(end: Aftermath) -> None:
    assert not any(step.external_resource_id for step in end.snapshot.steps), "something was posted"
