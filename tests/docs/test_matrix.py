"""The failure matrix of docs/promise.md holds, cell by cell, and the page shows what was played."""

from __future__ import annotations

import ast
import importlib.util
from types import ModuleType

import msgspec
import pytest

from tests.docs.matrix import COLUMNS, Play
from tests.docs.rows import ROWS
from tests.docs.test_examples import ROOT
from tests.places import Place


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a cell says."""

    text: str
    sent: int
    effects: int
    asked: bool = False
    reported: bool = False


class RowData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row as the data file has it."""

    key: str
    title: str
    cells: dict[str, str]
    tests: tuple[str, ...] = ()


class Matrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data file."""

    columns: dict[str, str]
    outcomes: dict[str, Outcome]
    rows: list[RowData]


DATA = (ROOT / "docs" / "failure_matrix.toml").read_text(encoding="utf-8")
MATRIX = msgspec.toml.decode(DATA, type=Matrix)
CELLS = [(row.key, column, name) for row in MATRIX.rows for column, name in row.cells.items()]


@pytest.mark.parametrize(("key", "column", "name"), CELLS, ids=[f"{key}-{column}" for key, column, _ in CELLS])
def test_cell(key: str, column: str, name: str, place: Place) -> None:
    outcome = MATRIX.outcomes[name]
    play = Play(COLUMNS[column], place)
    ROWS[key](play)
    seen = play.tally()
    effects = 0 if column == "read" else outcome.effects
    told = (outcome.sent, effects, outcome.asked, outcome.reported)
    assert (seen.sent, seen.effects, seen.asked, seen.reported) == told
    assert seen.status == "completed" or (outcome.asked and seen.status == "waiting_for_user")


def test_the_data_is_whole() -> None:
    assert list(MATRIX.columns) == list(COLUMNS)
    assert [row.key for row in MATRIX.rows] == list(ROWS)
    unsearched = {"idempotent", "read", "opaque"}
    assert all(unsearched.isdisjoint(row.cells) or row.cells.keys() == COLUMNS.keys() for row in MATRIX.rows)
    assert {name for _, _, name in CELLS} == set(MATRIX.outcomes)


def test_every_test_that_a_row_names_exists() -> None:
    missing = [name for row in MATRIX.rows for name in row.tests if not _exists(name)]
    assert missing == []
    assert not _exists("tests/docs/test_matrix.py::test_that_was_never_written")


def _exists(name: str) -> bool:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function for node in ast.walk(tree)
    )


def test_both_languages_have_the_same_sections_and_words_for_every_row() -> None:
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("promise.md", "promise.zh-CN.md")]
    assert len({text.count("\n## ") for text in pages}) == 1
    words = msgspec.toml.decode((ROOT / "docs" / "failure_matrix.zh-CN.toml").read_text(encoding="utf-8"))
    assert list(words["rows"]) == list(ROWS) and list(words["outcomes"]) == list(MATRIX.outcomes)
    assert list(words["columns"]) == list(COLUMNS)


def test_the_pages_are_up_to_date() -> None:
    maker = _maker()
    assert [path.name for path in maker.PAGES] == ["promise.md", "promise.zh-CN.md"]
    for path in maker.PAGES:
        assert path.read_text(encoding="utf-8") == maker.made(path), "run `python docs/make_matrix.py`"


def _maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_matrix", ROOT / "docs" / "make_matrix.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
