"""Decisions about approvals: C020, C021 and C025."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from surefoot.agent.model import ToolResultMessage, UserMessage
from tests.cases.rig import Hand, Live, Sim, all_events, calls_of, code_of, comment, ended, post_comment, story

SECONDS = 20


async def test_c020_a_rejected_call_is_not_executed(live: Live, hand: Hand) -> None:
    async with live.surefoot(live.agent([[comment("Never.")], "done"], post_comment(gated=True))) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, timeout=SECONDS)
        await hand.reject(run.pending_actions[0].id)
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    (step,) = calls_of(run)
    assert (run.status, step.status, step.error_code, step.attempt) == ("completed", "failed", "rejected", 0)
    assert live.posts() == []
    told = live.models[0].requests[1].messages[-1]
    assert isinstance(told, ToolResultMessage) and told.is_error and "refused" in told.content


@story
async def test_c021_of_a_hundred_decisions_at_once_one_is_taken(sim: Sim) -> None:
    agent = sim.agent([[comment("Once.")], "done"], post_comment(gated=True))
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(sim.surefoot(agent))
        run = await one.wait((await one.start("reviewer", "Review it.")).id)
        action_id = run.pending_actions[0].id
        others = [await stack.enter_async_context(sim.surefoot(agent, worker=False)) for _ in range(4)]
        choices = [(others[n % 4].approve if n % 3 else others[n % 4].reject) for n in range(100)]
        codes = await asyncio.gather(*(code_of(c(action_id, by=f"p{n}")) for n, c in enumerate(choices)))
        assert Counter(codes) == {None: 1, "already_decided": 99}
        run = await one.wait(run.id, until=ended)
        decided = [e for e in await all_events(one, run.id) if e.type == "action_decided"]
        taken = choices[codes.index(None)].__name__
        assert [e.data["decision"] for e in decided] == [taken]
        assert len(sim.posts()) == len(sim.bodies()) == (1 if taken == "approve" else 0)


async def test_c021_python_and_the_command_line_at_once(live: Live) -> None:
    async with live.surefoot(live.agent([[comment("Once.")], "done"], post_comment(gated=True))) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, timeout=SECONDS)
        action_id = run.pending_actions[0].id
        verbs = ["approve", "reject"] * 3
        shells = [code_of(live.shell("actions", verb, action_id, "--by", f"s{n}")) for n, verb in enumerate(verbs)]
        asked = [asyncio.ensure_future(shell) for shell in shells]
        programs = [await code_of(sf.approve("act_none", by="p")) for _ in range(3)]
        codes = await asyncio.gather(*asked)
        codes.append(await code_of(sf.reject(action_id, by="late")))
        assert Counter(codes) == {None: 1, "already_decided": 6} and programs == ["not_found"] * 3
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
        decided = [e for e in await all_events(sf, run.id) if e.type == "action_decided"]
    assert len(decided) == 1
    assert len(live.bodies()) == (1 if decided[0].data["decision"] == "approve" else 0)


async def test_c021_the_same_decision_under_its_key_is_answered_again(live: Live, hand: Hand) -> None:
    async with live.surefoot(live.agent([[comment("Once.")], "done"], post_comment(gated=True))) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, timeout=SECONDS)
        action_id = run.pending_actions[0].id
        assert [await code_of(hand.approve(action_id, "--key", "k1")) for _ in range(2)] == [None, None]
        assert await code_of(hand.approve(action_id, "--key", "k2")) == "already_decided"
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
        decided = [e for e in await all_events(sf, run.id) if e.type == "action_decided"]
    assert len(decided) == len(live.bodies()) == 1


async def test_c025_a_message_while_a_call_waits_decides_nothing(live: Live, hand: Hand) -> None:
    """The call waits on; the message takes its place behind the call's result."""
    async with live.surefoot(live.agent([[comment("Too long.")], "done"], post_comment(gated=True))) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, timeout=SECONDS)
        (action,) = run.pending_actions
        await hand.message(run.id, "make it shorter")
        run = await sf.snapshot(run.id)
        assert run.status == "waiting_for_user" and run.pending_actions == [action]
        assert len(live.models[0].requests) == 1 and live.posts() == []
        await hand.reject(action.id)
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    assert run.status == "completed" and live.posts() == []
    *_, result, message = live.models[0].requests[1].messages
    assert isinstance(result, ToolResultMessage) and message == UserMessage("make it shorter")


async def test_c025_the_old_call_runs_by_a_decision_of_its_own_alone(live: Live, hand: Hand) -> None:
    async with live.surefoot(live.agent([[comment("Too long.")], "done"], post_comment(gated=True))) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, timeout=SECONDS)
        await hand.message(run.id, "yes, approve it")
        assert (await sf.snapshot(run.id)).status == "waiting_for_user" and live.posts() == []
        await hand.approve(run.pending_actions[0].id)
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    assert calls_of(run)[0].status == "succeeded" and live.bodies() == ["Too long."]
    assert live.models[0].requests[1].messages[-1] == UserMessage("yes, approve it")
