"""Large texts in less room: deflated where that pays, plain where not. What is read says itself which of them it is.

Both are JSON once unpacked. SQLite keeps a plain text as TEXT and a packed one as a BLOB, so that small stores can be
read in a shell. PostgreSQL, whose columns have one type, keeps a packed one as base64 behind MARK.
"""

from __future__ import annotations

import zlib
from binascii import a2b_base64, b2a_base64

from surefoot.errors import Unreadable

PACKED_BYTES_MIN = 1_000
"""What is shorter stays as it is: packing costs 15 to 30 µs for each KiB, and a page holds four of these anyway."""
PACKED_BYTES_MAX = 16 << 20
"""What is longer stays as it is, so that nothing has to be unpacked that would be longer than this."""
LARGE_BYTES_MIN = 16 << 10
"""From here on a large window pays; to make it costs more than a short text's whole packing."""
MARK = "z"
"""No JSON begins with it."""

_LEVEL = 1
_SMALL, _LARGE = (13, 6), (15, 8)
"""Window (as a power of two) and memory level. Both begin with a byte that no JSON begins with."""


def packed(text: bytes) -> bytes | None:
    """The text in at most three quarters of its room; None where it stays as it is, as random letters and base64 do."""
    size = len(text)
    if not PACKED_BYTES_MIN <= size <= PACKED_BYTES_MAX:
        return None
    window, memory = _SMALL if size < LARGE_BYTES_MIN else _LARGE
    deflater = zlib.compressobj(_LEVEL, zlib.DEFLATED, window, memory)
    made = deflater.compress(text) + deflater.flush()
    return made if len(made) * 4 <= size * 3 else None


def for_blob(text: bytes) -> str | bytes:
    """A text as SQLite keeps it. Raises UnicodeDecodeError for one that is not UTF-8."""
    if len(text) < PACKED_BYTES_MIN:
        return text.decode()
    plain = text.decode()
    return packed(text) or plain


def for_text(text: bytes) -> str:
    """A text as PostgreSQL keeps it. Raises UnicodeDecodeError for one that is not UTF-8."""
    if len(text) < PACKED_BYTES_MIN:
        return text.decode()
    plain, made = text.decode(), packed(text)
    return plain if made is None else MARK + b2a_base64(made, newline=False).decode()


def unpacked(value: str | bytes, what: str) -> str:
    """The text that a column holds. Raises Unreadable, naming `what`, for one that is damaged."""
    if isinstance(value, str):
        if not value.startswith(MARK):
            return value
        try:
            value = a2b_base64(value[len(MARK) :], strict_mode=True)
        except ValueError as error:
            raise _unreadable(what, str(error)) from error
    inflater = zlib.decompressobj()
    try:
        # Never more than it can have been: a few bytes, damaged or made for it, would else fill the memory.
        text = inflater.decompress(value, PACKED_BYTES_MAX + 1)
        if len(text) > PACKED_BYTES_MAX or not inflater.eof or inflater.unused_data:
            raise _unreadable(what, "it does not end where it should")
        return text.decode()
    except (zlib.error, UnicodeError) as error:
        raise _unreadable(what, str(error)) from error


def _unreadable(what: str, why: str) -> Unreadable:
    return Unreadable(f"{what} cannot be unpacked: {why}. Nothing is executed on it; run `surefoot doctor`")
