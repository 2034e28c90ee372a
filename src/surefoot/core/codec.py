"""Events and small values to and from JSON. A value that cannot be read raises Unreadable; it never becomes None.

An event is stored with its type and with the format it was written in. `UPCASTS` lifts older formats, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar, get_args

import msgspec

from surefoot.core.events import AnyEvent, Event
from surefoot.errors import Unreadable

FORMAT = 2
"""The format that events are written in. +1 with every change that older readers or older data do not fit.

1: an event each. 2: a list of the events of one append.
"""
EVENTS = "events"
"""The type of a list."""

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


def encode_events(events: Sequence[AnyEvent]) -> str:
    """The events of one append as JSON, in order."""
    return _encoder.encode(events).decode()


def decode_events(kind: str, data: str | bytes, written: int = FORMAT) -> list[AnyEvent]:
    """The events of one append. Raises Unreadable as `decode_event` does."""
    if kind != EVENTS:
        return [decode_event(kind, data, written)]
    _check_format(kind, written)
    return [_event(raw, None, written, UPCASTS) for raw in decode_value(data, list[dict[str, object]], "events")]


def decode_event(
    kind: str, data: str | bytes, written: int = FORMAT, upcasts: Mapping[tuple[str, int], Upcast] = UPCASTS
) -> AnyEvent:
    """The event that `data` holds, which was written in the format `written`.

    Raises Unreadable for an unknown type, a newer format, a field that is missing, unknown or of another type, and for
    a type inside the data that is not `kind`.
    """
    _check_format(kind, written)
    return _event(decode_value(data, dict[str, object], f"event {kind}"), kind, written, upcasts)


def _check_format(kind: str, written: int) -> None:
    if not 1 <= written <= FORMAT:
        raise Unreadable(
            f"event {kind} has format {written}, and this version reads up to {FORMAT}: use a newer version"
        )


def _event(
    raw: dict[str, object], kind: str | None, written: int, upcasts: Mapping[tuple[str, int], Upcast]
) -> AnyEvent:
    """`kind` is what it was stored as; None in a list, where only the event itself says what it is."""
    stored = kind if kind is not None else str(raw.get("type"))
    for lower in range(written, FORMAT):
        raw = upcasts.get((stored, lower), _same)(raw)
    named = raw.get("type")
    shape = _TYPES.get(named) if isinstance(named, str) else None
    if shape is None or (named != stored and written == FORMAT):
        raise Unreadable(f"event type {named!r}, stored as {stored!r}, is not known: nothing is executed on it")
    return _struct(raw, shape, f"event {stored}")


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
