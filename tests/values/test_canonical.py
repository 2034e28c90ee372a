from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings, strategies as st

from surefoot.core.canonical import CANONICAL_DEPTH_MAX, DEPTH_MAX
from surefoot.core.values import ARGUMENTS_CHARACTERS_MAX, INTEGER_DIGITS_MAX, canonical, digest, parse_arguments
from surefoot.errors import InvalidInput

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
integers = st.integers() | st.integers(min_value=-(10**60), max_value=10**60)
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
bad_texts = st.builds(lambda *parts: "".join(parts), st.text(), st.sampled_from(["\x00", "\ud800", "\udfff"]), texts)


def _same(left: object, right: object) -> bool:
    """Equality that tells 1 from 1.0 and 0.0 from -0.0."""
    return repr(left) == repr(right) if isinstance(left, float) else type(left) is type(right) and left == right


@settings(max_examples=1_000, deadline=None)
@given(values)
def test_what_is_written_is_read_back_exactly(value: object) -> None:
    data = canonical(value)
    back = json.loads(data)
    assert canonical(back) == data
    assert back == value
    assert _same(back, value) or isinstance(value, list | dict)
    data.decode("utf-8")
    assert b"\\u0000" not in data.replace(b"\\\\", b"")
    if isinstance(value, dict):
        turned = dict(reversed(list(value.items())))
        assert digest(canonical(turned)) == digest(data)
        assert canonical(parse_arguments(json.dumps(value))) == data


written = st.builds(
    lambda value, **how: json.dumps(value, **how), values, indent=st.sampled_from([None, 1]), ensure_ascii=st.booleans()
)
odd_pieces = st.sampled_from(
    [
        '{"a":1,"a":2}',
        '{"a":{"b":1,"b":1}}',
        "NaN",
        "-Infinity",
        "1e999",
        '"\x01"',
        '"\\u0000"',
        '"\\ud800"',
        '"\ud800"',
        '"\x00"',
    ]
    + ["[" * levels + "]" * levels for levels in (62, 63, 64, 65)]
    + ["null", "tru", '"', "{", "}", ",", " ", "\n", "\ufeff", "-0", "1.50", "9" * 60, '"{[[["', '"\\\\u0000"', "\xa0"]
)
raws = st.lists(written | odd_pieces, max_size=3).map("".join) | st.lists(written | odd_pieces, max_size=4).map(
    lambda items: "{" + ",".join(f'"k{index}": {item}' for index, item in enumerate(items)) + "}"
)


def _read(raw: str) -> tuple[object, str]:
    """What is read of it, with the types, or why it is refused, without the place."""
    try:
        return repr(parse_arguments(raw)), ""
    except InvalidInput as refusal:
        return None, str(refusal).partition(" at line ")[0]


@settings(max_examples=1_000, deadline=None)
@given(raws)
def test_short_arguments_are_read_as_long_ones_are(raw: str) -> None:
    assert _read(raw) == _read(raw + " " * INTEGER_DIGITS_MAX)


@pytest.mark.parametrize("pair", [(1, 1.0), (0.0, -0.0), (True, 1), (None, "null"), ([], {}), ("1", 1)])
def test_values_that_differ_have_other_bytes(pair: tuple[object, object]) -> None:
    assert canonical(pair[0]) != canonical(pair[1])


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, float("nan")]}, "$.a[1]"),
        ({"a": {"b": float("inf")}}, "$.a.b"),
        ({"a": "x\x00"}, "$.a"),
        (["\ud83d"], "$[0]"),
        ({"k\x00": 1}, "$"),
        ({"k\udfff": 1}, "$"),
        ({1: 2}, "$"),
        ({"a": b"x"}, "$.a"),
        ({"a": {1, 2}}, "$.a"),
        ({"a": 10**5000}, "$.a"),
        (object(), "$"),
    ],
)
def test_outside_the_rule_is_refused_with_its_place(value: object, place: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        canonical(value)
    assert refused.value.details["path"] == place


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop += [loop, loop]
    with pytest.raises(InvalidInput, match=str(CANONICAL_DEPTH_MAX)):
        canonical(loop)


# ---- arguments


@pytest.mark.parametrize("raw", ["", " ", "\n\t ", "null", " null ", "{}"])
def test_c050_no_arguments_in_any_spelling(raw: str) -> None:
    assert parse_arguments(raw) == {}


@pytest.mark.parametrize(("raw", "kind"), [("[]", "array"), ('"x"', "string"), ("3", "number"), ("true", "boolean")])
def test_c050_arguments_that_are_no_object_are_a_clear_error(raw: str, kind: str) -> None:
    with pytest.raises(InvalidInput, match=f"must be a JSON object such as {{}}, not an? {kind}|{kind}"):
        parse_arguments(raw)


def test_c049_integers_keep_all_digits() -> None:
    for digits in ("2512292042121000001", "9007199254740993", "-" + "9" * 400):
        arguments = parse_arguments(f'{{"id": {digits}}}')
        assert canonical(arguments) == f'{{"id":{digits}}}'.encode()


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "-Infinity"),
        ('{"a": 1e400}', "too large"),
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "'c' twice"),
        ('{"a": }', "line 1, column 7"),
        ('{"a": 1} x', "line 1, column 10"),
        ('{"a": "x', "line 1"),
        ('{"a": ' + "1" * 4_301 + "}", "4,300 digits"),
        ("[" * 100_000, "nested deeper"),
        ('{"a":' * (DEPTH_MAX + 2) + "1" + "}" * (DEPTH_MAX + 2), "nested deeper"),
        ('"' + "x" * ARGUMENTS_CHARACTERS_MAX + '"', "characters"),
    ],
)
def test_c050_what_the_model_gets_told(raw: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        parse_arguments(raw)


@settings(max_examples=300, deadline=None)
@given(bad_texts)
def test_c046_an_argument_with_nul_or_a_lone_surrogate_is_refused_and_never_changed(text: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be stored"):
        parse_arguments(json.dumps({"body": text}))


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_arguments_or_a_clear_error(raw: str) -> None:
    try:
        arguments = parse_arguments(raw)
    except InvalidInput as refused:
        assert str(refused)
    else:
        assert canonical(arguments)
        assert all(math.isfinite(item) for item in arguments.values() if isinstance(item, float))
