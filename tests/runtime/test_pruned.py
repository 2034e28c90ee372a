"""Runs that are pruned while others still wait for what they came to."""

from __future__ import annotations

from surefoot import Agent, Operation, Receipt, Surefoot, ask_person, effects, tool
from surefoot.testing.model import FakeModel, Step
from tests.runtime.mailing import clerk

WAIT_SECONDS = 30.0


async def _pruned(sf: Surefoot) -> int:
    """How many runs went, of all that have ended by now."""
    wall = sf.store.now().wall + 60.0
    return (await sf.store.prune(sf.tenant, wall, blobs_before=wall))["runs"]


async def test_a_run_that_works_for_another_stays_until_that_one_has_ended(store_url: str) -> None:
    """Its caller, not told of its end yet, would have had the work done a second time."""
    sent: list[str] = []

    @tool(effect=effects.opaque)
    async def post(op: Operation) -> Receipt:
        """Post it."""
        sent.append(op.key)
        return Receipt(resource_id="p-1")

    script: list[Step] = [[("ask_person", {"question": "Now?"})], [("post", {})], "posted"]
    writer = Agent("writer", FakeModel([*script, *script]), tools=[ask_person, post])
    editor = Agent("editor", FakeModel([[("writer", {"task": "Post it."})], "Published."]), tools=[writer])
    async with Surefoot(store_url, [editor], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(editor, "Post it.")).id, timeout=WAIT_SECONDS)
        (question,) = run.pending_actions
    # The code of the caller is away for a while.
    async with Surefoot(store_url, [writer], worker=True, log=lambda line: None) as sf:
        await sf.answer(question.id, "yes", by="ann")
        assert (await sf.wait(question.run_id, timeout=WAIT_SECONDS)).status == "completed"
        assert await _pruned(sf) == 0
    async with Surefoot(store_url, [editor], worker=True, log=lambda line: None) as sf:
        run = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert (run.status, run.steps[1].status, len(sent)) == ("completed", "succeeded", 1)
        assert await _pruned(sf) == 2


async def test_a_call_that_waits_for_a_forgotten_one_under_its_key_is_not_sent(store_url: str) -> None:
    sent: list[str] = []
    agent = clerk(sent)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        first = await sf.wait((await sf.start(agent, "Mail it.")).id, timeout=WAIT_SECONDS)
        second = await sf.start(agent, "Mail it too.")
        second = await sf.wait(
            second.id, until=lambda s: any(x.error_code == "waits_for_owner" for x in s.steps), timeout=WAIT_SECONDS
        )
    async with Surefoot(store_url, log=lambda line: None) as person:
        await person.resolve(first.pending_actions[0].id, "happened", external_resource_id="m-1", by="ann")
        await person.cancel(first.id)
        assert await _pruned(person) == 1
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        second = await sf.wait(second.id, timeout=WAIT_SECONDS)
    assert (second.status, second.steps[1].error_code) == ("completed", "owner_given_up")
    assert sent == ["mail:81"]
