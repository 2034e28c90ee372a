"""Workers of two states of the code side by side: a run that one of them cannot go on with is the other one's."""

from __future__ import annotations

import pytest

from surefoot import Agent, Approval, Operation, Receipt, Tool, ask_person, effects, tool
from surefoot.core.state import Step
from surefoot.errors import Unreadable
from surefoot.runtime.held import Held
from surefoot.testing.model import FakeModel
from tests.cases.rig import Sim, story


@story
async def test_a_run_goes_on_though_a_worker_without_its_tool_has_set_it_aside(sim: Sim) -> None:
    """It stood still until some worker was started anew, whoever knew its tool meanwhile."""
    sim.broken.add("I1")  # this target stands outside of the World
    sent: list[str] = []

    @tool(effect=effects.opaque)
    async def send(op: Operation) -> Receipt:
        """Send something, in a while."""
        sent.append(op.key)
        if len(sent) == 1:
            raise effects.Refused("not now", retry_after=30.0)
        return Receipt(resource_id="1")

    def clerk(*tools: Tool) -> Agent:
        return Agent("clerk", FakeModel([[("send", {})], "Sent."]), tools=tools)

    async with sim.surefoot(clerk(send, ask_person)) as old, sim.surefoot(clerk(ask_person)) as new:
        run = await old.start("clerk", "Send it.")
        await sim.until(lambda: sent)
        assert new.worker is not None and old.worker is not None
        held = old.worker
        await sim.until(lambda: run.id not in held.drivers, 20.0)
        claimed = await new.store.claim_one(new.tenant, run.id, new.worker.id, 10.0)
        assert claimed is not None
        await new.worker.adopt(claimed)
        assert (await new.store.run(new.tenant, run.id)).blocked_code == "unknown_tool"
        run = await old.wait(run.id, timeout=60.0)
    assert (run.status, len(sent)) == ("completed", 2)


@story
async def test_what_a_newer_surefoot_wrote_is_left_as_it_is_and_goes_on_with_the_next_worker_that_reads_it(
    sim: Sim,
) -> None:
    sim.broken.add("I1")  # this target stands outside of the World
    sent: list[str] = []

    @tool(effect=effects.opaque, approval=Approval())
    async def send(op: Operation) -> Receipt:
        """Send something."""
        sent.append(op.key)
        return Receipt(resource_id="1")

    clerk = Agent("clerk", FakeModel([[("send", {})], "Sent."]), tools=[send])
    async with sim.surefoot(clerk) as sf:
        run = await sf.wait((await sf.start("clerk", "Send it.")).id)
    ((signals,),) = sim.place.query("SELECT signals FROM run")
    changed = "UPDATE run SET signals = ?"
    async with sim.surefoot(clerk, worker=False) as person:
        await person.approve(run.pending_actions[0].id, by="ann")
        assert sim.place.execute(changed, '{"of_tomorrow":1}') == 1
        before = sim.place.query("SELECT version, event_sequence, status, lease_owner FROM run")
        async with sim.surefoot(clerk):
            await sim.until(lambda: sim.place.query("SELECT blocked_code FROM run") == [("unreadable",)])
            await sim.pass_time(60.0)
        assert sim.place.query("SELECT version, event_sequence, status, lease_owner FROM run") == before and not sent
        (said,) = [line for line in sim.lines if "not executed" in line]
        assert "of_tomorrow" in said and "where a newer surefoot wrote it, use that version" in said
        assert sim.place.execute(changed, signals) == 1  # now the worker reads what is there, as the newer one does
        async with sim.surefoot(clerk):
            run = await person.wait(run.id, timeout=60.0)
    assert (run.status, len(sent)) == ("completed", 1)


@story
async def test_of_runs_that_are_claimed_together_one_that_cannot_be_read_is_set_aside_alone(sim: Sim) -> None:
    writer = Agent("writer", FakeModel(["Done."] * 3))
    async with sim.surefoot(writer, worker=False) as sf:
        runs = [await sf.start("writer", "Write.") for _ in range(3)]
        change = "UPDATE run SET signals = ? WHERE id = ?"
        ((signals,),) = sim.place.query("SELECT DISTINCT signals FROM run")
        assert sim.place.execute(change, "{odd", runs[1].id) == 1
        async with sim.surefoot(writer):
            ended = [(await sf.wait(run.id, timeout=30.0)).status for run in (runs[0], runs[2])]
            await sim.until(lambda: sim.place.query("SELECT blocked_code FROM run WHERE blocked_code IS NOT NULL"))
    assert ended == ["completed", "completed"]
    assert sim.place.query("SELECT id, blocked_code FROM run WHERE blocked_code IS NOT NULL") == [
        (runs[1].id, "unreadable")
    ]
    assert sim.place.execute(change, signals, runs[1].id) == 1  # for the judge
    sim.may_run.add(runs[1].id)


@story
async def test_what_an_older_surefoot_could_not_read_goes_on_with_a_newer_one_that_runs_already(sim: Sim) -> None:
    """It stood still until some worker was started anew, while the one that reads it was there all the time."""
    sim.broken.add("I1")  # this target stands outside of the World
    sent: list[str] = []

    @tool(effect=effects.opaque)
    async def send(op: Operation) -> Receipt:
        """Send something, in a while."""
        sent.append(op.key)
        if len(sent) < 3:
            raise effects.Refused("not now", retry_after=30.0)
        return Receipt(resource_id="1")

    clerk = Agent("clerk", FakeModel([[("send", {})], "Sent."]), tools=[send])
    async with sim.surefoot(clerk) as newer, sim.surefoot(clerk, worker=False) as older:
        run = await newer.start("clerk", "Send it.")
        held = newer.worker
        assert held is not None
        blocked: list[int] = []
        while len(blocked) < 2:
            await sim.until(lambda: len(sent) > len(blocked) and run.id not in held.drivers)
            blocked.append(len(sent))
            claimed = await older.store.claim_one(older.tenant, run.id, "wrk_older", 10.0)
            assert claimed is not None
            await older.store.block(older.tenant, run.id, claimed.token, "unreadable")
        run = await newer.wait(run.id, timeout=60.0)
    assert (run.status, len(sent)) == ("completed", 3)


@story
async def test_what_a_worker_could_not_read_itself_it_does_not_take_up_again(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is whole, and what the call needs is not: it would be begun again and again."""
    sim.broken.add("I1")  # this target stands outside of the World
    read: list[str] = []

    @tool(effect=effects.opaque, approval=Approval())
    async def send(op: Operation) -> Receipt:
        """Send something."""
        raise AssertionError

    async def unreadable(held: Held, step: Step) -> dict[str, object]:
        read.append(step.id)
        raise Unreadable("the request is damaged")

    clerk = Agent("clerk", FakeModel([[("send", {})], "Sent."]), tools=[send])
    async with sim.surefoot(clerk) as sf:
        run = await sf.wait((await sf.start("clerk", "Send it.")).id)
        monkeypatch.setattr(Held, "arguments", unreadable)
        await sf.approve(run.pending_actions[0].id, by="ann")
        await sim.until(lambda: sim.place.query("SELECT blocked_code FROM run") == [("unreadable",)])
        tried = len(read)
        assert tried
        await sim.pass_time(120.0)
        assert len(read) == tried
