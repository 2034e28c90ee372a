from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given, settings, strategies as st

from surefoot.core.values import clean_text, cut
from surefoot.core.visible import visible, visible_value

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FLAG = "\U0001f1f3\U0001f1f1"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("plain \u00e9 \U0001f600", "plain \u00e9 \U0001f600"),
        ("a\x00b", "a\ufffdb"),
        ("\ud83d", "\ufffd"),
        ("x\ude00y", "x\ufffdy"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
    ],
)
def test_c046_nul_and_lone_surrogates_become_a_visible_replacement(text: str, clean: str) -> None:
    assert clean_text(text) == clean


@settings(max_examples=500, deadline=None)
@given(st.text())
def test_c046_clean_text_can_always_be_stored_and_is_stable(text: str) -> None:
    clean = clean_text(text)
    clean.encode("utf-8")
    assert "\x00" not in clean
    assert clean_text(clean) == clean


@pytest.mark.parametrize(
    "emoji", ["\U0001f600", FAMILY, FLAG, "\u2764\ufe0f", "\U0001f44d\U0001f3fd", "e\u0301", "\r\n"]
)
def test_c047_a_cut_never_splits_a_character(emoji: str) -> None:
    length = 2_000
    for limit in range(100, 100 + len(emoji) * 3):
        for shift in range(-2, 3):
            place = limit - len(f"\n[cut: {length} characters in all]") + shift
            text = ("x" * place + emoji).ljust(length, "y")
            out, was_cut = cut(text, limit)
            kept = out.rpartition("\n[cut:")[0]
            assert was_cut
            assert len(out) <= limit
            assert (
                kept in (text[:place], text[: place + len(emoji)])
                or text.startswith(kept + "y")
                or kept == "x" * len(kept)
            )
            json.loads(json.dumps(out)).encode("utf-8")


def test_c047_a_surrogate_pair_of_two_code_points_is_not_split() -> None:
    text = "x" * 50 + "\ud83d\ude00" * 100
    for limit in range(90, 160):
        kept = cut(text, limit)[0].rpartition("\n[cut:")[0]
        assert len(kept.removeprefix("x" * 50)) % 2 == 0


def test_c047_a_long_output_says_how_long_it_was() -> None:
    out, was_cut = cut("\U0001f600" * 70_000, 65_536)
    assert was_cut
    assert out.endswith("\n[cut: 70000 characters in all]")
    assert 65_500 < len(out) <= 65_536
    assert cut("short", 5) == ("short", False)


@settings(max_examples=500, deadline=None)
@given(st.text(), st.integers(min_value=0, max_value=60))
def test_a_cut_keeps_its_limit(text: str, limit: int) -> None:
    out, was_cut = cut(text, limit)
    assert len(out) <= limit or not was_cut
    assert was_cut == (len(text) > limit)


# ---- what a person is shown


@pytest.mark.parametrize(
    "code", [0x200B, 0x202E, 0x2066, 0x00AD, 0xFEFF, 0x2060, 0xE0041, 0x0008, 0x001B, 0x000D, 0x2028, 0x3164]
)
def test_c024_hidden_characters_are_shown(code: int) -> None:
    shown, warnings = visible(f"rm -rf {chr(code)}tmp")
    assert shown == f"rm -rf \u27e6U+{code:04X}\u27e7tmp"
    assert f"U+{code:04X}" in warnings[0]


def test_c024_arguments_are_shown_with_places_and_stay_unchanged() -> None:
    arguments = {"body": "a\u200bb", "list": [{"k\u202e": "\u2066"}], "n": 2512292042121000001}
    before = json.dumps(arguments)
    shown, warnings = visible_value(arguments)
    assert shown == {
        "body": "a\u27e6U+200B\u27e7b",
        "list": [{"k\u27e6U+202E\u27e7": "\u27e6U+2066\u27e7"}],
        "n": 2512292042121000001,
    }
    assert [warning.split(":")[0] for warning in warnings] == [
        "body",
        "list[0].k\u27e6U+202E\u27e7",
        "list[0].k\u27e6U+202E\u27e7",
    ]
    assert json.dumps(arguments) == before


def test_c024_an_escape_cannot_be_faked() -> None:
    assert visible("\u27e6U+202E\u27e7")[0] == "\u27e6U+27E6\u27e7U+202E\u27e7"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain\ttext\n",
        "h\u00e9llo \u4f60\u597d\uff0c\u3002",
        FAMILY,
        FLAG,
        "\u2764\ufe0f",
        "1\ufe0f\u20e3",
        "\u041f\u0440\u0438\u0432\u0435\u0442",
    ],
)
def test_c024_honest_text_is_shown_as_it_is(text: str) -> None:
    assert visible(text) == (text, [])


def test_c024_joiners_that_carry_a_message_are_shown() -> None:
    assert "U+200D" in visible("a\u200db")[0]
    assert "U+FE0F" in visible("a\ufe0f\ufe0f")[0]
    assert "U+FE01" in visible("\U0001f600\ufe01")[0]


def test_c024_mixed_scripts_are_warned_of() -> None:
    assert visible("pay p\u0430ypal.com")[1] == ["the word 'p\u0430ypal' mixes Latin and Cyrillic letters"]


@settings(max_examples=500, deadline=None)
@given(st.text())
def test_c024_nothing_hidden_is_left(text: str) -> None:
    shown, warnings = visible(text)
    left = {unicodedata.category(c) for c in shown if c not in "\n\t\u200d"}
    assert not left & {"Cc", "Cf", "Cs", "Co", "Cn"}
    assert len(warnings) <= 20
