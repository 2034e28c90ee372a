from __future__ import annotations

import html
import time
from typing import TypedDict, cast

import pytest
from hypothesis import given, settings, strategies as st

from surefoot.core.marker import (
    MARKER_CHARACTERS_MAX,
    Keyring,
    append_marker,
    encode_key,
    make_marker,
    marker_room,
    scan,
    strip_namespace,
)
from surefoot.errors import InvalidInput

BODY_CHARACTERS_MAX = 65_536


class Where(TypedDict):
    tenant_id: str
    run_id: str
    step_id: str
    key: str
    place: str
    account: str


HERE = Where(
    tenant_id="default", run_id="run_18", step_id="step_42", key="run_18:step_42", place="acme/app#128", account="bot"
)


def _here(**changes: str) -> Where:
    return cast(Where, {**HERE, **changes})


OLD, NEW = b"o" * 32, b"n" * 40
RING = Keyring([NEW, OLD])
MARKER = make_marker(RING, **HERE)
keys = st.text(min_size=1, max_size=120)


def test_the_marker_reads_as_the_design_says() -> None:
    assert MARKER.startswith("<!-- agent-operation:run_18:step_42 k=")
    assert MARKER.endswith(" -->")
    assert append_marker("Looks good.", MARKER).splitlines() == ["Looks good.", "", MARKER]
    assert RING.key_id in MARKER


@pytest.mark.parametrize("keys", [[], [b"short"], [NEW, b"x" * 31]])
def test_a_weak_keyring_is_refused(keys: list[bytes]) -> None:
    with pytest.raises(InvalidInput, match="SUREFOOT_SECRET"):
        Keyring(keys)


def test_the_first_key_signs_and_all_verify() -> None:
    parsed = Keyring.parse(f"{NEW.decode()}, {OLD.decode()}")
    assert parsed.key_id == RING.key_id
    before = make_marker(Keyring([OLD]), **HERE)
    assert scan(append_marker("x", before), RING, **HERE) == "ours"
    assert scan(append_marker("x", MARKER), Keyring([OLD]), **HERE) == "forged"
    assert NEW.decode() not in repr(RING)


@settings(max_examples=500, deadline=None)
@given(st.text(max_size=300), keys)
def test_c013_a_signed_text_is_ours_and_grows_by_what_was_said(text: str, key: str) -> None:
    here = _here(key=key)
    clean = strip_namespace(text)
    signed = append_marker(text, make_marker(RING, **here))
    assert len(signed) == len(clean) + marker_room(key)
    assert marker_room(key) <= MARKER_CHARACTERS_MAX
    assert scan(signed, RING, **here) == "ours"
    assert scan(signed.replace("\n", "\r\n"), RING, **here) == "ours"


def test_c013_the_largest_body_leaves_room_for_its_marker() -> None:
    body = "x" * (BODY_CHARACTERS_MAX - marker_room(HERE["key"]))
    signed = append_marker(body, MARKER)
    assert len(signed) == BODY_CHARACTERS_MAX
    assert scan(signed, RING, **HERE) == "ours"
    assert scan(append_marker(body + "x", MARKER)[:BODY_CHARACTERS_MAX], RING, **HERE) != "ours"


@settings(max_examples=500, deadline=None)
@given(keys)
def test_no_key_can_end_the_comment_or_pass_for_another(key: str) -> None:
    coded = encode_key(key)
    inner = make_marker(RING, **_here(key=key))[4:-3]
    assert not set(coded) & set("-<> \t\r\n&\"'")
    assert "--" not in inner and ">" not in inner
    assert inner.count(" k=") == inner.count(" mac=") == 1
    assert len(coded) <= 200


@settings(max_examples=300, deadline=None)
@given(keys, keys)
def test_other_keys_have_other_codes(left: str, right: str) -> None:
    assert (encode_key(left) == encode_key(right)) == (left == right)


@pytest.mark.parametrize("field", ["tenant_id", "run_id", "step_id", "place", "account"])
def test_c012_a_marker_of_another_place_account_or_operation_does_not_fit(field: str) -> None:
    other = _here(**{field: "elsewhere"})
    assert scan(append_marker("x", make_marker(RING, **other)), RING, **HERE) == "forged"


def test_fields_cannot_be_moved_into_each_other() -> None:
    left, right = _here(place="ab", account="c"), _here(place="a", account="bc")
    assert make_marker(RING, **left) != make_marker(RING, **right)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MARKER, "ours"),
        (f"text\n\n{MARKER}\n", "ours"),
        (f"text\r\n\r\n{MARKER}\r\n", "ours"),
        (f"text\n\n{MARKER}\n\nEDIT: a footer by another bot", "ours"),
        (f"text\n  {MARKER}  \n", "ours"),
        (f"text\n{MARKER.replace(' ', '  ')}", "ours"),
        (f"{make_marker(RING, **_here(place='acme/app#1'))}\n{MARKER}", "ours"),
        (f"> text\n> {MARKER}", "forged"),
        (f"see `{MARKER}`", "forged"),
        (MARKER.replace("mac=", "mac=0"), "forged"),
        (MARKER[:-20], "forged"),
        (MARKER.upper(), "forged"),
        (html.escape(MARKER), "forged"),
        ("<!-- agent-operation:run_18:step_42 -->", "forged"),
        ("agent-operation:run_18:step_42.", "forged"),
        ("agent-operation:run_18:step_421", "none"),
        ("agent-operation:run_18:step_42:more", "none"),
        ("run_18:step_42", "none"),
        ("", "none"),
    ],
)
def test_what_a_text_holds(text: str, expected: str) -> None:
    assert scan(text, RING, **HERE) == expected


pieces = st.sampled_from(
    [
        "<!-- ",
        "<!--",
        " -->",
        "-->",
        "agent-operation:",
        "AGENT-OPERATION:",
        "run_18:step_42",
        "run_18:step_4",
        " k=",
        " mac=",
        *[
            RING.key_id,
            "0" * 32,
            MARKER[-36:-4],
            "\n",
            "\r\n",
            "> ",
            " ",
            "\u200b",
            "&#45;",
            "&lt;!--",
            "\x00",
            "\ud800",
        ],
        *[make_marker(Keyring([b"e" * 32]), **HERE), make_marker(RING, **_here(account="stranger"))],
    ]
)


@settings(max_examples=2_000, deadline=None)
@given(st.lists(pieces | st.text(max_size=4), max_size=14).map("".join))
def test_c012_no_generated_body_is_accepted_that_does_not_hold_the_marker(body: str) -> None:
    verdict = scan(body, RING, **HERE)
    assert verdict != "ours" or MARKER[-36:-4] in body
    assert scan(strip_namespace(body), RING, **HERE) == "none"
    assert scan(append_marker(body, MARKER), RING, **HERE) == "ours"


# ---- the name space in text that others wrote

SPELLINGS = [
    "agent-operation",
    "AGENT-OPERATION",
    "Agent-Operation",
    "agent&#45;operation",
    "agent&#x2D;operation",
    "agent&#0045;operation",
    "agent&amp;#45;operation",
    "agent&hyphen;operation",
    "&#97;gent-operation",
    "&#x41;gent-operatio&#110;",
    "a\u200bgent-operation",
    "agent\u200d-\u2060operation",
    "agent-oper\u00adation",
    "agent&#8203;-operation",
    "agent&ZeroWidthSpace;-operation",
    "agent -operation",
    "agent-\noperation",
    "agent\u2010operation",
    "agent\u2011operation",
    "agent\uff0doperation",
    "\uff41\uff47\uff45\uff4e\uff54-operation",
    "agent%2Doperation",
    "%61gent-operation",
    "agent\\-operation",
    "agent\x00-operation",
    "agent\ufe0f-operation",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(
    "frame", ["<!-- {}:run_18:step_42 -->", "&lt;!-- {}:x --&gt;", "<!--{}", "see {} there", "> {}:k"]
)
def test_c014_every_spelling_of_the_name_space_is_neutralised(spelling: str, frame: str) -> None:
    text = frame.format(spelling)
    stripped = strip_namespace(text)
    plain = html.unescape(html.unescape(stripped)).casefold()
    assert stripped != text
    assert "agent-operation" not in "".join(c for c in plain if c.isprintable())
    assert strip_namespace(stripped) == stripped
    assert scan(stripped, RING, **HERE) == "none"


def test_c014_a_copied_marker_in_model_text_does_not_settle_the_pending_step() -> None:
    other = _here(step_id="step_43", key="run_18:step_43")
    posted = append_marker(f"Please merge.\n\n{MARKER}\n\nThanks", make_marker(RING, **other))
    assert scan(posted, RING, **HERE) == "none"
    assert scan(posted, RING, **other) == "ours"
    assert "[marker removed]" in posted


@pytest.mark.parametrize(
    "text",
    ["", "an agent, an operation", "agent operation", "re-agent\u2014 operations are", "\u4f60\u597d", "a & b &lt; c"],
)
def test_c014_honest_text_is_left_alone(text: str) -> None:
    assert strip_namespace(text) == text


@settings(max_examples=1_000, deadline=None)
@given(
    st.lists(
        st.sampled_from(["agent", "-", "operation", "<!--", "-->", "\u200b", "&#45;", " ", "a", "gent", *SPELLINGS]),
        max_size=12,
    )
)
def test_c014_stripping_twice_changes_nothing_more(parts: list[str]) -> None:
    once = strip_namespace("".join(parts))
    assert strip_namespace(once) == once


@pytest.mark.parametrize(
    "piece",
    [
        "<!-- agent-operation:",
        "<!-- agent-operation:run_18:step_42 k=",
        "&#0000",
        "a\u200b",
        "<!--",
        "<!-- ",
        "&",
        "agent-",
        MARKER,
        MARKER + "\n",
        " ",
        "\n",
        "&amp;amp;",
    ],
)
def test_hostile_text_takes_time_in_proportion(piece: str) -> None:
    def seconds(length: int) -> float:
        text = (piece * (length // len(piece) + 1))[:length]
        best = 9.0
        for _ in range(3):
            started = time.process_time()
            strip_namespace(text)
            scan(text, RING, **HERE)
            scan(text, RING, **_here(place="acme/app#1"))
            best = min(best, time.process_time() - started)
        return best

    # Quadratic time would give a factor of 64; 20 leaves room for a noisy machine. Tiny times are not compared.
    short, long = seconds(8_192), seconds(65_536)
    assert long < max(short * 20, 0.02)
