"""Kills drawn over the windows of a call's life; `make prove` draws more of them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.places import Place
from tests.processes.kills import WINDOWS, histogram, kill_all
from tests.processes.story import WorldProcess

pytestmark = pytest.mark.real_process

IN_EACH = 4
Figure = Callable[[str, object], None]


async def test_kills_over_all_windows(world: WorldProcess, place: Place, record_property: Figure) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    hits = await kill_all(world, place, random.Random(seed), IN_EACH)
    record_property("figure", "\n".join([f"kills, seed {seed}", *histogram(hits)]))
    assert sum(hits.values()) >= IN_EACH * len(WINDOWS)
