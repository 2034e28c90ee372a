"""A client that takes nothing of a plain answer is let go; one that is slow gets all of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from surefoot.server import protocol
from surefoot.server.protocol import Protocol
from surefoot.server.running import Server
from tests.support import eventually

SMALL, LARGE = 40_000, 400_000
"""Of the first the transport asks nobody to wait; of the second it does."""


@asynccontextmanager
async def served(size: int) -> AsyncIterator[tuple[Server, tuple[str, int]]]:
    """A server whose answers have so many bytes, and whose kernel keeps few of them."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        length = str(size).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": b"x" * size})

    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        config = uvicorn.Config(app, http=Protocol, log_level="critical", lifespan="off", timeout_keep_alive=1)
        server = Server(config)
        serving = asyncio.ensure_future(server.serve([sock]))
        await eventually(lambda: server.started, "the server")
        try:
            yield server, sock.getsockname()
        finally:
            server.should_exit = server.force_exit = True
            await serving


async def asking(address: tuple[str, int]) -> socket.socket:
    """A client that has asked, and whose kernel keeps little too."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, address)
    await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    return client


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_a_client_that_takes_nothing_is_let_go(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "UNREAD_SECONDS_MAX", 0.2)
    async with served(size) as (server, address):
        client = await asking(address)
        await eventually(lambda: server.server_state.total_requests, "the answer")
        await eventually(lambda: not server.server_state.connections, "its end")
        client.close()


async def test_a_client_that_is_slow_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look: Callable[[Protocol, int], None] = Protocol._look_at_reader

    def counted(self: Protocol, before: int) -> None:
        nonlocal looks
        looks += 1
        look(self, before)

    async def looked(times: int) -> None:
        await eventually(lambda: looks >= times, "a look at the reader")

    monkeypatch.setattr(protocol, "UNREAD_SECONDS_MAX", 1.0)
    monkeypatch.setattr(Protocol, "_look_at_reader", counted)
    async with served(LARGE) as (_, address):
        client, loop, got = await asking(address), asyncio.get_running_loop(), b""
        for turn in range(1, 4):
            got += await loop.sock_recv(client, 30_000)
            got += await loop.sock_recv(client, 30_000)
            await looked(turn)
        while len(got.partition(b"\r\n\r\n")[2]) < LARGE:
            piece = await loop.sock_recv(client, 65_536)
            assert piece, "the answer was cut off"
            got += piece
        client.close()
    assert got.endswith(b"x" * LARGE)
