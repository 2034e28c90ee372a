"""A call that a run works on is that run's, also where the code of now means something else by the tool's name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from surefoot import Agent, Surefoot, ask_person, effects, tool
from surefoot.agent.model import ToolResultMessage
from surefoot.agent.tools import Tool
from surefoot.testing.model import FakeModel

WAIT_SECONDS = 30.0


def _plain() -> Tool:
    @tool(effect=effects.read, name="write")
    async def write(task: str) -> str:
        """Write it, without an agent."""
        return "written by no agent"

    return write


def _of_another_agent() -> Tool:
    return Agent("poet", FakeModel(["written by the poet"])).as_tool(name="write")


@pytest.mark.parametrize("changed", [_plain, _of_another_agent])
async def test_a_call_has_the_end_of_the_run_that_works_on_it(store_url: str, changed: Callable[[], Tool]) -> None:
    """It was refused as not executed, while the run went on by itself and did what it had to do."""
    writer = Agent("writer", FakeModel([[("ask_person", {"question": "Which one?"})], "roses"]), tools=[ask_person])
    model = FakeModel([[("write", {"task": "A line."})], "Published."])
    then = Agent("editor", model, tools=[writer.as_tool(name="write")])
    async with Surefoot(store_url, [then], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(then, "A poem.")).id, timeout=WAIT_SECONDS)
        (question,) = run.pending_actions
    now = Agent("editor", model, tools=[changed()])
    async with Surefoot(store_url, [now, writer], worker=True, log=lambda line: None) as sf:
        await sf.answer(question.id, "the short one", by="ann")
        run = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert len(await sf.store.children(sf.tenant, run.id)) == 1
    assert (run.status, run.steps[1].status, run.steps[1].error_code) == ("completed", "succeeded", None)
    assert [m.content for m in model.requests[-1].messages if isinstance(m, ToolResultMessage)] == ["roses"]
