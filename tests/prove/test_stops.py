"""A hundred workers stopped past their lease, and some where no check can help."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from tests.places import Place
from tests.processes.stops import AFTER, BEFORE, BETWEEN, UNCHECKED, draw, stop_all
from tests.processes.story import WorldProcess

pytestmark = [pytest.mark.prove, pytest.mark.real_process]

STOPS = 100
UNCHECKED_STOPS = 20
AT_ONCE = 6


async def test_100_stops(world: WorldProcess, place: Place, record_property: Callable[[str, object], None]) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    places = [(BEFORE, BETWEEN, AFTER)[number % 3] for number in range(STOPS)]
    stops = [draw(chance, place) for place in places]
    comments = await stop_all(world, place, stops, AT_ONCE)
    counts = Counter(place for place, count in zip(places, comments, strict=True) if count == 1)
    lines = [f"{place}: one comment in {counts[place]} of {places.count(place)}" for place in (BEFORE, BETWEEN, AFTER)]
    record_property("figure", "\n".join([f"stopped past the lease, seed {seed}", *lines]))
    assert comments == [1] * STOPS


async def test_stops_where_no_check_helps(
    world: WorldProcess, place: Place, record_property: Callable[[str, object], None]
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    comments = await stop_all(world, place, [draw(chance, UNCHECKED) for _ in range(UNCHECKED_STOPS)], AT_ONCE)
    record_property("figure", f"stopped between check and write, seed {seed}: {comments.count(1)} with one comment, "
        f"{comments.count(2)} with a double that was reported, of {UNCHECKED_STOPS}")  # fmt: skip
    assert set(comments) <= {1, 2}
