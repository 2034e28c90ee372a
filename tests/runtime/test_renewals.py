"""A renewal that gets no answer: calls are stopped before the lease is over, so that no other worker meets them."""

from __future__ import annotations

import asyncio
import sqlite3

import psycopg
import pytest

from surefoot import Agent, Operation, Receipt, effects, tool
from surefoot.runtime.held import Held
from surefoot.store.sqlite.writer import BUSY_SECONDS_MAX
from surefoot.testing.model import FakeModel, ScriptedCall
from tests.cases.rig import Sim, calls_of, story

LEASE_SECONDS = 20.0


@pytest.mark.sqlite_only("another process holds the one lock of the file")
@story
async def test_calls_are_stopped_before_a_lease_ends_that_cannot_be_renewed(sim: Sim) -> None:
    assert LEASE_SECONDS < BUSY_SECONDS_MAX, "the store waits for longer than the lease lasts"
    began, stopped = asyncio.Event(), asyncio.Event()

    @tool(effect=effects.opaque, timeout=600)
    async def send(op: Operation) -> Receipt:
        """Send something slowly."""
        began.set()
        try:
            await sim.pass_time(300)
        finally:
            stopped.set()
        return Receipt(resource_id="1")

    async with sim.surefoot(sim.agent([[("send", {})], "done"], send), lease_seconds=LEASE_SECONDS) as sf:
        run = await sf.start("reviewer", "Send it.")
        await began.wait()
        assert sf.worker is not None
        held = sf.worker.drivers[run.id].held
        # Its first renewals have been answered.
        await sim.pass_time(1.5 * LEASE_SECONDS)
        assert not stopped.is_set() and held.left_s > 0
        locker = sqlite3.connect(sim.place.path, isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        await stopped.wait()
        assert held.left_s > 0, "it went on though the lease was over"
        locker.execute("ROLLBACK")
        locker.close()
        run = await sf.wait(run.id)
    (step,) = calls_of(run)
    assert (run.status, step.status, step.attempt) == ("waiting_for_user", "outcome_unknown", 1)
    assert any("its lease was not renewed in time" in line for line in sim.lines)


@pytest.mark.postgres_only("another transaction holds the row of one run")
@story
async def test_a_lease_that_alone_cannot_be_renewed_stops_its_own_call_and_no_other(sim: Sim) -> None:
    sim.broken.add("I1")  # this target stands outside of the World
    began: dict[str, Held] = {}
    stopped = {"a": asyncio.Event(), "b": asyncio.Event()}

    @tool(effect=effects.opaque, timeout=600)
    async def send(op: Operation, name: str) -> Receipt:
        """Send something slowly."""
        assert sf.worker is not None
        began[name] = sf.worker.drivers[op.run_id].held
        try:
            await sim.pass_time(100)
        finally:
            stopped[name].set()
        return Receipt(resource_id="1")

    agents = [Agent(name, FakeModel([[("send", {"name": name})], "done"]), tools=[send]) for name in stopped]
    async with sim.surefoot(*agents, lease_seconds=LEASE_SECONDS) as sf:
        runs = [await sf.start(name, "Send it.") for name in stopped]
        await sim.until(lambda: len(began) == 2, 60.0)
        locker = psycopg.connect(sim.place.url)
        locker.execute("SELECT FROM run WHERE id = %s FOR UPDATE", [runs[0].id])
        await stopped["a"].wait()
        assert began["a"].left_s > 0, "it went on though the lease was over"
        locker.close()
        assert not stopped["b"].is_set(), "its lease was renewed all the same"
        ends = [await sf.wait(run.id) for run in runs]
    assert [run.status for run in ends] == ["waiting_for_user", "completed"]


@story
async def test_a_worker_that_wins_the_next_lease_of_a_run_ends_its_own_driver_under_the_old_one(sim: Sim) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @tool(effect=effects.opaque, timeout=600)
    async def send(op: Operation) -> Receipt:
        """Send something slowly."""
        began.set()
        try:
            await sim.pass_time(300)
        finally:
            stopped.set()
        return Receipt(resource_id="1")

    async with sim.surefoot(sim.agent([[("send", {})], "done"], send), lease_seconds=LEASE_SECONDS) as sf:
        run = await sf.start("reviewer", "Send it.")
        await began.wait()
        assert sf.worker is not None
        old = sf.worker.drivers[run.id]
        assert old.handle.token is not None
        # As where the process was stopped for longer than its lease: it claims before it has tried to renew.
        await sf.store.release(sf.tenant, run.id, old.handle.token)
        await stopped.wait()
        run = await sf.wait(run.id)
        drives = sf.worker._drives
        await sim.until(lambda: old not in drives, 60.0)
        assert old.held.lost and sf.worker.drivers.get(run.id) is not old
    (step,) = calls_of(run)
    assert (run.status, step.status, step.attempt) == ("waiting_for_user", "outcome_unknown", 1)


@story
async def test_a_call_that_the_end_of_the_lease_holds_back_waits_for_the_renewal(sim: Sim) -> None:
    """It was looked at again and again, without any pause, as long as the rest of the lease was too short for it."""
    sim.broken.add("I1")  # this target stands outside of the World
    tried: list[float] = []

    async def head(op: Operation) -> str:
        return "what is read before each intent"

    @tool(effect=effects.opaque, precondition=head)
    async def send(op: Operation) -> Receipt:
        """Send something, in a moment."""
        tried.append(sim.machine.clock.elapsed)
        if len(tried) == 1:
            raise effects.Refused("not now", retry_after=1.0)
        return Receipt(resource_id="1")

    @tool(effect=effects.read)
    async def read(op: Operation) -> str:
        """Read something slowly, in a process that was stopped meanwhile for almost all of its lease."""
        assert sf.worker is not None
        held = sf.worker.drivers[op.run_id].held
        held.lease_until -= held.left_s - 0.1
        await sim.pass_time(2.0)
        return "read"

    calls: list[ScriptedCall] = [("send", {}), ("read", {})]
    agent = sim.agent([calls, "done"], send, read)
    async with sim.surefoot(agent, lease_seconds=LEASE_SECONDS) as sf:
        run = await sf.wait((await sf.start("reviewer", "Send it.")).id)
    assert (run.status, len(tried)) == ("completed", 2)
