"""A small HTTP/1.1 server that can misbehave: it does with a connection what an `Outcome` says.

Loopback only, one request at a time on each connection, bodies up to BODY_BYTES_MAX.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType

import h11

from surefoot.testing.wire import Outcome, Reply, WireRequest, json_reply

BODY_BYTES_MAX = 16_000_000
READ_BYTES = 65_536

Handler = Callable[[WireRequest], Awaitable[Outcome]]


class ClientGone(Exception):
    """The other side closed the connection."""


class HttpServer:
    """Serves `handler` on `host`:`port` (0: any free one) between `start` and `stop`, or as an async context manager.

    `clock` gives the time, in seconds, that the outcomes' `at` is measured on.
    """

    def __init__(
        self, handler: Handler, *, host: str = "127.0.0.1", port: int = 0, clock: Callable[[], float] = time.time
    ) -> None:
        self._handler = handler
        self._host = host
        self._port = port
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port that is listened on. Raises RuntimeError before `start`."""
        if self._server is None:
            raise RuntimeError("the server has no port before start()")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """The base address, without a slash at its end."""
        return f"http://{self._host}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises OSError if the port is taken."""
        self._server = await asyncio.start_server(self._connected, self._host, self._port)

    async def stop(self) -> None:
        """Stop listening and drop every connection, also those that hang."""
        if self._server is not None:
            self._server.close()
            for task in list(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> str:
        """Start; the value is the URL."""
        await self.start()
        return self.url

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a connection is served by a task")
        self._connections.add(task)
        try:
            await _Connection(reader, writer, self._clock).serve(self._handler)
        except asyncio.CancelledError:
            # Only stop() cancels; a cancelled connection task would be reported as an error by asyncio.streams.
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()


class _Connection:
    """One connection, request after request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._h11 = h11.Connection(h11.SERVER)
        self._head_only = False

    async def serve(self, handler: Handler) -> None:
        with contextlib.suppress(ClientGone, ConnectionError, h11.RemoteProtocolError):
            while True:
                request = await self._request()
                outcome = await handler(request)
                await self._wait(outcome.at)
                if not await self._realise(outcome):
                    return
                self._h11.start_next_cycle()

    async def _request(self) -> WireRequest:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                await self._read(None)
            elif isinstance(event, h11.Request):
                head = event
                self._head_only = event.method == b"HEAD"
                if self._h11.they_are_waiting_for_100_continue:
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY_BYTES_MAX:
                    await self._answer(json_reply(413, {"message": f"more than {BODY_BYTES_MAX} bytes"}), None)
                    raise ClientGone
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
                return WireRequest(head.method.decode(), head.target.decode("latin-1"), headers, bytes(body))
            else:
                raise ClientGone

    async def _read(self, timeout: float | None) -> None:
        data = await asyncio.wait_for(self._reader.read(READ_BYTES), timeout)
        if not data:
            raise ClientGone
        self._h11.receive_data(data)

    async def _wait(self, at: float | None) -> None:
        """Wait until `at`, for ever if None. Raises ClientGone as soon as the client has left."""
        while at is None or at > self._clock():
            with contextlib.suppress(TimeoutError):
                await self._read(None if at is None else at - self._clock())

    async def _realise(self, outcome: Outcome) -> bool:
        """Answer, break, or close; True if the connection may be used again."""
        if outcome.reply is not None:
            await self._answer(outcome.reply, outcome.body_bytes)
        if outcome.close == "keep":
            return self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
        if outcome.close == "reset":
            # With a linger time of zero the close is an RST instead of a FIN.
            sock = self._writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        else:
            self._writer.close()
            await self._writer.wait_closed()
        return False

    async def _answer(self, reply: Reply, body_bytes: int | None) -> None:
        body = reply.body if body_bytes is None else reply.body[:body_bytes]
        headers = [*reply.headers.items(), ("content-length", str(len(reply.body)))]
        bodyless = self._head_only or reply.status in (204, 304)
        data = self._h11.send(h11.Response(status_code=reply.status, headers=_raw(headers, reply.status))) or b""
        if not bodyless:
            data += self._h11.send(h11.Data(data=body)) or b""
        if body_bytes is None:
            data += self._h11.send(h11.EndOfMessage()) or b""
        self._writer.write(data)
        await self._writer.drain()

    async def _send(self, event: h11.InformationalResponse) -> None:
        self._writer.write(self._h11.send(event) or b"")
        await self._writer.drain()


def _raw(headers: list[tuple[str, str]], status: int) -> list[tuple[bytes, bytes]]:
    kept = [(n, v) for n, v in headers if not (status in (204, 304) and n == "content-length")]
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in kept]


async def serve_until_told(server: HttpServer, port_file: Path | None) -> None:
    """Serve until SIGTERM or SIGINT. The port is written to `port_file` once connections are accepted."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    async with server:
        if port_file is not None:
            write_whole(port_file, str(server.port))
        await told.wait()


def write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody ever reads half of it."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
