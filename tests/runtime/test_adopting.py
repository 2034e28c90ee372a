"""A lease that was won and is not driven after all is given back: nobody else could know that it stands idle."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from surefoot import Agent, Approval, Operation, Receipt, Tool, effects, tool
from surefoot.core.state import Run, Step
from surefoot.errors import CommitUnknown, StoreUnavailable, WaitTimeout
from surefoot.runtime.held import Held
from surefoot.runtime.worker import IDLE_POLL_SECONDS, Worker
from surefoot.store.port import Claimed, Create, Store
from tests.cases.rig import Sim, ended, story

LEASE_SECONDS = 600.0
SOON_SECONDS = 20.0
RUNS = 5
Asked = tuple[str, str, Mapping[str, str], float, int]
"""What a claim is given."""


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
async def test_runs_that_could_not_be_read_together_are_read_by_themselves(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = sim.agent(["done"])
    async with sim.surefoot(agent, worker=False) as sf:
        store, asked = type(sf.store), list[int]()
        runs = [(await sf.start(agent, f"Say {number}.")).id for number in range(RUNS)]

        async def away(self: Store, tenant_id: str, run_ids: Sequence[str]) -> None:
            asked.append(len(run_ids))
            raise StoreUnavailable("the store is away")

        monkeypatch.setattr(store, "load_all", away)
        async with sim.surefoot(agent, lease_seconds=LEASE_SECONDS):
            for run_id in runs:
                assert (await sf.wait(run_id, until=ended, timeout=SOON_SECONDS)).status == "completed"
    assert asked == [RUNS]


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
async def test_what_a_claim_won_whose_answer_was_lost_goes_on_soon(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody drove under those leases, and they stood in the way of all until they were over."""
    agent = sim.agent(["done"])
    runs = await _left_behind(sim, agent)
    sf, lost = sim.surefoot(agent, lease_seconds=LEASE_SECONDS), [2]
    async with sf:
        claim, leases = sf.store.claim, sf.store.leases

        async def unclear(*asked: *Asked) -> list[Claimed]:
            taken = await claim(*asked[:4], 2)
            if taken and lost[0]:
                lost[0] -= 1
                raise CommitUnknown("the answer was lost")
            return taken

        away = [1]

        async def held(tenant_id: str, worker_id: str) -> Mapping[str, int]:
            if away[0]:
                away[0] -= 1
                raise StoreUnavailable("the store is away")
            return await leases(tenant_id, worker_id)

        monkeypatch.setattr(sf.store, "claim", unclear)
        monkeypatch.setattr(sf.store, "leases", held)
        for run_id in runs:
            assert (await sf.wait(run_id, until=ended, timeout=SOON_SECONDS)).status == "completed"
    assert (lost, away) == ([0], [0])


@story
async def test_what_a_claim_won_that_is_written_late_goes_on_soon(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server goes on with a statement whose connection broke: nothing is to be seen of it at first."""
    agent = sim.agent(["done"])
    runs = await _left_behind(sim, agent)
    async with sim.surefoot(agent, lease_seconds=LEASE_SECONDS) as sf:
        claim, lost, written = sf.store.claim, [1], asyncio.Event()
        on_the_server: list[asyncio.Task[None]] = []

        async def late(asked: Asked) -> None:
            await sim.pass_time(3.0)
            assert len(await claim(*asked[:4], 2)) == 2
            written.set()

        async def unclear(*asked: *Asked) -> list[Claimed]:
            if lost[0]:
                lost[0] -= 1
                on_the_server.append(asyncio.ensure_future(late(asked)))
                raise CommitUnknown("the answer was lost")
            return await claim(*asked) if written.is_set() else []

        monkeypatch.setattr(sf.store, "claim", unclear)
        for run_id in runs:
            assert (await sf.wait(run_id, until=ended, timeout=SOON_SECONDS)).status == "completed"
    assert written.is_set()


@story
async def test_what_is_driven_or_being_made_keeps_its_lease_when_a_claim_is_unclear(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim.broken.add("I1")  # this target stands outside of the World
    made: list[int] = []

    @tool(effect=effects.opaque)
    async def send(op: Operation) -> Receipt:
        """Send something; it takes its time."""
        made.append(op.attempt)
        await sim.pass_time(5.0)
        return Receipt(resource_id="1")

    agent = sim.agent([[("send", {})], "done"], send)
    async with sim.surefoot(agent, lease_seconds=LEASE_SECONDS) as sf:
        driven = await sf.start(agent, "Send it.")
        await sim.until(lambda: made)
        create, claim, looked = sf.store.create, sf.store.claim, asyncio.Event()
        leases, lost = sf.store.leases, [1]

        async def unclear(*asked: *Asked) -> list[Claimed]:
            taken = await claim(*asked)
            if lost[0] and (await sf.store.counts("default")).leased == 2:
                lost[0] -= 1
                raise CommitUnknown("the answer was lost")
            return taken

        async def slowly(asked: Create) -> Run:
            run = await create(asked)
            await looked.wait()
            return run

        async def held(tenant_id: str, worker_id: str) -> Mapping[str, int]:
            found = await leases(tenant_id, worker_id)
            asyncio.get_running_loop().call_later(1.0, looked.set)
            return found

        monkeypatch.setattr(sf.store, "claim", unclear)
        monkeypatch.setattr(sf.store, "leases", held)
        monkeypatch.setattr(sf.store, "create", slowly)
        other = await sf.start(agent, "Send it too.")
        for run_id in (driven.id, other.id):
            assert (await sf.wait(run_id, until=ended, timeout=SOON_SECONDS)).status == "completed"
            assert (await sf.store.run("default", run_id)).lease_token == 1
    assert (made, lost) == ([1, 1], [0])


async def _asked_for_once(sim: Sim, made: list[int]) -> Tool:
    """A tool whose target was busy at its first attempt, under the key "once"; nobody drives that call any more."""

    @tool(effect=effects.opaque)
    async def send(op: Operation) -> Receipt:
        """Send something; at first the target is busy."""
        made.append(op.attempt)
        if len(made) == 1:
            raise effects.Refused("busy", retry_after=30.0)
        return Receipt(resource_id="1")

    async with sim.surefoot(tools=[send], worker=False, lease_seconds=10.0) as first:
        with pytest.raises(WaitTimeout):
            await first.perform(send.call(), key="once", timeout=1.0)
    return send


@story
async def test_a_run_that_was_asked_for_goes_on_though_the_answer_was_lost(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim.broken.add("I1")  # this target stands outside of the World
    made: list[int] = []
    send = await _asked_for_once(sim, made)
    async with sim.surefoot(tools=[send], worker=False, lease_seconds=LEASE_SECONDS) as sf:
        claim_one = sf.store.claim_one

        async def unclear(*asked: object, **more: object) -> Claimed | None:
            await claim_one(*asked, **more)  # type: ignore[arg-type]  # as they came
            raise CommitUnknown("the answer was lost")

        monkeypatch.setattr(sf.store, "claim_one", unclear)
        with pytest.raises(CommitUnknown):
            await sf.perform(send.call(), key="once")
        monkeypatch.undo()
        await sim.pass_time(1.0)
        assert (await sf.perform(send.call(), key="once", timeout=60.0)).resource_id == "1"
    assert len(made) == 2


@story
async def test_a_run_that_was_asked_for_goes_on_though_nobody_waited_for_the_answer(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease was won when whoever performed the call had gone away: nobody drove it until the lease was over."""
    sim.broken.add("I1")  # this target stands outside of the World
    made: list[int] = []
    send = await _asked_for_once(sim, made)
    async with sim.surefoot(tools=[send], worker=False, lease_seconds=LEASE_SECONDS) as sf:
        claim_one, won = sf.store.claim_one, asyncio.Event()

        async def slowly(*asked: object, **more: object) -> Claimed | None:
            claimed = await claim_one(*asked, **more)  # type: ignore[arg-type]  # as they came
            won.set()
            await sim.pass_time(5.0)
            return claimed

        monkeypatch.setattr(sf.store, "claim_one", slowly)
        waits = asyncio.ensure_future(sf.perform(send.call(), key="once"))
        await won.wait()
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        monkeypatch.undo()
        await sim.pass_time(1.0)
        assert (await sf.perform(send.call(), key="once", timeout=60.0)).resource_id == "1"
    assert len(made) == 2


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
    monkeypatch.setattr("surefoot.runtime.failures.DRIVES_FAILED_MAX", 1)
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

    async def failing(worker: Worker, claimed: Claimed, run: Run | None) -> Run | None:
        if fails.get(claimed.run_id):
            fails[claimed.run_id] -= 1
            raise StoreUnavailable("the store is away")
        return await adoptable(worker, claimed, run)

    monkeypatch.setattr(Worker, "_adoptable", failing)


@story
async def test_what_becomes_ready_behind_the_look_for_it_is_claimed_at_once(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was told before it waited, and forgot: a person saw nothing happen for up to a second."""
    sim.broken.add("I1")  # this target stands outside of the World
    sent: list[float] = []

    @tool(effect=effects.opaque, approval=Approval())
    async def send(op: Operation) -> Receipt:
        """Send something."""
        sent.append(sim.machine.clock.elapsed)
        return Receipt(resource_id="1")

    agent = sim.agent([[("send", {})], "done"], send)
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start(agent, "Send it.")).id)
        await sim.pass_time(5.0)
        next_wake, asked = sf.store.next_wake, [action.id for action in run.pending_actions]
        approved: list[float] = []

        async def meanwhile(
            tenant_id: str, agents: Mapping[str, str] | None = None
        ) -> tuple[float | None, float | None]:
            found = await next_wake(tenant_id, agents)
            if asked:
                await sf.approve(asked.pop(), by="ann")
                approved.append(sim.machine.clock.elapsed)
            return found

        monkeypatch.setattr(sf.store, "next_wake", meanwhile)
        run = await sf.wait(run.id, until=ended, timeout=SOON_SECONDS)
    assert run.status == "completed" and sent[0] - approved[0] < IDLE_POLL_SECONDS / 10
