"""surefoot.sql in the user's own database: key and effect are one commit, and what a lookup says of it is true."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from types import SimpleNamespace

import psycopg
import pytest
from psycopg.rows import class_row, dict_row, kwargs_row, scalar_row

from surefoot import sql
from surefoot.effects import Absent, Found, Receipt, Undetermined
from surefoot.errors import InvalidInput
from tests.connectors.databases import Database, PostgresDatabase, operation

OP = operation()
RECEIPT = Receipt(resource_id="7", url="https://shop.example.com/7", output={"status": "new", "text": "界\n"})


def look(database: Database, key: str = OP.key, tenant: str = "default") -> object:
    """A look with a connection of its own."""
    with closing(database.connect()) as conn:
        return sql.find(conn, operation(key, tenant=tenant))


def buy(database: Database, receipt: Receipt | None = RECEIPT) -> None:
    """The effect and its key in one transaction."""
    with database.transaction() as conn:
        database.order(conn, "A1")  # type: ignore[arg-type]  # the connection is the database's own kind
        sql.record(conn, OP, receipt)


def test_what_was_committed_is_found_with_its_receipt(database: Database) -> None:
    assert isinstance(look(database), Absent)
    buy(database)
    verdict = look(database)
    assert isinstance(verdict, Found) and verdict.receipt == RECEIPT and not verdict.also
    assert isinstance(verdict.coverage, dict) and str(verdict.coverage["recorded_at"]).startswith("20")
    assert database.orders() == ["A1"]


@pytest.mark.parametrize("number", [7, 2**70])
def test_a_number_is_an_id_too(database: Database, number: int) -> None:
    buy(database, Receipt(resource_id=number))  # type: ignore[arg-type]  # as it comes from RETURNING
    verdict = look(database)
    assert isinstance(verdict, Found) and verdict.receipt == Receipt(resource_id=str(number))


def test_an_id_that_json_cannot_hold_is_mended(database: Database) -> None:
    buy(database, Receipt(resource_id="a\ud800\0", url="https://shop.example.com/\udfff"))
    verdict = look(database)
    assert isinstance(verdict, Found) and verdict.receipt.resource_id == "a\ufffd\ufffd"


def test_a_receipt_is_not_needed(database: Database) -> None:
    buy(database, None)
    verdict = look(database)
    assert isinstance(verdict, Found) and verdict.receipt == Receipt()


def test_what_was_rolled_back_is_absent(database: Database) -> None:
    with pytest.raises(ConnectionError), database.transaction() as conn:
        sql.record(conn, OP, RECEIPT)
        raise ConnectionError
    assert isinstance(look(database), Absent) and database.orders() == []


def test_keys_and_tenants_are_apart(database: Database) -> None:
    buy(database)
    assert isinstance(look(database, OP.key + "0"), Absent)
    assert isinstance(look(database, tenant="other"), Absent)


def test_a_second_transaction_with_the_key_does_not_commit(database: Database) -> None:
    buy(database)
    with pytest.raises(sql.AlreadyRecorded):
        buy(database)
    assert database.orders() == ["A1"]


def test_an_open_transaction_is_seen(database: Database) -> None:
    with closing(database.connect()) as conn:
        sql.record(conn, OP, RECEIPT)
        verdict = look(database)
        assert isinstance(verdict, Undetermined) and verdict.reason == "transaction_open"
        conn.commit()
    assert isinstance(look(database), Found)


def test_a_lookup_inside_a_transaction_does_not_see_its_own_row(database: Database) -> None:
    with closing(database.connect()) as conn:
        sql.record(conn, OP, RECEIPT)
        verdict = sql.find(conn, OP)
        assert isinstance(verdict, Undetermined) and verdict.reason == "in_transaction"
        conn.rollback()
        assert isinstance(sql.find(conn, OP), Absent)
        assert isinstance(sql.find(conn, OP), Absent), "the look left its connection as it was"


def test_autocommit_would_commit_the_key_alone(database: Database) -> None:
    with closing(database.autocommit()) as conn:
        for _ in range(2):
            with pytest.raises(InvalidInput, match="autocommit"):
                sql.record(conn, OP)
            verdict = sql.find(conn, OP)
            assert isinstance(verdict, Undetermined) and verdict.reason == "not_in_transaction", "nobody can tell"
        conn.execute("BEGIN")
        sql.record(conn, OP)
        conn.execute("COMMIT")
        assert isinstance(sql.find(conn, OP), Found), "also with a connection in autocommit mode"


def test_the_table_may_be_made_again_and_is_missed(database: Database) -> None:
    buy(database)
    with database.transaction() as conn:
        sql.create_table(conn)
    assert isinstance(look(database), Found)
    with database.transaction() as conn:
        conn.execute("DROP TABLE surefoot_operation")
    with pytest.raises((sqlite3.OperationalError, psycopg.errors.UndefinedTable)):
        look(database)


def test_row_factories_of_the_user_do_not_matter(database: Database) -> None:
    buy(database)
    with closing(database.connect()) as conn:
        if isinstance(conn, sqlite3.Connection):
            conn.text_factory = bytes
        conn.row_factory = sqlite3.Row if isinstance(conn, sqlite3.Connection) else dict_row  # type: ignore[assignment]  # what users do
        assert isinstance(sql.find(conn, OP), Found)


def test_cursors_and_rows_of_the_user_on_postgresql_do_not_matter(postgres_uri: str) -> None:
    """Rows without a sequence of values were none."""
    database = PostgresDatabase(postgres_uri)
    for factory in (class_row(SimpleNamespace), scalar_row, kwargs_row(lambda **columns: columns)):
        with closing(psycopg.connect(postgres_uri, row_factory=factory, cursor_factory=psycopg.RawCursor)) as conn:
            sql.record(conn, OP, RECEIPT)
            conn.commit()
            assert isinstance(sql.find(conn, OP), Found)
            conn.execute("DELETE FROM surefoot_operation")
            conn.commit()
            assert isinstance(sql.find(conn, OP), Absent)
    assert database.orders() == []


def test_a_standby_is_told_also_where_a_pooler_gives_it_the_second_question_alone(postgres_uri: str) -> None:
    PostgresDatabase(postgres_uri)
    with closing(psycopg.connect(postgres_uri, autocommit=True)) as conn:
        conn.execute("CREATE SCHEMA IF NOT EXISTS odd; CREATE SEQUENCE IF NOT EXISTS odd.asked")
        conn.execute(
            "CREATE OR REPLACE FUNCTION odd.pg_is_in_recovery() RETURNS boolean "
            "LANGUAGE sql AS $$ SELECT nextval('odd.asked') > 1 $$"
        )
        conn.execute("SET search_path = odd, public, pg_catalog")
        try:
            verdict = sql.find(conn, OP)
        finally:
            conn.execute("RESET search_path; DROP SCHEMA odd CASCADE")
    assert isinstance(verdict, Undetermined) and verdict.reason == "standby"


def test_two_attempts_at_once_make_one_effect(database: Database) -> None:
    """The second waits for the first (PostgreSQL) or is told that the database is locked (SQLite)."""
    ends: list[BaseException] = []

    def second() -> None:
        try:
            buy(database)
        except (sql.AlreadyRecorded, sqlite3.OperationalError) as end:
            ends.append(end)

    with closing(database.connect()) as conn:
        database.order(conn, "A1")  # type: ignore[arg-type]  # the connection is the database's own kind
        sql.record(conn, OP, RECEIPT)
        other = threading.Thread(target=second)
        other.start()
        if isinstance(conn, sqlite3.Connection):
            other.join()
        conn.commit()
        other.join()
    assert len(ends) == 1 and database.orders() == ["A1"]


async def test_other_connections_are_refused(postgres_uri: str) -> None:
    class Odd:
        pass

    with pytest.raises(InvalidInput, match="psycopg"):
        sql.find(Odd(), OP)  # type: ignore[arg-type]  # what a user may try
    async with await psycopg.AsyncConnection.connect(postgres_uri) as conn:
        with pytest.raises(InvalidInput, match="async"):
            sql.record(conn, OP)  # type: ignore[arg-type]  # what a user may try


def test_a_snapshot_that_is_older_than_the_commit_is_not_believed(postgres_uri: str) -> None:
    """With repeatable reads the look begins a view of its own, after the probe."""
    database = PostgresDatabase(postgres_uri)
    with closing(database.connect()) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("SELECT count(*) FROM orders")
        buy(database)
        verdict = sql.find(conn, OP)
        assert isinstance(verdict, Undetermined) and verdict.reason == "in_transaction"
        conn.rollback()
        assert isinstance(sql.find(conn, OP), Found)


async def test_from_an_async_tool_it_runs_in_a_thread(database: Database) -> None:
    await asyncio.to_thread(buy, database)
    assert isinstance(await asyncio.to_thread(look, database), Found)
