"""A lookup that is added to a tool counts also for a call about which a person was asked since there was none."""

from __future__ import annotations

from surefoot import Agent, Found, Operation, Receipt, Surefoot, Undetermined, effects, tool
from surefoot.agent.tools import Tool
from surefoot.snapshot import RunSnapshot
from surefoot.testing.model import FakeModel
from tests.cases.rig import calls_of

SECONDS = 20


@tool(effect=effects.opaque)
async def pay(op: Operation) -> Receipt:
    """Pay; the reply is lost."""
    raise effects.InDoubt("the connection broke")


def clerk(tool_of_now: Tool) -> Agent:
    """The agent that pays once."""
    return Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[tool_of_now])


async def asked_about(store_url: str, *, give_up: bool = False) -> RunSnapshot:
    """A run about whose call a person is asked, left by a worker that has stopped."""
    agent = clerk(pay)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, timeout=SECONDS)
        (question,) = run.pending_actions
        assert (run.status, question.kind) == ("waiting_for_user", "resolve")
        if give_up:
            await sf.resolve(question.id, "give_up", by="ann")
            run = await sf.wait(run.id, timeout=SECONDS)
        return run


async def test_a_call_is_looked_up_by_a_lookup_that_came_later(store_url: str) -> None:
    looked: list[str] = []

    async def find(op: Operation) -> Found:
        looked.append(op.key)
        return Found(Receipt(resource_id="p-1"))

    run = await asked_about(store_url)
    key = calls_of(run)[0].operation_key
    async with Surefoot(
        store_url, [clerk(pay.using(effect=effects.lookup(find, settle=1.0)))], worker=True, log=lambda line: None
    ) as sf:
        run = await sf.wait(run.id, until=lambda r: r.status == "completed", timeout=SECONDS)
    assert looked == [key] and calls_of(run)[0].external_resource_id == "p-1"
    assert not run.pending_actions


async def test_the_question_stays_open_behind_looks_that_tell_nothing(store_url: str) -> None:
    looked: list[str] = []

    async def find(op: Operation) -> Undetermined:
        looked.append(op.key)
        return Undetermined("the target cannot be read")

    run = await asked_about(store_url)
    (question,) = run.pending_actions
    mended = clerk(pay.using(effect=effects.lookup(find, settle=1.0)))
    async with Surefoot(store_url, [mended], worker=True, log=lambda line: None) as sf:
        run = await sf.wait(run.id, until=lambda r: bool(looked), timeout=SECONDS)
        assert [action.id for action in run.pending_actions] == [question.id]
        await sf.resolve(question.id, "happened", by="ann", external_resource_id="p-2")
        run = await sf.wait(run.id, timeout=SECONDS)
    assert run.status == "completed" and calls_of(run)[0].external_resource_id == "p-2"


async def test_a_call_that_was_given_up_is_left_alone(store_url: str) -> None:
    looked: list[str] = []

    async def find(op: Operation) -> Undetermined:
        looked.append(op.key)
        return Undetermined("the target cannot be read")

    given_up = await asked_about(store_url, give_up=True)
    other = await asked_about(store_url)
    mended = clerk(pay.using(effect=effects.lookup(find, settle=1.0)))
    async with Surefoot(store_url, [mended], worker=True, log=lambda line: None) as sf:
        await sf.wait(other.id, until=lambda r: bool(looked), timeout=SECONDS)
    assert calls_of(given_up)[0].operation_key not in looked
