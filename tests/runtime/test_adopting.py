"""A lease that was won and is not driven after all is given back: nobody else could know that it stands idle."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from surefoot import Agent, Operation, Receipt, effects, tool
from surefoot.core.state import Run, Step
from surefoot.errors import CommitUnknown, StoreUnavailable
from surefoot.runtime.held import Held
from surefoot.runtime.worker import Worker
from surefoot.store.port import Claimed, Create
from tests.cases.rig import Sim, ended, story

LEASE_SECONDS = 600.0
SOON_SECONDS = 20.0
RUNS = 5


async def _left_behind(sim: Sim, agent: Agent) -> list[str]:
    """Runs that nobody drives yet, all ready."""
    async with sim.surefoot(agent, worker=False) as sf:
        return [(await sf.start(agent, f"Say {number}.")).id for number in range(RUNS)]


@story
async def test_runs_that_were_claimed_with_one_that_could_not_be_read_go_on(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others, and it too, stood still until the leases were over."""
    agent = sim.agent(["done"])
    runs = await _left_behind(sim, agent)
    sf = sim.surefoot(agent, lease_seconds=LEASE_SECONDS)
    fails = {runs[1]: 2, runs[3]: 1}
    _failing_loads(monkeypatch, fails)
    async with sf:
        for run_id in runs:
            assert (await sf.wait(run_id, until=ended, timeout=SOON_SECONDS)).status == "completed"
    assert not any(fails.values()), "the store was away in the middle of adopting"


@story
async def test_a_lease_that_cannot_be_given_back_at_once_is_given_back_later(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = sim.agent(["done"])
    (first, *_) = await _left_behind(sim, agent)
    fails = {first: 1}
    _failing_loads(monkeypatch, fails)
    async with sim.surefoot(agent, lease_seconds=LEASE_SECONDS) as sf:
        release, away = sf.store.release, [3]

        async def given_back(tenant_id: str, run_id: str, token: int) -> None:
            if run_id == first and away[0]:
                away[0] -= 1
                raise StoreUnavailable("the store is away")
            await release(tenant_id, run_id, token)

        monkeypatch.setattr(sf.store, "release", given_back)
        assert (await sf.wait(first, until=ended, timeout=SOON_SECONDS)).status == "completed"
    assert away == [0]


@story
async def test_what_is_claimed_while_the_worker_stops_is_given_back(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program may live on for long, and its process's lock with it: nothing would prove that nobody drives."""
    agent = sim.agent(["done"])
    stops = await sim.surefoot(agent, lease_seconds=LEASE_SECONDS).__aenter__()
    claim, claiming, answers = stops.store.claim, asyncio.Event(), asyncio.Event()

    async def slowly(
        tenant_id: str, worker_id: str, agents: Mapping[str, str], lease_s: float, limit: int
    ) -> list[Claimed]:
        taken = await claim(tenant_id, worker_id, agents, lease_s, limit)
        if taken:
            claiming.set()
            await answers.wait()
        return taken

    monkeypatch.setattr(stops.store, "claim", slowly)
    async with sim.surefoot(agent, worker=False) as person:
        run = await person.start(agent, "Say it.")
        await claiming.wait()
        closing = asyncio.ensure_future(stops.close())
        await sim.pass_time(0.1)
        answers.set()
        await closing
        row = await person.store.run(person.tenant, run.id)
        assert (row.lease_owner, row.run.status.value) == (None, "running")
    sim.may_run.add(run.id)


@story
async def test_a_call_whose_making_is_unclear_begins_soon(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written, leased to its maker, who did not know: so nobody drove it until the lease ended."""
    sim.broken.add("I1")  # this target stands outside of the World
    made: list[int] = []

    @tool(effect=effects.opaque)
    async def send(op: Operation) -> Receipt:
        """Send something."""
        made.append(op.attempt)
        return Receipt(resource_id="1")

    async with sim.surefoot(tools=[send], worker=False, lease_seconds=LEASE_SECONDS) as sf:
        create, load, away = sf.store.create, sf.store.load, [3]

        async def unclear(made: Create) -> Run:
            await create(made)
            raise CommitUnknown("the answer was lost")

        async def unread(tenant_id: str, run_id: str, step_id: str | None = None) -> Run:
            if away[0]:
                away[0] -= 1
                raise StoreUnavailable("the store is away")
            return await load(tenant_id, run_id, step_id)

        monkeypatch.setattr(sf.store, "create", unclear)
        monkeypatch.setattr(sf.store, "load", unread)
        with pytest.raises(CommitUnknown):
            await sf.perform(send.call(), key="once")
        monkeypatch.setattr(sf.store, "create", create)
        await sim.until(lambda: not away[0])
        receipt = await sf.perform(send.call(), key="once", timeout=SOON_SECONDS)
    assert (receipt.resource_id, len(made)) == ("1", 1)


@story
async def test_a_run_that_cannot_be_set_aside_just_now_is_given_back(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """Driving it fails by a bug, and the store is away when it is to say so: the lease stood idle until its end."""

    @tool(effect=effects.opaque)
    async def send(op: Operation) -> Receipt:
        """Send something; the reply is lost."""
        raise effects.InDoubt("the connection broke")

    async def broken(held: Held, step: Step) -> list[str]:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("surefoot.runtime.drive.settle_step", broken)
    monkeypatch.setattr("surefoot.runtime.worker.DRIVES_FAILED_MAX", 1)
    agent = sim.agent([[("send", {})], "done"], send)
    async with sim.surefoot(agent, lease_seconds=LEASE_SECONDS) as sf:
        block, away = sf.store.block, [1]

        async def set_aside(tenant_id: str, run_id: str, token: int | None, code: str) -> None:
            if away[0]:
                away[0] -= 1
                raise StoreUnavailable("the store is away")
            await block(tenant_id, run_id, token, code)

        monkeypatch.setattr(sf.store, "block", set_aside)
        run = await sf.start(agent, "Send it.")
        await sim.pass_time(SOON_SECONDS)
        assert not away[0] and (await sf.store.run(sf.tenant, run.id)).blocked_code == "drive_failed"


def _failing_loads(monkeypatch: pytest.MonkeyPatch, fails: dict[str, int]) -> None:
    """Reading a run that was claimed fails so many times, by its id."""
    adoptable = Worker._adoptable

    async def failing(worker: Worker, claimed: Claimed) -> Run | None:
        if fails.get(claimed.run_id):
            fails[claimed.run_id] -= 1
            raise StoreUnavailable("the store is away")
        return await adoptable(worker, claimed)

    monkeypatch.setattr(Worker, "_adoptable", failing)
