"""Events and small values to and from JSON. A value that cannot be read raises Unreadable; it never becomes None.

Events are stored with the format they were written in. `UPCASTS` lifts older formats, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar, get_args

import msgspec
from msgspec.structs import astuple, replace

from surefoot.core import events as ev
from surefoot.core.events import AnyEvent, Event
from surefoot.core.state import Rules
from surefoot.errors import Unreadable

FORMAT = 4
"""The format that events are written in. +1 with every change that older readers or older data do not fit, a new field
among them: an older reader says then that it is too old, which it could not tell from damage.

1: an event each, its fields by name. 2: a list of the events of one append. 3: in that list, for each event, its number
and then the list of its fields' values by their places; with marks for what comes again and again. 4: step_started may
have `rules`.
"""
EVENTS = "events"
"""The type of a list."""

NUMBERS: Mapping[type[AnyEvent], int] = {
    ev.RunStarted: 1, ev.RunStatusChanged: 2, ev.RunCompleted: 3, ev.RunFailed: 4, ev.RunCancelled: 5,
    ev.StepCreated: 6, ev.StepWaitingForApproval: 7, ev.StepReleased: 8, ev.StepStarted: 9, ev.StepDeferred: 10,
    ev.StepOutcomeUnknown: 11, ev.StepSucceeded: 12, ev.StepFailed: 13, ev.StepGivenUp: 14, ev.AttemptEnded: 15,
    ev.LookupAnswered: 16, ev.EvidenceRecorded: 17, ev.ReceiptRecorded: 18, ev.DuplicateDetected: 19,
    ev.SweepScheduled: 20, ev.ActionRequested: 21, ev.ActionDecided: 22, ev.ActionExpired: 23, ev.SignalReceived: 24,
    ev.SignalTaken: 25, ev.MessageQueued: 26, ev.MessageAppended: 27,
}  # fmt: skip
"""What stands for an event's type since format 3. A number is given once, and a new field goes behind the others."""
_BY_NUMBER: Mapping[int, type[AnyEvent]] = {number: shape for shape, number in NUMBERS.items()}

# JSON holds no control character as it is, so a mark is never a part of what it stands in: what is put in for it gives
# back every text, also one that a user chose to look like a mark or like an id.
_RUN, _STEP, _NONE, _NULL = "\x01", "\x02", "\x03", ",null"

_NEWER = "where a newer surefoot wrote it, use that version, else run `surefoot doctor`"

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


def encode_events(events: Sequence[AnyEvent], run_id: str) -> str:
    """The events of one append of a run as JSON with marks, in order. `decode_events` gives them back."""
    listed: list[object] = []
    for event in events:
        listed += (NUMBERS[type(event)], astuple(event))
    text, name = _encoder.encode(listed).decode(), _name(run_id)
    if name:
        # Faster than `replace`, which counts first.
        text = _RUN.join(_STEP.join(text.split(f"step_{name}_")).split(name))
    return text.replace(_NULL, _NONE)


def decode_events(kind: str, data: str, run_id: str, written: int = FORMAT) -> list[AnyEvent]:
    """The events of one append of a run. Raises Unreadable as `decode_event` does."""
    if kind != EVENTS:
        return [decode_event(kind, data, written)]
    _check_format(kind, written)
    if written < 3:
        return [_event(raw, None, written, UPCASTS) for raw in decode_value(data, list[dict[str, object]], "events")]
    name = _name(run_id)
    text = data.replace(_NONE, _NULL).replace(_RUN, name).replace(_STEP, f"step_{name}_")
    listed = decode_value(text, list[object], "events")
    if len(listed) % 2:
        raise Unreadable("events end in the middle of one; run `surefoot doctor`")
    return [
        _event(_fields(number, values), None, written, UPCASTS)
        for number, values in zip(listed[::2], listed[1::2], strict=True)
    ]


def _fields(number: object, values: object) -> dict[str, object]:
    """The fields of an event by name."""
    shape = _BY_NUMBER.get(number) if type(number) is int else None
    if shape is None or not isinstance(values, list):
        raise Unreadable(f"event number {number!r} is not known: nothing is executed on it; {_NEWER}")
    names = _places(shape)
    if len(values) > len(names):
        raise Unreadable(f"event {_TYPE_NAMES[shape]} has fields that this version does not know; {_NEWER}")
    return {"type": _TYPE_NAMES[shape], **dict(zip(names, values, strict=False))}


def _name(run_id: str) -> str:
    """What the ids of a run's own steps, calls and messages share with it."""
    return run_id.removeprefix("run_")


@lru_cache(maxsize=64)
def _places(shape: type[AnyEvent]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(shape))


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
            f"{kind} has format {written}, and this version reads up to {FORMAT}: it was written by a newer surefoot; "
            "use that version"
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
        raise Unreadable(
            f"event type {named!r}, stored as {stored!r}, is not known: nothing is executed on it; {_NEWER}"
        )
    return _struct(raw, shape, f"event {stored}")


def encode_value(value: object) -> str:
    """A small structure as JSON."""
    return _encoder.encode(value).decode()


def in_few_words(rules: Rules) -> Rules:
    """The same rules, of which no default is written: the encoder leaves a default out where it is that very object.

    So the defaults of Rules are a part of what is stored.
    """
    plain = {name: _DEFAULTS[name] for name in _DEFAULTS if getattr(rules, name) == _DEFAULTS[name]}
    return replace(rules, **plain)


@lru_cache(maxsize=256)
def encode_rules(rules: Rules) -> str:
    """Rules as JSON, in few words."""
    return encode_value(in_few_words(rules))


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
        names = ", ".join(sorted(unknown))
        raise Unreadable(
            f"{what} has fields that this version does not know: {names}. Nothing is executed on it; {_NEWER}"
        )
    return convert(raw, shape, what)


@lru_cache(maxsize=256)
def _names(shape: type[msgspec.Struct]) -> frozenset[str]:
    tag = {"type"} if issubclass(shape, Event) else set()
    return frozenset({field.encode_name for field in msgspec.structs.fields(shape)} | tag)


def _same(raw: dict[str, object]) -> dict[str, object]:
    return raw


def _unreadable(what: str, error: Exception) -> Unreadable:
    return Unreadable(f"{what} cannot be read: {error}. Nothing is executed on it; {_NEWER}")


_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Rules) if not field.required}
_TYPES: dict[str, type[AnyEvent]] = {str(shape.__struct_config__.tag): shape for shape in get_args(AnyEvent)}
_TYPE_NAMES: dict[type[AnyEvent], str] = {shape: name for name, shape in _TYPES.items()}
