"""How the server finds rows in a new database: nobody has made statistics yet, and plans are made all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import psycopg
import pytest

from surefoot.store.postgres.statements import DIALECT, PARTS, Shape, Statements
from surefoot.store.sqlfile import queries
from tests.places import Place
from tests.store.postgres_bench import PostgresBench

Plan = Mapping[str, object]
ORDERED = {"pending_action_arrival", "evidence_arrival"}
"""Read from their end, one row each."""


def statements() -> Iterator[tuple[str, str]]:
    """Each part of a batch in all of its forms: beside an append and beside a new run, of one decision and of many."""
    texts = Statements(of_door=False)
    for head in ("append_guard", "run_insert"):
        for part in PARTS:
            for rows in (0, 1):
                shape = Shape(head == "run_insert", ((head, rows), (part, rows)))
                yield f"{part} beside {head}, {rows}", texts.batch(shape).sql
    for name in ("run_exists", "guard_facts", "run_fence"):
        yield name, texts.named(name).sql


def scans(plan: Plan) -> Iterator[Plan]:
    """The parts of a plan that read a table."""
    if "Relation Name" in plan and plan["Node Type"] != "ModifyTable":
        yield plan
    for part in cast("list[Plan]", plan.get("Plans", [])):
        yield from scans(part)


@pytest.mark.postgres_only("of its planner")
async def test_what_a_commit_changes_is_found_by_its_key_before_there_are_statistics(place: Place) -> None:
    """A step was looked for among all of its tenant's: in a database's first minute each cost more than the last."""
    bench = PostgresBench(place.url)
    await bench.open()
    found: dict[str, str] = {}
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(queries(DIALECT)["writer_settings"].encode())
        cursor = psycopg.RawCursor(connection)
        for name, sql in statements():
            row = cursor.execute(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {sql}".encode()).fetchone()
            assert row is not None
            for scan in scans(row[0][0]["Plan"]):
                condition = str(scan.get("Index Cond", ""))
                if " AND " not in condition and scan.get("Index Name") not in ORDERED:
                    found[f"{name}: {scan['Relation Name']}"] = condition or str(scan["Node Type"])
    await bench.close()
    assert not found, f"each of these reads all that a tenant has: {found}"
