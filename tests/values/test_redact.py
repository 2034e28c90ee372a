from __future__ import annotations

import base64
import html
import json
import quopri
import textwrap
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from surefoot.core.escapes import squeezed
from surefoot.core.redact import SECRET_CHARACTERS_MIN, RedactedStream, Redactor, _gap, safe_error

CANARY = 'CANARY-1/x+y "z" & ü?=%'
TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


def _encodings(secret: str) -> dict[str, str]:
    data = secret.encode()
    return {
        "plain": secret,
        "json": json.dumps(secret),
        "json unicode": json.dumps(secret, ensure_ascii=False),
        "json slash": json.dumps(secret).replace("/", "\\/"),
        "json in json": json.dumps(json.dumps({"k": secret})),
        "repr": repr({"k": secret}),
        "bytes repr": repr({"k": data}),
        "latin-1": data.decode("latin-1"),
        "latin-1 in json": json.dumps(data.decode("latin-1")),
        "mail": quopri.encodestring(data).decode(),
        "html": html.escape(secret),
        "quote": urllib.parse.quote(secret),
        "quote all": urllib.parse.quote(secret, safe=""),
        "quote lower": urllib.parse.quote(secret, safe="").replace("%2F", "%2f").replace("%2B", "%2b").lower()
        if secret.islower()
        else urllib.parse.quote(secret, safe=""),
        "quote plus": urllib.parse.quote_plus(secret),
        "query": urllib.parse.urlencode({"k": secret}),
        "hex": data.hex(),
        "HEX": data.hex().upper(),
        "base64": base64.b64encode(data).decode(),
        "base64 after one": base64.b64encode(b":" + data + b"tail").decode(),
        "base64 after two": base64.b64encode(b"u:" + data + b"tail").decode(),
        "base64 url": base64.urlsafe_b64encode(b"u:" + data).decode(),
        "basic auth": "Basic " + base64.b64encode(b"user:" + data).decode(),
        "wrapped base64": "\n".join(textwrap.wrap(base64.b64encode(b"u" * 50 + data + b"v" * 50).decode(), 19)),
        "wrapped inside json": json.dumps("\n".join(textwrap.wrap(base64.b64encode(data).decode(), 7))),
        "form in base64": base64.b64encode(urllib.parse.urlencode({"a": "b", "k": secret}).encode()).decode(),
        "form in hex": urllib.parse.urlencode({"k": secret}).encode().hex(),
        "json in base64": base64.b64encode(json.dumps({"k": secret}).encode()).decode(),
        "broken over lines": "\n  ".join(textwrap.wrap(secret, 5, drop_whitespace=False)),
    }


@pytest.mark.parametrize("form", _encodings(CANARY))
@pytest.mark.parametrize("secret", [CANARY, TOKEN])
def test_c055_a_known_value_is_found_in_every_encoding(form: str, secret: str) -> None:
    redactor = Redactor({"GITHUB_TOKEN": secret})
    text = f"before {_encodings(secret)[form]} after"
    assert redactor.has_known(text) == "GITHUB_TOKEN"
    assert redactor.has_known(text.encode()) == "GITHUB_TOKEN"
    out = redactor.text(text)
    assert "[redacted:GITHUB_TOKEN]" in out
    assert redactor.has_known(out) is None
    assert out.startswith("before ") and out.endswith(" after")


@settings(max_examples=400, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=40),
    st.binary(max_size=5),
    st.binary(max_size=5),
)
def test_c055_no_encoding_of_any_secret_survives(secret: str, before: bytes, after: bytes) -> None:
    redactor = Redactor({"S": secret})
    if len(secret.strip()) < SECRET_CHARACTERS_MIN:
        return
    data = before + secret.encode() + after
    for form in (secret, json.dumps(secret), urllib.parse.quote(secret), data.hex(), base64.b64encode(data).decode()):
        assert redactor.has_known(form) == "S"
        assert redactor.has_known(redactor.text(f"<{form}>")) is None


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.sampled_from([TOKEN[:9], TOKEN[9:30], TOKEN[30:], "\\", "n", "\\n", "\n", " ", "x"]), max_size=9).map(
        "".join
    )
)
def test_c055_nothing_known_is_left_however_it_was_broken(text: str) -> None:
    redactor = Redactor({"T": TOKEN})
    assert redactor.has_known(redactor.text(text)) is None


def test_c055_values_are_walked_through_keys_lists_and_numbers() -> None:
    redactor = Redactor({"PIN": "123456789", "TOKEN": TOKEN})
    value = {"a": [TOKEN, {"n": 123456789, "other": 5}], TOKEN: 1, f"x{TOKEN}": 2, f"x [redacted:TOKEN]{TOKEN[:0]}": 3}
    assert redactor.value(value) == {
        "a": ["[redacted:TOKEN]", {"n": "[redacted:PIN]", "other": 5}],
        "[redacted:TOKEN]": 1,
        "x[redacted:TOKEN]": 2,
        "x [redacted:TOKEN]": 3,
    }


def test_entries_whose_keys_become_equal_are_not_lost() -> None:
    redactor = Redactor({"T": "first-secret"})
    redactor.add("T", "second-secret")
    out = redactor.value({"first-secret": 1, "second-secret": 2})
    assert out == {"[redacted:T]": 1, "[redacted:T]#2": 2}


def test_the_longest_value_wins_and_short_values_are_not_known() -> None:
    redactor = Redactor({"SHORT": "abc", "A": "secret-one", "B": "secret-one-and-more"})
    assert redactor.text("abc secret-one-and-more secret-one") == "abc [redacted:B] [redacted:A]"


def test_a_value_with_a_line_break_from_a_file_is_known_without_it() -> None:
    assert Redactor({"T": TOKEN + "\n"}).text(f"x{TOKEN}y") == "x[redacted:T]y"
    block = "-----BEGIN KEY-----\nabcdefghijklmnopqrstuvwx\n-----END KEY-----"
    assert "abcdefghijklmnop" not in Redactor({"K": block}).text("log: abcdefghijklmnopqrstuvwx")


def test_values_added_later_are_known_and_repr_shows_none() -> None:
    redactor = Redactor()
    assert redactor.text(TOKEN) == TOKEN
    assert redactor.has_known(TOKEN) is None
    redactor.add("my token!", TOKEN)
    assert redactor.text(TOKEN) == "[redacted:my_token_]"
    assert TOKEN not in repr(redactor)


_PIECES = [TOKEN, TOKEN[:20], TOKEN[20:], base64.b64encode(TOKEN.encode()).decode(), TOKEN.encode().hex(), CANARY[:9]]
_PIECES += ["".join(f"\\u{ord(c):04x}" for c in TOKEN), "&#103;", "%67", TOKEN[1:]]
_PIECES += ["\\n", "\n ", "\\", "sft_", "word ", "é"]
broken_texts = st.lists(st.sampled_from(_PIECES), max_size=6).map("".join)


@settings(max_examples=400, deadline=None)
@given(st.lists(broken_texts, min_size=1, max_size=4), broken_texts)
def test_c055_a_text_is_read_alike_whatever_was_looked_at_before(before: list[str], text: str) -> None:
    used, fresh = Redactor({"OTHER": CANARY}), Redactor({"OTHER": CANARY, "T": TOKEN})
    for earlier in [*before, text]:
        used.has_known(earlier)
    used.add("T", TOKEN)
    for earlier in [*before, text, text]:
        fresh_now = Redactor({"OTHER": CANARY, "T": TOKEN})
        assert used.has_known(earlier) == fresh_now.has_known(earlier)
        assert used.patterns(earlier) == fresh_now.patterns(earlier)
    assert used.text(text) == fresh.text(text)
    assert (fresh.has_known(text) is None) == (fresh.text(text) == text)


def test_honest_text_is_not_touched() -> None:
    redactor = Redactor({"T": TOKEN})
    text = "A review of the pull request.\n\n" * 500
    assert redactor.text(text) is text
    assert redactor.has_known(text) is None
    assert redactor.patterns(text) == (text, [])


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("ghp_" + "a1B2" * 9, "github_token"),
        ("github_pat_" + "A1_b" * 10, "github_token"),
        ("glpat-" + "x" * 20, "gitlab_token"),
        ("xoxb-123456789012-abcdefghij", "slack_token"),
        ("sk_live_" + "a1" * 12, "stripe_key"),
        ("sk-proj-" + "a1B2" * 10, "model_key"),
        ("AKIA" + "ABCDEFGH12345678", "aws_key"),
        ("AIza" + "x" * 35, "google_key"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "jwt"),
        ("Authorization: Bearer abcdefghijklmnop1234", "authorization_header"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----", "private_key"),
        ("https://user:hunter2hunter2@example.org/x", "url_password"),
        ("password=hunter22", "assigned_secret"),
        ("'api_key': 'abcdefgh'", "assigned_secret"),
    ],
)
def test_patterns_are_the_second_net(text: str, flag: str) -> None:
    secret_part = text.split("=")[-1].split(": ")[-1].strip("'").split("@")[0].removeprefix("https://user:")[-8:]
    out, flags = Redactor().patterns(f"a {text} b")
    assert flags == [flag]
    assert f"[redacted:pattern:{flag}]" in out
    assert secret_part not in out
    assert Redactor().text(text) == text
    again, _ = Redactor().patterns(out)
    assert again == out


def test_patterns_over_values_look_at_names_too() -> None:
    value = {"login": {"user": "x", "password": "abc"}, "note": "ghp_" + "a" * 36, "count": 3}
    out, flags = Redactor().patterns_value(value)
    assert out == {
        "login": {"user": "x", "password": "[redacted:pattern:assigned_secret]"},
        "note": "[redacted:pattern:github_token]",
        "count": 3,
    }
    assert sorted(flags) == ["assigned_secret", "github_token"]


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError(TOKEN)


def test_an_error_is_told_without_secrets_traceback_or_length() -> None:
    redactor = Redactor({"T": TOKEN})
    assert safe_error(ValueError(f"401 for {TOKEN}"), redactor) == "ValueError: 401 for [redacted:T]"
    assert safe_error(KeyError(), redactor) == "KeyError"
    assert safe_error(Unreadable(), redactor) == "Unreadable: its message could not be read"
    long = safe_error(ValueError("x" * 490 + TOKEN + "\ud800\x00" + "y" * 10_000_000), redactor)
    assert len(long) <= 500
    assert TOKEN[:10] not in long
    long.encode()
    assert "password" in safe_error(ValueError("password=hunter22"), redactor)
    assert "hunter22" not in safe_error(ValueError("password=hunter22"), redactor)


@pytest.mark.parametrize(
    "secret", ["pa\"ss\\wo'rd<&>two", "line one of it\tline\ntwo", "schlüssel-密钥-🔑", "C:\\new\\path"]
)
def test_a_value_that_was_escaped_again_and_again_is_found(secret: str) -> None:
    redactor = Redactor({"KEY": secret})
    text, wrapped = secret, secret
    for level in range(5):
        text, wrapped = json.dumps(text, ensure_ascii=level % 2 == 0)[1:-1], repr([wrapped])
        for shown in (text, wrapped, repr(text), json.dumps({text: [wrapped]})):
            assert redactor.has_known(shown) == "KEY"
            assert "redacted:KEY" in redactor.text(shown) and redactor.has_known(redactor.text(shown)) is None


def _json_of_others(text: str) -> str:
    """JSON as .NET and Go write it."""
    return json.dumps(text)[1:-1].translate({ord(c): f"\\u{ord(c):04X}" for c in "+&<>'`"})


_SECRET_OF_SIGNS = "abc+def/ghi==zzz'9"
_WRITERS: dict[str, Callable[[str], str]] = {
    "JSON of other writers": _json_of_others,
    "all of it in JSON": lambda text: "".join(f"\\u{ord(c):04x}" for c in text),
    "all of it in Python": lambda text: "".join(f"\\x{ord(c):02x}" for c in text),
    "all of it in percent": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "HTML of other writers": lambda text: html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
    "all of it in HTML": lambda text: "".join(f"&#{ord(c)};" if ord(c) % 2 else f"&#x{ord(c):X};" for c in text),
    "some of it": lambda text: "".join(f"\\u{ord(c):04x}" if n % 3 else c for n, c in enumerate(text)),
    "in a log": lambda text: json.dumps({"line": json.dumps(_json_of_others(text))}),
    "HTML in HTML": lambda text: html.escape("".join(f"&#{ord(c)};" for c in text)),
    "a query in HTML": lambda text: html.escape("&" + urllib.parse.urlencode({"k": text})).replace("&amp;", "&#38;"),
}


@pytest.mark.parametrize("writer", _WRITERS)
@pytest.mark.parametrize("secret", ["pass+word/9==&'<x>", "plain-secret-value"])
def test_c055_writers_differ_in_what_they_escape(writer: str, secret: str) -> None:
    redactor = Redactor({"KEY": secret})
    text = f"before {_WRITERS[writer](secret)} between {_WRITERS[writer](secret)} after"
    assert redactor.has_known(text) == "KEY"
    out = redactor.text(text)
    assert out == "before [redacted:KEY] between [redacted:KEY] after" or writer in ("in a log", "a query in HTML")
    assert out.count("[redacted:KEY]") == 2 and redactor.has_known(out) is None
    assert out.startswith("before ") and out.endswith(" after")
    for step in (1, 2, 5, 50):
        stream = RedactedStream(redactor)
        shown = "".join(stream.feed(text[i : i + step]) for i in range(0, len(text), step)) + stream.end()
        assert shown == out, step


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="\\ux0061%&#;amp9seecrtf ", max_size=40), st.integers(1, 7))
def test_any_escapes_may_come_in_pieces(text: str, step: int) -> None:
    redactor = Redactor({"KEY": "secret", "OTHER": "a&pa%m"})
    out = redactor.text(text)
    assert redactor.has_known(out) is None
    stream = RedactedStream(redactor)
    assert "".join(stream.feed(text[i : i + step]) for i in range(0, len(text), step)) + stream.end() == out


def test_a_value_that_a_document_holds_a_thousand_times_over_is_cut_out_of_all_places() -> None:
    redactor = Redactor({"KEY": _SECRET_OF_SIGNS})
    for writer in _WRITERS.values():
        once = f"<p>{writer(_SECRET_OF_SIGNS)}</p> & more "
        assert "[redacted:KEY]" in redactor.text(once)
        assert redactor.text(once * 1000) == redactor.text(once) * 1000


def test_two_values_in_one_escape_leave_nothing() -> None:
    redactor = Redactor({"ONE": "abcdefgh", "TWO": "ijklmnop"})
    percent = "".join(f"%{byte:02x}" for byte in b"abcdefgh-ijklmnop")
    assert redactor.text(f"a {percent} z") == "a [redacted:ONE] z"


def test_escapes_of_honest_texts_are_left_as_they_are() -> None:
    redactor = Redactor({"KEY": "pass+word/9"})
    for text in (
        "100% & more",
        "%zz \\u12 &#x110000; &#; &nosuch; %ff%fe",
        "\\u00e9t\\u00e9 &lt;b&gt;",
        "C:\\users\\x",
    ):
        assert redactor.text(text) == text and redactor.has_known(text) is None


OWN = "sft_mrswmylvnr2a_01m8ncxxvn8dnz5zjvsh5k5yqt_veck6uz2io4ujfsrodq26cp3vyox3ibawyhxb6sxvdjtip7km6yq"


def test_a_token_of_our_own_is_known_by_its_form() -> None:
    for redactor in (Redactor(), Redactor({"KEY": "another-secret"})):
        assert redactor.text(f"use {OWN}, please") == "use [redacted:surefoot_token], please"
        assert redactor.value({"a": [OWN]}) == {"a": ["[redacted:surefoot_token]"]}
        assert redactor.has_known(f'{{"a": "{OWN}"}}'.encode()) == "surefoot_token"
        assert redactor.has_known(b'{"a": "sft_"}') is None
        assert redactor.text("sft_ and sft_x_y") == "sft_ and sft_x_y"
        assert redactor.patterns(f"use {OWN}") == ("use [redacted:pattern:surefoot_token]", ["surefoot_token"])
        for step in (1, 3, 50):
            stream = RedactedStream(redactor)
            text = f"so use {OWN} as is"
            shown = "".join(stream.feed(text[i : i + step]) for i in range(0, len(text), step)) + stream.end()
            assert shown == redactor.text(text), step


@given(st.text(alphabet="\\nrtx \n\x1c\x85\u2028\u200b"))
@settings(max_examples=500)
def test_what_is_searched_without_gaps_is_what_the_gaps_leave(text: str) -> None:
    assert squeezed(text) == _gap().sub("", text)


@pytest.mark.parametrize("piece", ["%41", "\\\\", "\\u0041", "&#65;"])
def test_a_long_run_of_escapes_in_a_stream_is_not_read_again_with_each_piece(
    piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    redactor, looks = Redactor({"KEY": "sup3r+secret/value"}), 0
    begins = Redactor.maybe_begins

    def counted(self: Redactor, text: str) -> int:
        nonlocal looks
        looks += len(text)
        return begins(self, text)

    monkeypatch.setattr(Redactor, "maybe_begins", counted)
    stream, count = RedactedStream(redactor), 2_000
    shown = "".join(stream.feed(piece) for _ in range(count)) + stream.end()
    assert shown == redactor.text(piece * count)
    assert looks < 100 * count * len(piece), "it cost its length times itself"
