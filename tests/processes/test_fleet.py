"""Four workers on one PostgreSQL, killed at random under load; `make prove` kills two thousand."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.places import Place
from tests.processes.fleet import Fleet, kill_many
from tests.processes.story import WorldProcess

pytestmark = [
    pytest.mark.postgres_only("several workers on one server; kills on SQLite are drawn over the windows of a call"),
    pytest.mark.real_process,
]

KILLS = 100


async def test_100_kills_of_4_workers(
    world: WorldProcess, place: Place, record_property: Callable[[str, object], None]
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    async with Fleet(world, place.folder, place.url, secret=dict(place.secret)) as fleet:
        passed, seen = await kill_many(fleet, random.Random(seed), KILLS)
    record_property("figure", f"{KILLS} kills, seed {seed}: {dict(seen)}; last passed: {dict(passed.most_common(6))}")
    assert passed.total() == KILLS and seen["doubts"] > 0
