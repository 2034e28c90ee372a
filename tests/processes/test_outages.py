"""PostgreSQL goes away while runs are under way: stopped and started again, or killed with a standby taking over.

`make prove` does it for longer (`tests/prove/test_outages.py`).
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable

import pytest

from tests.places import SECRET, Place
from tests.processes.fleet import Fleet, endure
from tests.processes.servers import DATABASE, own_server, pair
from tests.processes.story import WorldProcess

pytestmark = [
    pytest.mark.postgres_only("there is no server of SQLite's that could go away"),
    pytest.mark.real_process,
]

Figure = Callable[[str, object], None]
SECRETS = {"SUREFOOT_SECRET": SECRET}


async def restarted(world: WorldProcess, place: Place, runs: int, apart: tuple[float, float], away: float) -> str:
    """So many runs while the server is stopped every so often for up to `away` seconds."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with own_server() as server:

        async def outage() -> None:
            await asyncio.to_thread(server.stop, chance.choice([signal.SIGINT, signal.SIGQUIT]))
            await fleet.sf.doors.clock.sleep(chance.uniform(0.0, away))
            await asyncio.to_thread(server.start)

        async with Fleet(world, place.folder, server.url(DATABASE), secret=SECRETS) as fleet:
            count, seen = await endure(fleet, runs, outage, lambda: chance.uniform(*apart))
    return f"{count} restarts of PostgreSQL, seed {seed}: {dict(seen)}, {len(fleet.ended_by_themselves)} workers ended"


async def failed_over(world: WorldProcess, place: Place, runs: int, apart: tuple[float, float]) -> tuple[int, str]:
    """So many runs while primary after primary is killed and its standby promoted."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with pair() as servers:

        async def outage() -> None:
            await asyncio.to_thread(servers.fail_over)

        async with Fleet(world, place.folder, servers.url, secret=SECRETS) as fleet:
            count, seen = await endure(fleet, runs, outage, lambda: chance.uniform(*apart))
    return count, f"{count} failovers, seed {seed}: {dict(seen)}, {len(fleet.ended_by_themselves)} workers ended"


async def test_a_server_that_restarts_costs_no_run_and_doubles_none(
    world: WorldProcess, place: Place, record_property: Figure
) -> None:
    record_property("figure", await restarted(world, place, 60, (1.0, 3.0), 1.0))
