"""A failed or cancelled run is taken up in a new run of its conversation: once, with a fresh budget."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Agent, Found, Operation, Receipt, Surefoot, ask_person, effects, tool
from surefoot.agent.model import UserMessage
from surefoot.core.state import Limits
from surefoot.errors import InvalidInput, NotAllowed, NotFound
from surefoot.testing.histories import validate_history
from surefoot.testing.model import FakeModel, Step

WAIT_SECONDS = 30.0


@tool(effect=effects.read)
def look(op: Operation) -> str:
    """Look."""
    return "seen"


@tool(effect=effects.opaque)
def shout(op: Operation, text: str) -> Receipt:
    """Shout."""
    raise effects.InDoubt("no echo")


LOOK: Step = [("look", {})]


def _agent(script: list[Step], **options: object) -> tuple[Agent, FakeModel]:
    model = FakeModel(script)
    return Agent("reader", model, "Read.", [look, shout, ask_person], **options), model  # type: ignore[arg-type]  # mixed options


async def _code(coroutine: object) -> str:
    with pytest.raises(NotAllowed) as refused:
        await coroutine  # type: ignore[misc]  # an awaitable
    return refused.value.code


async def test_a_run_that_used_its_budget_goes_on_with_a_fresh_one_and_the_same_message(store_url: str) -> None:
    agent, model = _agent([LOOK, LOOK, LOOK, "done"], turns=2)
    async with Surefoot(store_url, [agent], worker=True) as sf:
        first = await sf.start("reader", "go", metadata={"pr": 128}, by="ann")
        first = await sf.wait(first.id, timeout=WAIT_SECONDS)
        assert first.error_code == "turns_used_up"
        again = await asyncio.gather(*(sf.retry(first.id, by="bob") for _ in range(5)))
        assert len({run.id for run in again}) == 1
        second = await sf.wait(again[0].id, timeout=WAIT_SECONDS)
        assert (second.status, second.result, second.created_by) == ("completed", {"text": "done"}, "bob")
        assert second.conversation_id == first.conversation_id and second.metadata == {"pr": 128}
        assert (await sf.retry(first.id)).id == second.id, "long after its end it is the same run"
        assert (await sf.snapshot(first.id)).status == "failed", "ends are final"
    assert [validate_history(request.messages) for request in model.requests] == [None] * 4
    assert [type(m) for m in model.requests[-1].messages].count(UserMessage) == 1


async def test_a_cancelled_run_goes_on_with_what_was_said_and_settled_meanwhile(store_url: str) -> None:
    agent, model = _agent([[("shout", {"text": "hi"})], "done"])
    async with Surefoot(store_url, [agent], worker=True) as sf:
        run = await sf.wait((await sf.start("reader", "go")).id, timeout=WAIT_SECONDS)
        assert run.status == "waiting_for_user"
        await sf.message(run.id, "And hurry.")
        assert await sf.cancel(run.id) == (run.steps[1].id,)
        key = run.steps[1].operation_key
        assert key is not None and await sf.report(key, Found(Receipt(resource_id="echo-1")))
        second = await sf.wait((await sf.retry(run.id)).id, timeout=WAIT_SECONDS)
        assert second.status == "completed"
        roles = [message.role for message in await sf.messages(run.id)]
    assert roles == ["user", "assistant", "tool_result", "user", "note", "assistant"]
    assert "outcome of this call was not known" in str(model.requests[1].messages[2])
    assert "echo-1" in str(model.requests[1].messages[-1])


async def test_a_run_that_nobody_here_knows_keeps_its_version_and_limits(store_url: str) -> None:
    agent, _ = _agent([LOOK], turns=1, version="7")
    async with Surefoot(store_url, [agent], worker=True) as sf:
        run = await sf.wait((await sf.start("reader", "go")).id, timeout=WAIT_SECONDS)
    async with Surefoot(store_url) as sf:
        again = await sf.retry(run.id)
        row = (await sf.store.run("default", again.id)).run
        assert (row.agent_version, row.limits, row.turns) == ("7", Limits(turns_max=1), 0)


async def test_what_cannot_be_taken_up(store_url: str) -> None:
    agent, _ = _agent([LOOK, [("ask_person", {"question": "?"})], "done", "again"], turns=1)
    patient, _ = _agent([LOOK, [("ask_person", {"question": "?"})], "done"])
    patient.name = "patient"
    async with Surefoot(store_url, [agent, patient], worker=True) as sf:
        asked = await sf.wait((await sf.start("patient", "go")).id, timeout=WAIT_SECONDS)
        assert await _code(sf.retry(asked.id)) == "run_under_way"
        await sf.answer(asked.pending_actions[0].id, "yes", by="ann")
        done = await sf.wait(asked.id, timeout=WAIT_SECONDS)
        assert await _code(sf.retry(done.id)) == "run_completed"
        failed = await sf.wait((await sf.start("reader", "go")).id, timeout=WAIT_SECONDS)
        other = await sf.start("patient", "on", conversation_id=failed.conversation_id)
        other = await sf.wait(other.id, timeout=WAIT_SECONDS)
        assert await _code(sf.retry(failed.id)) == "conversation_moved_on"
        with pytest.raises(NotFound):
            await sf.retry("run_none")
        performed = await sf.perform(look.call(), key="1")
        assert performed.output == "seen"
        (row,) = await sf.store.runs("default", status=None, agent="look", before=None, limit=9)
        with pytest.raises(InvalidInput):
            await sf.retry(row.run.id)
