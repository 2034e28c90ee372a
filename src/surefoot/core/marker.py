"""The marker: how a call is recognised in a target that has no field for a key, such as a GitHub comment.

    <!-- agent-operation:run_18:step_42 k=3f9a01c2 mac=5d… -->

It stands on a line of its own at the end of the text. The MAC covers tenant, run, step, key, place and account, so that
a marker that was copied elsewhere does not fit. A marker is evidence, never a command: whoever reads it also checks
that its author is our account.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from functools import cache
from typing import Literal

from surefoot.errors import InvalidInput

Scan = Literal["ours", "forged", "none"]

KEY_BYTES_MIN = 32
ENCODED_KEY_CHARACTERS_MAX = 200
"""A longer operation key stands in the marker as its hash; the MAC covers the whole key in any case."""
MAC_HEX_DIGITS = 32
"""128 bits."""

_OPEN = "<!-- agent-operation:"
_LABEL = b"surefoot marker 1"
REMOVED = "[marker removed]"
NEUTRAL = "agent operation"


class Keyring:
    """Signing keys: the first signs, all verify. Never shows a key."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Raises InvalidInput for no key, or a key of less than 32 bytes."""
        if not keys:
            raise InvalidInput("the keyring is empty: give at least one key of 32 bytes (SUREFOOT_SECRET)")
        for number, key in enumerate(keys, start=1):
            if len(key) < KEY_BYTES_MIN:
                found = f"key {number} of the keyring has {len(key)} bytes"
                raise InvalidInput(f"{found}; each needs at least {KEY_BYTES_MIN} (SUREFOOT_SECRET)")
        self._keys = tuple(bytes(key) for key in keys)
        self._ids = tuple(hashlib.sha256(key).hexdigest()[:8] for key in self._keys)

    @classmethod
    def parse(cls, text: str) -> Keyring:
        """The keyring of a setting: texts separated by commas, used as they are but for blanks around them.

        Raises InvalidInput for no text, or one of less than 32 bytes.
        """
        parts = (part.strip() for part in text.split(","))
        return cls([part.encode("utf-8", "surrogatepass") for part in parts if part])

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self._ids)})"

    @property
    def key_id(self) -> str:
        """The id of the key that signs: the first 8 hexadecimal digits of its SHA-256."""
        return self._ids[0]

    def mac(self, label: bytes, fields: Sequence[str]) -> str:
        """HMAC-SHA256 of the signing key over the fields, each with its length before it; 128 bits in hexadecimal."""
        return _mac(self._keys[0], label, fields)

    def verifies(self, label: bytes, fields: Sequence[str], mac: str, *, key_id: str | None = None) -> bool:
        """True if `mac` is that of any key (of those called `key_id`, if given) over the fields."""
        given = mac.encode("utf-8", "surrogatepass")
        chosen = [key for key, name in zip(self._keys, self._ids, strict=True) if key_id is None or name == key_id]
        return any([hmac.compare_digest(_mac(key, label, fields).encode("ascii"), given) for key in chosen])


def _mac(key: bytes, label: bytes, fields: Sequence[str]) -> str:
    digest = hmac.new(key, label, hashlib.sha256)
    for field in fields:
        data = field.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8) + data)
    return digest.hexdigest()[:MAC_HEX_DIGITS]


def make_marker(
    keyring: Keyring, *, tenant_id: str, run_id: str, step_id: str, key: str, place: str, account: str
) -> str:
    """The marker of one operation at one place under one account, signed with the keyring's first key."""
    mac = keyring.mac(_LABEL, (tenant_id, run_id, step_id, key, place, account))
    return f"{_OPEN}{encode_key(key)} k={keyring.key_id} mac={mac} -->"


def encode_key(key: str) -> str:
    """`key` in letters, digits and `_.:%` only: nothing in it can end the comment or pass for another part of it."""
    data = key.encode("utf-8", "surrogatepass")
    coded = "".join(chr(byte) if _is_kept(byte) else f"%{byte:02X}" for byte in data)
    return coded if len(coded) <= ENCODED_KEY_CHARACTERS_MAX else f"sha256.{hashlib.sha256(data).hexdigest()}"


def _is_kept(byte: int) -> bool:
    return byte < 128 and (chr(byte).isalnum() or chr(byte) in "_.:")


def append_marker(text: str, marker: str) -> str:
    """`text` without any marker of its own, a blank line, and `marker` as the last line."""
    return f"{strip_namespace(text)}\n\n{marker}"


def marker_room(key: str) -> int:
    """How many characters `append_marker` adds for the operation key `key`."""
    return len(f"\n\n{_OPEN} k= mac= -->") + len(encode_key(key)) + 8 + MAC_HEX_DIGITS


MARKER_CHARACTERS_MAX = len(f"\n\n{_OPEN} k= mac= -->") + ENCODED_KEY_CHARACTERS_MAX + 8 + MAC_HEX_DIGITS
"""The most that `append_marker` adds, whatever the key: what limits reckon with before the key is known."""


def scan(
    text: str, keyring: Keyring, *, tenant_id: str, run_id: str, step_id: str, key: str, place: str, account: str
) -> Scan:
    """What `text` holds of this operation. Never raises; linear in the length of `text`.

    `ours`: its marker on a line of its own, with a MAC of the keyring for this place and account. `forged`: the name
    space with its key, but quoted, in a code block, altered, or with a MAC that does not fit. `none`: nothing of this
    operation.
    """
    coded = encode_key(key)
    if coded.lower() not in text.lower():
        return "none"
    fields = (tenant_id, run_id, step_id, key, place, account)
    for match in _marker().finditer(text):
        if match["key"] == coded and keyring.verifies(_LABEL, fields, match["mac"], key_id=match["id"]):
            # A second whole copy is no more than the first one: it is not looked at, however many there are.
            return "forged" if _is_shown(text, match) else "ours"
    return "forged" if _claims(text, coded) else "none"


def _is_shown(text: str, match: re.Match[str]) -> bool:
    """Whether the marker stands in a code block, where a reader sees it: somebody shows it there, and we never do.

    As the last line it is ours all the same: a body may end inside a code block that nobody closed.
    """
    if not text[match.end() :].strip():
        return False
    indented = match[0].startswith(("    ", "\t"))
    return indented or len(_fence().findall(text, 0, match.start())) % 2 == 1


@cache
def _fence() -> re.Pattern[str]:
    return re.compile(r"(?m)^ {0,3}(?:```|~~~)")


def _claims(text: str, coded: str) -> bool:
    end = r"(?![A-Za-z0-9_%]|[.:][A-Za-z0-9_%])"
    claim = rf"(?i)(?:{_name_space().pattern}){_BLANK}:{_BLANK}{re.escape(coded)}{end}"
    return re.search(claim, text) is not None


@cache
def _marker() -> re.Pattern[str]:
    return re.compile(
        r"(?m)^[^\S\n]{0,200}<!--\s{0,20}agent-operation:(?P<key>[A-Za-z0-9_.:%]{1,200})\s{1,20}k=(?P<id>[0-9a-f]{8})\s{1,20}"
        rf"mac=(?P<mac>[0-9a-f]{{{MAC_HEX_DIGITS}}})\s{{0,20}}-->[^\S\n]{{0,200}}$"
    )


# ---- the name space, in every spelling that a reader could take for it


def strip_namespace(text: str) -> str:
    """`text` with the marker's name space neutralised, whoever wrote it; applied twice it changes nothing more.

    A whole marker comment becomes `[marker removed]`, the bare name `agent operation`. Found in any case, with letters
    as HTML entities or full-width, with zero-width characters inside, with any hyphen and with blanks around it.
    """
    if not _may_hold_name(text):
        return text
    return _name_space().sub(NEUTRAL, _comment().sub(REMOVED, text))


def _may_hold_name(text: str) -> bool:
    if text.isascii() and "&" not in text:
        return _quick().search(text) is not None
    return True


_INVISIBLE = (
    r"(?:[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u00ad\u034f\u061c\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
    r"|&(?:amp;){0,3}(?:#0{0,8}(?:173|820[3-7]|8288|65279)(?![0-9]);?"
    r"|#[xX]0{0,8}(?:[aA][dD]|200[b-fB-F]|2060|[fF][eE][fF][fF])(?![0-9A-Fa-f]);?|shy;|zwn?j;|ZeroWidthSpace;|NoBreak;))*+"
)
_BLANK = rf"(?:\s|&nbsp;|{_INVISIBLE[:-2]})*+"
# Not the long dashes: between two words they are honest punctuation.
_HYPHEN = (
    r"(?:\\?[-\u2010-\u2012\u2212\u2043\ufe58\ufe63\uff0d]|%2[dD]"
    r"|&(?:amp;){0,3}(?:#0{0,8}(?:45|820[89]|8210|8722)(?![0-9]);?"
    r"|#[xX]0{0,8}(?:2[dD]|201[0-2]|2212)(?![0-9A-Fa-f]);?|hyphen;|dash;|minus;))"
)


def _letter(letter: str) -> str:
    small, large = ord(letter), ord(letter.upper())
    wide = f"{chr(small + 0xFEE0)}{chr(large + 0xFEE0)}"
    return (
        rf"(?:[{letter}{letter.upper()}{wide}]|%(?:{_any_case(small)}|{_any_case(large)})"
        rf"|&(?:amp;){{0,3}}(?:#0{{0,8}}(?:{small}|{large})(?![0-9]);?"
        rf"|#[xX]0{{0,8}}(?:{_any_case(small)}|{_any_case(large)})(?![0-9A-Fa-f]);?))"
    )


def _any_case(code: int) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{code:x}")


@cache
def _name_space() -> re.Pattern[str]:
    first, second = (_INVISIBLE.join(_letter(letter) for letter in word) for word in ("agent", "operation"))
    return re.compile(f"{first}{_BLANK}{_HYPHEN}{_BLANK}{second}")


@cache
def _comment() -> re.Pattern[str]:
    return re.compile(rf"(?:<|&lt;)!--{_BLANK}{_name_space().pattern}[^<>&]{{0,500}}--(?:>|&gt;)")


@cache
def _quick() -> re.Pattern[str]:
    return re.compile(r"(?i)agent|%[467][0-9a-f]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


# ---- whose marker a text holds, for who does not know what to look for


def keys_in(text: str) -> list[str]:
    """The operation keys of the markers in `text`, in order. Whether a marker is ours, only `scan` says.

    A key that is too long to stand in a marker is not found: its hash stands there.
    """
    coded = (match["key"] for match in _marker().finditer(text))
    return [_decoded(key) for key in coded if not key.startswith("sha256.")]


def _decoded(coded: str) -> str:
    parts = coded.split("%")
    data = parts[0].encode()
    for part in parts[1:]:
        byte = part[:2]
        if len(byte) == 2 and all(digit in "0123456789ABCDEF" for digit in byte):
            data += bytes.fromhex(byte) + part[2:].encode()
        else:
            data += b"%" + part.encode()
    return data.decode("utf-8", "replace")
