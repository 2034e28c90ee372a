"""Duplicate effects: C001 to C006."""

from __future__ import annotations

import os

import pytest

from surefoot import Operation, Receipt, effects, http, tool
from surefoot.agent.model import ModelRetryable
from surefoot.connectors import github
from surefoot.testing import faults as f
from surefoot.testing.world import BOT, TOKEN
from tests.cases.rig import (
    ISSUE,
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
    statuses,
    story,
)


@story
async def test_c001_a_failing_model_call_does_not_repeat_the_step_before_it(sim: Sim) -> None:
    failing = ModelRetryable("overloaded", status=503)
    agent = sim.agent([[comment("Done once.")], failing, failing, "done"], post_comment())
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id)
        assert run.status == "completed" and run.result == {"text": "done"}
        assert [(s.type, s.attempt) for s in run.steps] == [("model_call", 1), ("tool_call", 1), ("model_call", 3)]
        (step,) = calls_of(run)
        assert len(sim.posts()) == len(sim.ours(step.operation_key)) == 1
        assert len(sim.models[0].requests) == 4


async def test_c002_a_lost_reply_is_looked_up_and_not_sent_again(live: Live) -> None:
    live.fault(f.LostReply())
    agent = live.agent([[comment("Looks good.")], "done"], post_comment())
    async with live.surefoot(agent) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, timeout=20)
        events = await all_events(sf, run.id)
    (step,) = calls_of(run)
    (effect,) = live.ours(step.operation_key)
    assert (run.status, step.status, step.resolution, step.attempt) == ("completed", "succeeded", "found", 1)
    assert step.external_resource_id == str(effect.resource_id) and len(live.posts()) == 1
    assert statuses(events) == ["reconciling", "running", "completed"]
    assert [e.type for e in events if e.step_id == step.id and e.type.startswith(("step_", "lookup"))] == [
        "step_created", "step_started", "step_outcome_unknown", "lookup_answered", "step_succeeded",
    ]  # fmt: skip


@story
async def test_c003a_a_502_after_the_effect_is_found(sim: Sim) -> None:
    sim.fault(f.StatusAfter(502))
    agent = sim.agent([[comment("Looks good.")], "done"], post_comment())
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id)
        (step,) = calls_of(run)
        assert (run.status, step.resolution, len(sim.posts())) == ("completed", "found", 1)
        assert len(sim.ours(step.operation_key)) == 1


@story
async def test_c003b_a_502_before_the_effect_is_sent_again_under_the_same_key(sim: Sim) -> None:
    sim.fault(f.StatusBefore(502))
    agent = sim.agent([[comment("Looks good.")], "done"], post_comment(settle=5))
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id)
        (step,) = calls_of(run)
        assert (run.status, step.status, step.attempt) == ("completed", "succeeded", 2)
        first, second = sim.posts()
        assert first.body == second.body and str(step.operation_key) in first.body
        assert second.at - first.at >= 5 and len(sim.ours(step.operation_key)) == 1
        listings = [look.order for look in sim.looks()]
        assert any(first.order < order < second.order for order in listings), "sent again without a look"


SECONDARY = {"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}


@pytest.mark.parametrize(
    ("limit", "wait"),
    [
        (f.StatusBefore(429, headers={"Retry-After": "7"}), 7),
        (f.StatusBefore(403, headers={"Retry-After": "7"}, body=SECONDARY), 7),
        (f.StatusBefore(403, headers={"X-RateLimit-Remaining": "4990"}, body=SECONDARY), 60),
    ],
)
@story
async def test_c003c_a_limit_is_waited_for_and_needs_no_look(sim: Sim, limit: f.StatusBefore, wait: int) -> None:
    sim.fault(limit)
    agent = sim.agent([[comment("Looks good.")], "done"], post_comment())
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id)
        (step,) = calls_of(run)
        first, second = sim.posts()
        assert run.status == "completed" and wait <= second.at - first.at < wait * 9 / 7
        assert sim.looks() == [] and len(sim.ours(step.operation_key)) == 1
        assert "reconciling" not in statuses(await all_events(sf, run.id))


async def test_c004_what_ended_before_a_pause_does_not_run_again(live: Live, hand: Hand) -> None:
    script: Script = [[comment("First.")], [comment("Second, gated.")], "done"]
    child = await live.child({"store": live.url, "script": script, "gate_on": "gated", "start": "Review it."})
    assert await child.line() == "started"
    run_id = await child.line()
    async with live.surefoot(worker=False) as sf:
        run = await sf.wait(run_id, timeout=20)
    assert run.status == "waiting_for_user" and live.bodies() == ["First."]
    await child.kill()
    await hand.approve(run.pending_actions[0].id)
    agent = live.agent([[comment("First.")], [comment("Second, gated.")], "done"], post_comment())
    async with live.surefoot(agent) as sf:
        run = await sf.wait(run_id, timeout=20)
    assert run.status == "completed" and live.bodies() == ["First.", "Second, gated."]
    assert [(s.attempt, len(live.ours(s.operation_key))) for s in calls_of(run)] == [(1, 1), (1, 1)]
    assert len(live.posts()) == 2 and len(live.models[0].requests) == 1


@story
async def test_c005_our_github_tool_sends_one_post_an_attempt(sim: Sim) -> None:
    sim.fault(f.StatusAfter(502))
    agent = sim.agent([[comment("Looks good.")], "done"], post_comment())
    async with sim.surefoot(agent) as sf:
        run = await sf.start("reviewer", "Review it.")
        await sim.until(lambda: sim.world.requests("GET", ISSUE))
        assert len(sim.posts()) == 1, "one POST when the look begins"
        run = await sf.wait(run.id)
        (step,) = calls_of(run)
        assert run.status == "completed" and len(sim.posts()) == len(sim.ours(step.operation_key)) == 1


class RetryingClient:
    """What SDKs do unasked: it looks at the status code alone and repeats a POST on 5xx."""

    def __init__(self, op: Operation, tries: int) -> None:
        self._http = http.client(op, base_url="https://api.github.com", headers={"Authorization": f"Bearer {TOKEN}"})
        self._tries = tries

    async def post(self, path: str, json: dict[str, object], headers: dict[str, str] | None = None) -> http.Response:
        async with self._http as client:
            for left in reversed(range(self._tries)):
                reply = await client.post(path, json=json, headers=headers or {}, allow=() if left == 0 else (502,))
                if reply.status != 502:
                    return reply
        raise AssertionError("the last try raises")


@tool(effect=effects.idempotent(key_lifetime=86_400), timeout=15)
async def charge(op: Operation, cents: int) -> Receipt:
    """Charge a card."""
    reply = await RetryingClient(op, 2).post("/billing/charges", {"cents": cents}, {"Idempotency-Key": op.key})
    return Receipt(resource_id=str(object_of(reply)["id"]))


@story
async def test_c005_a_client_that_retries_by_itself_is_harmless_where_the_target_drops_repeats(sim: Sim) -> None:
    sim.broken = {"I2"}
    sim.fault(f.StatusAfter(502), path="/billing/charges")
    agent = sim.agent([[("charge", {"cents": 900})], "done"], charge)
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start("reviewer", "Charge it.")).id)
        (step,) = calls_of(run)
        assert (run.status, step.attempt, len(sim.posts())) == ("completed", 1, 2)
        assert len(sim.ours(step.operation_key)) == 1


@tool(effect=effects.lookup(github.find_issue_comment, settle=5), timeout=15)
async def post_eagerly(op: Operation, repo: str, issue_number: int, body: str) -> Receipt:
    """Comment through a client that retries by itself."""
    text = op.sign(body, place=f"{repo}#{issue_number}", account=str(BOT.id))
    reply = await RetryingClient(op, 2).post(f"/repos/{repo}/issues/{issue_number}/comments", {"body": text})
    return Receipt(resource_id=str(object_of(reply)["id"]))


@story
async def test_c005_the_double_of_a_client_that_retries_by_itself_is_reported(sim: Sim) -> None:
    sim.broken = {"I1", "I2", "I3"}
    sim.fault(f.StatusAfter(502), times=2)
    agent = sim.agent([[("post_eagerly", comment("Twice.")[1])], "done"], post_eagerly)
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, until=ended)
        (step,) = calls_of(run)
        doubles = [e for e in await all_events(sf, run.id) if e.type == "duplicate_detected"]
        assert (run.status, step.status, len(doubles)) == ("completed", "succeeded", 1)
        assert doubles[0].data["resource_ids"] == tuple(str(e.resource_id) for e in sim.ours(step.operation_key))
        assert [a.kind for a in run.pending_actions] == ["duplicate"]


@tool(effect=effects.opaque, timeout=15)
async def send_mail(op: Operation, to: str, text: str) -> Receipt:
    """Send a mail."""
    async with http.client(op, base_url=os.environ.get("GITHUB_API_URL", "https://mail.example")) as client:
        headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": op.key}
        reply = await client.post("/mail/messages", json={"to": to, "text": text}, headers=headers)
    return Receipt(resource_id=str(object_of(reply)["id"]))


MAIL: Script = [[("send_mail", {"to": "bob@example.org", "text": "Your invoice."})], "done"]


async def test_c006_a_mail_that_may_have_gone_out_is_asked_about(live: Live, hand: Hand) -> None:
    live.fault(f.LostReply(), path="/mail/messages")
    async with live.surefoot(live.agent(MAIL, send_mail)) as sf:
        run = await sf.wait((await sf.start("reviewer", "Bill him.")).id, timeout=20)
        (action,) = run.pending_actions
        assert (run.status, action.kind, len(live.posts())) == ("waiting_for_user", "resolve", 1)
        assert "may have been sent" in str(action.preview)
        await hand.resolve(action.id, "happened", "mail-1")
        run = await sf.wait(run.id, until=ended, timeout=20)
    (step,) = calls_of(run)
    assert (run.status, step.status, step.resolution) == ("completed", "succeeded", "happened")
    assert step.external_resource_id == "mail-1" and len(live.posts()) == len(live.ours(step.operation_key)) == 1


async def test_c006_a_mail_that_a_person_missed_goes_out_once_more_under_the_same_key(live: Live, hand: Hand) -> None:
    live.fault(f.LostRequest(), path="/mail/messages")
    async with live.surefoot(live.agent(MAIL, send_mail.using(settle=0.3))) as sf:
        run = await sf.wait((await sf.start("reviewer", "Bill him.")).id, timeout=20)
        await hand.resolve(run.pending_actions[0].id, "did_not_happen")
        run = await sf.wait(run.id, until=ended, timeout=20)
    (step,) = calls_of(run)
    first, second = live.posts()
    assert (run.status, step.status, step.attempt) == ("completed", "succeeded", 2)
    assert first.body == second.body and first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert len(live.ours(step.operation_key)) == 1
