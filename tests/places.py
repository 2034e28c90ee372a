"""Where a test's store is: one parameter, `--store`, says which of the two stores the tests run on.

A test that touches a store takes the fixture `place` (or `store_url`) and asks it for the URL. What only one store has
is marked with the reason: `@pytest.mark.sqlite_only("the file is damaged by hand")`, `postgres_only` likewise.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import psycopg
import pytest
from _pytest.mark import ParameterSet
from psycopg.rows import dict_row

from surefoot.errors import Unreadable
from surefoot.http import system_doors
from surefoot.store.open import open_store
from surefoot.store.packing import unpacked
from tests.postgres import Server, Session

KINDS = ("sqlite", "postgres")
ONLY = {"sqlite": "sqlite_only", "postgres": "postgres_only"}
SECRET = "the-keyring-of-tests-on-postgresql-is-known"
TEMPLATE = "surefoot_template"
RAM = Path("/dev/shm")
TABLES = (
    b"SELECT tablename AS name, format('%I.%I', schemaname, tablename) AS place FROM pg_tables "
    b"WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
)


def chosen(config: pytest.Config) -> Sequence[str]:
    """The stores of this session."""
    choice = str(config.getoption("--store"))
    return KINDS if choice == "both" else (choice,)


def kinds_of(node: pytest.Item, config: pytest.Config) -> list[str]:
    """The stores that a test runs on, of those that were chosen."""
    only = [kind for kind, mark in ONLY.items() if node.get_closest_marker(mark) is not None]
    return [kind for kind in chosen(config) if not only or kind in only]


def runs_here(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether a test, on the store that it was made for where both were chosen, is one of those that run."""
    call = getattr(item, "callspec", None)
    kind = None if call is None else call.params.get("store_kind")
    return bool(kinds_of(item, config)) if kind is None else kind in kinds_of(item, config)


class Databases:
    """Databases on the session's PostgreSQL, as this process makes them."""

    def __init__(self, session: Session | None) -> None:
        self._session = session
        self._connection: psycopg.Connection | None = None
        self._sockets = ""
        self._count = 0

    def _server(self) -> psycopg.Connection:
        if self._connection is None:
            assert self._session is not None
            self._sockets = self._session.server()
            self._connection = psycopg.connect(self.url("postgres"), autocommit=True)
        return self._connection

    def url(self, name: str) -> str:
        """Where a database is."""
        return Server.url_at(self._sockets, name)

    def fresh(self, *, empty: bool = False) -> str:
        """The name of a new database: one that surefoot has opened already, or one with nothing in it."""
        server = self._server()
        self._count += 1
        name = f"t{os.getpid()}_{self._count}"
        template = "template0" if empty else self._template(server)
        server.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        return name

    def drop(self, name: str) -> None:
        """Remove a database, whoever still uses it."""
        self._server().execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())

    def close(self) -> None:
        """The end of this process."""
        if self._connection is not None:
            self._connection.close()

    def _template(self, server: psycopg.Connection) -> str:
        """Made once in a session: a copy of it costs a tenth of what all migrations cost."""
        if find_spec("surefoot.store.postgres") is None:
            return "template0"
        made = "SELECT FROM pg_database WHERE datname = %s AND datistemplate"
        if server.execute(made, (TEMPLATE,)).fetchone() is None:
            server.execute("SELECT pg_advisory_lock(1)")
            try:
                if server.execute(made, (TEMPLATE,)).fetchone() is None:
                    server.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0".encode())
                    _open_once(self.url(TEMPLATE))
                    server.execute(f"ALTER DATABASE {TEMPLATE} IS_TEMPLATE true".encode())
            finally:
                server.execute("SELECT pg_advisory_unlock(1)")
        return TEMPLATE


def _open_once(url: str) -> None:
    async def opened() -> None:
        store = await open_store(url, system_doors())
        await store.close()

    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(opened())
        except BaseException as error:
            failed.append(error)

    # The test that asks first may have an event loop of its own.
    thread = Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


Contents = Mapping[str, Sequence[Mapping[str, object]]]


def read_contents(url: str) -> Contents:
    """Every row of every table at a URL, by name, its texts unpacked: for tests that judge what a store holds."""
    return {name: [{key: _plain(row[key]) for key in row} for row in rows] for name, rows in _as_stored(url).items()}


def _plain(value: object) -> object:
    """A packed text as it was; everything else as it is."""
    try:
        return unpacked(value, "a value") if isinstance(value, str | bytes) else value
    except Unreadable:
        return value


def _as_stored(url: str) -> Contents:
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            file.row_factory = sqlite3.Row
            names = [str(row[0]) for row in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {name: [dict(row) for row in file.execute(f"SELECT * FROM {name}")] for name in names}
    with psycopg.connect(url, row_factory=dict_row) as conn:
        found = conn.execute(TABLES).fetchall()
        return {row["name"]: conn.execute(f"SELECT * FROM {row['place']}".encode()).fetchall() for row in found}


def database_of(url: str) -> str:
    """The name of the database in a URL of PostgreSQL."""
    return url.partition("?")[0].rpartition("/")[2]


def _as_bytes(value: object) -> bytes:
    return bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()


def _copied(conn: psycopg.Connection, table: str) -> tuple[str, bytes]:
    """The columns that can be written, and every row of them."""
    found = conn.execute(
        "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''",
        (table,),
    ).fetchone()
    assert found is not None
    with conn.cursor() as cursor, cursor.copy(f"COPY {table} ({found[0]}) TO STDOUT (FORMAT binary)".encode()) as copy:
        return str(found[0]), b"".join(bytes(part) for part in copy)


def bytes_of(value: object) -> bytes:
    """A value that is bytes."""
    assert isinstance(value, bytes)
    return value


def parts(count: int, size: int, short: int) -> list[ParameterSet]:
    """The first of each `size` of `count` things that a test goes through; on PostgreSQL of the first `short` alone."""
    long = pytest.mark.sqlite_only("on PostgreSQL fewer are played, since each takes longer")
    return [pytest.param(first, marks=[long] if first >= short else []) for first in range(0, count, size)]


NewPlace = Callable[[], "Place"]


class Place:
    """Stores for one test, on the store that this session runs on: new ones, which no other test has used."""

    def __init__(self, kind: str, databases: Databases, folder: Path | None = None) -> None:
        self.kind = kind
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="surefoot-place-", dir=RAM if RAM.is_dir() else None))
        self.folder = folder
        self._parts: list[Place] = []
        self._databases = databases
        self._urls: dict[str, str] = {}
        self._names: list[str] = []
        self._count = 0
        self._saved: dict[str, tuple[str, bytes]] = {}
        self._renewed: str | None = None

    @property
    def url(self) -> str:
        """The test's store."""
        return self.named("surefoot")

    @property
    def path(self) -> Path:
        """The file of the test's store. For tests of SQLite's own mechanism."""
        assert self.kind == "sqlite", "only SQLite's store is a file"
        return self.folder / "surefoot.db"

    @property
    def environ(self) -> Mapping[str, str]:
        """What a process of the test has to be given so that it uses the test's store."""
        return {"SUREFOOT_STORE": self.url, **self.secret}

    @property
    def settings(self) -> Mapping[str, str]:
        """What the command line has to be given beyond its folder, where its default store is."""
        return {} if self.kind == "sqlite" else self.environ

    @property
    def secret(self) -> Mapping[str, str]:
        """The keyring: SQLite keeps one beside its file, PostgreSQL has to be given one."""
        return {} if self.kind == "sqlite" else {"SUREFOOT_SECRET": SECRET}

    def named(self, name: str) -> str:
        """The store of this name; the same name gives the same one."""
        if name not in self._urls:
            self._urls[name] = f"sqlite:///{self.folder / name}.db" if self.kind == "sqlite" else self._database()
        return self._urls[name]

    def inside(self, name: str) -> Place:
        """A place of its own in a folder of this one; it goes with this one."""
        folder = self.folder / name
        folder.mkdir()
        self._parts.append(Place(self.kind, self._databases, folder))
        return self._parts[-1]

    def fresh(self) -> str:
        """One more store."""
        self._count += 1
        return self.named(f"fresh-{self._count}")

    def renewed(self) -> str:
        """A new store in the place of the one that was asked for last: for tests that need hundreds."""
        if self._renewed is not None:
            self.drop(self._renewed)
        self._renewed = self.fresh()
        return self._renewed

    def empty(self) -> str:
        """One more that nobody has ever opened: no table in it."""
        return self.fresh() if self.kind == "sqlite" else self._database(empty=True)

    def held(self) -> Mapping[str, bytes]:
        """Everything that the test's stores hold, as bytes: what must not hold a secret. By file or by table."""
        files = {}
        if self.kind == "sqlite":
            files = {path.name: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}
        # A packed text shows nothing of what is in it.
        values = {name: [v for row in rows for v in row.values()] for name, rows in self.contents().items()}
        return files | {name: b"\n".join(_as_bytes(value) for value in held) for name, held in values.items()}

    def size(self) -> int:
        """Bytes that the test's store takes: the file, or all rows as they are stored."""
        if self.kind == "sqlite":
            return self.path.stat().st_size
        with psycopg.connect(self.url) as conn:
            tables = conn.execute(TABLES).fetchall()
            sums = [f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t" for _, table in tables]
            found = conn.execute(f"SELECT sum(coalesce) FROM ({' UNION ALL '.join(sums)}) u".encode()).fetchone()
        assert found is not None
        return int(found[0])

    def execute(self, statement: str, *values: object) -> int:
        """Change the store behind surefoot's back, `?` for each value: how many rows it was."""
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.path)) as file, file:
                return file.execute(statement, values).rowcount
        with psycopg.connect(self.url) as conn:
            return conn.execute(statement.replace("?", "%s").encode(), values or None).rowcount

    def query(self, statement: str) -> list[tuple[object, ...]]:
        """Read the store behind surefoot's back."""
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.path)) as file:
                return file.execute(statement).fetchall()
        with psycopg.connect(self.url) as conn:
            return conn.execute(statement.encode()).fetchall()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody can write, as when somebody left a shell inside of a transaction."""
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.path, isolation_level=None)) as file:
                file.execute("BEGIN IMMEDIATE")
                yield
                file.execute("ROLLBACK")
        else:
            with psycopg.connect(self.url) as conn:
                conn.execute("LOCK TABLE run, step, event, meta IN EXCLUSIVE MODE")
                yield
                conn.rollback()

    def save(self) -> None:
        """Keep a copy of the test's store as it stands."""
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.path)) as file:
                self.folder.joinpath("saved").write_bytes(file.serialize())
            return
        with psycopg.connect(self.url) as conn:
            self._saved = {table: _copied(conn, table) for _, table in conn.execute(TABLES).fetchall()}

    def put_back(self) -> None:
        """The copy takes the place of the store, which nobody uses now."""
        if self.kind == "sqlite":
            for extra in self.folder.glob("surefoot.db-*"):
                extra.unlink()
            self.path.write_bytes(self.folder.joinpath("saved").read_bytes())
            return
        with psycopg.connect(self.url) as conn, conn.cursor() as cursor:
            for table, (columns, rows) in self._saved.items():
                cursor.execute(f"DELETE FROM {table}".encode())
                with cursor.copy(f"COPY {table} ({columns}) FROM STDIN (FORMAT binary)".encode()) as copy:
                    copy.write(rows)

    def contents(self, url: str | None = None) -> Contents:
        """Every row of every table of the test's store, or of another one."""
        return read_contents(url if url is not None else self.url)

    def drop(self, url: str) -> None:
        """A store is not needed any more: for tests that make hundreds."""
        if self.kind == "sqlite":
            path = Path(url.removeprefix("sqlite:///"))
            for file in path.parent.glob(f"{path.name}*"):
                shutil.rmtree(file) if file.is_dir() else file.unlink()
        else:
            self._names.remove(database_of(url))
            self._databases.drop(database_of(url))

    def remove(self) -> None:
        """The end of the test."""
        for part in self._parts:
            part.remove()
        for name in self._names:
            self._databases.drop(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _database(self, *, empty: bool = False) -> str:
        name = self._databases.fresh(empty=empty)
        self._names.append(name)
        return self._databases.url(name)


@contextmanager
def sqlite_place() -> Iterator[Place]:
    """A place for programs that are no tests."""
    made = Place("sqlite", Databases(None))
    try:
        yield made
    finally:
        made.remove()
