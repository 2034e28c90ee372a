"""Canonical JSON: the one form that is hashed, compared and stored. The value rule itself stands in values.py."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

import msgspec

from surefoot.core.text import FAULTY
from surefoot.errors import InvalidInput

DEPTH_MAX = 64
"""Levels of nesting that arguments and results may have."""
CANONICAL_DEPTH_MAX = 2 * DEPTH_MAX
"""Levels that `canonical` takes: a legal value inside records of our own."""
INTEGER_BITS_MAX = 14_283
"""Longer integers (about 4,300 digits) are kept in a tagged form, because decimal digits cost quadratic time."""

ENCODER = msgspec.json.Encoder(order="sorted")


KEY_CHARACTERS_MAX = 500


def digest(data: bytes) -> str:
    """SHA-256 in 64 hexadecimal digits. A hash serves comparison, never a retry."""
    return hashlib.sha256(data).hexdigest()


def check_key(key: object, what: str = "a key") -> None:
    """The one rule for keys: of runs, of `perform`, of signals and decisions, and what a tool's key function returns.

    None is no key. Raises InvalidInput for what is blank, longer than KEY_CHARACTERS_MAX, or against the value rule.
    """
    if key is None:
        return
    if not isinstance(key, str) or not key.strip() or len(key) > KEY_CHARACTERS_MAX:
        raise InvalidInput(f"{what} is a text of 1 to {KEY_CHARACTERS_MAX} characters, and not blank")
    canonical(key, what)


def canonical(value: object, name: str = "$") -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8. 1 and 1.0 differ, so do 0.0 and -0.0.

    Raises InvalidInput, naming the place in what is called `name`, for anything outside the value rule. Nothing is
    converted on the way.
    """
    if fits(value):
        try:
            return ENCODER.encode(value)
        except UnicodeEncodeError:
            pass
    path, fault = _first_fault(value, name, 0) or (name, "cannot be written as JSON")
    place = f"the value at {path}" if name == "$" else path
    raise InvalidInput(f"{place} {fault}", details={"path": path})


def fits(value: object, levels: int = CANONICAL_DEPTH_MAX + 1) -> bool:
    """Whether `value` is under the value rule and has at most so many levels of containers, lone surrogates aside.

    Those are left to the encoder, which refuses them. The hot path: one call a container, exact types only.
    """
    if not levels:
        return False
    items: Iterable[object]
    if type(value) is dict:
        for key in value:
            if type(key) is not str or "\x00" in key:
                return False
        items = value.values()
    elif type(value) is list or type(value) is tuple:
        items = value
    else:
        items = (value,)
    for item in items:
        kind = type(item)
        if kind is str:
            if "\x00" in item:
                return False
        elif kind is dict or kind is list or kind is tuple:
            if not fits(item, levels - 1):
                return False
        elif kind is int:
            if item.bit_length() > INTEGER_BITS_MAX:
                return False
        elif kind is float:
            if not math.isfinite(item):
                return False
        elif item is not None and kind is not bool:
            return False
    return True


def _is_plain_scalar(item: object) -> bool:
    if item is None or type(item) is bool:
        return True
    if type(item) is int:
        return item.bit_length() <= INTEGER_BITS_MAX
    return type(item) is float and math.isfinite(item)


def _first_fault(value: object, path: str, depth: int) -> tuple[str, str] | None:
    # The slow path: run once something is wrong, to say where.
    if depth > CANONICAL_DEPTH_MAX:
        return path, f"is nested deeper than {CANONICAL_DEPTH_MAX} levels"
    if type(value) is str:
        fault = _text_fault(value)
        return (path, fault) if fault else None
    if type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                return path, f"has a key of type {type(key).__name__}; keys are texts"
            fault = _text_fault(key)
            if fault:
                return path, f"has a key that {fault}"
            found = _first_fault(item, f"{path}.{key}", depth + 1)
            if found:
                return found
        return None
    if type(value) is list or type(value) is tuple:
        numbered = (_first_fault(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value))
        return next((found for found in numbered if found), None)
    return None if _is_plain_scalar(value) else (path, _scalar_fault(value))


def _text_fault(text: str) -> str | None:
    match = FAULTY.search(text)
    if match is None:
        return None
    what = "the character NUL (U+0000)" if match[0] == "\x00" else f"a lone surrogate (U+{ord(match[0]):04X})"
    return f"holds {what} at position {match.start()}, which cannot be stored; leave it out"


def _scalar_fault(value: object) -> str:
    if type(value) is float:
        return "is not a finite number"
    if type(value) is int:
        return "is an integer of more than 4,300 digits; pass it as a text"
    return f"is of type {type(value).__name__}; use texts, numbers, booleans, None, lists and dicts"
