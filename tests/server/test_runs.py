"""The endpoints of runs, over sockets."""

from __future__ import annotations

import json

import msgspec
import pytest

from surefoot import snapshot
from surefoot.cli.desk import Blocked
from tests.places import Place
from tests.server.house import KEY, Outside, code_of, house, note, surefoot_at


async def test_the_snapshot_is_the_one_that_the_program_sees(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, action_id = await at.asked()
        answer = await at.client.get(f"/v1/runs/{run_id}")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.json() == json.loads(msgspec.json.encode(await at.sf.snapshot(run_id)))
        assert answer.json()["pending_actions"][0]["id"] == action_id


async def test_texts_come_in_the_language_that_is_asked_for(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, _ = await at.asked()
        texts = []
        for language in ("zh-CN,zh;q=0.9", "en", "fr"):
            answer = await at.client.get(f"/v1/runs/{run_id}", headers={"Accept-Language": language})
            texts.append(answer.json()["display"]["text"])
    assert texts == ["等待您的确认", "Waiting for your confirmation", "Waiting for your confirmation"]


async def test_runs_are_listed_newest_first_page_by_page(place: Place, outside: Outside) -> None:
    async with house(place, [outside.agent("talker", "Hello."), outside.writer()]) as at:
        made = [await at.started("talker", f"key-{n}") for n in range(5)]
        await at.asked()
        seen: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (await at.client.get(f"/v1/runs?agent=talker&limit=2{cursor and '&cursor=' + cursor}")).json()
            assert len(page["items"]) <= 2
            seen += [run["id"] for run in page["items"]]
            cursor = page["next_cursor"]
        assert seen == made[::-1]
        waiting = (await at.client.get("/v1/runs?status=waiting_for_user")).json()
        assert [run["agent"] for run in waiting["items"]] == ["writer"] and waiting["next_cursor"] is None
        assert code_of(await at.client.get("/v1/runs?status=sleeping")) == (422, "invalid_input")
        assert code_of(await at.client.get("/v1/runs?limit=0")) == (422, "invalid_input")


async def test_events_come_in_pages_from_a_cursor(place: Place, outside: Outside) -> None:
    async with house(place, [outside.agent("talker", "Hello.")]) as at:
        run_id = await at.started("talker")
        end = (await at.until(run_id, "completed"))["last_event_sequence"]
        assert isinstance(end, int)
        told, after, ended = [], 0, False
        while not ended:
            page = (await at.client.get(f"/v1/runs/{run_id}/events?after={after}&limit=2")).json()
            told += [event["sequence"] for event in page["items"]]
            after, ended = page["next_after"], page["ended"]
        assert told == list(range(1, end + 1))
        last = (await at.client.get(f"/v1/runs/{run_id}/events?after={end - 1}")).json()["items"]
        assert [event["type"] for event in last] == ["run_completed"]
        assert code_of(await at.client.get(f"/v1/runs/{run_id}/events?after={end + 1}")) == (409, "cursor_ahead")
        assert code_of(await at.client.get(f"/v1/runs/{run_id}/events?after=-1")) == (422, "invalid_input")
        assert code_of(await at.client.get("/v1/runs/run_none/events")) == (404, "not_found")


async def test_a_message_waits_for_its_place_and_an_ended_run_says_how_to_go_on(place: Place, outside: Outside) -> None:
    async with house(place, [outside.agent("writer", [note("hello")], "Shorter.")]) as at:
        run_id, action_id = await at.asked()
        said = await at.client.post(f"/v1/runs/{run_id}/messages", json={"text": "make it shorter"})
        assert said.status_code == 202 and said.json()["id"] == run_id
        page = (await at.client.get(f"/v1/runs/{run_id}/messages")).json()
        assert [m["role"] for m in page["items"]] == ["user", "assistant"]
        assert [m["body"]["text"] for m in page["queued"]] == ["make it shorter"] and page["next_cursor"] is None
        await at.decide(action_id, "reject", reason="too long")
        await at.until(run_id, "completed")
        seen: list[tuple[int, str]] = []
        cursor: str | None = ""
        while cursor is not None:
            asked = {"limit": "2"} if cursor == "" else {"limit": "2", "cursor": cursor}
            page = (await at.client.get(f"/v1/runs/{run_id}/messages", params=asked)).json()
            seen += [(m["position"], m["role"]) for m in page["items"]]
            cursor = page["next_cursor"]
        assert seen == list(enumerate(["user", "assistant", "tool_result", "user", "assistant"]))
        late = await at.client.post(f"/v1/runs/{run_id}/messages", json={"text": "thanks"})
        assert code_of(late) == (409, "run_ended")
        conversation = (await at.run(run_id))["conversation_id"]
        assert late.json()["details"] == {"conversation_id": conversation}
        assert "POST /v1/runs" in late.json()["detail"] and str(conversation) in late.json()["detail"]
        on = await at.start("writer", "next", conversation_id=conversation)
        assert on.status_code == 201 and on.json()["conversation_id"] == conversation


async def test_a_cancel_is_acknowledged_with_what_may_have_been_sent(place: Place, outside: Outside) -> None:
    outside.known = False
    async with house(place, [outside.agent("shouter", [("shout", {"text": "hi"})], "Shouted.")]) as at:
        run_id = await at.started("shouter")
        await at.question(run_id)
        receipt = await at.client.post(f"/v1/runs/{run_id}/cancel")
        assert receipt.status_code == 202
        assert (receipt.json()["run_id"], receipt.json()["status"]) == (run_id, "cancelled")
        assert [step["tool_name"] for step in receipt.json()["may_have_been_sent"]] == ["shout"]
        assert code_of(await at.client.post(f"/v1/runs/{run_id}/cancel")) == (409, "run_ended")
        again = await at.client.post(f"/v1/runs/{run_id}/retry")
        assert again.status_code == 201 and again.json()["conversation_id"] == (await at.run(run_id))["conversation_id"]
        same = await at.client.post(f"/v1/runs/{run_id}/retry")
        assert same.json()["id"] == again.json()["id"]


async def test_a_signal_under_one_key_is_one_signal(place: Place, outside: Outside) -> None:
    async with house(place, [outside.agent("waiter", [("wait_for_signal", {"name": "paid"})], "Paid.")]) as at:
        run_id = await at.started("waiter")
        await at.sf.wait(run_id, until=lambda run: run.status == "waiting_for_user", timeout=30)
        signals = [
            await at.client.post(f"/v1/runs/{run_id}/signals", json={"name": "paid", "value": 5}, headers={KEY: "s"})
            for _ in range(2)
        ]
        assert [s.status_code for s in signals] == [202, 202]
        assert [s.json()["new"] for s in signals] == [True, False]
        await at.until(run_id, "completed")


async def test_agents_and_health_are_told(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        (agent,) = (await at.client.get("/v1/agents")).json()["items"]
        assert (agent["name"], agent["version"]) == ("writer", "1")
        assert {"name": "post_note", "effect": "lookup", "gated": True, "compensates": False} in agent["tools"]
        assert (await at.client.get("/healthz")).json() == {"status": "ok"}
        ready = await at.client.get("/readyz")
        assert (ready.status_code, ready.json()["ready"]) == (200, True)
        assert at.sf.worker is not None
        at.sf.worker.unhealthy = "a call does not end"
        unwell = await at.client.get("/readyz")
        assert (unwell.status_code, unwell.json()["worker"]) == (503, "default: a call does not end")
    async with house(place, worker=False) as at:
        assert (await at.client.get("/readyz")).status_code == 503


async def test_a_run_that_no_worker_takes_is_said_so(
    place: Place, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "NO_WORKER_SECONDS", 0.2)
    async with house(place, [outside.writer()]) as at:
        async with surefoot_at(place, [outside.writer(name="stranger")], worker=False) as other:
            run = await other.start("stranger", "Go")

        while (seen := await at.run(run.id))["error_code"] != "no_worker":
            assert (seen["status"], seen["error_code"]) == ("running", None)
        ready = await at.client.get("/readyz")
        assert (ready.status_code, ready.json()["blocked_runs"]) == (200, {"unknown_agent": 1})
        notes = list[str]()
        Blocked(notes.append).see(await at.sf.snapshot(run.id))
        assert "no worker takes it" in notes[0] and "start one" in notes[0]
        run_id, _ = await at.asked()
        assert (await at.run(run_id))["error_code"] is None, "what waits for a person stands still for another reason"
    async with house(place, [outside.writer(name="stranger")]) as at:
        await at.question(run.id)
        assert (await at.run(run.id))["error_code"] is None
        assert (await at.client.get("/readyz")).json()["blocked_runs"] == {}
