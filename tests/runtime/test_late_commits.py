"""What is decided in time and written too late, and ends that are written down while the store comes and goes."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Agent, Approval, Operation, Receipt, Surefoot, effects, tool
from surefoot.agent.model import ModelRequest
from surefoot.core.attempts import recover_step
from surefoot.core.state import Run
from surefoot.errors import LeaseLost, StoreUnavailable
from surefoot.runtime.deciding import handle_of
from surefoot.store.port import Append, Create, Store
from surefoot.testing.machine import Process
from surefoot.testing.model import FakeModel
from surefoot.testing.stage import abandon
from tests.cases.rig import Sim, story
from tests.support import eventually

SECONDS = 20


@story
async def test_an_approval_that_ends_while_the_intent_is_written_is_asked_for_again(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    sim.broken.add("I1")  # this target stands outside of the World

    @tool(effect=effects.opaque, approval=Approval(expires=10))
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append(op.attempt)
        return Receipt(resource_id="p-1")

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, timeout=SECONDS)
        (first,) = run.pending_actions
        append = sf.store.append
        late: list[Append] = []

        async def slowly(what: Append) -> None:
            if what.wall_before is not None:
                late.append(what)
                await sim.pass_time(1.0)
            await append(what)

        monkeypatch.setattr(sf.store, "append", slowly)
        await sim.pass_time(9.5)
        await sf.approve(first.id, by="ann")
        await sim.pass_time(5.0)
        run = await sf.snapshot(run.id)
        assert (len(late), sent) == (1, [])
        assert [action.kind for action in run.pending_actions] == ["approve"]
        assert [line for line in sim.lines if "failed" in line] == []
        monkeypatch.undo()
        await sf.approve(run.pending_actions[0].id, by="ann")
        run = await sf.wait(run.id, timeout=SECONDS)
    assert (run.status, sent) == ("completed", [1])


@story
async def test_a_time_out_shorter_than_a_commit_takes_is_one_of_the_call(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the time to begin was over before the intent stood, twenty times in a row."""
    sent: list[float] = []
    told: list[float] = []
    sim.broken.add("I1")  # this target stands outside of the World

    @tool(effect=effects.opaque, timeout=0.1)
    async def ring(op: Operation) -> Receipt:
        """Ring, without an end."""
        sent.append(sim.machine.clock.elapsed)
        try:
            await asyncio.Event().wait()
        finally:
            told.append(sim.machine.clock.elapsed)
        raise AssertionError

    agent = Agent("clerk", FakeModel([[("ring", {})], "Done."]), tools=[ring])
    async with sim.surefoot(agent) as sf:
        append = sf.store.append

        async def slowly(what: Append) -> None:
            await sim.pass_time(0.4)
            await append(what)

        monkeypatch.setattr(sf.store, "append", slowly)
        run = await sf.wait((await sf.start(agent, "Ring.")).id, timeout=SECONDS)
        (step,) = [step for step in run.steps if step.tool_name == "ring"]
    assert (step.status, step.attempt) == ("outcome_unknown", 1)
    assert told[0] - sent[0] == pytest.approx(0.1)


async def test_a_receipt_whose_lease_was_lost_is_written_down_once_the_store_is_back(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can look for it: lost, it would be a question to a person."""
    began, done = asyncio.Event(), asyncio.Event()

    @tool(effect=effects.opaque)
    async def mail(op: Operation) -> Receipt:
        """Mail, for a while."""
        began.set()
        await done.wait()
        return Receipt(resource_id="m-1")

    agent = Agent("clerk", FakeModel([[("mail", {})], "Done."]), tools=[mail])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.start(agent, "Mail.")
        await asyncio.wait_for(began.wait(), SECONDS)
        store = _Flaky(sf.store)
        monkeypatch.setattr(sf.store, "append", store.append)
        monkeypatch.setattr(sf.store, "load", store.load)
        done.set()
        await eventually(lambda: store.lost and store.away, "the lease is lost, and the store away for a moment")
        run = await sf.wait(run.id, timeout=SECONDS)
    assert (run.status, run.steps[1].status, run.steps[1].external_resource_id) == ("completed", "succeeded", "m-1")


class _Flaky:
    """A lease that is lost with the next append, and a store that then cannot be read for a moment."""

    def __init__(self, store: Store) -> None:
        self.lost = False
        self.away = False
        self._append, self._load = store.append, store.load

    async def append(self, what: Append) -> None:
        if not self.lost:
            self.lost = True
            raise LeaseLost("somebody else has it")
        await self._append(what)

    async def load(self, tenant_id: str, run_id: str, step_id: str | None = None) -> Run:
        if self.lost and not self.away:
            self.away = True
            raise StoreUnavailable("the store is away for a moment")
        return await self._load(tenant_id, run_id, step_id)


async def test_an_answer_of_the_model_that_comes_too_late_is_no_failure(store_url: str) -> None:
    """Its attempt was given up meanwhile, and the next one has not begun."""
    asked, answers = asyncio.Event(), asyncio.Event()

    async def late(request: ModelRequest) -> str:
        asked.set()
        await answers.wait()
        return "Done."

    agent = Agent("clerk", FakeModel([late]))
    lines: list[str] = []
    async with Surefoot(store_url, [agent], worker=True, log=lines.append) as sf:
        run = await sf.start(agent, "Go on.")
        await asyncio.wait_for(asked.wait(), SECONDS)
        handle = await handle_of(sf.context, run.id)
        (step,) = handle.run.steps.values()
        await handle.decide(lambda d: recover_step(d, step.id, owner_died=False, start=None))
        answers.set()
        run = await sf.wait(run.id, timeout=SECONDS)
    assert (run.status, run.steps[0].attempt) == ("completed", 2)
    assert [line for line in lines if "failed" in line] == []


async def test_a_call_whose_caller_goes_away_while_it_is_written_down_is_made_and_nobody_is_asked(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its intent is there, and nobody else can know that nothing was sent on it."""
    sent: list[int] = []

    @tool(effect=effects.opaque)
    async def mail(op: Operation) -> Receipt:
        """Mail."""
        sent.append(op.attempt)
        return Receipt(resource_id="m-1")

    async with Surefoot(store_url, lease_seconds=1.5, log=lambda line: None) as sf:
        create = sf.store.create

        async def cut_off(what: Create) -> Run:
            made = await create(what)
            performing.cancel()
            await asyncio.get_running_loop().create_future()
            return made

        monkeypatch.setattr(sf.store, "create", cut_off)
        performing = asyncio.ensure_future(sf.perform(mail.call(), key="81"))
        await asyncio.gather(performing, return_exceptions=True)
        assert performing.cancelled()
        monkeypatch.undo()
        assert await sf.perform(mail.call(), key="81", timeout=SECONDS) == Receipt(resource_id="m-1")
    assert len(sent) == 1


@story
async def test_who_performs_a_call_again_takes_it_over_once_its_lease_has_ended(sim: Sim) -> None:
    """Of a process that is gone, on a machine that nobody can look at; the wait needs no second try for that."""
    sent: list[int] = []
    sim.broken.add("I1")  # this target stands outside of the World

    @tool(effect=effects.idempotent(key_lifetime=None))
    async def pay(op: Operation) -> Receipt:
        """Pay; the first reply does not come before the process dies."""
        sent.append(op.attempt)
        if len(sent) == 1:
            await asyncio.get_running_loop().create_future()
        return Receipt(resource_id="p-1")

    async def main(process: Process) -> None:
        sf = sim.surefoot(process=process, worker=False)
        process.on_death.append(lambda: abandon(sf))
        async with sf:
            await sf.perform(pay.call(), key="81")

    first = sim.machine.start("first", main)
    await sim.until(lambda: sent)
    first.kill(proven=False)
    async with sim.surefoot(worker=False) as sf:
        assert await sf.perform(pay.call(), key="81") == Receipt(resource_id="p-1")
    assert sent == [1, 2]
