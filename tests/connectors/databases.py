"""A user's own database, SQLite or PostgreSQL: a table of orders, and connections as a user opens them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from surefoot import sql
from surefoot.effects import Operation


class SqliteDatabase:
    """A file."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._path = folder / "shop.db"
        with self.transaction() as conn:
            sql.create_table(conn)
            conn.execute("CREATE TABLE orders (number integer PRIMARY KEY, article text)")

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=0.05)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commits at its end, rolls back on an exception."""
        with closing(self.connect()) as conn, conn:
            yield conn

    def order(self, conn: sqlite3.Connection, article: str) -> int:
        number = conn.execute("INSERT INTO orders (article) VALUES (?) RETURNING number", (article,)).fetchone()[0]
        assert isinstance(number, int)
        return number

    def orders(self) -> list[str]:
        with self.transaction() as conn:
            return [row[0] for row in conn.execute("SELECT article FROM orders ORDER BY number")]

    def autocommit(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None)


class PostgresDatabase:
    """A database on a server of the tests' own."""

    name = "postgres"

    def __init__(self, uri: str) -> None:
        self._uri = uri
        with self.transaction() as conn:
            conn.execute("DROP TABLE IF EXISTS orders, surefoot_operation")
            sql.create_table(conn)
            conn.execute("CREATE TABLE orders (number serial PRIMARY KEY, article text)")

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self._uri)

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection]:
        """Commits at its end, rolls back on an exception."""
        with self.connect() as conn:
            yield conn

    def order(self, conn: psycopg.Connection, article: str) -> int:
        row = conn.execute("INSERT INTO orders (article) VALUES (%s) RETURNING number", (article,)).fetchone()
        assert row is not None and isinstance(row[0], int)
        return row[0]

    def orders(self) -> list[str]:
        with self.transaction() as conn:
            return [row[0] for row in conn.execute("SELECT article FROM orders ORDER BY number")]

    def autocommit(self) -> psycopg.Connection:
        return psycopg.connect(self._uri, autocommit=True)


Database = SqliteDatabase | PostgresDatabase


def operation(key: str = "run_1:step_2", *, tenant: str = "default") -> Operation:
    """An operation that only has names: what surefoot.sql reads of it."""
    op = Operation.__new__(Operation)
    op.key, op.tool, op.run_id, op.step_id, op.tenant_id = key, "place_order", "run_1", "step_2", tenant
    return op
