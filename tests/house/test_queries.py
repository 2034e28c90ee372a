"""The query files: one query of each dialect changes a status, and no query is left over."""

from __future__ import annotations

import re

import pytest

from surefoot.store import sqlfile
from tests.house.tree import PACKAGE, modules_below

DIALECTS = sorted(path.parent.name for path in (PACKAGE / "store" / "sql").glob("*/queries.sql"))
ASSIGNED = re.compile(r"\bupdate\s+(run|step)\s+(?:as\s+\w+\s+)?set\b(.*?)(?:\bwhere\b|$)", re.IGNORECASE | re.DOTALL)
UPSERT = re.compile(r"\binto\s+(run|step)\b.*\bdo\s+update\s+set\b(.*)$", re.IGNORECASE | re.DOTALL)
STATUS = re.compile(r"(?<![\w.])status\s*=", re.IGNORECASE)


def _tables_given_a_status(statement: str) -> set[str]:
    changes = [*ASSIGNED.findall(statement), *UPSERT.findall(statement)]
    return {table.lower() for table, assigned in changes if STATUS.search(assigned)}


def test_there_is_a_dialect() -> None:
    assert "sqlite" in DIALECTS


@pytest.mark.parametrize("table", ["run", "step"])
def test_one_query_changes_a_status(table: str) -> None:
    for dialect in DIALECTS:
        statements = sqlfile.queries(dialect)
        writers = [name for name, statement in statements.items() if table in _tables_given_a_status(statement)]
        assert len(writers) == 1, f"{dialect}: {writers} change the status of a {table}"


def test_a_change_of_status_is_found() -> None:
    assert _tables_given_a_status("UPDATE step SET a = 1,\n status = ? WHERE id = ?") == {"step"}
    assert _tables_given_a_status("INSERT INTO run (status) VALUES (?) ON CONFLICT DO UPDATE SET status = ?") == {"run"}
    assert _tables_given_a_status("UPDATE run SET a = ? WHERE status = 'running'") == set()


def test_every_query_is_used() -> None:
    code = "\n".join(module.text for module in modules_below("store"))
    for dialect in DIALECTS:
        unused = [name for name in sqlfile.queries(dialect) if not re.search(rf"\b{name}\b", code)]
        assert unused == [], f"{dialect}: take them out"
