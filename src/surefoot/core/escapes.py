"""Texts as other writers escape them, read back: in JSON, Python, HTML and percent text, over and over."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache

READINGS_MAX = 3
"""How many times over such an escape is read back: HTML in JSON in a log."""


def may_be_escaped(text: str) -> bool:
    """Whether `text` can hold an escape at all: four plain searches."""
    return "\\u" in text or "\\x" in text or "&" in text or "%" in text


@cache
def _escape() -> re.Pattern[str]:
    return re.compile(
        r"(?<!\\)\\+(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))|&#[xX]([0-9a-fA-F]{1,5});|&#([0-9]{1,6});"
        r"|&(amp|lt|gt|quot|apos);|((?:%[0-9a-fA-F]{2})+)"
    )


@cache
def escape_begun() -> re.Pattern[str]:
    """An escape at the end of a text of which more may come."""
    return re.compile(
        r"(?:(?<!\\)\\+(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?|(?<!%[0-9a-fA-F]{2})(?:%[0-9a-fA-F]{2})*%[0-9a-fA-F]{0,2}"
        r"|&(?:#(?:[xX][0-9a-fA-F]{0,5}|[0-9]{0,6})?|[a-z]{0,4})?)\Z"
    )


_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


def _read(match: re.Match[str]) -> str:
    """What an escape stands for; itself where it stands for nothing."""
    json_, python, html_hex, html_number, named, percent = match.groups()
    if named:
        return _NAMED[named]
    if percent:
        return bytes.fromhex(percent.replace("%", "")).decode("utf-8", "replace")
    code = int(html_number) if html_number else int(json_ or python or html_hex, 16)
    return chr(code) if code <= sys.maxunicode else match[0]


def read_back(text: str) -> Iterator[str]:
    """`text` with its escapes read back once, twice, and so on, as long as that changes it."""
    for _ in range(READINGS_MAX):
        written = _escape().sub(_read, text)
        if written == text:
            return
        yield written
        text = written


def unescaped(text: str) -> list[tuple[str, list[tuple[int, int]]]]:
    """The same as `read_back`, each with the place in `text` that each of its characters comes from."""
    found: list[tuple[str, list[tuple[int, int]]]] = []
    spans = [(index, index + 1) for index in range(len(text))]
    for _ in range(READINGS_MAX):
        parts, places, done = [], [], 0
        for match in _escape().finditer(text):
            plain = _read(match)
            parts += [text[done : match.start()], plain]
            places += spans[done : match.start()]
            places += [(spans[match.start()][0], spans[match.end() - 1][1])] * len(plain)
            done = match.end()
        written = "".join([*parts, text[done:]])
        if written == text:
            break
        text, spans = written, [*places, *spans[done:]]
        found.append((text, spans))
    return found


_ESCAPES = frozenset(("n", "r", "t"))


def squeezed(text: str) -> str:
    """`text` without whitespace, plain or written as `\\n`, `\\r`, `\\t`, and without the backslashes of escapes."""
    if "\\" not in text:
        return "".join(text.split())
    # As `redact._gap().sub` does, at a third of its cost: behind a run of backslashes may stand one letter of them.
    first, *rest = text.split("\\")
    bare = [part[1:] if part[:1] in _ESCAPES else part for part in rest]
    return "".join("".join([first, *bare]).split())
