"""Every error is a problem with a stable code and a documented status."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from surefoot.server import requests
from surefoot.server.openapi import BODY_BYTES_MAX
from tests.places import Place
from tests.server.house import KEY, Outside, code_of, house
from tests.server.watching import Connection

HEADERS = {KEY: "k", "Content-Type": "application/json"}
START = b'{"agent": "writer", "input": "Go"}'


async def test_what_is_wrong_with_a_request_is_told(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:

        async def post(body: bytes, **headers: str) -> tuple[int, str]:
            given = {**HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}
            return code_of(await at.client.post("/v1/runs", content=body, headers=given))

        assert code_of(await at.client.get("/v2/runs")) == (404, "no_such_path")
        wrong = await at.client.put("/v1/runs")
        assert code_of(wrong) == (405, "method_not_allowed")
        assert set(wrong.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
        assert await post(b"{") == (400, "broken_json")
        assert await post(b"") == (400, "broken_json")
        assert await post(b'{"agent": "\xff"}') == (400, "broken_json")
        assert await post(b'{"metadata": {"a": ' + b"[" * 100_000) == (400, "broken_json")
        assert await post(b'{"metadata": {"a": 1e999}, "agent": "writer", "input": "Go"}') == (422, "invalid_input")
        deep = b"[" * 200 + b"]" * 200
        assert await post(b'{"metadata": {"a": ' + deep + b'}, "agent": "writer", "input": "Go"}') == (
            422,
            "invalid_input",
        )
        assert await post(b'{"agent": NaN}') == (400, "broken_json")
        assert await post(b'{"agent": 5, "input": "Go"}') == (422, "invalid_input")
        assert await post(b'{"agent": "writer"}') == (422, "invalid_input")
        assert await post(b'{"agent": "writer", "input": "Go", "inptu": "x"}') == (422, "invalid_input")
        assert await post(b'{"agent": "writer", "input": " "}') == (422, "invalid_input")
        assert await post(b'{"agent": "nobody", "input": "Go"}') == (404, "unknown_agent")
        assert await post(b'{"agent": "writer", "input": "Go", "conversation_id": "conv_x"}') == (404, "not_found")
        assert await post(START, Content_Type="text/plain") == (415, "not_json")
        assert await post(START, Idempotency_Key="") == (400, "idempotency_key_malformed")
        assert await post(START, Idempotency_Key='"open') == (400, "idempotency_key_malformed")
        assert await post(START, Idempotency_Key="x" * 256) == (400, "idempotency_key_malformed")
        assert await post(b'"' + b"x" * BODY_BYTES_MAX + b'"') == (413, "body_too_large")
        missing = await at.client.post("/v1/runs", content=START, headers={"Content-Type": "application/json"})
        assert code_of(missing) == (400, "idempotency_key_missing")
        assert (await at.client.get("/v1/runs")).json()["items"] == [], "nothing was made"


async def test_a_body_without_end_is_cut_off(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODY_SECONDS_MAX", 0.05)
    async with house(place) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(at.running.url.rpartition(":")[2]))
        head = f"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{KEY}: k\r\n"
        writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
        writer.transport.abort()

        reader, writer = await asyncio.open_connection("127.0.0.1", int(at.running.url.rpartition(":")[2]))
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        first = asyncio.ensure_future(reader.readline())
        with contextlib.suppress(ConnectionError):
            while not first.done():
                writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
                await asyncio.wait_for(writer.drain(), 10)
        assert b" 413 " in await asyncio.wait_for(first, 10)
        writer.transport.abort()


async def test_a_bug_is_told_without_its_secrets(
    place: Place, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    async with house(place, [outside.writer()]) as at:
        monkeypatch.setattr(at.sf, "_log", lines.append)

        async def broken(*_: object) -> None:
            raise RuntimeError("the header was Authorization: Bearer ghp_0123456789abcdefghijklmnopqrstuvwxyz")

        monkeypatch.setattr(at.sf, "snapshot", broken)
        answer = await at.client.get("/v1/runs/run_1")
        assert code_of(answer) == (500, "internal_error") and "ghp_" not in answer.text
        assert "RuntimeError" in "".join(lines) and "ghp_0123" not in "".join(lines)


async def test_c059_a_page_of_somebody_else_cannot_act(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, action_id = await at.asked()
        decision = f"/v1/pending-actions/{action_id}/decision"
        own = at.running.url
        strangers: list[tuple[dict[str, str], int]] = [
            ({"Content-Type": "text/plain"}, 415),
            ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
            ({"Content-Type": ""}, 415),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": own.replace("http:", "https:")}, 403),
            ({"Origin": "http://127.0.0.1:1"}, 403),
            ({"Host": "evil.example"}, 403),
            ({"Host": "127.0.0.1.evil.example"}, 403),
            ({"Host": "localhost@evil.example"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
        ]
        for headers, status in strangers:
            sent = {**HEADERS, **headers}
            for path, body in ((decision, b'{"decision": "approve"}'), ("/v1/runs", START)):
                answer = await at.client.post(path, content=body, headers=sent)
                assert answer.status_code == status, (headers, answer.text)
        assert code_of(await at.client.get(f"/v1/runs/{run_id}", headers={"Host": "evil.example"}))[0] == 403
        assert len((await at.client.get("/v1/runs")).json()["items"]) == 1
        assert (await at.run(run_id))["status"] == "waiting_for_user" and outside.sent == []
        page = {"Origin": own, "Sec-Fetch-Site": "same-origin", **HEADERS}
        assert (await at.client.post(decision, content=b'{"decision": "approve"}', headers=page)).status_code == 200


async def test_streams_are_refused_as_problems(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, _ = await at.asked()
        for run, last, status in ((run_id, "99", 409), ("run_none", "0", 404)):
            refused = await Connection.open(at.running.url, run, int(last))
            assert refused.status == status and refused.headers["content-type"] == "application/problem+json"
        for bad in ("-1", "x", "1e3", "9" * 30, "٣"):
            sent = {"Accept": "text/event-stream", "Last-Event-ID": bad.encode()}
            answer = await at.client.get(f"/v1/runs/{run_id}/events", headers=sent)  # type: ignore[arg-type]  # bytes go
            assert code_of(answer) == (422, "invalid_input"), bad
        assert json.loads((await at.client.get("/openapi.json")).text)["openapi"].startswith("3.1")
