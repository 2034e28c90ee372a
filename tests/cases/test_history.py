"""Open calls at a crash: C030."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from surefoot.testing import faults as f
from tests.cases.rig import COMMENTS, Live, Sim, all_events, calls_of, comment, ended, post_comment, story
from tests.support import eventually

FOUR = [comment(f"Comment {number}.") for number in range(4)]


async def test_c030_two_workers_close_four_open_calls_once(live: Live) -> None:
    live.fault(f.Hang(applied=True), times=2)
    live.fault(f.Hang(), nth=3, times=2)
    child = await live.child({"store": live.url, "script": [FOUR, "done"], "start": "Review it.", "settle": 1})
    assert await child.line() == "started"
    run_id = await child.line()
    async with AsyncExitStack() as stack:
        watcher = await stack.enter_async_context(live.surefoot(worker=False))
        await eventually(lambda: len(live.posts()) == 4)
        await child.kill()
        agent = live.agent([FOUR, "done"], post_comment(settle=1))
        workers = [live.surefoot(agent), live.surefoot(agent)]
        await asyncio.gather(*(stack.enter_async_context(worker) for worker in workers))
        run = await watcher.wait(run_id, until=ended, timeout=20)
        events = await all_events(watcher, run_id)
    steps = calls_of(run)
    assert run.status == "completed" and sorted(live.bodies()) == [f"Comment {n}." for n in range(4)]
    assert [(s.status, len(live.ours(s.operation_key))) for s in steps] == [("succeeded", 1)] * 4
    results = [e.data["call_id"] for e in events if e.type == "message_appended" and e.data["role"] == "tool_result"]
    assert sorted(str(r) for r in results) == sorted(str(s.call_id) for s in steps)
    assert len([e for e in events if e.type == "step_outcome_unknown" and e.data["code"] == "worker_died"]) == 4
    assert sum(len(model.requests) for model in live.models) == 1
    assert {e.data["token"] for e in events if e.type == "step_started"} == {1, 2}, "one of the two took the run"


@story
async def test_c030_a_second_owner_changes_nothing(sim: Sim) -> None:
    """The old owner wakes while the new one recovers; every call still has one result."""
    sim.fault(f.Hang(applied=True), path=COMMENTS, times=None)
    agent = sim.agent([FOUR, "done"], post_comment(settle=5))
    old = sim.worker(agent, name="old", lease_seconds=6)
    async with sim.surefoot(agent, worker=False) as sf:
        run = await sf.start("reviewer", "Review it.")
        await sim.until(lambda: len(sim.posts()) == 4)
        old.freeze()
        sim.worker(agent, name="new", lease_seconds=6)
        await sim.until(lambda: sim.looks())
        old.thaw()
        run = await sf.wait(run.id, until=ended)
        events = await all_events(sf, run.id)
    assert run.status == "completed" and len(sim.posts()) == len(sim.bodies()) == 4
    results = [e for e in events if e.type == "message_appended" and e.data["role"] == "tool_result"]
    assert len(results) == 4 and {s.resolution for s in calls_of(run)} == {"found"}
