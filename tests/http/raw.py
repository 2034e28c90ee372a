"""Raw peers for the HTTP client: a server that does with a connection what a test tells it, and operations to call."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

from surefoot.doors import Clock, Hook, Instant, SystemClock, no_hook
from surefoot.effects import EffectName, Operation
from surefoot.http import SystemHttp

Behaviour = Callable[["Connection"], Awaitable[None]]


class NoSigner:
    """Signs nothing."""

    def sign(self, op: Operation, text: str, place: str, account: str) -> str:
        return text

    def scan(self, op: Operation, text: str, place: str, account: str) -> Literal["ours", "forged", "none"]:
        return "none"


class NoSecrets:
    """Knows nothing."""

    def get(self, name: str) -> str | None:
        return None


class SetClock(SystemClock):
    """The machine's clock, moved by `ahead` seconds: a process that was stopped finds it so."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def now(self) -> Instant:
        real = super().now()
        return Instant(real.mono + self.ahead, real.wall + self.ahead)


def make_op(
    *,
    effect: EffectName = "lookup",
    looking: bool = False,
    first_byte_in: float = 5.0,
    last_byte_in: float = 10.0,
    earlier_may_be_sent: bool = False,
    clock: Clock | None = None,
    hook: Hook = no_hook,
) -> Operation:
    """An operation on real sockets; its two times are given in seconds from now."""
    clock = clock or SystemClock()
    now = clock.now()
    return Operation(
        key="run_1:step_1",
        tool="t",
        run_id="run_1",
        step_id="step_1",
        call_id="call_1",
        attempt=1,
        first_sent_at=None,
        search_from=now.wall - 900,
        tenant_id="default",
        first_byte_before=now.mono + first_byte_in,
        last_byte_before=now.mono + last_byte_in,
        effect=effect,
        looking=looking,
        earlier_may_be_sent=earlier_may_be_sent,
        door=SystemHttp(clock, hook),
        signer=NoSigner(),
        secrets=NoSecrets(),
    )


class Connection:
    """One accepted connection; `received` holds every byte that arrived."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.received = bytearray()
        self.reset_by_peer = False
        self.over = asyncio.Event()

    async def read_some(self) -> bytes:
        """What arrives next; b"" at the end."""
        try:
            data = await self.reader.read(65_536)
        except ConnectionResetError:
            self.reset_by_peer = True
            data = b""
        self.received += data
        return data

    async def read_request(self) -> bytes:
        """A whole request with its Content-Length."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += await self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        while len(body) < length:
            more = await self._more()
            data, body = data + more, body + more
        return data

    async def read_to_end(self) -> None:
        """Until the peer closes or resets."""
        while await self.read_some():
            pass

    async def send(self, data: bytes) -> None:
        """Write and flush."""
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self, status: int, body: bytes = b"{}", **headers: str) -> None:
        """A whole reply."""
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def reset(self) -> None:
        """RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def _more(self) -> bytes:
        data = await self.read_some()
        if not data:
            raise EOFError
        return data


class Peer:
    """A server whose behaviour is a function of the connection; remembers every connection."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.url = ""

    def bytes_received(self) -> int:
        """Over all connections."""
        return sum(len(connection.received) for connection in self.connections)

    def requests(self) -> int:
        """How many requests began, over all connections."""
        return sum(bytes(connection.received).count(b" HTTP/1.1\r\n") for connection in self.connections)


@asynccontextmanager
async def serving(
    behaviour: Behaviour, *, receive_buffer: int | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Peer]:
    """A server on loopback that treats each connection with `behaviour`."""
    peer = Peer()
    tasks: set[asyncio.Task[None]] = set()

    async def treat(connection: Connection) -> None:
        try:
            await behaviour(connection)
        except (EOFError, ConnectionError):
            pass
        finally:
            connection.over.set()
            connection.writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        peer.connections.append(connection)
        task = asyncio.ensure_future(treat(connection))
        tasks.add(task)

    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.bind(("127.0.0.1", 0))
    server = await asyncio.start_server(accept, sock=sock, limit=receive_buffer or 65_536, ssl=tls)
    peer.url = f"{'https' if tls else 'http'}://127.0.0.1:{sock.getsockname()[1]}"
    try:
        yield peer
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
