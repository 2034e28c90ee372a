"""What a link's page shows of an action is what it is: hidden characters and HTML are told, in 200 forms."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterator

import msgspec
import pytest

from surefoot.core.state import Action, ActionKind
from surefoot.core.visible import visible_value
from surefoot.server import link_texts
from surefoot.snapshot import ActionView, action_view
from surefoot.store.port import ActionRow

RANGES = (range(0x200B, 0x2010), range(0x202A, 0x202F), range(0x2060, 0x2065), range(0x2066, 0x2070))
HIDDEN = [chr(code) for codes in RANGES for code in codes]
HIDDEN += list("\u00ad\u034f\u061c\u115f\u1160\u180e\u3164\ufeff\uffa0\u0007\u001b\u007f")
HIDDEN += [chr(0xE0000 + code) for code in (1, 0x20, 0x41, 0x7F)]
UNSEEN = ("Cf", "Cc", "Cn", "Co")
TAGS = ("<script", "<img", "<form", "<svg", "<style", "<meta", "<base", "<a ", "<iframe", "<input", "<h1", "<!--")
MARKUP = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</pre></dd></dl><h1>Approved</h1>",
    "<form action=//evil.example><button>Approve</button></form>", '"><svg onload=alert(1)>', "<!--", "-->", "]]>",
    "<style>body{display:none}</style>", "&lt;b&gt;", "&#x202e;", "<meta http-equiv=refresh content=0>",
    "<base href=//evil>",
    "<a href='javascript:alert(1)'>x</a>", "<iframe src=//evil.example>", "<input name=decision value=approve>",
]  # fmt: skip
PLACES = ("argument", "key", "target", "shown")


def fixtures() -> Iterator[tuple[str, str]]:
    for place in PLACES:
        for character in HIDDEN:
            yield place, f"rm {character}-rf"
        for text in MARKUP:
            yield place, text


def action(place: str, text: str) -> ActionView:
    """An action as `make_ask` writes its preview."""
    arguments = {text: "value"} if place == "key" else {"body": text if place == "argument" else "plain"}
    preview = {
        "text": "May this happen?",
        "tool": "post",
        "target": text if place == "target" else "acme/app#1",
        "arguments": visible_value(arguments)[0],
        "warnings": visible_value(arguments)[1],
    }
    if place == "shown":
        preview["precondition"] = text
    asked = Action("act_1", "step_1", ActionKind.approve, "ab" * 32)
    shown = msgspec.json.encode(preview)
    return action_view(
        ActionRow(asked, "run_1", "post", msgspec.json.encode(arguments), shown, None, None, 0.0, 0.0, None)
    )


def test_there_are_two_hundred() -> None:
    assert len(list(fixtures())) >= 200


@pytest.mark.parametrize("place", PLACES)
def test_nothing_hides_and_nothing_acts(place: str) -> None:
    for where, text in fixtures():
        if where != place:
            continue
        shown = link_texts.action_part(action(place, text), "en")
        for character in shown:
            assert unicodedata.category(character) not in UNSEEN or character == "\n", (text, character)
            assert character not in "\u115f\u1160\u3164\uffa0\u034f", text
        assert [tag for tag in TAGS if tag in shown] == [], text
        if text in MARKUP:
            assert str(visible_value(text)[0]) in html.unescape(shown), text


def test_a_large_action_is_shown_whole() -> None:
    text = "line\n" * 200_000
    shown = link_texts.action_part(action("argument", text), "en")
    assert html.unescape(shown).count("line\n") == 200_000


def test_the_page_holds_its_hash_whatever_the_language() -> None:
    for language in ("en", "zh-CN", "fr"):
        shown = link_texts.action_part(action("argument", "x"), language)
        assert "ab" * 32 in shown
    assert all({"en", "zh-CN"} == texts.keys() for texts in link_texts.TEXTS.values())
    assert msgspec.json.encode(action("argument", "x"))
