"""A store that a newer program upgrades: an older one that has it open takes no more runs, and nothing is lost."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Sequence
from random import Random

import psycopg

from surefoot.core.state import Attempt, AttemptEnd, Instant
from surefoot.errors import StoreUnsupported
from surefoot.store import migrate
from surefoot.store.postgres import PostgresStore
from surefoot.store.sqlite import SqliteStore
from tests.places import Place
from tests.store.bench import ShiftedClock
from tests.store.build import TENANT

TEXT = "CREATE TABLE more (a INTEGER);\n"


def _store(url: str, clock: ShiftedClock, known: tuple[migrate.Migration, ...]) -> SqliteStore | PostgresStore:
    if url.startswith("postgresql"):
        return PostgresStore(url, clock, known=known)
    return SqliteStore(url.removeprefix("sqlite:///"), clock, known=known)


def _insert(url: str, table: str, columns: str, rows: Sequence[Sequence[object]]) -> None:
    statement = f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(rows[0]))})"
    if url.startswith("postgresql"):
        with psycopg.connect(url) as server, server.cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s").encode(), rows)
    else:
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            file.executemany(statement, rows)


async def _refused(store: SqliteStore | PostgresStore) -> bool:
    try:
        await store.claim(TENANT, "w", {}, 30.0, 1)
    except StoreUnsupported as error:
        assert "newer one" in str(error)
        return True
    return False


async def test_an_older_worker_takes_nothing_of_a_store_that_was_upgraded_under_it(place: Place) -> None:
    clock = ShiftedClock()
    known = migrate.migrations("postgres" if place.kind == "postgres" else "sqlite")
    more = migrate.Migration(len(known) + 1, "more", hashlib.sha256(TEXT.encode()).hexdigest(), TEXT)
    older, newer = _store(place.url, clock, known), _store(place.url, clock, (*known, more))
    async with contextlib.AsyncExitStack() as opened:
        for store in (older, newer):
            opened.push_async_callback(store.close)
        await older.open()
        assert not await _refused(older)
        await newer.open()
        clock.advance(5.0)
        assert await _refused(older)
        assert await _refused(older), "not once, but from then on"
        assert not await _refused(newer)


async def test_attempts_that_had_a_table_of_their_own_are_all_there(place: Place) -> None:
    """To the last digit of their times: `surefoot doctor` compares them with the events."""
    url, clock, random = place.empty(), ShiftedClock(), Random(12)
    known = migrate.migrations("postgres" if place.kind == "postgres" else "sqlite")
    before = next(n for n, migration in enumerate(known) if migration.name == "attempts")
    await _open_and_close(_store(url, clock, known[:before]))
    steps: dict[str, tuple[Attempt, ...]] = {f"step_a_{n:05d}": _attempts(random, n % 4) for n in range(1, 101)}
    _insert(
        url, "step",
        "tenant_id, id, run_id, conversation_id, sequence, type, status, rules, input_hash, attempt, not_before, "
        "looks, person_absent, answered, receipts, created_at, updated_at",
        [
            (TENANT, step_id, "run_a", "conv_a", number, "tool_call", "running", '{"effect":"opaque"}', "h",
             len(attempts), 0.0, 0, 0, 0, "[]", 1.5, 2.5)
            for number, (step_id, attempts) in enumerate(steps.items(), 1)
        ],
    )  # fmt: skip
    _insert(
        url, "attempt",
        "tenant_id, step_id, number, token, account, key_id, started_at, started_wall, first_byte_before, "
        "last_byte_before, ended_at, ended_as, code, absent, created_at, updated_at",
        [
            (TENANT, step_id, a.number, a.token, a.account, a.key_id, a.started.mono, a.started.wall,
             a.first_byte_before, a.last_byte_before, a.ended, a.end, a.code, int(a.absent), 1.5, 2.5)
            for step_id, attempts in steps.items() for a in reversed(attempts)
        ],
    )  # fmt: skip
    store = _store(url, clock, known)
    async with contextlib.AsyncExitStack() as opened:
        opened.push_async_callback(store.close)
        await store.open()
        assert {row.step.id: row.step.attempts for row in await store.steps(TENANT, "run_a")} == steps


async def _open_and_close(store: SqliteStore | PostgresStore) -> None:
    await store.open()
    await store.close()


def _attempts(random: Random, count: int) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(
            number, number + 4, random.choice(("bot \"é", None)), random.choice(("3f9a01c2", None)),
            Instant(random.uniform(0.0, 1e6), random.uniform(1.7e9, 1.8e9)), random.uniform(0.0, 1e6), -1e18,
            random.choice((None, random.random())), random.choice((None, *AttemptEnd)), random.choice((None, "died")),
            absent=random.random() < 0.5,
        )
        for number in range(1, count + 1)
    )  # fmt: skip
