"""How ends of an exchange are sorted: real sockets, one table row after the other."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from surefoot.effects import InDoubt, NotSent, Refused
from surefoot.http import client, nothing_left
from surefoot.http_limits import retry_after_seconds
from tests.http.raw import Behaviour, Connection, make_op, serving
from tests.support import eventually


def answering(status: int, body: bytes = b"{}", **headers: str) -> Behaviour:
    async def behave(connection: Connection) -> None:
        while True:
            await connection.read_request()
            await connection.reply(status, body, **headers)

    return behave


async def after_request(act: Callable[[Connection], None], head: bytes = b"") -> Behaviour:
    async def behave(connection: Connection) -> None:
        await connection.read_request()
        if head:
            await connection.send(head)
        act(connection)

    return behave


async def test_a_post_arrives_once_as_it_was_given() -> None:
    async with serving(answering(201, b'{"id": 7}', x_thing="a")) as peer, client(make_op()) as http:
        reply = await http.post(f"{peer.url}/things", content=b'{"b":1,"a":2}', headers={"Content-Type": "text/json"})
    assert (reply.status, reply.json(), reply.headers["x-thing"], reply.truncated) == (201, {"id": 7}, "a", False)
    head, _, body = bytes(peer.connections[0].received).partition(b"\r\n\r\n")
    assert body == b'{"b":1,"a":2}'
    assert b"POST /things HTTP/1.1" in head and b"Connection: close" in head and b"Content-Type: text/json" in head
    assert peer.requests() == 1


async def test_json_is_serialised_once_with_its_type() -> None:
    async with serving(answering(200)) as peer, client(make_op(), base_url=peer.url) as http:
        await http.put("/a b", json={"text": "ä", "n": 2**70}, params={"q": "x y"})
    head, _, body = bytes(peer.connections[0].received).partition(b"\r\n\r\n")
    assert body == f'{{"text":"ä","n":{2**70}}}'.encode()
    assert b"PUT /a%20b?q=x+y HTTP/1.1" in head and b"Content-Type: application/json" in head


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 413, 415, 307, 308])
@pytest.mark.parametrize("earlier", [False, True])
async def test_a_sure_refusal(status: int, earlier: bool) -> None:
    op = make_op(earlier_may_be_sent=earlier)
    async with serving(answering(status)) as peer, client(op, base_url=peer.url) as http:
        with pytest.raises(Refused) as caught:
            await http.post("/x", json={})
    assert (caught.value.status, caught.value.retry_after) == (status, None)


@pytest.mark.parametrize("status", [409, 412, 422])
async def test_a_refusal_that_a_repeat_may_meet(status: int) -> None:
    async with serving(answering(status)) as peer:
        async with client(make_op(), base_url=peer.url) as http:
            with pytest.raises(Refused):
                await http.post("/x", json={})
        async with client(make_op(earlier_may_be_sent=True), base_url=peer.url) as http:
            with pytest.raises(InDoubt):
                await http.post("/x", json={})


@pytest.mark.parametrize("status", [301, 302, 303, 304, 402, 408, 418, 423, 499, 500, 502, 503, 504])
async def test_a_status_that_leaves_doubt(status: int) -> None:
    reply = answering(status, location="/elsewhere", retry_after="1")
    async with serving(reply) as peer, client(make_op(), base_url=peer.url) as http:
        with pytest.raises(InDoubt) as caught:
            await http.post("/x", json={})
    assert caught.value.status == status
    assert peer.requests() == 1, "no redirect is followed and nothing is retried"


async def test_c005_one_post_for_a_502() -> None:
    async with serving(answering(502)) as peer, client(make_op(), base_url=peer.url) as http:
        with pytest.raises(InDoubt):
            await http.post("/x", json={})
    assert (peer.requests(), len(peer.connections)) == (1, 1)


async def test_refused_connection_is_not_sent() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/x?token=CANARY"
        async with client(make_op()) as http:
            with pytest.raises(NotSent) as caught:
                await http.post(url, json={})
    assert "CANARY" not in str(caught.value) and caught.value.__context__ is None


async def test_a_name_that_does_not_exist_is_not_sent() -> None:
    async with client(make_op()) as http:
        with pytest.raises(NotSent):
            await http.post("http://no-such-host.invalid/x", json={})


async def test_peer_without_tls_is_not_sent() -> None:
    async def talk_plain(connection: Connection) -> None:
        await connection.read_some()
        await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(talk_plain) as peer, client(make_op()) as http:
        with pytest.raises(NotSent):
            await http.post(peer.url.replace("http:", "https:"), json={"secret-body": 1})
    assert b"secret-body" not in peer.connections[0].received and b"POST" not in peer.connections[0].received


async def test_reset_after_the_request_is_in_doubt() -> None:
    async with serving(await after_request(Connection.reset)) as peer, client(make_op(), base_url=peer.url) as http:
        with pytest.raises(InDoubt):
            await http.post("/x", json={})
    assert peer.requests() == 1


async def test_no_reply_in_time_is_in_doubt_and_the_connection_is_reset() -> None:
    async def say_nothing(connection: Connection) -> None:
        await connection.read_to_end()

    op = make_op(first_byte_in=0.2, last_byte_in=0.2)
    async with serving(say_nothing) as peer, client(op, base_url=peer.url) as http:
        with pytest.raises(InDoubt):
            await http.post("/x", json={})
        await eventually(lambda: peer.connections[0].reset_by_peer, "the reset")
    assert peer.requests() == 1


async def test_a_timeout_of_the_client_is_for_the_whole_exchange() -> None:
    async def drip(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while not connection.writer.is_closing():
            await connection.send(b"x")
            await _tick()

    clock = asyncio.get_running_loop().time
    begun = clock()
    async with serving(drip) as peer, client(make_op(), base_url=peer.url, timeout=0.2) as http:
        with pytest.raises(InDoubt):
            await http.post("/x", json={})
    assert clock() - begun < 4


async def _tick() -> None:
    loop = asyncio.get_running_loop()
    wait = loop.create_future()
    loop.call_later(0.01, wait.set_result, None)
    await wait


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 201 Created\r\ncontent-length: 50\r\n\r\n{",
        b'HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"id"\r\n',
        b"HTTP/1.1 201 Cre",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 201 Created\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nabcd",
        b"HTTP/1.1 201 Created\r\ncontent-encoding: gzip\r\ncontent-length: 25\r\n\r\n"
        + gzip.compress(b'{"id": 1}', mtime=0)[:25],
        b"HTTP/1.1 201 Created\r\ncontent-encoding: br\r\ncontent-length: 4\r\n\r\nabcd",
    ],
)
@pytest.mark.parametrize("reset", [False, True])
async def test_a_reply_that_cannot_be_read_is_in_doubt(head: bytes, reset: bool) -> None:
    act = Connection.reset if reset else lambda connection: connection.writer.write_eof()
    async with serving(await after_request(act, head)) as peer, client(make_op(), base_url=peer.url) as http:
        with pytest.raises(InDoubt):
            await http.post("/x", json={})
    assert peer.requests() == 1


async def test_an_early_refusal_is_read_though_the_body_was_not_taken() -> None:
    async def refuse_early(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.reply(413)
        await connection.read_to_end()

    async with serving(refuse_early) as peer, client(make_op(), base_url=peer.url) as http:
        with pytest.raises(Refused) as caught:
            await http.post("/x", content=b"x" * 300_000)
    assert caught.value.status == 413


async def test_gzip_is_read_and_a_bomb_is_cut() -> None:
    small, bomb = gzip.compress(b'{"id": 1}', mtime=0), gzip.compress(b"0" * 50_000_000)
    async with AsyncExitStack() as stack:
        peer = await stack.enter_async_context(serving(answering(200, small, content_encoding="gzip")))
        http = await stack.enter_async_context(client(make_op(), base_url=peer.url))
        assert (await http.post("/x", json={})).json() == {"id": 1}
        peer = await stack.enter_async_context(serving(answering(200, bomb, content_encoding="gzip")))
        http = await stack.enter_async_context(client(make_op(), base_url=peer.url))
        reply = await http.post("/x", json={}, body_bytes_max=1_000)
    assert (len(reply.bytes), reply.truncated) == (1_000, True)


async def test_a_gzip_body_of_several_members_is_read_to_its_end() -> None:
    first, second = gzip.compress(b"[1,", mtime=0), gzip.compress(b"2]", mtime=0)
    long = gzip.compress(b"1" * 500, mtime=0)
    bodies = {
        "/long": long + long,
        "/two": first + second,
        "/behind": first + second + b"\r\nnone",
        "/half": first + second[:-4],
    }

    async def behave(connection: Connection) -> None:
        while True:
            path = (await connection.read_request()).split()[1].decode()
            await connection.reply(200, bodies[path], content_encoding="gzip")

    async with serving(behave) as peer, client(make_op(effect="read"), base_url=peer.url) as http:
        assert (await http.get("/two")).json() == [1, 2]
        assert (await http.get("/behind")).json() == [1, 2]
        for room in (500, 501, 999, 1_000):
            reply = await http.get("/long", body_bytes_max=room)
            assert (len(reply.bytes), reply.truncated) == (room, room < 1_000)
        with pytest.raises(InDoubt):
            await http.get("/half")


async def test_what_a_peer_writes_behind_a_reply_is_not_the_reply_to_the_next_request() -> None:
    more = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n[1]"

    async def behave(connection: Connection) -> None:
        while True:
            path = (await connection.read_request()).split()[1]
            body = b"[]" if path == b"/first" else b"[2]"
            head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
            await connection.send(head + body + more)

    async with serving(behave) as peer, client(make_op(looking=True), base_url=peer.url) as http:
        assert (await http.get("/first")).json() == []
        assert (await http.get("/second")).json() == [2]
    assert len(peer.connections) == 2


async def test_a_large_body_is_cut_and_the_effect_stands() -> None:
    async with serving(answering(201, b"y" * 200_000)) as peer, client(make_op(), base_url=peer.url) as http:
        reply = await http.post("/x", json={}, body_bytes_max=70_000)
    assert (reply.status, len(reply.bytes), reply.truncated) == (201, 70_000, True)


async def test_json_is_lenient() -> None:
    async with serving(answering(200, b"{not json \xff")) as peer, client(make_op(), base_url=peer.url) as http:
        reply = await http.post("/x", json={})
    assert reply.json() is None and reply.text == "{not json �"


@pytest.mark.parametrize(
    ("path", "headers", "value"),
    [
        ("ftp://example.org/", {}, 1),
        ("http://user:pw@127.0.0.1/", {}, 1),
        ("http:///x", {}, 1),
        ("http://127.0.0.1:99999/", {}, 1),
        ("http://127.0.0.1:9/a\nb", {}, 1),
        ("http://127.0.0.1:9/a\tb?c\r=1", {}, 1),
        ("\x01http://127.0.0.1:9/", {}, 1),
        ("", {"X-A": "CANARY\r\nX-B: 1"}, 1),
        ("", {"X-A": "CANARY \u4e2d"}, 1),
        ("", {}, float("nan")),
        ("", {}, "\ud800"),
        ("", {}, object()),
    ],
)
async def test_what_cannot_be_formed_is_refused(path: str, headers: dict[str, str], value: object) -> None:
    async with serving(answering(200)) as peer, client(make_op()) as http:
        with pytest.raises(Refused) as caught:
            await http.post(path or peer.url, json=value, headers=headers)
    assert caught.value.retry_after is None and caught.value.__context__ is None
    assert "CANARY" not in str(caught.value) and "pw" not in str(caught.value)
    assert peer.bytes_received() == 0


async def test_allowed_statuses_are_returned() -> None:
    async with serving(answering(404, b'{"m":1}')) as peer, client(make_op(), base_url=peer.url) as http:
        reply = await http.get("/x", allow=(404,), reading=True)
    assert (reply.status, reply.json()) == (404, {"m": 1})


@pytest.mark.parametrize("status", [300, 301, 304, 307, 402, 404, 409, 422])
async def test_a_read_is_refused_where_asking_again_does_not_help(status: int) -> None:
    op = make_op(effect="read", earlier_may_be_sent=True)
    async with serving(answering(status)) as peer, client(op, base_url=peer.url) as http:
        with pytest.raises(Refused):
            await http.get("/x")


async def test_a_read_heeds_a_503_with_retry_after() -> None:
    op = make_op(looking=True)
    async with serving(answering(503, retry_after="9")) as peer, client(op, base_url=peer.url) as http:
        with pytest.raises(Refused) as caught:
            await http.get("/x")
    assert caught.value.retry_after == 9


async def test_a_read_keeps_its_connection_and_an_effect_does_not() -> None:
    async with serving(answering(200)) as peer:
        async with client(make_op(effect="read"), base_url=peer.url) as http:
            await http.get("/a")
            await http.get("/b")
        assert len(peer.connections) == 1
        async with client(make_op(), base_url=peer.url) as http:
            await http.post("/a", json={})
            await http.post("/b", json={})
        assert len(peer.connections) == 3


async def test_parallel_reads_do_not_share_a_connection() -> None:
    async with serving(answering(200)) as peer, client(make_op(effect="read"), base_url=peer.url) as http:
        await asyncio.gather(*(http.get(f"/{n}") for n in range(5)))
        await asyncio.gather(*(http.get(f"/{n}") for n in range(5)))
    assert (peer.requests(), len(peer.connections)) == (10, 5)


async def test_a_refusal_after_an_act_of_the_same_call_is_in_doubt() -> None:
    answers = iter([201, 404])

    async def behave(connection: Connection) -> None:
        await connection.read_request()
        await connection.reply(next(answers))

    async with serving(behave) as peer, client(make_op(), base_url=peer.url) as http:
        await http.post("/first", json={})
        with pytest.raises(InDoubt):
            await http.post("/second", json={})


async def test_not_sent_after_an_act_of_the_same_call_is_in_doubt() -> None:
    op = make_op()
    async with serving(answering(201)) as peer, client(op, base_url=peer.url) as http:
        await http.post("/first", json={})
    async with client(op, base_url=peer.url) as http:
        with pytest.raises(InDoubt):
            await http.post("/second", json={})


async def test_a_refusal_after_a_refusal_is_a_refusal() -> None:
    async with serving(answering(404)) as peer, client(make_op(), base_url=peer.url) as http:
        for _ in range(2):
            with pytest.raises(Refused):
                await http.post("/x", json={})


async def test_a_failed_read_before_the_effect_is_not_sent() -> None:
    async with serving(answering(500)) as peer, client(make_op(), base_url=peer.url) as http:
        with pytest.raises(NotSent):
            await http.get("/me", reading=True)
        with pytest.raises(InDoubt):
            await http.get("/trigger")
        with pytest.raises(InDoubt):
            await http.get("/me", reading=True)


async def test_cancelled_before_the_first_byte_and_after() -> None:
    async def say_nothing(connection: Connection) -> None:
        await connection.read_to_end()

    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        silent = f"https://127.0.0.1:{full.getsockname()[1]}/"
        async with client(make_op()) as http:
            task = asyncio.ensure_future(http.post(silent, json={}))
            await _tick()
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as early:
                await task
    async with serving(say_nothing) as peer, client(make_op(), base_url=peer.url) as http:
        task = asyncio.ensure_future(http.post("/x", json={}))
        await eventually(lambda: peer.bytes_received() > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as late:
            await task
        await eventually(lambda: peer.connections[0].reset_by_peer, "the reset")
    assert nothing_left(early.value) and not nothing_left(late.value)


R15 = [
    # status, headers, body, seconds to wait (None: no try again alone), kind for an effect
    (429, {"retry-after": "7"}, 7.0, Refused),
    (429, {}, 60.0, Refused),
    (429, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1000090"}, 90.0, Refused),
    (429, {"retry-after": "Mon, 12 Jan 1970 13:46:45 GMT"}, 5.0, Refused),
    (429, {"retry-after": "soon"}, 60.0, Refused),
    (403, {"retry-after": "5"}, 5.0, Refused),
    (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1000030"}, 30.0, Refused),
    (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "999000"}, 1.0, Refused),
    (403, {"x-ratelimit-remaining": "4999", "x-ratelimit-reset": "1000030"}, None, Refused),
    (403, {}, None, Refused),
    (503, {"retry-after": "3"}, 3.0, InDoubt),
    (200, {"x-error": "yes"}, None, None),
]


@pytest.mark.parametrize(("status", "headers", "wait", "kind"), R15)
async def test_r15_limits_and_permissions(
    status: int, headers: dict[str, str], wait: float | None, kind: type[Exception] | None
) -> None:
    assert retry_after_seconds(status, headers, 1_000_000.0) == wait
    named = {name.replace("-", "_"): value for name, value in headers.items() if "reset" not in name}
    reply = answering(status, b'{"error": "no"}', **named)
    async with serving(reply) as peer, client(make_op(), base_url=peer.url) as http:
        if kind is None:
            assert (await http.post("/x", json={})).json() == {"error": "no"}
        else:
            with pytest.raises(kind) as caught:
                await http.post("/x", json={})
            if isinstance(caught.value, Refused) and "reset" not in str(headers):
                assert (caught.value.retry_after is None) == (wait is None)
    assert peer.requests() == 1


SECONDARY = b'{"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}'


@pytest.mark.parametrize(
    ("body", "headers", "wait"),
    [
        (SECONDARY, {}, 60.0),
        (SECONDARY, {"x_ratelimit_remaining": "4999"}, 60.0),
        (SECONDARY, {"retry_after": "7"}, 7.0),
        (gzip.compress(SECONDARY), {"content_encoding": "gzip"}, 60.0),
        (SECONDARY, {"content_encoding": "gzip"}, None),
        (b"<html>a secondary rate limit</html>", {}, None),
        (b'{"message": "Resource not accessible by integration"}', {}, None),
        (b'{"message": 5}', {}, None),
        (b"[" * 100_000, {}, None),
    ],
)
@pytest.mark.parametrize("reads", [True, False])
async def test_a_limit_that_is_told_in_words_alone_is_waited_for(
    body: bytes, headers: dict[str, str], wait: float | None, reads: bool
) -> None:
    async with serving(answering(403, body, **headers)) as peer, client(make_op(), base_url=peer.url) as http:
        with pytest.raises(Refused) as caught:
            await http.request("GET" if reads else "POST", "/x", reading=reads)
    assert (caught.value.status, caught.value.retry_after) == (403, wait) and peer.requests() == 1


async def test_a_refusal_whose_body_does_not_come_is_one_all_the_same() -> None:
    cut = await after_request(Connection.reset, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\n{")
    async with serving(cut) as peer, client(make_op(), base_url=peer.url) as http:
        with pytest.raises(Refused) as caught:
            await http.post("/x", json={})
    assert (caught.value.status, caught.value.retry_after) == (403, None)


def test_a_wait_has_a_limit() -> None:
    assert retry_after_seconds(429, {"retry-after": "9" * 40}, 0.0) == 86_400
    assert retry_after_seconds(429, {"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 500.0) == 0


async def test_texts_hold_no_secret_of_request_or_reply() -> None:
    async def echo(connection: Connection) -> None:
        await connection.read_request()
        await connection.reply(500, b"CANARY-BODY", x_echo="CANARY-HEADER")

    async with serving(echo) as peer, client(make_op(), headers={"Authorization": "CANARY-TOKEN"}) as http:
        with pytest.raises(InDoubt) as caught:
            await http.post(f"{peer.url}/x/CANARY-PATH?t=CANARY-QUERY", json={"a": "CANARY-JSON"})
    assert str(caught.value) == "POST 127.0.0.1: status 500"
    assert caught.value.__context__ is None and caught.value.__cause__ is None
