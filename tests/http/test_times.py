"""The two times of an operation and the passages of the door, judged at real sockets."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from surefoot import http_wire
from surefoot.effects import InDoubt, NotSent
from surefoot.http import client
from tests.http.raw import Connection, SetClock, make_op, serving
from tests.support import eventually

PEM = Path(__file__).with_name("loopback.pem")
LARGE = b"z" * 40_000_000
"""More than the socket buffers of both sides hold."""


async def say_nothing(connection: Connection) -> None:
    await connection.read_to_end()


async def answer(connection: Connection) -> None:
    await connection.read_request()
    await connection.reply(201, b'{"id": 1}')


@pytest.fixture
def tls(monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's context; the client trusts its certificate for this test."""
    trusting = ssl.create_default_context(cafile=str(PEM))
    monkeypatch.setattr(http_wire, "_tls_context", lambda: trusting)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(PEM)
    return server


async def test_a_connection_that_does_not_come_about_in_time_is_not_sent() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]  # fill the queue, so that the next SYN gets no answer
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(listening.getsockname())
        async with client(make_op(first_byte_in=0.3)) as http:
            with pytest.raises(NotSent):
                await http.post(f"http://127.0.0.1:{listening.getsockname()[1]}/x", json={})
        for sock in waiting:
            sock.close()


async def test_a_tls_hello_without_an_answer_is_not_sent_and_no_request_byte_arrives() -> None:
    async with serving(say_nothing) as peer, client(make_op(first_byte_in=0.3)) as http:
        with pytest.raises(NotSent):
            await http.post(peer.url.replace("http:", "https:"), json={"a": "REQUEST-BYTES"})
        await eventually(lambda: peer.connections[0].over.is_set())
    received = bytes(peer.connections[0].received)
    assert received[:1] == b"\x16" and b"REQUEST-BYTES" not in received and b"POST" not in received


async def test_the_first_byte_is_judged_behind_connect_and_tls(tls: ssl.SSLContext) -> None:
    clock = SetClock()

    def stop_before_the_write(name: str, when: Literal["before", "after"]) -> None:
        if (name, when) == ("http.send", "before"):
            clock.ahead = 6.0

    for context in (None, tls):
        clock.ahead = 0.0
        op = make_op(first_byte_in=5, last_byte_in=60, clock=clock, hook=stop_before_the_write)
        async with serving(say_nothing, tls=context) as peer, client(op, base_url=peer.url) as http:
            with pytest.raises(NotSent):
                await http.post("/x", json={})
            await eventually(lambda: peer.connections[0].over.is_set())
        assert peer.bytes_received() == 0


async def test_a_passed_first_byte_time_does_not_even_connect() -> None:
    async with serving(answer) as peer, client(make_op(first_byte_in=-1), base_url=peer.url) as http:
        with pytest.raises(NotSent):
            await http.post("/x", json={})
    assert peer.connections == []


async def test_a_blocked_write_is_reset_at_the_last_byte_time() -> None:
    begun = asyncio.Event()

    async def take_nothing(connection: Connection) -> None:
        await begun.wait()
        await connection.read_to_end()

    op = make_op(first_byte_in=0.4, last_byte_in=0.4)
    async with serving(take_nothing, receive_buffer=4_096) as peer, client(op, base_url=peer.url) as http:
        with pytest.raises(InDoubt):
            await http.post("/x", content=LARGE)
        begun.set()
        await eventually(lambda: peer.connections[0].over.is_set())
    assert peer.connections[0].reset_by_peer
    assert peer.bytes_received() < len(LARGE)


async def test_a_stopped_process_writes_nothing_when_the_peer_takes_bytes_again() -> None:
    """The write blocks, the process is stopped past the time, the peer reads: the rest must stay here."""
    clock = SetClock()
    go_on = asyncio.Event()

    async def take_later(connection: Connection) -> None:
        await go_on.wait()
        await connection.read_to_end()

    op = make_op(first_byte_in=5, last_byte_in=30, clock=clock)
    async with serving(take_later, receive_buffer=4_096) as peer, client(op, base_url=peer.url) as http:
        call = asyncio.ensure_future(http.post("/x", content=LARGE))
        transport = http._transport
        assert isinstance(transport, http_wire.Transport)
        await eventually(lambda: transport._connections and transport._connections[0].stream.gate.sent_bytes)
        sent = await _steady(transport)
        clock.ahead = 31.0
        go_on.set()
        with pytest.raises(InDoubt):
            await call
        assert transport._connections[0].stream.gate.sent_bytes == sent
        await eventually(lambda: peer.connections[0].over.is_set())
    assert peer.bytes_received() <= sent


async def _steady(transport: http_wire.Transport) -> int:
    """The bytes sent, once the write is blocked."""
    gate = transport._connections[0].stream.gate
    history: list[int] = []

    def blocked() -> bool:
        history.append(gate.sent_bytes)
        return len(history) > 20 and len(set(history[-20:])) == 1

    await eventually(blocked)
    return gate.sent_bytes


CHILD = """
import asyncio, sys
from surefoot.http import client
from tests.http.raw import make_op
async def main():
    async with client(make_op(last_byte_in=60), base_url=sys.argv[1]) as http:
        await http.post("/x", content=b"z" * 40_000_000)
asyncio.run(main())
"""


async def test_the_kernel_of_a_killed_process_does_not_go_on_writing() -> None:
    go_on = asyncio.Event()

    async def take_later(connection: Connection) -> None:
        await connection.read_some()
        await go_on.wait()
        await connection.read_to_end()

    async with serving(take_later, receive_buffer=4_096) as peer:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, peer.url)
        await eventually(peer.bytes_received, "the child's first bytes")
        child.send_signal(signal.SIGKILL)
        await child.wait()
        go_on.set()
        await eventually(lambda: peer.connections[0].over.is_set())
    assert peer.connections[0].reset_by_peer


async def test_the_passages_of_the_door_in_their_order(tls: ssl.SSLContext) -> None:
    passages: list[tuple[str, str]] = []

    def hook(name: str, when: str) -> None:
        passages.append((name, when))

    for context in (None, tls):
        passages.clear()
        async with serving(answer, tls=context) as peer, client(make_op(hook=hook), base_url=peer.url) as http:
            assert (await http.post("/x", content=b"x" * 300_000)).json() == {"id": 1}
        assert passages == [
            (name, when) for name in ("http.connect", "http.send", "http.reply") for when in ("before", "after")
        ]


@pytest.mark.parametrize("name", ["http.connect", "http.send", "http.reply"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_fault_at_a_passage_is_sorted_by_whether_a_byte_had_left(name: str, when: str) -> None:
    def fault(at: str, side: str) -> None:
        if (at, side) == (name, when):
            raise OSError("fault")

    sent = name == "http.reply" or (name, when) == ("http.send", "after")
    async with serving(answer) as peer, client(make_op(hook=fault), base_url=peer.url) as http:
        with pytest.raises(InDoubt if sent else NotSent):
            await http.post("/x", json={})
        await eventually(lambda: all(connection.over.is_set() for connection in peer.connections))
    assert (peer.bytes_received() > 0) == sent


class Crash(BaseException):
    """What a simulated death raises."""


@pytest.mark.parametrize("name", ["http.connect", "http.send", "http.reply"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_a_passage_passes_through(name: str, when: str) -> None:
    def crash(at: str, side: str) -> None:
        if (at, side) == (name, when):
            raise Crash

    async with serving(answer) as peer, client(make_op(hook=crash), base_url=peer.url) as http:
        with pytest.raises(Crash):
            await http.post("/x", json={})


async def test_a_tls_reply_that_ends_without_farewell_is_in_doubt(tls: ssl.SSLContext) -> None:
    async def cut(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(b'HTTP/1.1 201 Created\r\n\r\n{"id": 1}')
        connection.writer.get_extra_info("socket").shutdown(socket.SHUT_WR)

    async with serving(cut, tls=tls) as peer, client(make_op(), base_url=peer.url) as http:
        with pytest.raises(InDoubt):
            await http.post("/x", json={})


async def test_a_certificate_that_nobody_vouches_for_is_not_sent(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_wire, "_tls_context", ssl.create_default_context)
    async with serving(answer, tls=tls) as peer, client(make_op(), base_url=peer.url) as http:
        with pytest.raises(NotSent):
            await http.post("/x", json={})
    assert peer.bytes_received() == 0


def test_importing_the_module_loads_no_http_library() -> None:
    code = "import sys, surefoot.http; sys.exit(len({'httpx', 'httpcore', 'h11', 'pydantic'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": "src"}, check=False).returncode == 0
