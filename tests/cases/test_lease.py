"""Leases and zombies: C036 to C040."""

from __future__ import annotations

import asyncio
import os
import signal

import msgspec
import pytest

from surefoot import Found, Operation, Receipt, Surefoot, effects, http, tool
from surefoot.agent.model import ModelNeedsPerson, ModelRequest
from surefoot.agent.tools import Tool
from surefoot.connectors import github
from surefoot.core.decide import Start, start_model_call
from surefoot.effects import Verdict
from surefoot.errors import LeaseLost
from surefoot.runtime.handle import Handle
from surefoot.store.open import open_store
from surefoot.testing import faults as f
from surefoot.testing.wire import WireRequest
from surefoot.testing.world import BOT, TOKEN
from tests.cases.rig import (
    COMMENTS,
    NUMBER,
    REPO,
    Hand,
    Live,
    Script,
    Sim,
    all_events,
    calls_of,
    comment,
    ended,
    object_of,
    post_comment,
    story,
)
from tests.support import eventually

SECONDS = 20


@story
async def test_c036_a_lease_belongs_to_an_acquisition_and_not_to_a_name(sim: Sim) -> None:
    """The same worker name claims again: every write of the old acquisition is refused."""
    person = sim.person
    assert person is not None
    async with sim.surefoot(sim.agent(["done"]), worker=False) as sf:
        run = await sf.start("reviewer", "Review it.")
        sim.may_run.add(run.id)
        old, new = [await open_store(sim.url, person.doors) for _ in range(2)]
        one = await old.claim_one("default", run.id, "w1", 10)
        assert one is not None and await new.claim_one("default", run.id, "w1", 10) is None
        believed = await old.load("default", run.id)
        await sim.pass_time(10.1)
        two = await new.claim_one("default", run.id, "w1", 10)
        assert two is not None and two.token == one.token + 1
        before = await rows_of(sf, run.id)
        assert await old.renew("default", {run.id: one.token}, 10) == {}
        await old.release("default", run.id, one.token)
        zombie = Handle(old, believed, {}, one.token)
        with pytest.raises(LeaseLost):
            await zombie.decide(lambda d: start_model_call(d, Start(one.token, 5.0), "hash"))
        assert await rows_of(sf, run.id) == before
        owner = Handle(new, await new.load("default", run.id), {}, two.token)
        await owner.decide(lambda d: start_model_call(d, Start(two.token, 5.0), "hash"))
        await old.close()
        await new.close()


async def rows_of(sf: Surefoot, run_id: str) -> tuple[object, ...]:
    """Everything that a zombie might change."""
    row = await sf.store.run(sf.tenant, run_id)
    return row, await sf.store.steps(sf.tenant, run_id), await all_events(sf, run_id)


async def test_c036_a_stopped_worker_wakes_to_find_its_run_taken(live: Live) -> None:
    live.fault(f.Delay(1.0))
    script: Script = [[comment("Once.")], "done"]
    told = {"store": live.url, "script": script, "start": "Review it.", "settle": 0.5, "lease_seconds": 2}
    child = await live.child(told)
    assert await child.line() == "started"
    run_id = await child.line()
    await eventually(live.posts)
    os.kill(child.process.pid, signal.SIGSTOP)
    agent = live.agent(script, post_comment(settle=0.5))
    async with live.surefoot(agent) as sf:
        run = await sf.wait(run_id, until=ended, timeout=SECONDS)
        before = await all_events(sf, run_id)
        os.kill(child.process.pid, signal.SIGCONT)
        await sf.wait(run_id, until=lambda r: r.last_event_sequence > len(before), timeout=SECONDS)
        late = (await all_events(sf, run_id))[len(before) :]
        after = await sf.snapshot(run_id)
    (step,) = calls_of(after)
    assert run.status == after.status == "completed" and len(live.posts()) == len(live.ours(step.operation_key)) == 1
    assert {e.type for e in late} <= {"attempt_ended", "evidence_recorded"}, "evidence, and nothing else"
    assert calls_of(run)[0].external_resource_id == step.external_resource_id
    assert (step.status, step.attempt) == ("succeeded", 1)


@tool(effect=effects.opaque, timeout=15)
async def ring(op: Operation) -> Receipt:
    """The body that has to run once."""
    async with http.client(op, base_url="https://bell.example") as client:
        headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": op.key}
        reply = await client.post("/mail/messages", json={"to": "bell", "text": "ring"}, headers=headers)
    return Receipt(resource_id=str(object_of(reply)["id"]))


@pytest.mark.parametrize("part", range(4))
def test_c037_a_run_that_starts_with_its_worker_runs_once(sim: Sim, part: int) -> None:
    """Two hundred and fifty runs in each part; every one starts in the very instant in which its worker does."""

    @story
    async def play(sim: Sim) -> None:
        agent = sim.agent([[("ring", {})], "done"], ring)
        keys = []
        async with sim.surefoot(agent, worker=False) as other:
            for number in range(250):
                sf = sim.surefoot(agent)
                opening = asyncio.ensure_future(sf.__aenter__())
                await sim.turn(number % 25)
                # By the worker's own process once it is up, or by another one while it still starts.
                starter = (await opening) if part % 2 == 0 else other
                run = await starter.start("reviewer", "Ring.")
                await opening
                run = await sf.wait(run.id)
                (step,) = calls_of(run)
                assert (run.status, step.attempt) == ("completed", 1)
                keys.append(step.operation_key)
                await sf.close()
        assert len(sim.posts()) == len(keys) == 250
        assert {post.headers["idempotency-key"] for post in sim.posts()} == set(keys)

    play(sim=sim)


@story
async def test_c038_a_long_model_turn_keeps_its_lease(sim: Sim) -> None:
    """Ten leases long, with another worker that waits for a chance."""

    async def slow(request: ModelRequest) -> str:
        await sim.pass_time(100)
        return "done"

    agent = sim.agent([slow])
    sim.worker(agent, name="waiting")
    async with sim.surefoot(agent, worker=False) as sf:
        sim.worker(agent, name="waiting too")
        run = await sf.wait((await sf.start("reviewer", "Think.")).id)
        events = await all_events(sf, run.id)
    (turn,) = run.steps
    assert (run.status, turn.attempt, len(sim.models[0].requests)) == ("completed", 1, 1)
    assert {e.data["token"] for e in events if e.type == "step_started"} == {1}, "no reclaim"
    assert sim.machine.clock.elapsed >= 100


def slow_tool(sim: Sim) -> Tool:
    """Its time-out is 4 s; it does not hear of it, and acts after 7 s through a client of its own."""

    async def find(op: Operation, body: str) -> Verdict:
        return await github.find_issue_comment(op, REPO, NUMBER, body)

    @tool(name="slow", effect=effects.lookup(find, settle=5), timeout=4)
    async def call(op: Operation, body: str) -> Receipt:
        """Comment late."""
        late = asyncio.ensure_future(sim.pass_time(7))
        while not late.done():
            try:
                await asyncio.shield(late)
            except asyncio.CancelledError:
                continue
        text = op.sign(body, place=f"{REPO}#{NUMBER}", account=str(BOT.id))
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        request = WireRequest("POST", COMMENTS, headers, msgspec.json.encode({"body": text}))
        outcome = sim.world.handle(request, sim.machine.clock.true_wall)
        assert outcome.reply is not None
        return Receipt(resource_id=str(msgspec.json.decode(outcome.reply.body)["id"]))

    return call


@story
async def test_c039_a_call_past_its_time_out_is_not_joined_by_another(sim: Sim) -> None:
    agent = sim.agent([[("slow", {"body": "Late."})], "done"], slow_tool(sim))
    async with sim.surefoot(agent) as sf:
        run = await sf.start("reviewer", "Review it.")
        await sim.pass_time(6.5)
        (step,) = calls_of(await sf.snapshot(run.id))
        assert step.status == "outcome_unknown" and sim.posts() == []
        run = await sf.wait(run.id, until=ended)
    (step,) = calls_of(run)
    (effect,) = sim.ours(step.operation_key)
    assert (run.status, step.status, step.attempt, len(sim.posts())) == ("completed", "succeeded", 1, 1)
    assert step.external_resource_id == str(effect.resource_id)


async def test_c040_a_run_that_an_operator_failed_stays_failed(live: Live, hand: Hand) -> None:
    """A call is given up, the model cannot be called, the operator stops the run; then the call's receipt arrives."""
    live.fault(f.LostReply(), path="/mail/messages")
    script: Script = [[("ring_live", {})], ModelNeedsPerson("no quota", status=401), "never"]
    async with live.surefoot(live.agent(script, ring_live)) as sf:
        run = await sf.wait((await sf.start("reviewer", "Ring.")).id, timeout=SECONDS)
        (doubt,) = run.pending_actions
        await hand.resolve(doubt.id, "give_up")
        run = await sf.wait(run.id, until=lambda r: [a.kind for a in r.pending_actions] == ["ask"], timeout=SECONDS)
        await hand.reject(run.pending_actions[0].id)
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
        (step,) = calls_of(run)
        assert (run.status, step.status, step.resolution) == ("failed", "outcome_unknown", "given_up")
        late = str(live.ours(step.operation_key)[0].resource_id)
        assert await sf.report(str(step.operation_key), Found(Receipt(resource_id=late)))
        after = await sf.snapshot(run.id)
        events = await all_events(sf, run.id)
    (step,) = calls_of(after)
    assert (after.status, after.error_code, step.external_resource_id) == ("failed", run.error_code, late)
    types = [e.type for e in events]
    assert [t for t in types if t in ("run_completed", "run_failed", "run_cancelled")] == ["run_failed"]
    assert types.index("evidence_recorded") > types.index("run_failed") and "receipt_recorded" in types
    assert len(live.posts()) == 1


@tool(effect=effects.opaque, timeout=15)
async def ring_live(op: Operation) -> Receipt:
    """The same on a socket."""
    async with http.client(op, base_url=os.environ["GITHUB_API_URL"]) as client:
        headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": op.key}
        reply = await client.post("/mail/messages", json={"to": "bell", "text": "ring"}, headers=headers)
    return Receipt(resource_id=str(object_of(reply)["id"]))
