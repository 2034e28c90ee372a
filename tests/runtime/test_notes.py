"""What becomes known of a call after its run has ended is told to the model by the run that is under way by then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from surefoot import Absent, Agent, Found, Operation, Receipt, Surefoot, Undetermined, effects, sleep, tool
from surefoot.agent.model import ModelRequest, NoteMessage
from surefoot.agent.tools import Tool
from surefoot.doctor import examine
from surefoot.errors import StoreUnavailable
from surefoot.snapshot import RunSnapshot
from surefoot.store.port import MessageRow
from surefoot.testing.model import FakeModel, ScriptedCall
from tests.cases.rig import Sim, ended, story

WAIT_SECONDS = 3_600.0
FOUND: list[Receipt] = []


def sending() -> Tool:
    """A call that is in doubt, and is found once FOUND has something."""

    async def find(op: Operation) -> Found | Absent | Undetermined:
        return Found(FOUND[0]) if FOUND else Undetermined("the list cannot be read")

    @tool(effect=effects.lookup(find, settle=1.0))
    async def send(op: Operation, to: str = "all") -> Receipt:
        """Send something; the connection breaks."""
        raise effects.InDoubt("the connection broke")

    return send


def slow(sim: Sim) -> Callable[[ModelRequest], Awaitable[list[ScriptedCall]]]:
    """A model's answer that takes its time."""

    async def slowly(request: ModelRequest) -> list[ScriptedCall]:
        await sim.pass_time(100.0)
        return [("sleep", {"seconds": 1})]

    return slowly


async def followed(sf: Surefoot, agent: Agent) -> tuple[RunSnapshot, RunSnapshot]:
    """A run as it stood when it was cancelled, its calls in doubt, and the next one of its conversation."""
    first = await sf.start(agent, "Send it.")
    first = await sf.wait(first.id, until=lambda run: run.status == "reconciling", timeout=WAIT_SECONDS)
    await sf.cancel(first.id, by="ann")
    return first, await sf.start(agent, "And now?", conversation_id=first.conversation_id)


def notes(model: FakeModel) -> list[list[str]]:
    """What each request told in notes, in order."""
    return [[m.text for m in request.messages if isinstance(m, NoteMessage)] for request in model.requests]


@pytest.mark.parametrize("away", [0, 1])
@story
async def test_a_late_note_is_told_by_the_run_that_is_under_way(
    sim: Sim, away: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for the run after that one, which had meanwhile done the same again, perhaps."""
    sim.broken.add("I1")  # this target stands outside of the World
    FOUND.clear()
    agent = sim.agent([[("send", {})], [("sleep", {"seconds": 1_200})], "done", "later"], sending(), sleep)
    model = sim.models[-1]
    async with sim.surefoot(agent) as sf:
        first, second = await followed(sf, agent)
        await sf.wait(second.id, until=lambda run: len(run.steps) == 2, timeout=WAIT_SECONDS)
        conversation, fails = sf.store.conversation, [away]

        async def unread(tenant_id: str, conversation_id: str) -> tuple[int, str | None]:
            if fails[0]:
                fails[0] -= 1
                raise StoreUnavailable("the store is away")
            return await conversation(tenant_id, conversation_id)

        monkeypatch.setattr(sf.store, "conversation", unread)
        FOUND.append(Receipt(resource_id="n-1"))
        await sf.wait(first.id, until=lambda run: run.steps[1].status == "succeeded", timeout=WAIT_SECONDS)
        assert (await sf.wait(second.id, until=ended, timeout=WAIT_SECONDS)).status == "completed"
        told = notes(model)[-1]
        if away:
            assert not told, "what cannot be handed over waits for the next run"
            third = await sf.start(agent, "And then?", conversation_id=first.conversation_id)
            assert (await sf.wait(third.id, until=ended, timeout=WAIT_SECONDS)).status == "completed"
            told = notes(model)[-1]
        assert len(told) == 1 and "became_known" in told[0]
        assert not fails[0] and not await sf.store.queued(sf.tenant, first.conversation_id)
        assert not (await examine(sf.store, sf.tenant)).findings


@story
async def test_a_late_note_that_comes_while_the_model_is_at_work_stands_behind_nothing_of_it(sim: Sim) -> None:
    sim.broken.add("I1")  # this target stands outside of the World
    FOUND.clear()

    agent = sim.agent([[("send", {})], slow(sim), "done"], sending(), sleep)
    model = sim.models[-1]
    async with sim.surefoot(agent) as sf, sim.surefoot(agent, worker=False) as outside:
        first, second = await followed(sf, agent)
        await sim.until(lambda: len(model.requests) == 2)
        assert await outside.report(first.steps[1].operation_key or "", Found(Receipt(resource_id="n-1")))
        assert (await sf.wait(second.id, until=ended, timeout=WAIT_SECONDS)).status == "completed"
        assert [len(told) for told in notes(model)] == [0, 0, 1]
        assert not (await examine(sf.store, sf.tenant)).findings


@story
async def test_a_note_that_got_its_place_while_another_one_was_handed_over_is_told_once(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was queued a second time, no place could be given to it any more, and the run stood still for ever."""
    sim.broken.add("I1")  # this target stands outside of the World
    FOUND.clear()
    goes_on = asyncio.Event()

    async def until_told(request: ModelRequest) -> list[ScriptedCall]:
        await goes_on.wait()
        return [("sleep", {"seconds": 1})]

    calls: list[ScriptedCall] = [("send", {"to": "ann"}), ("send", {"to": "ben"})]
    agent = sim.agent([calls, until_told, slow(sim), "done"], sending(), sleep)
    model = sim.models[-1]
    async with sim.surefoot(agent) as sf, sim.surefoot(agent, worker=False) as outside:
        first, second = await followed(sf, agent)
        await sim.until(lambda: len(model.requests) == 2)
        queued = outside.store.queued

        async def slow_read(tenant_id: str, conversation_id: str) -> list[MessageRow]:
            rows = await queued(tenant_id, conversation_id)
            if len(rows) == 2 and not goes_on.is_set():
                goes_on.set()
                await sim.until(lambda: len(model.requests) == 3)
            return rows

        monkeypatch.setattr(outside.store, "queued", slow_read)
        for number, step in enumerate(first.steps[1:]):
            found = Found(Receipt(resource_id=f"n-{number}"))
            assert await outside.report(step.operation_key or "", found)
        assert goes_on.is_set()
        assert (await sf.wait(second.id, until=ended, timeout=WAIT_SECONDS)).status == "completed"
        assert [len(told) for told in notes(model)] == [0, 0, 1, 2]
        assert not (await examine(sf.store, sf.tenant)).findings
