"""Parallel calls with mixed approvals: C026 to C028."""

from __future__ import annotations

import msgspec

from surefoot import effects, tool
from surefoot.agent.model import AssistantMessage, ModelRequest, ToolResultMessage, UserMessage
from tests.cases.rig import READ, Hand, Live, Script, calls_of, comment, ended, post_comment, read_pull

SECONDS = 20


def batch_of(request: ModelRequest) -> list[str]:
    """The contents of the results that stand directly behind the last calls, which they answer in their order."""
    places = [n for n, m in enumerate(request.messages) if isinstance(m, AssistantMessage) and m.calls]
    calls = request.messages[places[-1]]
    assert isinstance(calls, AssistantMessage)
    results = request.messages[places[-1] + 1 : places[-1] + 1 + len(calls.calls)]
    assert all(isinstance(r, ToolResultMessage) for r in results)
    assert [r.wire_id for r in results if isinstance(r, ToolResultMessage)] == [c.wire_id for c in calls.calls]
    assert sum(isinstance(m, ToolResultMessage) for m in request.messages) == len(calls.calls)
    return [r.content for r in results if isinstance(r, ToolResultMessage)]


async def test_c026_the_free_sibling_of_a_gated_call_keeps_its_result(live: Live, hand: Hand) -> None:
    script: Script = [[comment("Gated."), READ], "done"]
    tools = [post_comment(gated=True), read_pull]
    async with live.surefoot(live.agent(script, *tools)) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, timeout=SECONDS)
        assert [s.status for s in calls_of(run)] == ["waiting_for_approval", "succeeded"]
    reads = live.world.requests("GET", "**/pulls/**")
    await hand.approve(run.pending_actions[0].id)
    async with live.surefoot(live.agent(script, *tools)) as sf:
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    gated, read = batch_of(live.models[1].requests[0])
    assert run.status == "completed" and live.bodies() == ["Gated."]
    assert "issuecomment" in gated and "head_sha" in read
    assert [s.attempt for s in calls_of(run)] == [1, 1]
    assert reads and live.world.requests("GET", "**/pulls/**") == reads, "the read ran once"


@tool(effect=effects.read)
def look_at_picture() -> dict[str, object]:
    """Return a picture with a text beside it."""
    return {"text": "A picture.", "image": b"\x89PNG\r\n\x1a\n" * 100}


async def test_c027_nothing_comes_between_the_results_of_a_batch(live: Live, hand: Hand) -> None:
    script: Script = [[("look_at_picture", {}), comment("Gated.")], "done"]
    async with live.surefoot(live.agent(script, look_at_picture, post_comment(gated=True))) as sf:
        run = await sf.wait((await sf.start("reviewer", "Look at it.")).id, timeout=SECONDS)
        await hand.message(run.id, "And hurry up.")
        await hand.approve(run.pending_actions[0].id)
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    assert run.status == "completed" and len(live.bodies()) == 1
    request = live.models[0].requests[1]
    picture, posted = batch_of(request)
    assert msgspec.json.decode(picture)["text"] == "A picture." and "issuecomment" in posted
    assert request.messages[-1] == UserMessage("And hurry up."), "what else there is comes behind the batch"


async def test_c028_rejecting_one_call_leaves_the_other_alone(live: Live, hand: Hand) -> None:
    script: Script = [[comment("Gated."), READ], "done"]
    async with live.surefoot(live.agent(script, post_comment(gated=True), read_pull)) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, timeout=SECONDS)
        await hand.reject(run.pending_actions[0].id)
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    refused, read = batch_of(live.models[0].requests[1])
    assert "refused" in refused and "head_sha" in read
    assert run.status == "completed" and live.posts() == []
    assert [(s.status, s.error_code) for s in calls_of(run)] == [("failed", "rejected"), ("succeeded", None)]
