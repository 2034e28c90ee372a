from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import time
import tracemalloc
import uuid
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from types import MappingProxyType

import msgspec
import pydantic
import pytest
from hypothesis import given, settings, strategies as st

from surefoot.core.values import canonical, encode_output, to_json_value

ZONE = datetime.timezone(datetime.timedelta(hours=9))


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Item(msgspec.Struct, rename="camel"):
    item_id: int


@dataclasses.dataclass
class Point:
    x: int
    y: object = None


class Invoice(pydantic.BaseModel):
    number: int
    paid: decimal.Decimal


class Secretive:
    def __repr__(self) -> str:
        raise AssertionError("the repr was asked")

    __str__ = __repr__


class Hostile(dict[str, object]):
    def items(self) -> object:  # type: ignore[override]  # hostile on purpose
        raise RuntimeError("secret-canary")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("secret-canary")


class Raising:
    @property  # type: ignore[misc]  # hostile on purpose
    def __class__(self) -> type:
        raise RuntimeError("secret-canary")

    def model_dump(self) -> object:
        raise RuntimeError("secret-canary")


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), {"$float": "NaN"}),
        (float("inf"), {"$float": "Infinity"}),
        (float("-inf"), {"$float": "-Infinity"}),
        (1e400, {"$float": "Infinity"}),
        ({"a": [float("nan")]}, {"a": [{"$float": "NaN"}]}),
    ],
)
def test_c048_numbers_that_json_cannot_hold_are_kept_in_a_tagged_form(value: object, expected: object) -> None:
    plain, notes = to_json_value(value)
    assert plain == expected
    assert len(notes) == 1


def test_c048_minus_zero_stays() -> None:
    assert encode_output(-0.0) == (b"-0.0", [])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\xff\x00", {"$bytes": "/wA="}),
        (bytearray(b"ab"), {"$bytes": "YWI="}),
        (datetime.datetime(2027, 1, 1, 9, tzinfo=ZONE), "2027-01-01T09:00:00+09:00"),
        (datetime.datetime(2027, 1, 1, 9), "2027-01-01T09:00:00"),
        (datetime.date(2027, 1, 1), "2027-01-01"),
        (decimal.Decimal("1.10"), {"$decimal": "1.10"}),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ((1, "x"), [1, "x"]),
        (Pair(1, 2), [1, 2]),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("a/b"), "a/b"),
        (Point(1, {"k": Colour.RED}), {"x": 1, "y": {"k": "red"}}),
        (Item(item_id=7), {"itemId": 7}),
        (Invoice(number=7, paid=decimal.Decimal("1.10")), {"number": 7, "paid": {"$decimal": "1.10"}}),
        (OrderedDict(b=1), {"b": 1}),
        (MappingProxyType({"b": 1}), {"b": 1}),
        ({1: "a", Colour.RED: "b"}, {"1": "a", "red": "b"}),
        ({1: "a", "1": "b"}, {"$entries": [["1", "a"], ["1", "b"]]}),
        ({(1, 2): "a"}, {"$entries": [[[1, 2], "a"]]}),
        (2**20_000, {"$int": hex(2**20_000)}),
        (2**200, 2**200),
        (object(), {"$unserialisable": "builtins.object"}),
        (Secretive(), {"$unserialisable": f"{__name__}.Secretive"}),
        (Secretive, {"$unserialisable": "builtins.type"}),
        (iter([1]), {"$unserialisable": "builtins.list_iterator"}),
        (ValueError("secret-canary"), {"$unserialisable": "builtins.ValueError"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_c051_results_are_converted_by_rule_or_replaced_by_a_typed_note(value: object, expected: object) -> None:
    plain, _ = to_json_value(value)
    assert plain == expected
    assert json.loads(canonical(plain)) == expected


def test_c051_a_date_without_zone_is_noted() -> None:
    assert to_json_value(datetime.datetime(2027, 1, 1))[1] == ["$: a date and time without a zone"]


def test_c051_user_code_that_raises_is_caught_and_its_text_is_not_kept() -> None:
    value = [Raising(), {"a": Raising()}, [Hostile(a=1)], Point(1, Raising()), {1, Raising()}]
    data, notes = encode_output(value)
    assert b"secret-canary" not in data
    assert "secret-canary" not in str(notes)


def test_c051_values_that_hold_themselves_end() -> None:
    loop: dict[str, object] = {}
    loop["self"] = [loop]
    assert to_json_value(loop)[0] == {"self": [{"$cut": "refers to itself"}]}
    deep: list[object] = []
    for _ in range(100):
        deep = [deep]
    data, notes = encode_output(deep)
    assert b"nested deeper" in data
    assert len(notes) == 1
    wide: list[object] = []
    for _ in range(70):
        wide = [wide, wide]
    assert len(encode_output(wide, 100_000)[0]) <= 100_000


@pytest.mark.parametrize("text", ["a\x00b", "a\ud83d", "\ude00b"])
def test_c046_results_with_nul_or_lone_surrogates_are_replaced_visibly(text: str) -> None:
    data, notes = encode_output({"text": text, text: 1})
    assert "\ufffd" in data.decode("utf-8")
    assert b"\\u0000" not in data
    assert "replaced by U+FFFD" in notes[0]


BIG: dict[str, Callable[[], object]] = {
    "text": lambda: "x" * 50_000_000,
    "wide text": lambda: "\U0001f600" * 12_500_000,
    "numbers": lambda: list(range(5_000_000)),
    "texts": lambda: ["0123456789"] * 4_000_000,
    "keys": lambda: {str(number): number for number in range(500_000)},
    "bytes": lambda: b"x" * 50_000_000,
    "set": lambda: set(range(1_000_000)),
}


@pytest.mark.parametrize("kind", BIG)
def test_c043_a_huge_result_is_cut_in_bounded_memory_with_a_note(kind: str) -> None:
    value = BIG[kind]()
    tracemalloc.start()
    started = time.process_time()
    data, notes = encode_output(value, 1_000_000)
    seconds = time.process_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    json.loads(data)
    assert len(data) <= 1_000_000
    assert "cut" in notes[0]
    assert peak < 150_000_000
    assert seconds < 30  # a bound against work in proportion to what is left out, far above what any machine needs


def test_c043_what_fits_is_not_touched() -> None:
    value = {"text": "x" * 900_000, "list": [1.5, None, "é"]}
    data, notes = encode_output(value, 1_000_000)
    assert json.loads(data) == value
    assert notes == []


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.decimals()
    | st.datetimes(timezones=st.none() | st.just(ZONE))
    | st.builds(object),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.integers() | st.none() | st.floats(), inner, max_size=4)
        | st.builds(Point, st.integers(), inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(anything, st.integers(min_value=64, max_value=2_000))
def test_any_result_gives_valid_json_within_its_limit(value: object, bytes_max: int) -> None:
    data, notes = encode_output(value, bytes_max)
    assert len(data) <= bytes_max
    assert canonical(json.loads(data)) == data
    assert all(isinstance(note, str) for note in notes)


def test_a_note_does_not_repeat_keys_that_hold_line_breaks_of_any_length() -> None:
    _, notes = to_json_value({"k" * 5_000: float("nan")})
    assert len(notes[0]) < 300


class OwnDict(dict[str, object]):
    """A dict that is read with care."""


class OwnList(list[object]):
    """The same of a list."""


_easy_texts = st.sampled_from(["", "a", "text", "\x00", "\ud83d", "\ud83d\ude00", "é\u4f60", "x" * 40, '"\\\n'])
_easy_scalars = st.none() | st.booleans() | st.sampled_from([0, -1, 2**64, 10**4000, 1.5, -0.0, math.nan])
_easy = st.recursive(
    _easy_scalars | _easy_texts | st.sampled_from([b"bytes", Colour.RED, Level.HIGH, {1: 2}, (1, "a")]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_easy_texts, inner, max_size=4) | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@settings(max_examples=500, deadline=None)
@given(st.lists(_easy, max_size=4) | st.dictionaries(_easy_texts, _easy, max_size=4), st.integers(64, 6_000))
def test_a_result_that_needs_no_care_comes_to_what_care_comes_to(
    value: list[object] | dict[str, object], bytes_max: int
) -> None:
    careful = OwnDict(value) if isinstance(value, dict) else OwnList(value)
    assert encode_output(value, bytes_max) == encode_output(careful, bytes_max)


@pytest.mark.parametrize("levels", [62, 63, 64, 65])
def test_a_deep_result_is_cut_at_the_same_depth_with_care_and_without(levels: int) -> None:
    inner: list[object] = []
    for _ in range(levels - 2):
        inner = [inner]
    assert encode_output([inner]) == encode_output(OwnList([inner]))


def test_c043_a_result_that_holds_one_part_over_and_over_ends() -> None:
    value: list[object] = ["x"]
    for _ in range(60):
        value = [value, value, value]
    data, notes = encode_output(value, 10_000)
    assert len(data) <= 10_000 and notes
