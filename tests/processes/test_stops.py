"""A worker that is stopped past its lease and wakes up; `make prove` stops a hundred."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.places import Place
from tests.processes.stops import AFTER, AT_THE_WRITE, BEFORE, BETWEEN, PASSAGES, UNCHECKED, Stop, draw, stop_all
from tests.processes.story import WorldProcess

pytestmark = pytest.mark.real_process


async def test_stopped_past_the_lease(
    world: WorldProcess, place: Place, record_property: Callable[[str, object], None]
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    stops = [draw(chance, place) for place in (BEFORE, BETWEEN, AFTER)]
    # And one of each that wakes up when everything is done: what it still sent would be a double for certain.
    stops += [Stop(place, draw(chance, place).points, None) for place in (BEFORE, AFTER)]
    stops.append(Stop(BETWEEN, AT_THE_WRITE, None))
    comments = await stop_all(world, place, stops, at_once=6)
    record_property(
        "figure", f"stopped past the lease, seed {seed}: one comment in {comments.count(1)} of {len(stops)}"
    )
    assert comments == [1] * len(stops)


async def test_stopped_between_check_and_write(world: WorldProcess, place: Place) -> None:
    """What no check can prevent (P5): the bytes leave when the process wakes up. A double, and it is reported."""
    head, body, whole = PASSAGES[UNCHECKED]
    stops = [Stop(UNCHECKED, whole, None), Stop(UNCHECKED, body, 1.7), Stop(UNCHECKED, head, None)]
    late, early, half = await stop_all(world, place, stops, at_once=3)
    assert late == 2, "the proof needs the double that it says is reported"
    assert early in (1, 2)
    assert half == 1, "without its body the request is none"
