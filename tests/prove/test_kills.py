"""200 kills, at least 25 in each window of a call's life."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.places import Place
from tests.processes.kills import WINDOWS, histogram, kill_all
from tests.processes.story import WorldProcess

pytestmark = [pytest.mark.prove, pytest.mark.real_process]

IN_EACH = 25
KILLS = 200


async def test_200_kills(world: WorldProcess, place: Place, record_property: Callable[[str, object], None]) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    in_each = max(IN_EACH, -(-KILLS // len(WINDOWS)))
    hits = await kill_all(world, place, random.Random(seed), in_each)
    record_property("figure", "\n".join([f"kills, seed {seed}", *histogram(hits)]))
    assert sum(hits.values()) >= KILLS
