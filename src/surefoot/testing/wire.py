"""What passes between a double and the world around it: a request, what becomes of it, and the double's own log.

A double is pure. It is given a request and a time, and answers with an `Outcome` that says what the caller has to do on
its own clock: send a reply at a time, cut it short, close the connection, or never answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

HIDDEN_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})
"""Never written into a log."""

Close = Literal["keep", "reset", "fin", "hang"]
"""What happens to the connection: kept; closed by RST; closed by FIN; left open without a word."""


class WireRequest(msgspec.Struct, frozen=True):
    """One HTTP request as it arrived. Header names are lower case; `target` is path and query as they were sent."""

    method: str
    target: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def path(self) -> str:
        """The decoded path without the query."""
        return unquote(urlsplit(self.target).path)

    @property
    def query(self) -> dict[str, str]:
        """The query; of a repeated name the last value counts."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))


class Reply(msgspec.Struct, frozen=True):
    """One HTTP reply. Content-Length is added by whoever sends it."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Outcome(msgspec.Struct, frozen=True):
    """What the caller has to do with a request.

    `at` is the time (the clock that `handle` was given, seconds) of the reply or of the close; None is never.
    `body_bytes`, where set, is how much of the reply's body leaves before the connection closes as `close` says.
    """

    request: int
    reply: Reply | None
    at: float | None
    close: Close = "keep"
    body_bytes: int | None = None


class Received(msgspec.Struct, frozen=True, tag="received", tag_field="what"):
    """A request arrived. `request` numbers the requests from 1; `order` numbers all entries of the log from 1."""

    order: int
    at: float
    request: int
    method: str
    path: str
    query: Mapping[str, str]
    account: str | None
    headers: Mapping[str, str]
    body: str
    body_sha256: str


class Applied(msgspec.Struct, frozen=True, tag="applied", tag_field="what"):
    """A request took effect at `at`, which is later than its arrival if it was late on its way."""

    order: int
    at: float
    request: int
    kind: str
    resource_id: int
    place: str
    account: str | None
    text: str
    key: str | None = None
    """The request's Idempotency-Key, if it had one."""


class Replied(msgspec.Struct, frozen=True, tag="replied", tag_field="what"):
    """How a request was answered: `end` is "reply", or how the answer was kept back; `faults` names what was at work.

    `listed` holds the ids that a listing showed, so that a judge can say whether a lookup was complete. An entry is
    written when the answer leaves; a request that is never answered has an entry at its arrival, with `end` "hang".
    """

    order: int
    at: float
    request: int
    status: int | None
    end: Literal["reply", "reset", "fin", "hang", "cut"]
    faults: tuple[str, ...] = ()
    listed: tuple[int, ...] | None = None


LogEntry = Received | Applied | Replied


def received(order: int, at: float, number: int, request: WireRequest, account: str | None) -> Received:
    """The log entry of `request`: its body as text (undecodable bytes escaped) and hash, no header that is a secret."""
    return Received(
        order=order,
        at=at,
        request=number,
        method=request.method,
        path=request.path,
        query=request.query,
        account=account,
        headers={name: value for name, value in request.headers.items() if name not in HIDDEN_HEADERS},
        body=request.body.decode("utf-8", "backslashreplace"),
        body_sha256=hashlib.sha256(request.body).hexdigest(),
    )


def encode_entries(entries: Iterable[LogEntry]) -> bytes:
    """The entries as JSON lines."""
    return b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)


def read_log(path: Path) -> list[LogEntry]:
    """The entries of a log file, in order. A last line that is not yet complete is left out.

    Raises FileNotFoundError, and msgspec.DecodeError for a file that is no log.
    """
    complete = path.read_bytes().rpartition(b"\n")[0]
    return [msgspec.json.decode(line, type=LogEntry) for line in complete.splitlines() if line]


def json_reply(status: int, value: object, headers: Mapping[str, str] | None = None) -> Reply:
    """A reply with `value` as its JSON body."""
    merged = {"content-type": "application/json; charset=utf-8", **(headers or {})}
    return Reply(status, merged, msgspec.json.encode(value))
