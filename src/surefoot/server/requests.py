"""What is read from a request: who calls, the body within its limits, the Idempotency-Key."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import msgspec
from fastapi import Depends, Header, Request
from starlette.requests import ClientDisconnect

from surefoot.errors import InvalidInput
from surefoot.server.callers import Act
from surefoot.server.openapi import BODY_BYTES_MAX, NEEDED
from surefoot.server.problems import Problem
from surefoot.server.service import Visit, service_of
from surefoot.vocabulary import language_of

BODY_SECONDS_MAX = 30.0
THROWN_AWAY_BYTES_MAX = 1024 * 1024
THROWN_AWAY_SECONDS_MAX = 5.0
"""So much more of a body that is too large is read: many a client looks for no answer while it still sends."""
KEY_CHARACTERS_MAX = 255
_BARE = re.compile(r"[\x20\x21\x23-\x2b\x2d-\x3a\x3c-\x7e]+")
_QUOTED = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')

_CHARSET = re.compile(r"charset\s*=\s*\"?([^\s;\"]*)")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

T = TypeVar("T", bound=msgspec.Struct)


async def visit(request: Request) -> Visit:
    """Who calls. Raises Problem 401, 403."""
    service = service_of(request)
    caller = await service.doorman.identify(request)
    return Visit(await service.tenant(caller.tenant), caller, language_of(request.headers.get("accept-language")))


Visitor = Annotated[Visit, Depends(visit)]


def allowed(act: Act) -> Callable[[Visit], Awaitable[Visit]]:
    """A dependency: who calls, and may do this. It stands before what is read of a request: 403 before 422."""

    async def check(visit: Visitor) -> Visit:
        visit.need(act)
        return visit

    return check


Reader = Annotated[Visit, Depends(allowed("read"))]
Starter = Annotated[Visit, Depends(allowed("start"))]


def body_of(kind: type[T]) -> Callable[[Request, Visit], Awaitable[T]]:
    """A dependency that reads a JSON body of this kind. Raises Problem: 400, 408, 413, 415, 422."""

    async def read(request: Request, visit: Visitor) -> T:
        return await read_json(request, kind)

    return read


async def read_json(request: Request, kind: type[T], bytes_max: int = BODY_BYTES_MAX) -> T:
    """The body as JSON of this kind. Raises Problem: 400, 408, 413, 415, 422."""
    check_json(request)
    return decode_json(await read_body(request, bytes_max), kind)


def check_json(request: Request) -> None:
    """Raises Problem 415 for a body of another type: a page elsewhere could send that without asking."""
    media, _, more = request.headers.get("content-type", "").lower().partition(";")
    media, charset = media.strip(), _CHARSET.search(more)
    encoding = request.headers.get("content-encoding", "").strip().lower() or "identity"
    if encoding != "identity" or (charset is not None and charset[1] != "utf-8"):
        raise Problem(415, "not_json", "send the body as it is, in UTF-8: no Content-Encoding and no other charset")
    if media != "application/json":
        raise Problem(415, "not_json", f"the body is {media or 'of no type'}; send Content-Type: application/json")


def decode_json(raw: bytes, kind: type[T]) -> T:
    """JSON of this kind. Raises Problem 400, 422."""
    try:
        found = msgspec.json.decode(raw, type=kind)
        _refuse_twins(raw)
        return found
    except msgspec.ValidationError as problem:
        raise Problem(422, "invalid_input", f"the body does not fit: {problem}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        half = ": a \\ud800 to \\udfff is half of a surrogate pair" if _SURROGATE.search(raw) else ""
        raise Problem(400, "broken_json", f"the body is not JSON: {problem}{half}") from None


def _refuse_twins(raw: bytes) -> None:
    """Raises Problem 400 where an object has a member twice: one reader takes the first, another the last."""

    def members(pairs: list[tuple[str, object]]) -> None:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise Problem(
                400, "repeated_member", f"the body has the member {twice[:100]!r} more than once in one object"
            )

    # Numbers are not made: an integer may have any size.
    json.loads(raw, object_pairs_hook=members, parse_int=len, parse_float=len, parse_constant=len)


async def read_body(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """The raw body. Raises Problem: 408 (too slow), 413 (too large)."""
    declared, length = request.headers.get("content-length", ""), 0
    if declared.isdigit() and int(declared) > bytes_max:
        length = int(declared)
        if length > bytes_max + THROWN_AWAY_BYTES_MAX or "expect" in request.headers:
            raise _too_large(bytes_max)
    data, came = bytearray(), 0
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX if length <= bytes_max else THROWN_AWAY_SECONDS_MAX):
            async for chunk in request.stream():
                came += len(chunk)
                length = max(length, came)
                if came > bytes_max + THROWN_AWAY_BYTES_MAX:
                    break
                if length <= bytes_max:
                    data += chunk
    except TimeoutError:
        if length <= bytes_max:
            raise Problem(408, "body_too_slow", f"the body did not come within {BODY_SECONDS_MAX:g} s") from None
    except ClientDisconnect:
        # Nobody is there to read it; it only keeps a hung-up client from being told as a bug.
        raise Problem(400, "body_cut_off", "the body ended before its length") from None
    if length > bytes_max:
        raise _too_large(bytes_max)
    return bytes(data)


def _too_large(bytes_max: int) -> Problem:
    # What may be left of it is not read: the connection ends here.
    return Problem(413, "body_too_large", f"a body has at most {bytes_max} bytes", headers={"Connection": "close"})


_KEY_TEXT = (
    'A text that names this request, for example `"8e03978e-40d5-43dd-bc93-6894a57f9324"`; '
    "the quotes of the draft may be left out."
)
_KEY_SCHEMA: dict[str, str | int | bool] = {"minLength": 1, "maxLength": KEY_CHARACTERS_MAX}
KeyHeader = Annotated[
    str | None, Header(alias="Idempotency-Key", description=_KEY_TEXT, json_schema_extra={**_KEY_SCHEMA})
]
NeededKeyHeader = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description=_KEY_TEXT, json_schema_extra={**_KEY_SCHEMA, NEEDED: True}),
]


def read_key(header: str | None, *, needed: bool = False) -> str | None:
    """The key in an Idempotency-Key header, quoted or bare. Raises Problem 400."""
    if header is None:
        if needed:
            raise Problem(
                400,
                "idempotency_key_missing",
                "send an Idempotency-Key header with a text of your own; the same key again makes no second run",
            )
        return None
    text = header.strip()
    quoted = _QUOTED.fullmatch(text)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else text
    good = bool(quoted) or _BARE.fullmatch(text)
    if not good or not key.strip() or len(key) > KEY_CHARACTERS_MAX:
        raise Problem(
            400,
            "idempotency_key_malformed",
            f'an Idempotency-Key is a quoted string such as "a-1" of 1 to {KEY_CHARACTERS_MAX} ASCII characters',
        )
    return key


def checked(condition: object, message: str) -> None:
    """Raises InvalidInput with the message unless the condition holds."""
    if not condition:
        raise InvalidInput(message)


def accepts(request: Request, media: str) -> bool:
    """Whether an Accept header names this type itself, and does not refuse it by `q=0`."""
    for part in ",".join(request.headers.getlist("accept")).split(","):
        name, *parameters = part.split(";")
        if name.strip().lower() == media:
            return not any(re.fullmatch(r"\s*[qQ]\s*=\s*0(\.0{0,3})?\s*", each) for each in parameters)
    return False
