"""The same evidence by two roads, in both orders, at once, and after the run's end: C031."""

from __future__ import annotations

import pytest

from surefoot import Found, Receipt, Surefoot
from surefoot.snapshot import RunEvent, RunSnapshot
from surefoot.testing import faults as f
from tests.cases.rig import COMMENTS, Sim, all_events, calls_of, comment, ended, post_comment, story


def _made(sim: Sim, run: RunSnapshot) -> tuple[str, Found]:
    """The step's key, and what stands outside under it as somebody else would tell it."""
    (step,) = calls_of(run)
    (effect,) = sim.ours(step.operation_key)
    assert step.operation_key is not None
    receipt = Receipt(resource_id=str(effect.resource_id), url=f"https://github.example/{effect.resource_id}")
    return step.operation_key, Found(receipt, coverage="a webhook")


async def _all(sf: Surefoot, run_id: str) -> tuple[list[RunEvent], list[object], RunSnapshot]:
    """Everything that the second arrival must leave as it is."""
    return await all_events(sf, run_id), list(await sf.messages(run_id)), await sf.snapshot(run_id)


async def _nothing_changes(sim: Sim, sf: Surefoot, run_id: str, key: str, evidence: Found) -> None:
    before = await _all(sf, run_id)
    assert "found" in [line.verdict for line in calls_of(before[2])[0].evidence], "the first arrival is kept"
    assert await sf.report(key, evidence) is False and await sf.report(key, evidence) is False
    await sim.pass_time(90_000)  # every later look that might be owed
    after = await _all(sf, run_id)
    assert after == before
    results = [e for e in after[0] if e.type == "message_appended" and e.data["role"] == "tool_result"]
    assert len(results) == len(sim.posts()) == 1


@story
async def test_c031_first_the_lookup_then_the_report(sim: Sim) -> None:
    sim.fault(f.LostReply())
    agent = sim.agent([[comment("Once.")], "done"], post_comment())
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, until=ended)
        (step,) = calls_of(run)
        assert (run.status, step.resolution, step.evidence[-1].source) == ("completed", "found", "lookup")
        await _nothing_changes(sim, sf, run.id, *_made(sim, run))


@story
async def test_c031_first_the_report_then_the_lookup(sim: Sim) -> None:
    """The lookup reads while the report is written down: what it finds is known by then."""
    sim.fault(f.LostReply())
    sim.fault(f.Delay(seconds=3.0), "GET", COMMENTS)
    agent = sim.agent([[comment("Once.")], "done"], post_comment())
    async with sim.surefoot(agent) as sf:
        run = await sf.start("reviewer", "Review it.")
        await sim.until(lambda: sim.looks())
        key, evidence = _made(sim, await sf.snapshot(run.id))
        assert await sf.report(key, evidence) is True
        run = await sf.wait(run.id, until=ended)
        (step,) = calls_of(run)
        assert (run.status, step.resolution) == ("completed", "found") and len(sim.looks()) == 1
        assert [line.source for line in step.evidence if line.verdict == "found"] == ["report"]
        await _nothing_changes(sim, sf, run.id, key, evidence)


@pytest.mark.parametrize("report_first", [True, False])
@story
async def test_c031_both_orders_after_the_run_was_cancelled(sim: Sim, report_first: bool) -> None:
    sim.fault(f.LostReply())
    sim.fault(f.StatusBefore(500), "GET", COMMENTS, times=None if report_first else 1)
    agent = sim.agent([[comment("Once.")], "done"], post_comment())
    async with sim.surefoot(agent) as sf:
        run = await sf.start("reviewer", "Review it.")
        await sim.until(lambda: sim.looks())
        assert len(await sf.cancel(run.id)) == 1
        key, evidence = _made(sim, await sf.snapshot(run.id))
        if report_first:
            assert await sf.report(key, evidence) is True
            sim.world.faults.clear()
        run = await sf.wait(run.id, until=lambda s: calls_of(s)[0].status == "succeeded", timeout=600)
        assert run.status == "cancelled"
        assert calls_of(run)[0].evidence[-1].source == ("report" if report_first else "lookup")
        await _nothing_changes(sim, sf, run.id, key, evidence)


@story
async def test_c031_a_link_alone_twice_is_one_evidence(sim: Sim) -> None:
    """Who reports may know the link only: the second time it is the same link."""
    sim.fault(f.LostReply())
    sim.fault(f.StatusBefore(500), "GET", COMMENTS, times=None)
    agent = sim.agent([[comment("Once.")], "done"], post_comment())
    async with sim.surefoot(agent) as sf:
        run = await sf.start("reviewer", "Review it.")
        await sim.until(lambda: sim.looks())
        key, told = _made(sim, await sf.snapshot(run.id))
        evidence = Found(Receipt(url=told.receipt.url))
        assert await sf.report(key, evidence) is True
        run = await sf.wait(run.id, until=ended)
        assert run.status == "completed"
        await _nothing_changes(sim, sf, run.id, key, evidence)


@story
async def test_c031_a_known_effect_with_a_second_one_beside_it_is_news(sim: Sim) -> None:
    sim.fault(f.LostReply())
    sim.broken = {"I1"}  # the second one is made up
    agent = sim.agent([[comment("Once.")], "done"], post_comment())
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, until=ended)
        key, evidence = _made(sim, run)
        two = Found(evidence.receipt, also=(Receipt(resource_id="another"),))
        assert await sf.report(key, two) is True and await sf.report(key, two) is False
        (question,) = (await sf.snapshot(run.id)).pending_actions
        assert question.kind == "duplicate"
