"""1,000 runs while PostgreSQL is stopped every 5 to 20 s, and 30 failovers to a synchronous standby."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.places import Place
from tests.processes.story import WorldProcess
from tests.processes.test_outages import failed_over, restarted

pytestmark = [
    pytest.mark.postgres_only("there is no server of SQLite's that could go away"),
    pytest.mark.prove,
    pytest.mark.real_process,
]

Figure = Callable[[str, object], None]
FAILOVERS = 30


async def test_1000_runs_through_restarts(world: WorldProcess, place: Place, record_property: Figure) -> None:
    record_property("figure", await restarted(world, place, 1_000, (5.0, 20.0), 5.0))


async def test_30_failovers(world: WorldProcess, place: Place, record_property: Figure) -> None:
    count = 0
    while count < FAILOVERS:
        more, text = await failed_over(world, place.inside(f"failovers-{count}"), 200, (2.0, 5.0))
        count += more
        record_property("figure", text)
