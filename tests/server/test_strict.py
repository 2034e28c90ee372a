"""One request says one thing: what is said twice, or is no HTTP, is refused; HEAD is GET without its body."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from surefoot.server.callers import ACTS, Act
from surefoot.server.protocol import HEAD_BYTES_MAX
from surefoot.server.tokens import Tokens
from tests.places import Place
from tests.server.house import KEY, House, Named, Outside, caller, code_of, house
from tests.server.watching import Connection

START = b'{"agent": "writer", "input": "Go"}'
PROBLEM = b"content-type: application/problem+json"


async def raw(at: House, data: bytes) -> bytes:
    """Everything that is answered to these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(at.running.url.rpartition(":")[2]))
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


def request_of(*headers: str, body: bytes = START, line: str = "POST /v1/runs HTTP/1.1") -> bytes:
    """A request that is over with its answer."""
    given = [line, "Host: 127.0.0.1", "Connection: close", *headers]
    if not any(header.lower().startswith(("content-length", "transfer-encoding")) for header in headers):
        given.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*given, "", ""]).encode() + body


async def test_what_is_said_twice_is_refused(place: Place, outside: Outside) -> None:
    json_type = "Content-Type: application/json"
    twice = {
        "idempotency-key": [json_type, f"{KEY}: a", f"{KEY}: b"],
        "content-type": ["Content-Type: text/plain", json_type, f"{KEY}: a"],
        "authorization": [json_type, f"{KEY}: a", "Authorization: Bearer a", "Authorization: Bearer b"],
        "origin": [json_type, f"{KEY}: a", "Origin: https://evil.example", "Origin: http://127.0.0.1"],
        "host": [json_type, f"{KEY}: a", "Host: evil.example"],
    }
    async with house(place, [outside.writer()]) as at:
        for name, headers in twice.items():
            answer = await raw(at, request_of(*headers))
            assert answer.startswith(b"HTTP/1.1 400 ") and PROBLEM in answer, answer
            problem = json.loads(answer.partition(b"\r\n\r\n")[2])
            assert problem["code"] == "repeated_header" and name in problem["detail"], answer
        for lengths in (
            ["Content-Length: 34", "Content-Length: 5"],
            ["Content-Length: 34", "Transfer-Encoding: chunked"],
        ):
            answer = await raw(at, request_of(json_type, f"{KEY}: a", *lengths))
            assert answer.startswith(b"HTTP/1.1 400 ") and PROBLEM in answer, answer
        assert code_of(await at.client.get("/v1/runs?limit=1&limit=2")) == (400, "repeated_parameter")
        assert code_of(await at.client.get("/v1/runs?agent=a%00b")) == (400, "bad_request")
        assert code_of(await at.client.get("/v1/runs/run%00")) == (400, "bad_request")
        bodies = (
            b'{"agent": "writer", "agent": "writer", "input": "Go"}',
            b'{"agent": "writer", "input": "Go", "input": "Stop"}',
            b'{"agent": "writer", "input": "Go", "metadata": {"a": [{"b": 1, "\\u0062": 2}]}}',
        )
        for body in bodies:
            refused = await at.client.post("/v1/runs", content=body, headers={KEY: "k", **JSON})
            assert code_of(refused) == (400, "repeated_member"), body
        huge = b'{"agent": "writer", "input": "Go", "metadata": {"n": ' + b"9" * 20 + b"}}"
        assert (await at.client.post("/v1/runs", content=huge, headers={KEY: "k", **JSON})).status_code == 201
        assert len((await at.client.get("/v1/runs")).json()["items"]) == 1


JSON = {"Content-Type": "application/json"}


async def test_what_is_no_http_is_a_problem(place: Place) -> None:
    async with house(place) as at:
        for data in (
            b"hello\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
            b"\x16\x03\x01\x02",
        ):
            answer = await raw(at, data)
            assert answer.startswith(b"HTTP/1.1 400 ") and PROBLEM in answer and b"bad_request" in answer, answer


async def test_a_head_is_bounded(place: Place) -> None:
    async with house(place) as at:
        line = "GET /healthz HTTP/1.1"
        fits = request_of("X-Long: " + "a" * (HEAD_BYTES_MAX - 1_000), line=line, body=b"")
        assert (await raw(at, fits)).startswith(b"HTTP/1.1 200 ")
        assert (await raw(at, fits.replace(b"close", b"keep-alive") + fits)).count(b"HTTP/1.1 200 ") == 2
        large = {
            "one header": request_of("X-Long: " + "a" * HEAD_BYTES_MAX, line=line, body=b""),
            "many headers": request_of(*(f"X-{n}: {'a' * 100}" for n in range(700)), line=line, body=b""),
            "a long address": request_of(line=f"GET /{'a' * HEAD_BYTES_MAX} HTTP/1.1", body=b""),
            "one that does not end": b"GET /healthz HTTP/1.1\r\nX-Long: " + b"a" * (HEAD_BYTES_MAX + 100),
        }
        for why, data in large.items():
            answer = await raw(at, data)
            assert answer.startswith(b"HTTP/1.1 431 ") and PROBLEM in answer, (why, answer[:200])
            assert b"headers_too_large" in answer and str(HEAD_BYTES_MAX).encode() in answer


async def test_head_is_get_without_its_body(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, action_id = await at.asked()
        paths = ["/", "/page/client.js", "/openapi.json", "/healthz", "/readyz", "/metrics", "/v1/runs", "/v1/agents"]
        paths += [f"/v1/runs/{run_id}", f"/v1/runs/{run_id}/events", f"/v1/pending-actions/{action_id}", "/v1/session"]
        for path in (*paths, "/v1/runs/run_none", "/v1/runs?limit=0"):
            get, head = await at.client.get(path), await at.client.head(path)
            assert head.status_code == get.status_code and head.content == b"", path
            if path not in ("/metrics", f"/v1/runs/{run_id}"):  # these two tell of the moment
                assert head.headers["content-length"] == str(len(get.content)), path
            assert head.headers["content-type"] == get.headers["content-type"]
        stream = await at.client.head(f"/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"})
        assert (stream.status_code, stream.content) == (200, b"")
        assert stream.headers["content-type"].startswith("text/event-stream")
        refused = await at.client.head(f"/v1/runs/{run_id}/cancel")
        assert refused.status_code == 405 and refused.headers["allow"] == "POST"
        assert 'method="HEAD"' in (await at.client.get("/metrics")).text
        # The connection is as good as before.
        once = b"HEAD /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        answer = await raw(at, once + request_of(line="GET /healthz HTTP/1.1", body=b""))
        assert answer.count(b"HTTP/1.1 200 ") == 2 and answer.endswith(b'{"status":"ok"}')


async def test_cursors_and_limits_are_those_of_pages(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, _ = await at.asked()
        run = f"/v1/runs/{run_id}"
        for path in ("/v1/runs", f"{run}/messages", "/v1/pending-actions"):
            for cursor in ("x", "-1", "", "0x1", "1e9", "act_1", "run_" + "0" * 25, "é", "a" * 5_000, "9" * 30):
                answer = await at.client.get(path, params={"cursor": cursor})
                assert code_of(answer) == (422, "bad_cursor"), (path, cursor)
            for limit in ("0", "-1", "1e9", "501", "x", "", "9" * 30):
                answer = await at.client.get(path, params={"limit": limit})
                assert code_of(answer) == (422, "invalid_input") and "limit" in answer.json()["detail"], (path, limit)
        for after in ("-1", "x", "1e9", "9" * 30, ""):
            answer = await at.client.get(f"{run}/events", params={"after": after})
            assert code_of(answer) == (422, "invalid_input"), after
        assert code_of(await at.client.get(f"{run}/events", params={"after": "1000"})) == (409, "cursor_ahead")
        assert (await at.client.get("/v1/runs", params={"cursor": "run_" + "0" * 26})).json()["items"] == []


async def test_a_stream_is_what_the_client_takes(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, _ = await at.asked()
        for accept in ("text/event-stream;q=0", "application/json, text/event-stream; q=0.0", "*/*", ""):
            answer = await at.client.get(f"/v1/runs/{run_id}/events", headers={"Accept": accept})
            assert answer.headers["content-type"] == "application/json", accept
        for accept in ("text/event-stream", "application/json, Text/Event-Stream;q=0.5"):
            assert (await Connection.open(at.running.url, run_id, Accept=accept)).status in (200, 400)
            head = await at.client.head(f"/v1/runs/{run_id}/events", headers={"Accept": accept})
            assert head.headers["content-type"].startswith("text/event-stream"), accept


@pytest.mark.parametrize("act", ACTS)
async def test_who_may_not_is_told_so_before_anything_is_read(place: Place, outside: Outside, act: Act) -> None:
    doorman = Named(all=caller("all"), r=caller("r", *({*ACTS} - {act, "admin"})))
    async with house(place, [outside.writer()], doorman=doorman) as at:
        at.client.headers["X-Caller"] = "all"
        run_id, action_id = await at.asked()
        at.client.headers["X-Caller"] = "r"
        run, action = f"/v1/runs/{run_id}", f"/v1/pending-actions/{action_id}"
        guarded: dict[Act, list[tuple[str, str]]] = {
            "read": [("GET", "/v1/runs?limit=0"), ("GET", f"{run}/events?after=x"), ("GET", f"{run}/messages?cursor=x"),
                     ("GET", "/v1/pending-actions?status=x"), ("GET", "/v1/statistics?hours=x"), ("GET", "/metrics")],
            "start": [("POST", "/v1/runs"), ("POST", f"{run}/messages"), ("POST", f"{run}/signals"),
                      ("POST", f"{run}/retry"), ("POST", f"{run}/cancel")],
            "approve": [("POST", f"{action}/decision")],
            "evidence": [("POST", "/v1/evidence")],
            "resolve": [],
            "admin": [],
        }  # fmt: skip
        for method, path in guarded[act]:
            for body, media in (
                (b"{", "application/json"),
                (b'{"a": 1, "a": 2}', "application/json"),
                (b"", "text/plain"),
            ):
                answer = await at.client.request(method, path, content=body, headers={"Content-Type": media})
                assert code_of(answer) == (403, "not_permitted"), (path, body, answer.text)
            words = answer.json()["detail"]
            assert words.startswith("r may not ") and f"may not {act};" not in words and act in words, words


async def test_a_lone_surrogate_is_said_so(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        for body in (b'{"agent": "writer", "input": "\\ud800"}', b'{"agent": "writer", "input": "a\\udc00b"}'):
            refused = await at.client.post("/v1/runs", content=body, headers={KEY: "k", **JSON})
            assert code_of(refused) == (400, "broken_json") and "surrogate" in refused.json()["detail"], refused.text
        pair = b'{"agent": "writer", "input": "\\ud83d\\ude00"}'
        assert (await at.client.post("/v1/runs", content=pair, headers={KEY: "k", **JSON})).status_code == 201


async def test_what_is_echoed_is_cut(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        for members in ({"agent": "a" * 900_000}, {"agent": "writer", "conversation_id": "c" * 900_000}):
            body = {"input": "Go", **members}
            refused: httpx.Response = await at.client.post("/v1/runs", json=body, headers={KEY: "k"})
            assert refused.status_code == 404 and len(refused.content) < 10_000


async def test_a_token_that_is_pasted_is_written_down_nowhere(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        tokens = Tokens(at.sf.store, at.sf.doors.clock, at.sf.doors.entropy)
        _, token = await tokens.create("default", "anna", ["admin"])
        body = {"agent": "writer", "input": f"use {token}", "metadata": {"token": token}}
        run_id = str((await at.client.post("/v1/runs", json=body, headers={KEY: "k"})).json()["id"])
        action_id = await at.question(run_id)
        for path, said in (("messages", {"text": token}), ("signals", {"name": "paid", "value": [token]})):
            assert (await at.client.post(f"/v1/runs/{run_id}/{path}", json=said)).status_code == 202
        assert (await at.decide(action_id, "reject", reason=f"because {token}")).status_code == 200
        await at.until(run_id, "completed")
        told = [await at.client.get(f"/v1/runs/{run_id}{part}") for part in ("", "/events", "/messages")]
        told += [await at.client.get(f"/v1/pending-actions/{action_id}")]
        secret = token.rpartition("_")[2]
        assert all(secret not in answer.text for answer in told)
        assert "[redacted:surefoot_token]" in told[2].text and "[redacted:surefoot_token]" in told[3].text
        signals = [row for row in (await at.sf.store.load("default", run_id)).signals.unread]
        assert secret.encode() not in await at.sf.store.blob("default", signals[0].ref)


async def test_a_body_is_what_it_says(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        for wrong in ({"Content-Encoding": "gzip"}, {"Content-Type": "application/json; charset=latin-1"}):
            refused = await at.client.post("/v1/runs", content=START, headers={KEY: "k", **JSON, **wrong})
            assert code_of(refused) == (415, "not_json"), wrong
        plain = {"Content-Encoding": "identity", "Content-Type": 'application/json; charset="UTF-8"'}
        taken = await at.client.post("/v1/runs", content=START, headers={KEY: "k", **JSON, **plain})
        assert taken.status_code == 201


async def test_who_hangs_up_inside_a_body_is_no_bug(
    place: Place, outside: Outside, capsys: pytest.CaptureFixture[str]
) -> None:
    async with house(place, [outside.writer()]) as at:
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", int(at.running.url.rpartition(":")[2]))
            writer.write(request_of("Content-Type: application/json", f"{KEY}: a", "Content-Length: 500"))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        for _ in range(5):
            assert (await at.client.get("/healthz")).status_code == 200
    assert "Traceback" not in capsys.readouterr().err
