"""Start keys of users, and those that surefoot makes itself: nobody takes another's place."""

from __future__ import annotations

import msgspec
import pytest

from surefoot import Agent, Surefoot, ask_person
from surefoot.agent.model import ToolResultMessage
from surefoot.core.ids import operation_key, step_id
from surefoot.errors import InvalidInput, KeyReused
from surefoot.testing.model import FakeModel, Step

SECONDS = 30
FAILS: list[Step] = [[("ask_person", {"question": "Which?"})], "never"]


def _writer(*script: Step, turns: int = 100) -> Agent:
    return Agent("writer", FakeModel(script), tools=[ask_person], turns=turns)


@pytest.mark.parametrize(
    "key",
    [
        "retry:run_01hf7yat008tmjm0bv8wjpkrte",
        "schedule:nightly:2026-11-30T03:00:00Z",
        "perform:pay:invoice-81",
        "perform7:pay:invoice-81",
        "run_01hf7yat008tmjm0bv8wjpkrte:step_01hf7yat008tmjm0bv8wjpkrte_00002",
    ],
)
async def test_a_key_of_the_runtime_s_own_is_refused(store_url: str, key: str) -> None:
    async with Surefoot(store_url, [_writer("done")]) as sf:
        with pytest.raises(InvalidInput, match="another beginning") as refused:
            await sf.start("writer", "Write.", key=key)
        assert refused.value.code == "key_reserved"
        assert await sf.store.run_ids(sf.tenant) == []
        # What only looks a little like one is a key like any other.
        for free in (f"x{key}", "retry", "performance:1", "run_1:step"):
            await sf.start("writer", "Write.", key=free)


async def test_a_run_that_was_made_under_the_key_of_a_retry_is_not_taken_for_it(store_url: str) -> None:
    """In a store of before, when nothing was refused."""
    agent = _writer(*FAILS, turns=1)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        first = await sf.start(agent, "Write.")
        asked = await sf.wait(first.id, timeout=SECONDS)
        await sf.answer(asked.pending_actions[0].id, "this one", by="ann")
        first = await sf.wait(first.id, timeout=SECONDS)
        assert first.error_code == "turns_used_up"
        other, _ = await sf.begin(msgspec.structs.replace(sf.new_run(agent, "Other."), key=f"retry:{first.id}"))
        with pytest.raises(KeyReused):
            await sf.retry(first.id)
        assert other.conversation_id != first.conversation_id


async def test_a_run_that_was_made_under_the_key_of_a_call_is_not_its_child(store_url: str) -> None:
    """Its result would have been told as that of the call."""
    writer = _writer("a poem")
    stranger = Agent("stranger", FakeModel(["something else"]))
    boss = Agent("boss", FakeModel([[("writer", {"task": "Write."})], "thank you"]), tools=[writer])
    async with Surefoot(store_url, [boss, stranger]) as sf:
        run = await sf.start(boss, "go")
        key = operation_key(run.id, step_id(run.id, 2))
        await sf.begin(msgspec.structs.replace(sf.new_run(stranger, "Say."), key=key))
    async with Surefoot(store_url, [boss, stranger], worker=True, log=lambda line: None) as sf:
        run = await sf.wait(run.id, timeout=SECONDS)
    assert run.status == "completed"
    model = boss.models[0]
    assert isinstance(model, FakeModel)
    told = [m.content for m in model.requests[-1].messages if isinstance(m, ToolResultMessage)]
    assert len(told) == 1 and "something else" not in told[0]
