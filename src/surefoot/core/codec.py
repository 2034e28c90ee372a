"""Events and small values to and from JSON. A value that cannot be read raises Unreadable; it never becomes None.

An event is stored with its type and with the format it was written in. `UPCASTS` lifts older formats, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeVar, get_args

import msgspec

from surefoot.core.events import AnyEvent, Event
from surefoot.errors import Unreadable

FORMAT = 1
"""The format that events are written in. +1 with every change that older readers or older data do not fit."""

Upcast = Callable[[dict[str, object]], dict[str, object]]
UPCASTS: Mapping[tuple[str, int], Upcast] = {}
"""(type, format) to a function that gives the same event in format + 1. A pair that is missing did not change."""

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()


def event_type(event: AnyEvent) -> str:
    """The name on the wire."""
    return _TYPE_NAMES[type(event)]


def encode_event(event: AnyEvent) -> str:
    """The event as JSON; its `type` is inside."""
    return _encoder.encode(event).decode()


def decode_event(
    kind: str, data: str | bytes, written: int = FORMAT, upcasts: Mapping[tuple[str, int], Upcast] = UPCASTS
) -> AnyEvent:
    """The event that `data` holds, which was written in the format `written`.

    Raises Unreadable for an unknown type, a newer format, a field that is missing, unknown or of another type, and for
    a type inside the data that is not `kind`.
    """
    if not 1 <= written <= FORMAT:
        raise Unreadable(
            f"event {kind} has format {written}, and this version reads up to {FORMAT}: use a newer version"
        )
    raw = decode_value(data, dict[str, object], f"event {kind}")
    for lower in range(written, FORMAT):
        raw = upcasts.get((kind, lower), _same)(raw)
    named = raw.get("type")
    shape = _TYPES.get(named) if isinstance(named, str) else None
    if shape is None or (named != kind and written == FORMAT):
        raise Unreadable(f"event type {named!r}, stored as {kind!r}, is not known: nothing is executed on it")
    return _struct(raw, shape, f"event {kind}")


def encode_value(value: object) -> str:
    """A small structure as JSON."""
    return _encoder.encode(value).decode()


def decode_value(data: str | bytes, shape: type[T], what: str) -> T:
    """A value of plain JSON types. Raises Unreadable, naming `what`."""
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _unreadable(what, error) from error


def decode_struct(data: str, shape: type[S], what: str) -> S:
    """A structure; unlike msgspec's own reading, a field that is not known is an error (it may be a damaged name)."""
    try:
        value: S = _cached(data, shape)
    except Unreadable as error:
        raise _unreadable(what, error) from error
    return value


def convert(raw: Mapping[str, object], shape: type[T], what: str) -> T:
    """A structure from the columns of a row; other columns are left aside. Raises Unreadable, naming `what`."""
    try:
        value: T = msgspec.convert(raw, type=shape)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise _unreadable(what, error) from error
    return value


def json_text(data: str, what: str) -> bytes:
    """JSON that others will read, checked to be JSON. Raises Unreadable, naming `what`."""
    decode_value(data, msgspec.Raw, what)
    return data.encode()


@lru_cache(maxsize=1024)
def _cached(data: str, shape: type[S]) -> S:
    return _struct(decode_value(data, dict[str, object], shape.__name__), shape, shape.__name__)


def _struct(raw: dict[str, object], shape: type[S], what: str) -> S:
    unknown = raw.keys() - _names(shape)
    if unknown:
        raise Unreadable(f"{what} has fields that this version does not know: {', '.join(sorted(unknown))}")
    return convert(raw, shape, what)


@lru_cache(maxsize=256)
def _names(shape: type[msgspec.Struct]) -> frozenset[str]:
    tag = {"type"} if issubclass(shape, Event) else set()
    return frozenset({field.encode_name for field in msgspec.structs.fields(shape)} | tag)


def _same(raw: dict[str, object]) -> dict[str, object]:
    return raw


def _unreadable(what: str, error: Exception) -> Unreadable:
    return Unreadable(f"{what} cannot be read: {error}. Nothing is executed on it; run `surefoot doctor`")


_TYPES: dict[str, type[AnyEvent]] = {str(shape.__struct_config__.tag): shape for shape in get_args(AnyEvent)}
_TYPE_NAMES: dict[type[AnyEvent], str] = {shape: name for name, shape in _TYPES.items()}
