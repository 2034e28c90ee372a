"""Idempotency-Key on POST /v1/runs (C057), and on messages."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from surefoot.core.state import Run
from tests.places import Place
from tests.server.house import KEY, Outside, code_of, house
from tests.server.rig import serving


async def test_c057_a_key_is_one_run_whatever_is_sent_with_it(place: Place, outside: Outside) -> None:
    async with house(place, [outside.agent("talker", "Hello.")]) as at:
        first = await at.start("talker", "k", metadata={"pr": 128})
        run_id = first.json()["id"]
        await at.until(run_id, "completed")
        for key in ("k", '"k"'):
            again = await at.start("talker", key, metadata={"pr": 128})
            assert (again.status_code, again.json()["id"]) == (200, run_id)
            assert again.headers["location"] == f"/v1/runs/{run_id}"
        assert code_of(await at.start("talker", "k", metadata={"pr": 129})) == (422, "key_reused")
        assert code_of(await at.start("talker", "k")) == (422, "key_reused")
        assert code_of(await at.start("talker", "schedule:nightly:now")) == (422, "key_reserved")
        other = await at.start("talker", r'"k\""')
        assert other.status_code == 201 and other.json()["id"] != run_id
        assert len((await at.client.get("/v1/runs")).json()["items"]) == 2
    async with house(place, [outside.agent("talker", "Hello.")]) as at:
        after_restart = await at.start("talker", "k", metadata={"pr": 128})
        assert (after_restart.status_code, after_restart.json()["id"]) == (200, run_id)


async def test_while_the_first_request_is_under_way_another_waits(
    place: Place, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(place, [outside.agent("talker", "Hello.")]) as at:
        begin, began, go_on = at.sf.begin, asyncio.Event(), asyncio.Event()

        async def slowly(new: object) -> tuple[Run, bool]:
            began.set()
            await go_on.wait()
            return await begin(new)  # type: ignore[arg-type]  # handed on as it came

        monkeypatch.setattr(at.sf, "begin", slowly)
        first = asyncio.ensure_future(at.start("talker", "k"))
        await began.wait()
        second = await at.start("talker", "k")
        assert code_of(second) == (409, "request_under_way") and second.headers["retry-after"] == "1"
        go_on.set()
        assert (await first).status_code == 201
        assert (await at.start("talker", "k")).status_code == 200


def test_c057_fifty_at_once_on_two_processes_make_one_run(place: Place) -> None:
    with serving(place) as one, serving(place) as two, ThreadPoolExecutor(50) as pool:
        webs = [one, two] * 25
        answers = list(pool.map(lambda web: web.start("talker", key="the key"), webs))
        counts = Counter(answer.status for answer in answers)
        assert counts[201] == 1 and set(counts) <= {200, 201, 409}, counts
        assert {answer.code for answer in answers if answer.status == 409} <= {"request_under_way"}
        ids = {str(answer.record()["id"]) for answer in answers if answer.status != 409}
        assert len(ids) == 1
        assert [str(run["id"]) for run in one.get("/v1/runs").items()] == list(ids)
        assert one.start("talker", key="the key").status == two.start("talker", key="the key").status == 200


async def test_a_message_under_a_key_is_one_message(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, action_id = await at.asked()
        path = f"/v1/runs/{run_id}/messages"

        async def say(text: str, key: str | None) -> httpx.Response:
            return await at.client.post(path, json={"text": text}, headers={} if key is None else {KEY: key})

        before = (await at.run(run_id))["last_event_sequence"]
        assert isinstance(before, int)
        answers = await asyncio.gather(*(say("Mind the tests.", "m") for _ in range(20)))
        assert {answer.status_code for answer in answers} == {202}
        assert {answer.json()["id"] for answer in answers} == {run_id}
        assert (await at.run(run_id))["last_event_sequence"] == before + 1, "one message was written"
        assert code_of(await say("Mind the docs.", "m")) == (422, "key_reused")
        assert code_of(await say("Mind the tests.", '"open')) == (400, "idempotency_key_malformed")
        assert (await say("Mind the tests.", "n")).status_code == 202
        assert (
            (await say("Mind the tests.", None)).status_code == (await say("Mind the tests.", None)).status_code == 202
        )
        assert len((await at.client.get(path)).json()["queued"]) == 4
        await at.decide(action_id, "approve")
        await at.until(run_id, "completed")
        late = await say("Mind the tests.", "m")
        assert late.status_code == 202, "it was said while the run was under way: its answer was lost, not the message"
        assert code_of(await say("Mind the tests.", "too late")) == (409, "run_ended")
        said = [row for row in (await at.client.get(path)).json()["items"] if row["role"] == "user"]
        assert len(said) == 1 + 4
    async with house(place, [outside.writer()]) as at:
        again = await at.client.post(path, json={"text": "Mind the tests."}, headers={KEY: "m"})
        assert again.status_code == 202 and again.json()["id"] == run_id


def test_a_message_at_once_on_two_processes_is_one(place: Place) -> None:
    with serving(place) as one, serving(place) as two, ThreadPoolExecutor(20) as pool:
        run_id, _ = one.asked("writer")
        before = one.get(f"/v1/runs/{run_id}").record()["last_event_sequence"]
        path, body = f"/v1/runs/{run_id}/messages", {"text": "Mind the tests."}
        answers = list(pool.map(lambda web: web.ask("POST", path, body, headers={KEY: "m"}), [one, two] * 10))
        assert {answer.status for answer in answers} == {202}
        after = one.get(f"/v1/runs/{run_id}").record()["last_event_sequence"]
        assert isinstance(before, int) and after == before + 1
