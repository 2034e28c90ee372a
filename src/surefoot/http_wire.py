"""The real HTTP transport: HTTP/1.1 over httpcore's state machine, on sockets that are ours down to the last `send`.

Both times of an operation are judged directly before each `socket.send`, behind DNS, connect and TLS. An asyncio
transport or `loop.sock_sendall` would not do: both keep what the kernel does not take at once and write it later, after
a stopped process goes on, without asking anybody. So a blocked write comes back here and is judged again.

A connection of an effect serves one request. Until its reply is read to the end it is set to be reset on close
(SO_LINGER 0), so that neither we nor the kernel of a killed process goes on writing what is still in the buffer.

There is no proxy and nothing is read from the environment save OpenSSL's own SSL_CERT_FILE and SSL_CERT_DIR: a proxy
may send a request again by itself, and a .netrc would attach credentials that nobody approved.

This module loads httpcore; `surefoot.http` imports it at the first call only.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import select
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import certifi
import httpcore

from surefoot.effects import NotSent, Refused

if TYPE_CHECKING:
    from surefoot.doors import Clock, Hook, Timed

RECEIVE_BYTES = 65_536
ADDRESS_SECONDS = 4.0
"""How long one address of a name may take to connect while there is another one to try."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_CLOSE_IN_ORDER = struct.pack("ii", 0, 0)
_T = TypeVar("_T")

# At debug level httpcore writes the headers of replies into its log, where a careless server echoes credentials.
logging.getLogger("httpcore.http11").setLevel(logging.INFO)


class TimeIsOver(Exception):
    """One of the operation's two times, or the request's deadline, has passed; the text says which."""


class Gate:
    """Judges the times of one operation for one connection and counts the bytes of its present request."""

    def __init__(self, op: Timed, clock: Clock, hook: Hook) -> None:
        self.hook = hook
        self.sent_bytes = 0
        self._op = op
        self._clock = clock
        self._deadline = op.last_byte_before

    def begin(self, deadline: float) -> None:
        """A new request begins; `deadline` (boot clock) ends the exchange."""
        self.sent_bytes = 0
        self._deadline = deadline

    def check(self, *, request: bool = True) -> None:
        """Raise TimeIsOver where nothing may be written now. Called directly before every `send`.

        `request` is False for bytes of a TLS handshake.
        """
        now = self._clock.now().mono
        if self.sent_bytes == 0 and now > self._op.first_byte_before:
            raise TimeIsOver("the time for the first byte had passed")
        if request and now >= min(self._op.last_byte_before, self._deadline):
            raise TimeIsOver("the time for the last byte had passed")

    def connect_seconds(self) -> float:
        """How long connecting may take: a connection that stands after first_byte_before is of no use."""
        return max(min(self._op.first_byte_before, self._deadline) - self._clock.now().mono, 0.0)

    def write_seconds(self) -> float:
        """How long a blocked write may wait."""
        return max(min(self._op.last_byte_before, self._deadline) - self._clock.now().mono, 0.0)

    def read_seconds(self) -> float:
        """How long the reply may take from now."""
        return max(self._deadline - self._clock.now().mono, 0.0)


class SocketStream(httpcore.AsyncNetworkStream):
    """A connected socket, with TLS or without, as httpcore wants it. `finished` says that it may close in order."""

    def __init__(self, sock: socket.socket, gate: Gate) -> None:
        self.gate = gate
        self.finished = False
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._tls: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._writing = False
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def handshake(self, host: str) -> None:
        """TLS. Raises httpcore.ConnectError where the peer or its certificate is not accepted."""
        self._tls = _tls_context().wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        try:
            await self._tls_step(self._tls.do_handshake)
        except (ssl.SSLError, httpcore.ReadError, httpcore.WriteError) as exc:
            raise httpcore.ConnectError(f"TLS failed ({type(exc).__name__})") from None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write a part of the request; each `send` is judged by the gate. Raises TimeIsOver, httpcore.WriteError."""
        if not buffer:
            return
        if not self._writing:
            self._writing = True
            self.gate.hook("http.send", "before")
        if self._tls is None:
            return await self._send(buffer, request=True)
        self._tls.write(buffer)  # a memory BIO takes everything
        await self._send(self._outgoing.read(), request=True)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Some bytes of the reply, b"" at its end. Raises httpcore.ReadError, httpcore.ReadTimeout."""
        if self._writing:
            self._writing = False
            self.gate.hook("http.send", "after")
            self.gate.hook("http.reply", "before")
        if self._tls is None:
            return await self._receive(max_bytes)
        tls = self._tls
        try:
            return await self._tls_step(lambda: tls.read(max_bytes))
        except ssl.SSLZeroReturnError:
            return b""
        except ssl.SSLError:
            raise httpcore.ReadError("the TLS connection broke") from None

    async def aclose(self) -> None:
        """Close: in order after a complete reply, else by a reset that drops what the kernel still holds."""
        if self.finished:
            with suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSE_IN_ORDER)
        self._sock.close()

    def get_extra_info(self, info: str) -> object:
        """httpcore asks for `is_readable` to see whether the peer has closed an idle connection."""
        if info != "is_readable":
            return None
        if self._sock.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    async def _send(self, data: bytes, *, request: bool) -> None:
        view = memoryview(data)
        while view:
            self.gate.check(request=request)
            try:
                count = self._sock.send(view)
            except (BlockingIOError, InterruptedError):
                await self._writable()
                continue
            except OSError as exc:
                raise httpcore.WriteError(type(exc).__name__) from None
            if request:
                self.gate.sent_bytes += count
            view = view[count:]

    async def _writable(self) -> None:
        ready = self._loop.create_future()
        self._loop.add_writer(self._sock, _resolve, ready)
        try:
            async with asyncio.timeout(self.gate.write_seconds()):
                await ready
        except TimeoutError:
            raise TimeIsOver("the time for the last byte passed in a blocked write") from None
        finally:
            self._loop.remove_writer(self._sock)

    async def _receive(self, max_bytes: int) -> bytes:
        try:
            async with asyncio.timeout(self.gate.read_seconds()) as limit:
                return await self._loop.sock_recv(self._sock, max_bytes)
        except OSError as exc:
            if limit.expired():
                raise httpcore.ReadTimeout("no reply in time") from None
            raise httpcore.ReadError(type(exc).__name__) from None

    async def _tls_step(self, step: Callable[[], _T]) -> _T:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                await self._send(self._outgoing.read(), request=False)
                data = await self._receive(RECEIVE_BYTES)
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                await self._send(self._outgoing.read(), request=False)
                return result


class Transport:
    """One client's connections for one operation: a fresh one for each request of an effect, kept ones for reads."""

    def __init__(self, op: Timed, clock: Clock, hook: Hook) -> None:
        self._op = op
        self._clock = clock
        self._hook = hook
        self._keeps = op.effect == "read" or op.looking
        self._connections: list[_Connection] = []

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send `request` once. Raises NotSent, Refused, TimeIsOver or an exception of httpcore: see HttpTransport."""
        deadline = float(request.extensions.get("deadline", self._op.last_byte_before))
        if not self._keeps:
            request.headers.append((b"Connection", b"close"))
        gate = Gate(self._op, self._clock, self._hook)
        try:
            connection = self._idle(request.url.origin) or await self._connect(request.url, gate, deadline)
            gate = connection.stream.gate
            gate.begin(deadline)
            response = await connection.http.handle_async_request(request)
        except asyncio.CancelledError as exc:
            if gate.sent_bytes == 0:
                raise exc from NotSent("cancelled before the first byte")
            raise
        except httpcore.LocalProtocolError:
            if gate.sent_bytes == 0:
                raise Refused("the request cannot be formed: look at its headers") from None
            raise
        except Exception as exc:
            if gate.sent_bytes == 0:
                raise NotSent(str(exc) or type(exc).__name__) from None
            raise
        return httpcore.Response(response.status, headers=response.headers, content=_Body(response, connection))

    async def aclose(self) -> None:
        """Close every connection."""
        for connection in self._connections:
            await connection.http.aclose()
        self._connections.clear()

    def _idle(self, origin: httpcore.Origin) -> _Connection | None:
        for connection in self._connections:
            if connection.serves(origin):
                connection.taken = True
                return connection
        return None

    async def _connect(self, url: httpcore.URL, gate: Gate, deadline: float) -> _Connection:
        gate.begin(deadline)
        stream = await open_stream(url.origin, gate)
        connection = _Connection(url.origin, stream)
        self._connections.append(connection)
        return connection


class _Connection:
    """A socket with httpcore's HTTP/1.1 state machine on it."""

    def __init__(self, origin: httpcore.Origin, stream: SocketStream) -> None:
        self.origin = origin
        self.stream = stream
        self.http = httpcore.AsyncHTTP11Connection(origin, stream)
        self.taken = True

    def serves(self, origin: httpcore.Origin) -> bool:
        """True if this kept connection can take another request. One of an effect asked for its close and cannot."""
        free = not self.taken and self.http.is_idle() and not self._said_too_much()
        return free and self.origin == origin and not self.http.has_expired()

    def _said_too_much(self) -> bool:
        """Whether the peer wrote more than its reply: that would be read as the reply to what is asked next."""
        more, _ = self.http._h11_state.trailing_data
        return bool(more)


class _Body:
    """A reply's body; its end, or its close, is the end of the door's passage."""

    def __init__(self, response: httpcore.Response, connection: _Connection) -> None:
        self._response = response
        self._connection = connection
        self._ended = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._response.aiter_stream():
            yield part
        self._connection.stream.finished = True
        await self.aclose()

    async def aclose(self) -> None:
        if self._ended:
            return
        self._ended = True
        await self._response.aclose()
        self._connection.taken = False
        self._connection.stream.gate.hook("http.reply", "after")


async def open_stream(origin: httpcore.Origin, gate: Gate) -> SocketStream:
    """A connection to `origin`, made before the operation's first_byte_before.

    Raises TimeIsOver, httpcore.ConnectError and httpcore.ConnectTimeout: nothing of a request has left then.
    """
    host = origin.host.decode("ascii").strip("[]")
    gate.hook("http.connect", "before")
    gate.check()
    try:
        async with asyncio.timeout(gate.connect_seconds()) as limit:
            sock = await _connect_any(await _addresses(host, origin.port))
            stream = SocketStream(sock, gate)
            await _make_ready(stream, host if origin.scheme == b"https" else None)
    except OSError as exc:
        if limit.expired():
            raise httpcore.ConnectTimeout("no connection before the time for the first byte") from None
        raise httpcore.ConnectError(type(exc).__name__) from None
    return stream


async def _make_ready(stream: SocketStream, tls_host: str | None) -> None:
    try:
        if tls_host is not None:
            await stream.handshake(tls_host)
        stream.gate.hook("http.connect", "after")
    except BaseException:
        await stream.aclose()
        raise


async def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    with suppress(ValueError):
        family = socket.AF_INET if ipaddress.ip_address(host).version == 4 else socket.AF_INET6
        return [(family, (host, port))]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, (str(address[0]), int(address[1]))) for family, _, _, _, address in found]


async def _connect_any(addresses: list[tuple[socket.AddressFamily, tuple[str, int]]]) -> socket.socket:
    """The first address that answers. No request byte is in play, so trying another address repeats nothing."""
    for family, address in addresses[:-1]:
        with suppress(OSError):
            async with asyncio.timeout(ADDRESS_SECONDS):
                return await _connect_one(family, address)
    if not addresses:
        raise OSError("the name has no address")
    return await _connect_one(*addresses[-1])


async def _connect_one(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


@lru_cache(maxsize=1)
def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")):
        context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
