"""Cancel: C032 to C035."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Operation, Receipt, effects, http, tool
from surefoot.agent.tools import Tool
from surefoot.connectors import github
from surefoot.effects import Refused, Verdict
from surefoot.snapshot import RunSnapshot
from surefoot.testing import faults as f
from surefoot.testing.world import TOKEN
from tests.cases.rig import (
    NUMBER,
    READ,
    REPO,
    Hand,
    Live,
    Script,
    Sim,
    all_events,
    calls_of,
    code_of,
    comment,
    ended,
    object_of,
    post_comment,
    read_pull,
    story,
)
from tests.support import eventually

SECONDS = 20


def settled(run: RunSnapshot) -> bool:
    """The run has ended, and nothing of it is running or in doubt."""
    return ended(run) and not any(s.status in ("running", "outcome_unknown", "pending") for s in run.steps)


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not_applied"])
async def test_c032_a_cancelled_runs_call_does_not_stay_running(live: Live, hand: Hand, applied: bool) -> None:
    live.fault(f.Hang(applied=applied))
    script: Script = [[comment("Under way.")], "done"]
    child = await live.child({"store": live.url, "script": script, "start": "Review it.", "settle": 0.5})
    assert await child.line() == "started"
    run_id = await child.line()
    async with live.surefoot(worker=False) as watcher:
        await eventually(live.posts)
        await hand.cancel(run_id)
        run = await watcher.snapshot(run_id)
        assert (run.status, calls_of(run)[0].status) == ("cancelled", "running")
        await child.kill()
        async with live.surefoot(live.agent(script, post_comment(settle=0.5))):
            run = await watcher.wait(run_id, until=settled, timeout=SECONDS)
        assert await code_of(hand.cancel(run_id)) == "run_ended"
    (step,) = calls_of(run)
    wanted = ("succeeded", "found", None) if applied else ("failed", "not_applied", "not_applied")
    assert (run.status, (step.status, step.resolution, step.error_code)) == ("cancelled", wanted)
    assert len(live.posts()) == 1 and len(live.ours(step.operation_key)) == (1 if applied else 0)
    assert live.models[0].requests == []


async def find_stubborn(op: Operation, body: str) -> Verdict:
    """As the shipped tool looks."""
    return await github.find_issue_comment(op, REPO, NUMBER, body)


def stubborn(seconds: float, *, posts: bool) -> Tool:
    """A tool that does not stop when told to: it goes on for `seconds`, with its effect made at once or never."""

    @tool(name="stubborn", effect=effects.lookup(find_stubborn, settle=5), timeout=30)
    async def call(op: Operation, body: str) -> Receipt:
        """Comment, then hang."""
        made = await github.create_issue_comment(op, REPO, NUMBER, body) if posts else None
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0:
            over: asyncio.Future[None] = loop.create_future()
            timer = loop.call_later(left, _set, over)
            try:
                await over
            except asyncio.CancelledError:
                continue
            finally:
                timer.cancel()
        if made is None:
            raise Refused("it was never sent")
        return made

    return call


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@pytest.mark.parametrize("posts", [True, False], ids=["with_effect", "without"])
def test_c033_a_call_that_does_not_stop_is_left_and_settled(sim: Sim, posts: bool) -> None:
    """Cancel ends the run at once. The step leaves `running` after its time-out and the grace; what the call did is
    found; nothing is concluded absent while it may still act."""

    @story
    async def play(sim: Sim) -> None:
        call = stubborn(600, posts=posts)
        agent = sim.agent([[("stubborn", {"body": "Stubborn."})], "done"], call)
        async with sim.surefoot(agent) as sf:
            run = await sf.start("reviewer", "Review it.")
            await sim.pass_time(10)
            begun = sim.machine.clock.elapsed
            assert len(await sf.cancel(run.id, by="ann")) == 1
            run = await sf.snapshot(run.id)
            assert run.status == "cancelled" and sim.machine.clock.elapsed == begun
            await sim.pass_time(45)
            (step,) = calls_of(await sf.snapshot(run.id))
            assert step.status == ("succeeded" if posts else "outcome_unknown"), "30 s, then 2 s of grace"
            assert sf.worker is not None and sf.worker.unhealthy and sf.worker.free == 0
            await sim.pass_time(600)
            run = await sf.snapshot(run.id)
        (step,) = calls_of(run)
        made = sim.ours(step.operation_key)
        assert step.status == ("succeeded" if posts else "failed")
        if posts:
            assert step.external_resource_id == str(made[0].resource_id)
        assert (run.status, len(sim.posts()), len(made)) == ("cancelled", int(posts), int(posts))
        assert len(sim.models[0].requests) == 1

    play(sim=sim)


@story
async def test_c033_the_heartbeat_of_a_stuck_call_does_not_keep_a_run_for_ever(sim: Sim) -> None:
    """A worker with such a call is replaced; the next one settles what it left, and the run goes on."""
    call = stubborn(1e9, posts=True)
    agent = sim.agent([[("stubborn", {"body": "Stubborn."})], "done"], call)
    worker = sim.worker(agent)
    async with sim.surefoot(agent, worker=False) as sf:
        run = await sf.start("reviewer", "Review it.")
        run = await sf.wait(run.id, until=lambda r: calls_of(r)[:1] != [] and calls_of(r)[0].status == "succeeded")
        assert sim.machine.clock.elapsed < 60
        worker.kill()
        sim.worker(agent, name="its replacement")
        run = await sf.wait(run.id, until=ended)
    assert run.status == "completed" and len(sim.posts()) == len(sim.bodies()) == 1


def held_back(go: asyncio.Event) -> Tool:
    """The shipped tool, but its success is known to the runtime once the test says so."""

    @tool(name="post_late", effect=effects.lookup(find_stubborn, settle=5), timeout=60)
    async def call(op: Operation, body: str) -> Receipt:
        """Comment, and take long to answer."""
        made = await github.create_issue_comment(op, REPO, NUMBER, body)
        await go.wait()
        return made

    return call


async def test_c034_a_late_success_does_not_undo_a_cancel(live: Live, hand: Hand) -> None:
    go = asyncio.Event()
    agent = live.agent([[("post_late", {"body": "Late."}), READ], "done"], held_back(go), read_pull)
    async with live.surefoot(agent) as sf:
        run = await sf.start("reviewer", "Review it.")
        await eventually(live.bodies)
        answer = await hand.cancel(run.id)
        go.set()
        run = await sf.wait(run.id, until=settled, timeout=SECONDS)
        events = await all_events(sf, run.id)
    step = calls_of(run)[0]
    (effect,) = live.ours(step.operation_key)
    assert step.id in str(answer), "the acknowledgement lists what may have been sent"
    assert (run.status, step.status) == ("cancelled", "succeeded")
    assert step.external_resource_id == str(effect.resource_id)
    types = [e.type for e in events]
    assert [t for t in types if t in ("run_completed", "run_failed", "run_cancelled")] == ["run_cancelled"]
    assert types.index("receipt_recorded") > types.index("run_cancelled")
    assert "step_started" not in types[types.index("run_cancelled") :]
    assert len(live.models[0].requests) == 1 and len(live.posts()) == 1


@story
async def test_c034_in_virtual_time_with_five_seconds(sim: Sim) -> None:
    sim.fault(f.Delay(5))
    async with sim.surefoot(sim.agent([[comment("Late.")], "done"], post_comment())) as sf:
        run = await sf.start("reviewer", "Review it.")
        await sim.until(sim.posts)
        await sf.cancel(run.id, by="ann")
        (step,) = calls_of(await sf.snapshot(run.id))
        assert step.status == "running"
        await sim.pass_time(6)
        run = await sf.snapshot(run.id)
    (step,) = calls_of(run)
    (effect,) = sim.ours(step.operation_key)
    assert (run.status, step.status, step.external_resource_id) == ("cancelled", "succeeded", str(effect.resource_id))
    assert len(sim.posts()) == len(sim.models[0].requests) == 1


@tool(effect=effects.opaque, timeout=15)
async def ring(op: Operation, text: str) -> Receipt:
    """Something that nobody can look up."""
    async with http.client(op, base_url="https://bell.example") as client:
        headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": op.key}
        reply = await client.post("/mail/messages", json={"to": "bell", "text": text}, headers=headers)
    return Receipt(resource_id=str(object_of(reply)["id"]))


KINDS = ("a call that may have been sent", "a read", "an approved call", "a model call")


@pytest.mark.parametrize("kind", KINDS)
def test_c035_no_attempt_begins_after_a_cancel_was_acknowledged(sim: Sim, kind: str) -> None:
    """Fifty interleavings of a takeover and a cancel for each kind of step that the takeover might begin."""

    @story
    async def play(sim: Sim) -> None:
        won = [await reclaim_and_cancel(sim, kind, turns) for turns in range(50)]
        assert any(won), "the takeover came first at least once"
        assert not all(won), "the cancel came first at least once"

    play(sim=sim)


async def reclaim_and_cancel(sim: Sim, kind: str, turns: int) -> bool:
    """One interleaving: the cancel is asked for `turns` rounds of the loop after the new worker opened its eyes.

    Returns whether the new owner had written anything before.
    """
    gated = kind == KINDS[2]
    script: Script = [[("ring", {"text": str(turns)})], "done"] if kind in (KINDS[0], KINDS[2]) else [[READ], "done"]
    bell = ring.using(approval="always") if gated else ring
    agent = sim.agent(script, bell, read_pull)
    if kind == KINDS[3]:
        agent = sim.agent([hanging_forever], read_pull)
    sim.world.faults.clear()
    sim.fault(f.Hang(), "GET", "**/pulls/**")
    sim.fault(f.Hang(), "POST", "/mail/messages", times=0 if gated else 1)
    old = sim.worker(agent, name=f"old {turns}", lease_seconds=5)
    async with sim.surefoot(agent, worker=False) as sf:
        run = await sf.start("reviewer", "Go.")
        if gated:
            run = await sf.wait(run.id)
            old.kill()
            await sf.approve(run.pending_actions[0].id, by="ann")
        else:
            await sf.wait(run.id, until=lambda r: r.steps != [] and r.steps[-1].status == "running")
            await sim.pass_time(0.1)
            old.kill()
        await sim.pass_time(0.01)
        new = sim.surefoot(agent, lease_seconds=5)
        opening = asyncio.ensure_future(new.__aenter__())
        await sim.turn(turns)
        await sf.cancel(run.id, by="ann")
        acknowledged = len(sim.world.requests())
        at = len(await all_events(sf, run.id))
        await opening
        await sim.pass_time(7)
        events = await all_events(sf, run.id)
        await new.close()
    late = [e for e in events[at:] if e.type == "step_started"]
    assert not late, f"{turns}: an attempt began after the cancel"
    sent = [r for r in sim.world.requests()[acknowledged:] if r.method != "GET"]
    begun = [e for e in events if e.type == "step_started" and int(str(e.data["token"])) > 1]
    recovered = [e for e in events[:at] if e.type == "step_outcome_unknown"]
    # A call whose intent came first counts as possibly sent, and its bytes may leave a moment later.
    assert len(sent) <= len(begun), f"{turns}: sent after the cancel"
    return bool(begun or recovered)


async def hanging_forever(request: object) -> str:
    """A model call that takes its time."""
    await asyncio.get_running_loop().create_future()
    return "never"
