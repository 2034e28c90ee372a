"""A call without a result, a crash, a new message, then a summary of the history: C029."""

from __future__ import annotations

import pytest

from surefoot import Agent, Found, Receipt
from surefoot.agent.compaction import INSTRUCTIONS, NOT_KNOWN
from surefoot.agent.model import ModelRequest, NoteMessage
from surefoot.testing import faults as f
from surefoot.testing.histories import to_anthropic, to_openai, validate_anthropic, validate_openai
from surefoot.testing.model import FakeModel
from tests.cases.rig import COMMENTS, Sim, calls_of, comment, ended, post_comment, story

LONG = "I looked at all of it. " * 40
FAILURE = ("not executed", "was not applied", "failed:")


def _agent(sim: Sim) -> tuple[Agent, FakeModel]:
    model = FakeModel([[comment(LONG)], "SUMMARY", "shorter", "no more"], by="call")
    sim.models.append(model)
    return Agent("reviewer", model, "Review.", [post_comment()], history_tokens=200), model


def _judge(requests: list[ModelRequest], step_id: str) -> None:
    """Both providers take every history; the outcome is told as what it is, to who summarises and to who goes on."""
    _, summarised, went_on = requests
    for request in requests:
        assert validate_openai(to_openai(request.messages)) is None
        assert validate_anthropic(to_anthropic(request.messages)) is None
    assert summarised.instructions == INSTRUCTIONS and "utcome" in str(summarised.messages)
    assert "not known" in str(summarised.messages)
    opening = went_on.messages[0]
    assert isinstance(opening, NoteMessage) and "SUMMARY" in opening.text
    assert f"({step_id}): {NOT_KNOWN}" in opening.text
    assert went_on.messages[-1].text == "Make it shorter."  # type: ignore[union-attr]  # a user's message
    assert not any(word in str(request.messages) for word in FAILURE for request in requests)


@pytest.mark.parametrize("applied", [True, False])
@story
async def test_c029_a_crash_a_message_and_a_summary_in_one_run(sim: Sim, applied: bool) -> None:
    sim.fault(f.Hang(applied=applied), times=None)
    sim.fault(f.StatusBefore(403), "GET", COMMENTS, times=None)
    agent, model = _agent(sim)
    first = sim.worker(agent, name="first")
    async with sim.surefoot(agent, worker=False) as person:
        run = await person.start("reviewer", "Review it. " + LONG)
        await sim.until(lambda: sim.posts())
        first.kill()
        await person.message(run.id, "Make it shorter.")
        sim.worker(agent, name="second")
        asked = await person.wait(run.id, timeout=3_600)
        (question,) = asked.pending_actions
        await person.resolve(question.id, "give_up", by="ann")
        run = await person.wait(run.id, until=ended, timeout=3_600)
    assert run.status == "completed" and run.result == {"text": "shorter"}
    (step,) = calls_of(run)
    assert (step.status, step.resolution, len(sim.posts())) == ("outcome_unknown", "given_up", 1)
    _judge(model.requests, step.id)


@story
async def test_c029_a_crash_a_cancel_and_a_summary_in_the_next_run(sim: Sim) -> None:
    """What becomes known later stands in the list of what was done, whatever the summary says."""
    sim.fault(f.Hang(applied=True), times=None)
    sim.fault(f.StatusBefore(403), "GET", COMMENTS, times=None)
    agent, model = _agent(sim)
    first = sim.worker(agent, name="first")
    async with sim.surefoot(agent, worker=False) as person:
        run = await person.start("reviewer", "Review it. " + LONG)
        await sim.until(lambda: sim.posts())
        first.kill()
        assert await person.cancel(run.id) == (f"{run.id.replace('run_', 'step_')}_00002",)
        again = await person.start("reviewer", "Make it shorter.", conversation_id=run.conversation_id)
        sim.worker(agent, name="second")
        again = await person.wait(again.id, until=ended, timeout=3_600)
        (step,) = calls_of(await person.snapshot(run.id))
        assert again.status == "completed" and step.operation_key is not None
        _judge(model.requests, step.id)
        (made,) = sim.ours(step.operation_key)
        assert await person.report(step.operation_key, Found(Receipt(resource_id=str(made.resource_id))))
        await person.wait(run.id, until=lambda r: calls_of(r)[0].status == "succeeded", timeout=3_600)
        more = await person.start("reviewer", "And?", conversation_id=run.conversation_id)
        await person.wait(more.id, until=ended, timeout=3_600)
    assert f"- create_issue_comment acme/app#128: done, {made.resource_id}" in str(model.requests[3].messages[0])
    assert len(sim.posts()) == 1
