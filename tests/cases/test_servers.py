"""What only a database server can do to us: C045, C053."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from surefoot import Surefoot
from surefoot.errors import StoreError
from surefoot.testing.world import World
from surefoot.testing.world_server import WorldServer
from tests.cases.rig import Live, Script, all_events, approve_all, calls_of, comment, ended, post_comment
from tests.places import Place
from tests.processes.servers import Pair, pair
from tests.support import eventually

pytestmark = pytest.mark.postgres_only("SQLite has one writer and no standby")

SECONDS = 40
CANCELS = 4


@pytest.fixture
def servers() -> Iterator[Pair]:
    """A primary with a synchronous standby."""
    with pair() as made:
        yield made


@pytest.fixture
async def replicated(servers: Pair, place: Place, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    """A case in real time on the two servers."""
    world = World()
    async with WorldServer(world) as url:
        monkeypatch.setenv("GITHUB_API_URL", url)
        case = Live(place, world, url)
        case.url = servers.url
        yield case
        await case.end()
        await case.judge(case.doors.clock)


async def approved(sf: Surefoot, action_id: str) -> None:
    """A person who presses the button until the answer is there; the key makes it one decision."""
    while True:
        try:
            await sf.approve(action_id, by="ann", key="the button")
            return
        except StoreError:
            await sf.doors.clock.sleep(0.2)


async def test_c045_nothing_is_sent_on_a_commit_that_the_standby_does_not_have(replicated: Live, servers: Pair) -> None:
    """The wait for the standby is cancelled, so that the commit stands on the primary alone, which then dies."""
    script: Script = [[comment("Once.")], "done"]
    async with replicated.surefoot(replicated.agent(script, post_comment(gated=True, settle=0.5))) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, timeout=SECONDS)
        await asyncio.to_thread(servers.cut_off)
        approving = asyncio.ensure_future(approved(sf, run.pending_actions[0].id))
        for _ in range(CANCELS):
            await eventually(servers.cancel_waits, "a commit that waits for the standby", seconds_max=SECONDS)
            assert replicated.posts() == [], "sent on a commit that a standby may never see"
        await asyncio.to_thread(servers.fail_over)
        await asyncio.wait_for(approving, SECONDS)
        if (await sf.snapshot(run.id)).status == "waiting_for_user":
            # The decision went with the primary that alone had it: the person is asked still, and answers again.
            await asyncio.wait_for(approved(sf, run.pending_actions[0].id), SECONDS)
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    (step,) = calls_of(run)
    assert (run.status, step.status) == ("completed", "succeeded")
    assert len(replicated.posts()) == len(replicated.ours(step.operation_key)) == 1


async def test_c053_a_commit_that_comes_late_is_delivered_and_in_its_place(live: Live) -> None:
    """The run with the lower id commits behind the other one; who reads along of both misses nothing of either."""
    script: Script = [[comment("Said.")], "done"]
    async with live.surefoot(live.agent(script, post_comment(gated=True, settle=0.5))) as one:
        runs = [await one.wait((await one.start("reviewer", "Review it.")).id, timeout=SECONDS) for _ in range(2)]
        late, early = [run.id for run in runs]
        # The late decision is another process's: what waits for a row holds up the writer that it is of.
        async with live.surefoot(worker=False) as reader, live.surefoot(worker=False) as slow:
            reading = [asyncio.ensure_future(_read(reader, run_id)) for run_id in (late, early)]
            with psycopg.connect(live.place.url) as other:
                other.execute("SELECT FROM run WHERE id = %s FOR UPDATE", (late,))
                deciding = asyncio.ensure_future(approve_all(slow, late))
                await approve_all(one, early)
                assert (await reader.wait(early, until=ended, timeout=SECONDS)).status == "completed"
                assert not reading[0].done() and (await reader.snapshot(late)).status == "waiting_for_user"
                other.rollback()
            await deciding
            assert (await reader.wait(late, until=ended, timeout=SECONDS)).status == "completed"
            seen = [await asyncio.wait_for(task, SECONDS) for task in reading]
            kept = [[event.sequence for event in await all_events(reader, run_id)] for run_id in (late, early)]
    assert seen == kept == [list(range(1, len(sequence) + 1)) for sequence in kept]


async def _read(sf: Surefoot, run_id: str) -> list[int]:
    return [event.sequence async for event in sf.events(run_id)]
