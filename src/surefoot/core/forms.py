"""Every text that a reader could turn back into a known secret value: what redaction looks for."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator

from surefoot.core.escapes import squeezed

SECRET_CHARACTERS_MIN = 6
"""Shorter values are not known to redaction: they would hit ordinary words."""
_UNRESERVED = ("-_.~", "-_.~/", "-_.~!*'()")
"""What writers of percent text leave as it is beside letters and digits: strict ones, those of paths, browsers."""


def known_forms(value: str) -> Iterator[str]:
    """The forms of `value`, each at least 6 characters long; some come more than once."""
    lines = {line.strip() for line in value.splitlines()} if "\n" in value.strip() else set()
    for plain in {value, value.strip(), "".join(value.split()), *(line for line in lines if len(line) >= 16)}:
        if len(plain) >= SECRET_CHARACTERS_MIN:
            for form in _encodings(plain, is_line=plain in lines):
                yield from (text for text in {form, squeezed(form)} if len(text) >= SECRET_CHARACTERS_MIN)


def _encodings(plain: str, *, is_line: bool) -> Iterator[str]:
    data = plain.encode("utf-8", "surrogatepass")
    for text in {plain, data.decode("latin-1")}:  # UTF-8 is read as Latin-1 where headers are
        yield from (text, repr(text)[1:-1])
        for ascii_only in (False, True):
            once = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
            yield from (once, once.replace("/", "\\/"), json.dumps(once, ensure_ascii=ascii_only)[1:-1])
    yield from (repr(data)[2:-1], _in_mail(data))
    escaped = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    yield escaped.replace('"', "&quot;").replace("'", "&#x27;")
    for kept in _UNRESERVED:
        upper = _percent(data, kept)
        yield from (upper, upper.replace("%20", "+"), re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), upper))
    # Whole documents are written in these, and in them a value as the document's own kind writes it: a form, JSON.
    # Not for each line of a long key: every text is searched for every form.
    percent = _percent(data, _UNRESERVED[0])
    written_in = {plain} if is_line else {plain, percent, percent.replace("%20", "+"), json.dumps(plain)[1:-1]}
    for written in (text.encode("utf-8", "surrogatepass") for text in written_in):
        yield from (written.hex(), written.hex().upper())
        for offset in range(3):
            form = _base64_core(written, offset)
            yield from (form, form.replace("+", "-").replace("/", "_"))


def _percent(data: bytes, kept: str) -> str:
    return "".join(chr(byte) if _is_unreserved(byte, kept) else f"%{byte:02X}" for byte in data)


def _is_unreserved(byte: int, kept: str) -> bool:
    character = chr(byte)
    return byte < 128 and (character.isalnum() or character in kept)


def _in_mail(data: bytes) -> str:
    """Quoted-printable, without its line breaks."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != ord("=") else f"={byte:02X}" for byte in data)


def _base64_core(data: bytes, offset: int) -> str:
    """The characters of base64 that `data` alone decides when `offset` bytes (mod 3) stand before it."""
    coded = base64.b64encode(b"\0" * offset + data).decode("ascii").rstrip("=")
    start = (0, 2, 3)[offset]
    end = len(coded) if (offset + len(data)) % 3 == 0 else len(coded) - 1
    return coded[start:end]
