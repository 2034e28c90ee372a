"""What a person is shown before a decision: hidden characters made visible. For previews only.

The bytes that are stored and sent stay as they are; this changes what is displayed and says what is odd about it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache

WARNINGS_MAX = 20

# Default-ignorable and blank characters that are letters or marks by category, so that the categories do not show them.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_LOOKALIKES = {
    "Cyrillic": "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f",
    "Greek": "\u0370-\u03ff\u1f00-\u1fff",
    "Armenian": "\u0530-\u058f",
    "Cherokee": "\u13a0-\u13ff\uab70-\uabbf",
}


# Compiled at first use: importing surefoot stays cheap.
@cache
def _candidate() -> re.Pattern[str]:
    return re.compile("[^\\t\\n -~\u4e00-\u9fff\u3001-\u3020\u3040-\u30ff\uff01-\uff5e]|[\u27e6]")


@cache
def _script(name: str) -> re.Pattern[str]:
    ranges = "".join(_LOOKALIKES.values()) if name == "any" else _LOOKALIKES[name]
    return re.compile(f"[{ranges}]")


@cache
def _latin() -> re.Pattern[str]:
    return re.compile("[A-Za-z\u00c0-\u024f]")


def visible(text: str) -> tuple[str, list[str]]:
    """`text` with every hidden character as an escape such as ⟦U+202E⟧, and warnings for the person who decides.

    Hidden are zero-width, bidirectional and other format characters, controls other than tab and newline, unassigned
    and private ones, blank letters, and variation selectors; joiners and selectors inside an emoji stay. Words that mix
    Latin letters with letters that look like them get a warning. The opening bracket ⟦ itself is escaped, so that an
    escape cannot be faked.
    """
    counts: Counter[str] = Counter()

    def shown(match: re.Match[str]) -> str:
        character = match[0]
        if character == "\u27e6":
            return _escape(character)
        if not _is_hidden(character) or _is_part_of_emoji(text, match.start()):
            return character
        counts[character] += 1
        return _escape(character)

    out = _candidate().sub(shown, text)
    warnings = [_hidden_warning(character, count) for character, count in counts.most_common(WARNINGS_MAX)]
    return out, (warnings + _mixed_words(text))[:WARNINGS_MAX]


def visible_value(value: object) -> tuple[object, list[str]]:
    """A JSON value with `visible` applied to its texts and keys, and the warnings with their places."""
    warnings: list[str] = []
    return _walk(value, "", warnings), warnings[:WARNINGS_MAX]


def _walk(value: object, path: str, warnings: list[str]) -> object:
    if isinstance(value, str):
        text, found = visible(value)
        warnings.extend(f"{path or 'text'}: {warning}" for warning in found)
        return text
    if isinstance(value, dict):
        out: dict[str, object] = {}
        for key, item in value.items():
            shown, found = visible(str(key))
            where = f"{path}.{shown}" if path else shown
            warnings.extend(f"{where}: {warning} (in the name)" for warning in found)
            out[shown] = _walk(item, where, warnings)
        return out
    if isinstance(value, list | tuple):
        return [_walk(item, f"{path}[{index}]", warnings) for index, item in enumerate(value)]
    return value


def _escape(character: str) -> str:
    return f"\u27e6U+{ord(character):04X}\u27e7"


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN_CATEGORIES or character in _BLANK or _is_selector(character)


def _is_selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _is_part_of_emoji(text: str, place: int) -> bool:
    # One joiner between two symbols, or one emoji selector behind a symbol; anything longer can carry a message.
    before, after = text[place - 1 : place], text[place + 1 : place + 2]
    if text[place] == "\ufe0f":
        return bool(before) and (_is_symbol(before) or before in "#*0123456789")
    if text[place] == "\u200d":
        return bool(before) and bool(after) and (_is_symbol(before) or before == "\ufe0f") and _is_symbol(after)
    return False


def _is_symbol(character: str) -> bool:
    if character in "\u00a9\u00ae":
        return True
    return ord(character) > 0x2000 and unicodedata.category(character) in ("So", "Sk", "Sm")


def _hidden_warning(character: str, count: int) -> str:
    name = unicodedata.name(character, "unnamed character")
    times = "once" if count == 1 else f"{count} times"
    return f"hidden character U+{ord(character):04X} ({name}), {times}"


def _mixed_words(text: str) -> list[str]:
    if _script("any").search(text) is None:
        return []
    found: dict[str, str] = {}
    for match in re.finditer(r"[^\W\d_]+", text):
        word = match[0]
        if _script("any").search(word) is None or len(found) >= WARNINGS_MAX:
            continue
        scripts = [name for name in _LOOKALIKES if _script(name).search(word)]
        if _latin().search(word):
            scripts.insert(0, "Latin")
        if len(scripts) > 1:
            found[word] = f"the word {word[:40]!r} mixes {' and '.join(scripts)} letters"
    return list(found.values())
