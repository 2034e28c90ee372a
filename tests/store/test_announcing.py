"""What a look for questions to announce costs, by the rows that it reads: it does not grow with what was announced."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing

import psycopg
import pytest

from surefoot.store.looked import LAG_SECONDS, WHOLE_SECONDS, Looked
from surefoot.store.postgres import PostgresStore
from surefoot.store.sqlite import SqliteStore
from tests.places import Place
from tests.store.build import TENANT, Story
from tests.store.conformance_access import ATTEMPTS_MAX, HOOK, ask, take
from tests.store.conftest import SqliteBench, ticks_of
from tests.store.postgres_bench import PostgresBench

FEW, MANY = 100, 10_000
KEY = (TENANT, HOOK)


@pytest.fixture
async def postgres(place: Place) -> AsyncIterator[PostgresBench]:
    made = PostgresBench(place.url)
    yield made
    await made.close()


async def announced(store: SqliteStore | PostgresStore, bench: SqliteBench | PostgresBench) -> Story:
    """A store that has announced its one question, and has looked through all that waits."""
    story = await Story.begin(store)
    await ask(story, "act_0")
    assert await take(store) == [("act_0", 1)]
    await store.announced(TENANT, "act_0", HOOK, "sent", None)
    return story


async def settled(store: SqliteStore | PostgresStore, bench: SqliteBench | PostgresBench) -> None:
    """Looks that find nothing, for long enough."""
    for _ in range(3):
        bench.clock.advance(LAG_SECONDS + 1.0)
        assert await take(store) == []
    assert store._looked.behind(KEY) > 0


def copies_in_sqlite(path: str, first: int, last: int) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        file.row_factory = sqlite3.Row
        for table in ("pending_action", "announcement"):
            row = dict(file.execute(f"SELECT * FROM {table} LIMIT 1").fetchone())
            name = "id" if table == "pending_action" else "action_id"
            rows = [
                {**row, name: f"act_{n:06d}"} | ({"arrival": n} if "arrival" in row else {}) for n in range(first, last)
            ]
            into = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(':' + column for column in row)})"
            file.executemany(into, rows)


def copies_in_postgres(url: str, first: int, last: int) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        for table, named in (("pending_action", "'id'"), ("announcement", "'action_id'")):
            conn.execute(
                f"INSERT INTO {table} SELECT made.* FROM (SELECT * FROM {table} LIMIT 1) AS old, "
                f"generate_series({first}, {last - 1}) AS n, jsonb_populate_record(NULL::{table}, to_jsonb(old) || "
                f"jsonb_build_object({named}, 'act_' || lpad(n::text, 6, '0'), 'arrival', n)) AS made".encode()
            )
        conn.execute("ANALYZE")


@pytest.mark.sqlite_only("its own way of counting")
async def test_a_look_at_the_file_does_not_grow_with_what_was_announced(bench: SqliteBench) -> None:
    store = await bench.open()
    await announced(store, bench)
    work = []
    for first, last in ((10, FEW), (FEW, MANY)):
        copies_in_sqlite(store.path, first, last)
        await settled(store, bench)
        work.append(await _ticks(store))
    assert work[1] <= work[0] + 5, "steps of SQLite's machine, in tens"


async def _ticks(store: SqliteStore) -> int:
    with ticks_of(store) as ticks:
        assert await take(store) == []
        assert await store.next_announcement(TENANT, HOOK, ATTEMPTS_MAX) is None
    return len(ticks)


@pytest.mark.postgres_only("its own way of counting")
async def test_a_look_at_the_server_does_not_grow_with_what_was_announced(postgres: PostgresBench) -> None:
    store = await postgres.open()
    story = await announced(store, postgres)
    work = []
    for first, last in ((10, FEW), (FEW, MANY)):
        copies_in_postgres(postgres.url, first, last)
        await settled(store, postgres)
        work.append(await _rows_read(store))
    assert work[0] == work[1], "rows that the statements looked at"
    await ask(story, "act_new")
    assert await take(store) == [("act_new", 1)]


async def _rows_read(store: PostgresStore) -> dict[str, float]:
    link = await store._links.writer()
    params = {
        "tenant_id": TENANT, "hook": HOOK, "attempts_max": ATTEMPTS_MAX, "after": store._looked.behind(KEY),
        "limit": 10, "again_s": 60.0,
    }  # fmt: skip
    read: dict[str, float] = {}
    for name in ("announcements_due", "announcements_take", "announcements_next"):
        statement = store._texts.named(name)
        values = store._server.values(statement.names, params)
        (row,) = await link.rows(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.sql}", values)
        read[name] = _read(json.loads(str(row["QUERY PLAN"]))[0]["Plan"])
    return read


def _read(plan: dict[str, object]) -> float:
    def number(name: str) -> float:
        value = plan.get(name, 0.0)
        assert isinstance(value, int | float)
        return value

    rows = 0.0
    if "Scan" in str(plan["Node Type"]):
        rows = (number("Actual Rows") + number("Rows Removed by Filter")) * number("Actual Loops")
    below = plan.get("Plans", [])
    assert isinstance(below, list)
    return rows + sum(_read(one) for one in below)


def test_what_becomes_visible_late_is_found() -> None:
    for late_s in (1.0, LAG_SECONDS - 1.0, LAG_SECONDS + 5.0, WHOLE_SECONDS - 1.0):
        fresh = Looked()
        now, found = 0.0, -1.0
        while found < 0 and now < 3 * WHOLE_SECONDS:
            begin = fresh.begin(KEY, now)
            # Place 50 is committed late, behind place 100.
            if now >= late_s and begin < 50:
                found = now
            else:
                fresh.nothing(KEY, now, begin, newest=100)
            now += 1.0
        assert 0 <= found - late_s <= (1.0 if late_s < LAG_SECONDS else WHOLE_SECONDS)
