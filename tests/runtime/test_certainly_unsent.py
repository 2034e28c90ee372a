"""A call of which this process knows that nothing was sent is no question to anybody."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from surefoot import Agent, Approval, Operation, Receipt, Surefoot, effects, tool
from surefoot.core.events import StepStarted
from surefoot.core.state import Run
from surefoot.errors import CommitUnknown, StoreUnavailable
from surefoot.snapshot import at_rest
from surefoot.store.port import Append, Create, StepRow
from surefoot.testing.model import FakeModel
from tests.cases.rig import Sim, calls_of, ended, story

SECONDS = 30


async def test_an_intent_of_its_own_whose_commit_is_unclear_is_begun_again(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knew it but the driver, which had failed: the next one asked a person what had happened."""
    sent: list[int] = []

    @tool(effect=effects.opaque, approval=Approval())
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append(op.attempt)
        return Receipt(resource_id="p-1")

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, timeout=SECONDS)
        append = sf.store.append
        unclear: list[Append] = []

        async def lost_once(wanted: Append) -> None:
            await append(wanted)
            if not unclear and any(isinstance(event, StepStarted) for event in wanted.events):
                unclear.append(wanted)
                raise CommitUnknown("the answer was lost")

        monkeypatch.setattr(sf.store, "append", lost_once)
        await sf.approve(run.pending_actions[0].id, by="ann")
        run = await sf.wait(run.id, until=lambda r: r.status == "completed" or bool(r.pending_actions), timeout=SECONDS)
    assert unclear and not run.pending_actions, "a person was asked what had become of a call that was not sent"
    assert (run.status, sent) == ("completed", [2])


async def test_a_call_whose_request_cannot_be_read_just_now_is_begun_again(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its intent was written by a process that had to read first what is to be sent."""
    sent: list[int] = []

    @tool(effect=effects.opaque)
    async def pay(op: Operation) -> Receipt:
        """Pay, not at once."""
        sent.append(op.attempt)
        if len(sent) == 1:
            raise effects.Refused("not now", retry_after=0.5)
        return Receipt(resource_id="p-1")

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.start(agent, "Pay.")
        run = await sf.wait(run.id, until=lambda r: any(s.attempt for s in calls_of(r)), timeout=SECONDS)
    away: list[str] = []
    async with Surefoot(store_url, [agent], log=lambda line: None) as sf:
        read = type(sf.store).step

        async def failing(store: object, tenant_id: str, step_id: str) -> StepRow:
            row = await read(store, tenant_id, step_id)  # type: ignore[arg-type]  # the store's own method
            if not away and row.step.status.value == "running":
                away.append(step_id)
                raise StoreUnavailable("the store is away")
            return row

        monkeypatch.setattr(type(sf.store), "step", failing)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait(run.id, until=at_rest, timeout=SECONDS)
    (step,) = calls_of(run)
    assert away and not run.pending_actions, "a person was asked what had become of a call that was not sent"
    assert (run.status, step.attempt, sent) == ("completed", 3, [1, 3])


@story
async def test_an_intent_whose_commit_comes_behind_the_worker_s_patience_is_begun_again(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was silent for longer than a renewal may take: nobody waited for the commit any more when it came."""
    sim.broken.add("I1")  # this target stands outside of the World
    sent: list[int] = []

    @tool(effect=effects.opaque, approval=Approval())
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append(op.attempt)
        return Receipt(resource_id="p-1")

    agent = sim.agent([[("pay", {})], "Paid."], pay)
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, timeout=SECONDS)
        append, renew = sf.store.append, sf.store.renew
        silent: list[Append] = []
        written: list[asyncio.Future[None]] = []

        async def late(wanted: Append) -> None:
            if silent or not any(isinstance(event, StepStarted) for event in wanted.events):
                return await append(wanted)
            silent.append(wanted)
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                written.append(asyncio.ensure_future(append(wanted)))

        async def unrenewed(tenant_id: str, tokens: Mapping[str, int], lease_s: float) -> Mapping[str, float]:
            if not written:
                raise StoreUnavailable("no answer to a renewal")
            return await renew(tenant_id, tokens, lease_s)

        monkeypatch.setattr(sf.store, "append", late)
        monkeypatch.setattr(sf.store, "renew", unrenewed)
        await sf.approve(run.pending_actions[0].id, by="ann")
        run = await sf.wait(run.id, until=lambda r: ended(r) or bool(r.pending_actions), timeout=SECONDS)
        assert written and written[0].result() is None, "the commit was made all the same"
    assert not run.pending_actions, "a person was asked what had become of a call that was not sent"
    assert (run.status, sent) == ("completed", [2])


@story
async def test_a_run_that_is_made_behind_the_answer_that_it_was_not_is_driven_by_its_maker(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network held its commit back for longer than anybody waited: it was leased to a process that did not know."""
    sim.broken.add("I1")  # this target stands outside of the World
    sent: list[int] = []

    @tool(effect=effects.opaque)
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append(op.attempt)
        return Receipt(resource_id="p-1")

    async with sim.surefoot(sim.agent(["-"], pay), worker=False) as sf:
        create = sf.store.create
        late: list[asyncio.Task[None]] = []

        async def after_all(wanted: Create) -> None:
            await sim.pass_time(40.0)
            await create(wanted)

        async def held_back(wanted: Create) -> Run:
            if late:
                return await create(wanted)
            late.append(asyncio.ensure_future(after_all(wanted)))
            raise CommitUnknown("no answer")

        async def confirm() -> bool:
            """As a server is asked."""
            await sf.store.check_writable()
            return True

        monkeypatch.setattr(sf.store, "create", held_back)
        monkeypatch.setattr(sf.store, "confirm", confirm)
        with pytest.raises(CommitUnknown):
            await sf.perform(pay.call(), key="p-81")
        await sim.pass_time(100.0)
        assert late[0].done() and not await sf.actions(status="waiting"), "a person was asked about what was never sent"
        assert (await sf.perform(pay.call(), key="p-81")).resource_id == "p-1"
    assert sent == [2]
