"""What an approval is bound to: C015 to C019."""

from __future__ import annotations

import pytest

from surefoot import Approval, Surefoot
from surefoot.connectors import github
from surefoot.snapshot import RunSnapshot
from tests.cases.rig import (
    Case,
    Hand,
    Live,
    Script,
    all_events,
    calls_of,
    code_of,
    comment,
    ended,
    post_comment,
)

SECONDS = 20


async def waiting_run(case: Case, sf: Surefoot, text: str = "Review it.") -> RunSnapshot:
    """A run that waits for its first approval."""
    run = await sf.wait((await sf.start("reviewer", text)).id, timeout=SECONDS)
    assert run.status == "waiting_for_user" and case.posts() == []
    return run


async def test_c015_what_was_approved_runs_whatever_the_model_would_say_now(live: Live, hand: Hand) -> None:
    first = live.agent([[comment("reviewed-value")], "done"], post_comment(gated=True))
    async with live.surefoot(first) as sf:
        run = await waiting_run(live, sf)
    await hand.approve(run.pending_actions[0].id)
    again = live.agent([[comment("changed-value")], "done"], post_comment(gated=True))
    async with live.surefoot(again) as sf:
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    (step,) = calls_of(run)
    assert run.status == "completed" and live.bodies() == ["reviewed-value"]
    assert len(live.ours(step.operation_key)) == len(live.posts()) == 1
    (request,) = live.models[1].requests
    assert len(request.messages) == 3, "asked once, with the result"


async def test_c016_a_call_id_that_comes_again_brings_no_approval_with_it(live: Live, hand: Hand) -> None:
    """The same id with other content waits anew; an exact replay is shown as a repeat and not executed unasked."""
    gated, free = post_comment(gated=True), ("create_issue_comment", comment("First.")[1], "call_1")
    script: Script = [[free], [("create_issue_comment", comment("Second.")[1], "call_1")], [free], "done"]
    async with live.surefoot(live.agent(script, gated)) as sf:
        run = await waiting_run(live, sf)
        (one,) = run.pending_actions
        await hand.approve(one.id)
        run = await sf.wait(run.id, until=lambda r: asks_anew(r, one.id), timeout=SECONDS)
        (two,) = run.pending_actions
        assert live.bodies() == ["First."] and two.input_hash != one.input_hash
        assert await code_of(hand.approve(one.id)) == "already_decided"
        assert live.bodies() == ["First."]
        await hand.approve(two.id)
        run = await sf.wait(run.id, until=lambda r: asks_anew(r, one.id, two.id), timeout=SECONDS)
        (three,) = run.pending_actions
        assert live.bodies() == ["First.", "Second."] and "already done" in str(three.preview)
        await hand.reject(three.id)
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    assert run.status == "completed" and live.bodies() == ["First.", "Second."]
    assert len({step.call_id for step in calls_of(run)}) == 3


def asks_anew(run: RunSnapshot, *known: str) -> bool:
    """There is a question that was not there before."""
    return any(action.id not in known for action in run.pending_actions)


async def test_c016_a_replay_on_a_free_tool_is_asked_about_too(live: Live, hand: Hand) -> None:
    call = ("create_issue_comment", comment("First.")[1], "call_1")
    async with live.surefoot(live.agent([[call], [call], "done"], post_comment())) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, timeout=SECONDS)
        assert run.status == "waiting_for_user" and live.bodies() == ["First."]
        await hand.reject(run.pending_actions[0].id)
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    assert run.status == "completed" and live.bodies() == ["First."]


async def test_c017_a_decision_brings_nothing_but_itself(live: Live, hand: Hand) -> None:
    """Arguments are no part of a decision; one made on other content than the row's is refused."""
    async with live.surefoot(live.agent([[comment("Stored.")], "done"], post_comment(gated=True))) as sf:
        run = await waiting_run(live, sf)
        (action,) = run.pending_actions
        assert await code_of(hand.approve(action.id, "--hash", "0" * 64)) == "input_changed"
        assert await code_of(live.shell("actions", "approve", action.id, "--arguments", '{"body": "x"}')) == "wrong_use"
        assert await code_of(live.shell("actions", "approve", action.id, "--run", run.id)) == "wrong_use"
        with pytest.raises(TypeError):
            await sf.approve(action.id, by="ann", arguments={"body": "x"})  # type: ignore[call-arg]
        shown = action.arguments
        assert isinstance(shown, dict)
        shown["body"] = "Altered by the client."
        (still,) = (await sf.snapshot(run.id)).pending_actions
        assert still.status == "waiting" and live.posts() == []
        await hand.approve(action.id, "--hash", action.input_hash)
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    assert run.status == "completed" and live.bodies() == ["Stored."]


@pytest.mark.parametrize("now", ["no_need", "raises"])
async def test_c018_the_rule_is_not_asked_again_after_the_decision(live: Live, hand: Hand, now: str) -> None:
    asked: list[str] = []

    def when(body: str) -> bool:
        asked.append(body)
        if len(asked) > 1 and now == "raises":
            raise RuntimeError("the rule is broken now")
        return len(asked) == 1

    tool = github.create_issue_comment.using(approval=Approval(when=when), settle=5)
    agent = live.agent([[comment("Gated.")], "done"], tool)
    async with live.surefoot(agent) as sf:
        run = await waiting_run(live, sf)
    async with live.surefoot(agent) as sf:
        # Another worker looks at the run before the decision, too.
        assert (await sf.snapshot(run.id)).status == "waiting_for_user"
        await hand.approve(run.pending_actions[0].id)
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    assert run.status == "completed" and live.bodies() == ["Gated."] and asked == ["Gated."]


async def test_c019_a_decision_that_matches_nothing_pending_is_refused(live: Live, hand: Hand) -> None:
    script: Script = [[comment("Short-lived."), comment("Long-lived.", 404)], "done"]
    short = post_comment(gated=True, expires=0.4)
    agent = live.agent(script, short)
    foreign = Surefoot(live.url, [agent], worker=True, tenant="other", secret="x" * 32, log=live.lines.append)
    async with live.surefoot(agent) as sf, foreign:
        theirs = await foreign.wait((await foreign.start("reviewer", "Theirs.")).id, timeout=SECONDS)
        run = await sf.wait((await sf.start("reviewer", "Ours.")).id, timeout=SECONDS)
        assert await code_of(hand.approve("act_00000000000000000000000000")) == "not_found"
        assert await code_of(hand.approve(theirs.pending_actions[0].id)) == "not_found"
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
        rows = await sf.actions(run_id=run.id)
        assert [(r.action.status.value, r.action.why) for r in rows] == [("expired", "time")] * 2
        for row in rows:
            assert await code_of(hand.approve(row.action.id)) == "action_expired"
        events = await all_events(sf, run.id)
    assert live.posts() == [] and [s.error_code for s in calls_of(run)] == ["expired", "expired"]
    assert [e.data["why"] for e in events if e.type == "action_expired"] == ["time", "time"]
    assert not [e for e in events if e.type == "action_decided"]


async def test_c019_the_true_question_waits_on_and_the_refusal_is_logged(live: Live) -> None:
    async with live.surefoot(live.agent([[comment("Waiting.")], "done"], post_comment(gated=True))) as sf:
        run = await waiting_run(live, sf)
        (action,) = run.pending_actions
        assert await code_of(sf.approve("act_00000000000000000000000000", by="ann")) == "not_found"
        assert await code_of(sf.approve(action.id, by="ann", input_hash="0" * 64)) == "input_changed"
        refusals = [line for line in live.lines if "refused" in line]
        assert ["not_found" in refusals[0], "input_changed" in refusals[1]] == [True, True]
        assert (await sf.snapshot(run.id)).pending_actions == [action]
        await sf.approve(action.id, by="ann")
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    assert run.status == "completed" and live.bodies() == ["Waiting."]
