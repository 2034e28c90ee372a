"""The one value rule of every store, and how values from outside are brought under it.

The rule: None, booleans, integers exact to any size (more than 4,300 digits in a tagged form), finite floats, texts of
valid Unicode without NUL and without lone surrogates, lists, and dicts with such texts as keys, at most 64 deep.

Three treatments, by where a value comes from:

- Text of a user, of the model, of a tool's result: `clean_text` puts U+FFFD in the place of NUL and lone surrogates.
- Arguments of a tool call are never changed in silence: `parse_arguments` refuses them with a text for the model, since
  what ran has to be what was proposed.
- A tool's result is converted by `to_json_value`, which never raises: the effect has happened, and a result that cannot
  be kept must not repeat it.

Tagged forms are dicts with one key that starts with `$`: `$float`, `$int`, `$decimal`, `$bytes`, `$entries`,
`$unserialisable`, `$cut`. They are for readers; nothing decodes them, so a user's own dict of this shape does no harm.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NoReturn

import msgspec

from surefoot.core.canonical import (
    DEPTH_MAX,
    ENCODER,
    INTEGER_BITS_MAX,
    canonical as canonical,
    check_key as check_key,
    digest as digest,
    fits,
)
from surefoot.core.text import FAULTY, clean_text as clean_text, cut as cut
from surefoot.errors import InvalidInput

ARGUMENTS_CHARACTERS_MAX = 1_000_000
INTEGER_DIGITS_MAX = 4_300
EASY_SHARE = 32
"""What needs no care has at most a byte in so many of its limit for each character and item."""
EASY_INTEGER_BITS_MAX = 64
BYTES_BASE64_MAX = 65_536
"""Bytes of a bytes object that a result keeps."""
RESULT_BYTES_MAX = 1_048_576
NOTES_MAX = 20
MAPPING_ITEMS_MAX = 100_000
"""Entries read from a mapping that is not a dict; it may have no end."""


# ---- arguments


def parse_arguments(raw: str) -> dict[str, object]:
    """The arguments of a tool call from the model's text; '', blanks, `null` and `{}` mean none.

    Integers keep all digits. Raises InvalidInput with a text for the model where that is not an object, not JSON (with
    the position), has a key twice, NaN, Infinity, a number too large for a float, NUL, a lone surrogate, or is beyond
    the limits.
    """
    if len(raw) > ARGUMENTS_CHARACTERS_MAX:
        raise InvalidInput(f"the arguments have {len(raw)} characters; at most {ARGUMENTS_CHARACTERS_MAX} are taken")
    usual = _read_usual(raw)
    if usual is not None:
        return usual
    if not raw.strip():
        return {}
    try:
        value = json.loads(
            raw,
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
        )
    except json.JSONDecodeError as problem:
        raise InvalidInput(
            f"the arguments are not valid JSON: {problem.msg} at line {problem.lineno}, column {problem.colno}"
        ) from None
    except RecursionError:
        raise InvalidInput(f"the arguments are nested deeper than {DEPTH_MAX} levels") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(f"the arguments must be a JSON object such as {{}}, not {_json_kind(value)}")
    return check_plain(value)


def _read_usual(raw: str) -> dict[str, object] | None:
    """The same for a short object without escapes of characters, as nearly every one is; None where care is needed.

    Its text alone shows that it is under the value rule: there is no room in it for an integer that is too long, and no
    character, written or escaped, that is none.
    """
    if len(raw) > INTEGER_DIGITS_MAX or "\\u" in raw or raw.count("{") + raw.count("[") > DEPTH_MAX:
        return None
    if FAULTY.search(raw) is not None:
        return None
    try:
        value, end = _DECODER.raw_decode(raw)
    except ValueError:
        return None
    return value if type(value) is dict and end == len(raw) else None


def check_plain(arguments: dict[str, object]) -> dict[str, object]:
    """`arguments` itself if it is under the value rule; else InvalidInput naming the place."""
    data = canonical(arguments)
    if data.count(b"{") + data.count(b"[") > DEPTH_MAX and not fits(arguments, DEPTH_MAX):
        raise InvalidInput(f"the arguments are nested deeper than {DEPTH_MAX} levels")
    return arguments


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out = dict(pairs)
    if len(out) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise InvalidInput(f"the arguments give the key {twice!r} twice; give each key once")
    return out


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidInput(f"the arguments hold {name}, which is not JSON; use a finite number, a text or null")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise InvalidInput(f"the number {digits[:40]} is too large; pass it as a text")
    return number


def _integer(digits: str) -> int:
    if len(digits) > INTEGER_DIGITS_MAX:
        raise InvalidInput("the arguments hold an integer of more than 4,300 digits; pass it as a text")
    return int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_float=_finite)


def _json_kind(value: object) -> str:
    kinds = {list: "an array", str: "a string", bool: "a boolean"}
    return kinds.get(type(value), "a number")


# ---- results


def to_json_value(value: object, *, bytes_max: int = RESULT_BYTES_MAX) -> tuple[object, list[str]]:
    """`value` under the value rule, with notes on what was converted or left out. Never raises an Exception.

    NaN and infinities become `{"$float": "NaN"}`; -0.0 stays; bytes, Decimal, huge integers get tagged forms; dates are
    ISO texts; sets are sorted lists; dataclasses, msgspec structs and objects with `model_dump` are dicts; what is not
    known becomes `{"$unserialisable": "package.Class"}`, never its repr, which may print secrets. What is longer than
    about `bytes_max` of JSON, nested deeper than 64 levels or cyclic is cut with a note in its place.
    """
    converter = _Converter(bytes_max)
    return converter.convert(value, "$", 0), converter.notes


def encode_output(value: object, bytes_max: int = RESULT_BYTES_MAX) -> tuple[bytes, list[str]]:
    """`value` as canonical JSON of at most `bytes_max` bytes (not less than 64), with notes. Never raises an Exception.

    Time and memory are bound by `bytes_max`, not by the size of `value`.
    """
    if _left_over(value, DEPTH_MAX, bytes_max // EASY_SHARE) >= 0:
        try:
            return ENCODER.encode(value), []
        except UnicodeEncodeError:
            pass
    notes: list[str] = []
    for share in (1.0, 0.9, 0.5, 0.2):
        plain, notes = to_json_value(value, bytes_max=int(bytes_max * share))
        try:
            data = canonical(plain)
        except InvalidInput:
            break
        if len(data) <= bytes_max:
            return data, notes
    notes.append("$: replaced by a note, too large")
    return ENCODER.encode({"$cut": f"the result exceeds {bytes_max} bytes"}), notes


def _left_over(value: object, levels: int, room: int) -> int:
    """How much of `room` is left behind a value that needs no care, lone surrogates aside; -1 for any other.

    One call a container, as in `fits`; but this one takes no longer than there is room, however large the value is.
    """
    items: Iterable[object] = (value,)
    if type(value) is dict or type(value) is list or type(value) is tuple:
        room -= len(value)
        if not levels or room < 0:
            return -1
        items = value
        if type(value) is dict:
            for key in value:
                if type(key) is not str:
                    return -1
                room -= len(key)
                if room < 0 or "\x00" in key:
                    return -1
            items = value.values()
    for item in items:
        if type(item) is str:
            room -= len(item)
            if room < 0 or "\x00" in item:
                return -1
        elif type(item) is dict or type(item) is list or type(item) is tuple:
            room = _left_over(item, levels - 1, room)
            if room < 0:
                return -1
        elif type(item) is int:
            if item.bit_length() > EASY_INTEGER_BITS_MAX:
                return -1
        elif type(item) is float:
            if not math.isfinite(item):
                return -1
        elif item is not None and type(item) is not bool:
            return -1
    return room


_Items = list[object] | tuple[object, ...] | set[object] | frozenset[object]


class _Converter:
    """One conversion: what is left of its size, the containers it is inside of, its notes."""

    def __init__(self, bytes_max: int) -> None:
        self.room = max(bytes_max, 0)
        self.inside: set[int] = set()
        self.notes: list[str] = []

    def note(self, path: str, text: str) -> None:
        if len(self.notes) < NOTES_MAX:
            self.notes.append(f"{path[:200]}: {text}")

    def convert(self, value: object, path: str, depth: int) -> object:
        try:
            return self._convert(value, path, depth)
        except Exception:
            # A property or method of the user's class raised. The error's text may hold anything, so it is not kept.
            return self._unserialisable(value, path)

    def _convert(self, value: object, path: str, depth: int) -> object:
        if value is None or value is True or value is False:
            self.room -= 5
            return value
        for kind, method in _SCALARS:
            if isinstance(value, kind):
                return method(self, value, path)
        return self._container(value, path, depth)

    def _container(self, value: object, path: str, depth: int) -> object:
        if type(value).__module__ == "uuid":
            return self._as_text(value, path)
        if not isinstance(value, type) and hasattr(value, "__fspath__"):
            return self.convert(value.__fspath__(), path, depth)
        opened = _opened(value)
        if opened is None:
            return self._unserialisable(value, path)
        if depth >= DEPTH_MAX:
            return self._cut_note(path, f"nested deeper than {DEPTH_MAX} levels")
        if id(value) in self.inside:
            return self._cut_note(path, "refers to itself")
        self.inside.add(id(value))
        try:
            if isinstance(opened, dict):
                return self._dict(opened, path, depth)
            items = self._list(opened, path, depth)
            return sorted(items, key=_sort_key) if isinstance(opened, set | frozenset) else items
        finally:
            self.inside.discard(id(value))

    def _list(self, value: _Items, path: str, depth: int) -> list[object]:
        out: list[object] = []
        for index, item in enumerate(_plain_iter(value)):
            if self.room <= 0:
                out.append(self._cut_note(path, f"{len(value) - index} more items"))
                break
            if item is None or type(item) is bool or (type(item) is int and item.bit_length() <= INTEGER_BITS_MAX):
                out.append(item)  # Long lists of numbers are the one large result that is common: no call for each.
                self.room -= 6 if type(item) is not int else item.bit_length() // 3 + 3
                continue
            self.room -= 1
            out.append(self.convert(item, f"{path}[{index}]", depth + 1))
        return out

    def _dict(self, value: dict[object, object], path: str, depth: int) -> object:
        pairs: list[tuple[object, object]] = []
        left_out = 0
        for key, item in dict.items(value):
            if self.room <= 0:
                left_out = len(value) - len(pairs)
                break
            shown = self._key(key, path, depth)
            where = f"{path}.{shown}" if isinstance(shown, str) else f"{path}{{key}}"
            pairs.append((shown, self.convert(item, where, depth + 1)))
        out = {key: item for key, item in pairs if isinstance(key, str)}
        if len(out) != len(pairs):
            self.note(path, "keys that are not distinct texts; kept as a list of entries")
            return {"$entries": [[key, item] for key, item in pairs]}
        if left_out:
            out["$cut"] = f"{left_out} more keys"
            self.note(path, f"cut: {left_out} more keys")
        return out

    def _key(self, key: object, path: str, depth: int) -> object:
        if isinstance(key, enum.Enum):
            key = key.value
        if isinstance(key, int) and not isinstance(key, bool) and int.bit_length(key) <= INTEGER_BITS_MAX:
            key = int.__repr__(key)
        return self.convert(key, path, depth + 1)

    def _text(self, value: str, path: str) -> str:
        text = str.__str__(value)
        room = max(self.room, 60)
        kept, was_cut = cut(text, room)
        size = len(ENCODER.encode(clean_text(kept)))
        if size > max(self.room, 360):
            # A character takes up to six bytes of JSON.
            kept, was_cut = cut(text, max(room * len(kept) // size, 60))
            size = room
        cleaned = clean_text(kept)
        if cleaned != kept:
            self.note(path, "NUL and lone surrogates replaced by U+FFFD")
        if was_cut:
            self.note(path, f"cut: {len(text)} characters in all")
        self.room -= size + 1
        return cleaned

    def _int(self, value: int, path: str) -> object:
        number = int.__int__(value)
        if number.bit_length() > INTEGER_BITS_MAX:
            self.note(path, "integer of more than 4,300 digits kept in hexadecimal")
            return {"$int": self._text(hex(number), path)}
        self.room -= number.bit_length() // 3 + 2
        return number

    def _float(self, value: float, path: str) -> object:
        number = float.__float__(value)
        self.room -= 18
        if math.isfinite(number):
            return number
        name = "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
        self.note(path, f"{name} kept in a tagged form")
        return {"$float": name}

    def _bytes(self, value: bytes | bytearray | memoryview, path: str) -> object:
        size = memoryview(value).nbytes
        kept = bytes(memoryview(value).cast("B")[: min(BYTES_BASE64_MAX, max(self.room, 0) * 3 // 4)])
        self.room -= size * 4 // 3 + 20
        if len(kept) < size:
            self.note(path, f"cut: {size} bytes in all")
        return {"$bytes": base64.b64encode(kept).decode("ascii")}

    def _datetime(self, value: datetime.datetime, path: str) -> str:
        if datetime.datetime.utcoffset(value) is None:
            self.note(path, "a date and time without a zone")
        return self._text(datetime.datetime.isoformat(value), path)

    def _decimal(self, value: decimal.Decimal, path: str) -> object:
        return {"$decimal": self._text(decimal.Decimal.__str__(value), path)}

    def _enum(self, value: enum.Enum, path: str) -> object:
        return self.convert(value.value, path, DEPTH_MAX - 1)

    def _as_text(self, value: object, path: str) -> str:
        return self._text(str(value), path)

    def _cut_note(self, path: str, text: str) -> object:
        self.note(path, f"cut: {text}")
        self.room -= 40
        return {"$cut": text}

    def _unserialisable(self, value: object, path: str) -> object:
        name = _class_name(value)
        self.note(path, f"an object of class {name} cannot be kept")
        return {"$unserialisable": self._text(name, path)}


# In this order: an enum may be a text or a number, and a datetime is a date.
_SCALARS: tuple[tuple[type | tuple[type, ...], Callable[..., object]], ...] = (
    (enum.Enum, _Converter._enum),
    (str, _Converter._text),
    (int, _Converter._int),
    (float, _Converter._float),
    ((bytes, bytearray, memoryview), _Converter._bytes),
    (datetime.datetime, _Converter._datetime),
    (decimal.Decimal, _Converter._decimal),
    ((datetime.date, datetime.time, datetime.timedelta), _Converter._as_text),
)


def _opened(value: object) -> dict[object, object] | _Items | None:
    """The builtin container inside `value`, or None. Generators and other iterators are not consumed."""
    if isinstance(value, dict | list | tuple | set | frozenset):
        return value
    if isinstance(value, type):
        return None
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {shown: getattr(value, name) for shown, name in names}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump = getattr(type(value), "model_dump", None)
    if callable(dump):
        dumped = dump(value)
        return dumped if isinstance(dumped, dict | list) else None
    return dict(islice(value.items(), MAPPING_ITEMS_MAX)) if isinstance(value, Mapping) else None


def _plain_iter(value: _Items) -> Iterable[object]:
    # The builtin iterator: a subclass may have one of its own, which may raise or never end.
    if isinstance(value, list):
        return list.__iter__(value)
    if isinstance(value, tuple):
        return tuple.__iter__(value)
    return set.__iter__(value) if isinstance(value, set) else frozenset.__iter__(value)


def _sort_key(value: object) -> bytes:
    return ENCODER.encode(value)


def _class_name(value: object) -> str:
    kind = type(value)
    try:
        module, name = type.__getattribute__(kind, "__module__"), type.__getattribute__(kind, "__qualname__")
    except Exception:
        return "unknown"
    return f"{module}.{name}" if isinstance(module, str) and isinstance(name, str) else "unknown"
