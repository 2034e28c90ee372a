"""What the death of a worker proves: that its own attempts are over, and nobody else's."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Absent, Operation, Receipt, effects, tool
from surefoot.testing.stage import abandon
from tests.cases.rig import Sim, calls_of, ended, story

LEASE_SECONDS = 10.0
CALL_SECONDS = 300.0


@story
async def test_a_worker_that_died_without_a_look_proves_nothing_about_the_one_before(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first was only stopped for a while, in the middle of its call; the second claimed the run, and died."""
    sim.broken.add("I1")  # this target stands outside of the World
    made: list[int] = []
    awake = asyncio.Event()

    async def find(op: Operation) -> Absent:
        return Absent(coverage="everything")

    @tool(effect=effects.lookup(find, settle=1.0), timeout=CALL_SECONDS)
    async def send(op: Operation) -> Receipt:
        """Send something, by a client of its own."""
        if op.attempt == 1:
            await awake.wait()
        made.append(op.attempt)
        return Receipt(resource_id=str(op.attempt))

    agent = sim.agent([[("send", {})], "done"], send)
    first = sim.surefoot(agent, lease_seconds=LEASE_SECONDS)
    await first.__aenter__()
    assert first.worker is not None

    async def stopped() -> None:
        """What a process that is stopped does about its leases."""

    monkeypatch.setattr(first.worker, "_renew", stopped)
    monkeypatch.setattr(first.worker, "_claim", stopped)
    run = await first.start("reviewer", "Send it.")
    await sim.until(lambda: first.worker is not None and run.id in first.worker.drivers, 5.0)
    await sim.pass_time(1.5 * LEASE_SECONDS)
    second = await sim.surefoot(agent, worker=False).__aenter__()
    claimed = await second.store.claim_one(second.tenant, run.id, "second", LEASE_SECONDS)
    assert claimed is not None and not claimed.owner_died
    abandon(second)
    async with sim.surefoot(agent, lease_seconds=LEASE_SECONDS) as third:
        await third.wait(run.id, until=lambda r: calls_of(r)[0].status == "outcome_unknown", timeout=60)
        await sim.pass_time(CALL_SECONDS / 3)
        assert calls_of(await third.snapshot(run.id))[0].attempt == 1, "sent again beside an attempt that may still act"
        awake.set()
        run = await third.wait(run.id, until=ended, timeout=60)
    await first.close()
    (step,) = calls_of(run)
    assert (run.status, step.attempt, step.external_resource_id, made) == ("completed", 1, "1", [1])


@story
async def test_what_a_dead_worker_left_may_end_with_its_run_before_it_is_looked_at(sim: Sim) -> None:
    """Somebody cancels between the claim and the first look: that is no failure of the drive."""

    @tool(effect=effects.read, timeout=CALL_SECONDS)
    async def read(op: Operation) -> str:
        """Read something, for ever."""
        await asyncio.get_running_loop().create_future()
        return "read"

    agent = sim.agent([[("read", {})], "done"], read)
    dies = sim.worker(agent, name="dies")
    async with sim.surefoot(agent, worker=False) as person:
        run = await person.start("reviewer", "Read it.")
        await person.wait(run.id, until=lambda r: any(s.status == "running" for s in calls_of(r)), timeout=60)
        dies.kill()
        await sim.pass_time(1.5 * LEASE_SECONDS)
        async with sim.surefoot(agent) as next_one:
            worker = next_one.worker
            assert worker is not None
            worker.stopping = True  # it takes nothing by itself
            claimed = await next_one.store.claim_one(next_one.tenant, run.id, worker.id, LEASE_SECONDS)
            loaded = await next_one.store.load(next_one.tenant, run.id)
            loop = next_one._loop_for(loaded)
            assert claimed is not None and loop is not None
            await person.cancel(run.id)
            worker.drive(worker.driver(loaded, loop, claimed))
            await sim.until(lambda: not worker.drivers, 60.0)
    assert not [line for line in sim.lines if "driving it failed" in line]
