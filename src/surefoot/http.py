"""The HTTP client for tools: it sends once, judges its times at the socket, and sorts its own failures.

What an exchange ends in, for a request that may change something (in doubt always means: it may have acted):

    what happened                                                    raises
    ---------------------------------------------------------------  ------------------------------------------------
    no byte of the request left: DNS, connect or TLS failed, the     NotSent
      time for the first byte had passed, a fault before the write
    the request cannot be formed (bad URL, header, JSON value)       Refused
    2xx, also with a body cut at `body_bytes_max`                    nothing: a Response (`truncated`)
    307, 308                                                         Refused: the target asks to send it elsewhere
    other 3xx                                                        InDoubt: 301 to 303 may follow a POST that acted
    400 401 403 404 405 410 411 413 414 415 421 426 428 429 431      Refused, with `retry_after` for 429, and for a 403
                                                                       that says, in headers or body, that it is a limit
    409 412 422                                                      Refused; InDoubt once an earlier attempt of the
                                                                       step may have been sent
    408, other 4xx, 5xx (503 with Retry-After too: a gateway         InDoubt
      that lost its upstream says the same)
    time-out, reset, cut body, bad HTTP after the first byte         InDoubt
    the task is cancelled                                            CancelledError, with a NotSent as its cause where
                                                                       no byte had left (`nothing_left` tells)

Where an earlier request of the same call may have acted, NotSent and Refused become InDoubt: they speak of one request,
the runtime of the whole call.

A request that changes nothing (the operation is a read or a lookup, or `reading=True`) is sorted alike, save that every
3xx and 4xx but 408 is Refused, and a 503 with Retry-After is Refused with `retry_after`. With `reading=True` inside an
effect, what would be InDoubt is NotSent: the effect itself has not begun.

Nothing is retried, no redirect is followed, no proxy is used. Texts of errors hold the method, the host, the status and
the kind of failure: never a path, a header or a body. Importing this module loads no HTTP library, the first call does.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Self, TypedDict, Unpack

import msgspec

from surefoot.doors import Doors, SystemClock, SystemEntropy, no_hook
from surefoot.effects import InDoubt, NotSent, Refused
from surefoot.http_limits import RETRY_AFTER_SECONDS_DEFAULT, retry_after_seconds, tells_of_limit

if TYPE_CHECKING:
    from types import TracebackType

    import httpcore

    from surefoot.doors import Clock, Hook, HttpTransport, Timed
    from surefoot.effects import Operation

BODY_BYTES_MAX = 64 * 1024 * 1024
TOLD_BYTES_MAX = 64 * 1024
"""Of the body of a refusal."""

NOT_ACTED = frozenset({307, 308, 400, 401, 403, 404, 405, 410, 411, 413, 414, 415, 421, 426, 428, 429, 431})
"""Statuses of a target that certainly did not act."""
NOT_ACTED_AT_FIRST = frozenset({409, 412, 422})
"""The same, but only while no earlier attempt can have acted: they may be the answer to a repeat."""

_MAY_HAVE_ACTED = "http.requests_that_may_have_acted"
_KINDS = {
    "TimeIsOver": "the time for writing was over",
    "ReadTimeout": "no reply in time",
    "WriteTimeout": "the time for writing was over",
    "ReadError": "the connection broke",
    "WriteError": "the connection broke",
    "RemoteProtocolError": "the reply broke off or was not HTTP",
    "ConnectError": "could not connect",
    "ConnectTimeout": "could not connect in time",
    "_BadBody": "the reply's body could not be decoded",
}
_URL_SAFE = "/%:@!$&'()*+,;=~-._"
_Bytes = bytes


class Options(TypedDict, total=False):
    """What every request may be given."""

    params: Mapping[str, str | int]
    """Added to the URL's query."""
    json: object
    """Serialised once, as UTF-8, with a Content-Type. A NaN or a lone surrogate makes the request Refused."""
    content: bytes
    """Sent untouched; give its Content-Type in `headers`."""
    headers: Mapping[str, str]
    """Beside the client's own; the same name replaces."""
    allow: Collection[int]
    """Statuses that are returned and not raised."""
    reading: bool
    """True declares that this request changes nothing, inside a call that does."""
    body_bytes_max: int
    """A longer body is cut, and the Response says so. Default: BODY_BYTES_MAX."""


class Response:
    """A reply: `status`, `headers` (names in lower case), and its body in three forms. Its repr holds no content."""

    __slots__ = ("body", "headers", "status", "truncated")

    def __init__(self, status: int, headers: Mapping[str, str], body: _Bytes, *, truncated: bool = False) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.truncated = truncated
        """True if the body was longer than `body_bytes_max`; the rest was not read."""

    def __repr__(self) -> str:
        return f"<Response {self.status}, {len(self.body)} bytes>"

    @property
    def text(self) -> str:
        """The body as UTF-8; what is not UTF-8 is replaced."""
        return self.body.decode("utf-8-sig", "replace")

    def json(self) -> object:
        """The body as JSON, or None where it is none: what to make of that is the caller's to say."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    @property
    def bytes(self) -> _Bytes:
        """The body as it came, decompressed."""
        return self.body


class TimedOut(InDoubt):
    """InDoubt because a time was over after the first byte."""


class SystemHttp:
    """The real HTTP door. `hook` is called around connecting, writing and reading."""

    def __init__(self, clock: Clock, hook: Hook = no_hook) -> None:
        self._clock = clock
        self._hook = hook

    @property
    def clock(self) -> Clock:
        """The clock by which the times of operations are judged."""
        return self._clock

    def transport(self, op: Timed) -> HttpTransport:
        """A transport on sockets of its own for one client of `op`."""
        from surefoot import http_wire  # late: loads httpcore, which a process without calls does not need

        return http_wire.Transport(op, self._clock, self._hook)


def client(
    op: Operation, *, base_url: str = "", headers: Mapping[str, str] | None = None, timeout: float | None = None
) -> Client:
    """An HTTP client for the call `op`, to be used with `async with`.

    `base_url` stands before each path; `headers` go with each request. `timeout` (seconds) is for a whole exchange; by
    default an exchange may take until the operation's `last_byte_before`, when nothing may be written anyway.
    """
    return Client(op, base_url=base_url, headers=headers or {}, timeout=timeout)


def nothing_left(exc: BaseException | None) -> bool:
    """True if `exc` says that no byte left: a NotSent, or a cancellation (or a time-out made of one) caused by one."""
    while exc is not None:
        if isinstance(exc, NotSent):
            return True
        exc = exc.__cause__
    return False


class Client:
    """Sends requests of one operation; made by `client`. Methods raise NotSent, Refused or InDoubt (see module)."""

    def __init__(self, op: Operation, *, base_url: str, headers: Mapping[str, str], timeout: float | None) -> None:
        self._op = op
        self._base_url = base_url
        self._headers = headers
        self._timeout = timeout
        self._reads = op.effect == "read" or op.looking
        self._transport: HttpTransport = op._door.transport(op)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.aclose()

    async def get(self, path: str, **options: Unpack[Options]) -> Response:
        """GET. Inside an effect say `reading=True`, unless this very GET is what changes something."""
        return await self.request("GET", path, **options)

    async def post(self, path: str, **options: Unpack[Options]) -> Response:
        """POST, once."""
        return await self.request("POST", path, **options)

    async def put(self, path: str, **options: Unpack[Options]) -> Response:
        """PUT, once."""
        return await self.request("PUT", path, **options)

    async def patch(self, path: str, **options: Unpack[Options]) -> Response:
        """PATCH, once."""
        return await self.request("PATCH", path, **options)

    async def delete(self, path: str, **options: Unpack[Options]) -> Response:
        """DELETE, once."""
        return await self.request("DELETE", path, **options)

    async def request(self, method: str, path: str, **options: Unpack[Options]) -> Response:
        """Send one request, at most once, and return its reply. Raises NotSent, Refused and InDoubt (see module)."""
        declared = not self._reads and options.get("reading", False)
        reads = self._reads or declared
        if not reads:
            self._count(+1)
        try:
            end = await self._end(method, path, options, reads)
        except asyncio.CancelledError as exc:
            self._on_cancel(exc, reads, declared)
            raise
        if not reads and isinstance(end, NotSent | Refused):
            self._count(-1)
        if isinstance(end, Response):
            return end
        # Raised here, outside of any handler, so that no library's text hangs on it as context.
        raise self._for_the_call(end, declared)

    async def _end(
        self, method: str, path: str, options: Options, reads: bool
    ) -> Response | NotSent | Refused | InDoubt:
        try:
            request = self._build(method, path, options)
        except (ValueError, TypeError, RecursionError):
            return Refused(f"{method}: the request cannot be formed; look at its URL, headers and JSON value")
        where = f"{method} {request.url.host.decode('ascii', 'replace')}"
        try:
            reply = await self._transport.handle_async_request(request)
            return await self._receive(where, reply, options, reads)
        except (NotSent, Refused) as exc:
            return type(exc)(f"{where}: {exc}")
        except Exception as exc:
            return _sort_exception(where, exc)

    def _build(self, method: str, path: str, options: Options) -> httpcore.Request:
        import httpcore  # late: see the module's last sentence

        scheme, host, port, target = _url(self._base_url + path, options.get("params") or {})
        content, kind = _content(options)
        given = {**kind, **self._headers, **(options.get("headers") or {})}
        headers = [(b"Host", _host_header(scheme, host, port)), *_headers(given)]
        if content is not None or method in ("POST", "PUT", "PATCH"):
            headers.append((b"Content-Length", str(len(content or b"")).encode()))
        return httpcore.Request(
            method,
            httpcore.URL(scheme=scheme, host=host, port=port, target=target),
            headers=headers,
            content=content,
            extensions={"deadline": self._deadline()},
        )

    def _deadline(self) -> float:
        if self._timeout is None:
            return self._op.last_byte_before
        return min(self._op._door.clock.now().mono + self._timeout, self._op.last_byte_before)

    async def _receive(
        self, where: str, reply: httpcore.Response, options: Options, reads: bool
    ) -> Response | Refused | InDoubt:
        headers: dict[str, str] = {}
        for name, value in reply.headers:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        body_bytes_max = options.get("body_bytes_max", BODY_BYTES_MAX)
        try:
            if not (200 <= reply.status < 300 or reply.status in options.get("allow", ())):
                wait = retry_after_seconds(reply.status, headers, self._op._door.clock.now().wall)
                if reply.status == 403 and wait is None:
                    wait = await _told_limit(reply, headers)
                return sort_status(where, reply.status, wait, reads, self._op.earlier_may_be_sent)
            raw, cut = await _read(reply, body_bytes_max)
        finally:
            await reply.aclose()
        body, longer = _decompress(raw, headers.get("content-encoding", ""), body_bytes_max, complete=not cut)
        return Response(reply.status, headers, body, truncated=cut or longer)

    def _count(self, change: int) -> None:
        self._op._notes[_MAY_HAVE_ACTED] = self._counted() + change

    def _counted(self) -> int:
        count = self._op._notes.get(_MAY_HAVE_ACTED, 0)
        assert isinstance(count, int)
        return count

    def _on_cancel(self, exc: asyncio.CancelledError, reads: bool, declared: bool) -> None:
        if not reads and nothing_left(exc):
            self._count(-1)
        if self._counted():
            exc.__cause__ = None
        elif declared:
            exc.__cause__ = NotSent("cancelled before the call's own request")

    def _for_the_call(self, end: NotSent | Refused | InDoubt, declared: bool) -> NotSent | Refused | InDoubt:
        """What the end of one request means for the whole call."""
        if isinstance(end, InDoubt):
            if declared and not self._counted():
                return NotSent(f"{end}; it came before the call's own request, which was not sent")
            return end
        if self._counted():
            return InDoubt(f"{end}; an earlier request of this call may have acted")
        return end


def sort_status(
    where: str, status: int, wait: float | None, reads: bool, earlier_may_be_sent: bool
) -> Refused | InDoubt:
    """What a status that is no success means; `wait` (seconds) is the target's wish for when to try again."""
    if reads:
        certain = (300 <= status < 500 and status != 408) or (status == 503 and wait is not None)
    else:
        certain = status in NOT_ACTED or (status in NOT_ACTED_AT_FIRST and not earlier_may_be_sent)
    if certain:
        return Refused(f"{where}: status {status}", retry_after=wait, status=status)
    return InDoubt(f"{where}: status {status}", status=status)


def _sort_exception(where: str, exc: Exception) -> NotSent | InDoubt:
    name = type(exc).__name__
    text = f"{where}: {_KINDS.get(name, name)}"
    if name in ("ConnectError", "ConnectTimeout"):
        return NotSent(text)
    return TimedOut(text) if name in ("TimeIsOver", "ReadTimeout", "WriteTimeout") else InDoubt(text)


def _url(text: str, params: Mapping[str, str | int]) -> tuple[bytes, bytes, int | None, bytes]:
    """Scheme, host, port and target. Raises ValueError; a user name or password in a URL would end up in logs."""
    from urllib.parse import quote, urlencode, urlsplit

    parts = urlsplit(text)
    odd = any(character < " " or character == "\x7f" for character in text)  # urllib leaves some of them out
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or odd:
        raise ValueError("not an http or https URL without userinfo and control characters")
    host = parts.hostname.encode("ascii" if ":" in parts.hostname else "idna")
    query = "&".join(part for part in (parts.query, urlencode(params)) if part)
    target = quote(parts.path or "/", safe=_URL_SAFE) + ("?" + quote(query, safe=_URL_SAFE + "?") if query else "")
    return parts.scheme.encode(), host, parts.port, target.encode("ascii")


def _host_header(scheme: bytes, host: bytes, port: int | None) -> bytes:
    name = b"[" + host + b"]" if b":" in host else host
    return name if port in (None, {b"http": 80, b"https": 443}[scheme]) else name + b":" + str(port).encode()


def _content(options: Options) -> tuple[bytes | None, dict[str, str]]:
    """The body's bytes, and its content type where it is made here. Raises ValueError, TypeError."""
    value, content = options.get("json", msgspec.UNSET), options.get("content")
    if value is msgspec.UNSET:
        return content, {}
    if content is not None:
        raise TypeError("json or content, not both")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8"), {"Content-Type": "application/json"}


def _headers(given: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The headers to send: of names that differ in case only the last one counts, and ours only where none is given."""
    merged = {"user-agent": ("User-Agent", "surefoot"), "accept": ("Accept", "*/*")}
    merged["accept-encoding"] = ("Accept-Encoding", "gzip")
    merged |= {name.lower(): (name, value) for name, value in given.items()}
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in merged.values()]


async def _told_limit(reply: httpcore.Response, headers: Mapping[str, str]) -> float | None:
    """The wait of a 403 whose body alone says that it is a limit. It is a refusal whatever becomes of its body."""
    try:
        raw, cut = await _read(reply, TOLD_BYTES_MAX)
        body, _ = _decompress(raw, headers.get("content-encoding", ""), TOLD_BYTES_MAX, complete=not cut)
    except Exception:
        return None
    return RETRY_AFTER_SECONDS_DEFAULT if tells_of_limit(body) else None


async def _read(reply: httpcore.Response, body_bytes_max: int) -> tuple[bytes, bool]:
    body = bytearray()
    async for part in reply.aiter_stream():
        body += part
        if len(body) > body_bytes_max:
            return bytes(body[:body_bytes_max]), True
    return bytes(body), False


class _BadBody(Exception):
    """The body is not what its Content-Encoding says."""


def _decompress(raw: bytes, encoding: str, body_bytes_max: int, *, complete: bool) -> tuple[bytes, bool]:
    if encoding.strip().lower() in ("", "identity"):
        return raw, False
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        raise _BadBody
    body, longer = bytearray(), False
    while raw and not longer:
        unpack = zlib.decompressobj(wbits=47)  # gzip or zlib, told by its head
        try:
            body += unpack.decompress(raw, body_bytes_max - len(body) + 1)
        except zlib.error:
            raise _BadBody from None
        longer = bool(unpack.unconsumed_tail) or len(body) > body_bytes_max
        if complete and not longer and not unpack.eof:
            raise _BadBody
        # A body may have several members; what else stands behind one is none of the body.
        raw = unpack.unused_data if unpack.unused_data.startswith(b"\x1f\x8b") else b""
    return bytes(body[:body_bytes_max]), longer


def system_doors() -> Doors:
    """The doors of a real process."""
    clock = SystemClock()
    return Doors(clock=clock, entropy=SystemEntropy(), http=SystemHttp(clock))
