"""The table of results in docs/values.md says what becomes of a value."""

from __future__ import annotations

import datetime
import decimal
import math
import pathlib
import uuid

import msgspec
import pytest

from surefoot.core.values import RESULT_BYTES_MAX, parse_arguments, to_json_value
from surefoot.errors import InvalidInput
from tests.docs.test_examples import ROOT

PAGE = (ROOT / "docs" / "values.md").read_text(encoding="utf-8")
ROWS = {line.split(" | ")[0].strip("| "): line for line in PAGE.splitlines() if line.startswith("| ")}


@pytest.mark.parametrize(
    ("row", "value", "stored", "shown"),
    [
        ("a finite float, also -0.0", -0.0, -0.0, "itself"),
        ("NaN, Infinity, -Infinity", math.nan, {"$float": "NaN"}, '{"$float": "NaN"}'),
        ("`Decimal`", decimal.Decimal("1.10"), {"$decimal": "1.10"}, '{"$decimal": "1.10"}'),
        ("bytes, bytearray, memoryview", b"ab", {"$bytes": "YWI="}, '{"$bytes": "…"}'),
        ("datetime, date, time", datetime.date(2026, 11, 29), "2026-11-29", "ISO text"),
        ("timedelta, UUID, a path", uuid.UUID(int=1), str(uuid.UUID(int=1)), "its text"),
        ("timedelta, UUID, a path", pathlib.PurePosixPath("a/b"), "a/b", "its text"),
        ("a tuple", (1, 2), [1, 2], "a list"),
        ("a set", {2, 1}, [1, 2], "a sorted list"),
        (
            "a dict with keys that are not distinct texts",
            {1: 2, "1": 3},
            {"$entries": [["1", 2], ["1", 3]]},
            "$entries",
        ),
        ("any other object", object(), {"$unserialisable": "builtins.object"}, "$unserialisable"),
        ("a text with NUL or lone surrogates", "a\0", "a\ufffd", "cleaned"),
    ],
)
def test_a_result_is_stored_as_the_table_says(row: str, value: object, stored: object, shown: str) -> None:
    assert shown in ROWS[row]
    plain, _ = to_json_value(value)
    assert msgspec.json.encode(plain) == msgspec.json.encode(stored)


def test_a_huge_integer_and_a_cycle_are_kept_in_a_tagged_form() -> None:
    endless: list[object] = []
    endless.append(endless)
    for value, tag in ((10**5_000, "$int"), (endless, "$cut"), ("x" * (RESULT_BYTES_MAX + 1), "[cut")):
        assert tag in msgspec.json.encode(to_json_value(value)[0]).decode()
    assert '{"$int": "0x…"}' in PAGE and '{"$cut": "…"}' in PAGE


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1e999}', '{"a": "\\u0000"}'])
def test_arguments_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_arguments(text)


@pytest.mark.parametrize("text", ["", " ", "null", "{}"])
def test_nothing_means_no_arguments(text: str) -> None:
    assert parse_arguments(text) == {}
