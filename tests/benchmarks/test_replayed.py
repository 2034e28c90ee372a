"""The program that writes surefoot's rows once more, without surefoot, writes all of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.programs.lanes import Cell
from benchmarks.programs.replayed import recorded, replayed

pytestmark = pytest.mark.sqlite_only("what a bare connection takes for the rows is asked of SQLite alone")


def _rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: sorted(file.execute(f"SELECT * FROM {name}"), key=repr) for name in tables}


@pytest.mark.parametrize("what", ["loop", "perform"])
def test_what_was_written_is_written_again_to_the_last_row(tmp_path: Path, what: str) -> None:
    (tmp_path / "ours").mkdir()
    _, written = recorded(Cell(what, str(tmp_path / "ours"), steps=4, at_once=2, runs_min=4, seconds_min=0.0))
    spent = replayed(written, tmp_path / "again.db")
    rows = _rows(tmp_path / "again.db")
    assert len(rows["step"]) >= 16
    assert rows == _rows(tmp_path / "ours" / "app.db")
    assert spent.wall > 0
