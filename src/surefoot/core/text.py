"""Texts under the value rule: cleaned of what no store can keep, and cut between whole characters."""

from __future__ import annotations

import re
import unicodedata

FAULTY = re.compile("[\x00\ud800-\udfff]")
"""NUL and lone surrogates: valid in a Python text, in no store and in no request."""


def clean_text(text: str) -> str:
    """`text` with U+FFFD in the place of each NUL and lone surrogate; a split surrogate pair becomes its character.

    A text of a program's own kind (a subclass, a member of a StrEnum) becomes a plain one: no event can hold another.
    """
    if FAULTY.search(text) is None:
        return text if type(text) is str else str.__str__(text)
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\x00", "\ufffd")


def cut(text: str, characters_max: int) -> tuple[str, bool]:
    """`text`, or its beginning and a note, together at most `characters_max` characters; and whether it was cut.

    The cut stands between whole characters: no surrogate pair, emoji sequence or letter with its accents is split
    (sequences of more than 32 code points aside).
    """
    if len(text) <= characters_max:
        return text, False
    note = f"\n[cut: {len(text)} characters in all]"
    room = characters_max - len(note)
    if room <= 0:
        return text[: _boundary(text, max(characters_max, 0))], True
    return text[: _boundary(text, room)] + note, True


def _boundary(text: str, position: int) -> int:
    for place in range(position, max(position - 32, 0), -1):
        if not _joined(text, place):
            return place
    return position if position < 32 else max(position - 32, 0)


def _joined(text: str, place: int) -> bool:
    before, after = text[place - 1], text[place]
    if after < "\u0300":
        return before == "\r" and after == "\n"
    if before == "\u200d" or after == "\u200d" or "\U0001f3fb" <= after <= "\U0001f3ff":
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    if _is_regional(after) and _is_regional(before):
        return _regional_run(text, place) % 2 == 1
    return unicodedata.category(after)[0] == "M" or "\U000e0020" <= after <= "\U000e007f"


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _regional_run(text: str, place: int) -> int:
    """How many regional indicators (halves of flags) stand directly before `place`, counting at most 64."""
    count = 0
    while count < 64 and place - count > 0 and _is_regional(text[place - 1 - count]):
        count += 1
    return count
