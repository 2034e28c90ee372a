"""A PostgreSQL of the benchmark's own: the one of the tests' pip package, on the disk that is measured.

`fsync`, `synchronous_commit` and `full_page_writes` stand as production has them. Each cell gets a database of its own.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.rounds import BUILD
from tests.places import database_of
from tests.postgres import Server

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "max_connections": "300",
    "autovacuum_naptime": "15s",
}


class OnDisk(Server):
    """The tests' server, with its data below build/, not in memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        shutil.rmtree(self._place)
        BUILD.mkdir(parents=True, exist_ok=True)
        self._place = Path(tempfile.mkdtemp(prefix="pgdata-", dir=BUILD))
        self.data = self._place / "server"


def version_of(databases: Databases | None) -> str:
    """The server's; nothing where none runs."""
    return databases.version if databases is not None else ""


class Databases:
    """Databases on a server that runs."""

    def __init__(self, server: OnDisk) -> None:
        self._server = server
        self._connection = psycopg.connect(server.url(), autocommit=True)
        self._count = 0

    @property
    def version(self) -> str:
        """The server's."""
        return str(self._one("SHOW server_version"))

    def fresh(self, template: str = "") -> str:
        """The URL of a new one: empty, or a copy of one that nobody uses."""
        self._count += 1
        name = f"bench_{self._count}"
        source = database_of(template) if template else "template0"
        self._connection.execute(f"CREATE DATABASE {name} TEMPLATE {source} STRATEGY wal_log".encode())
        return self._server.url(name)

    def drop(self, url: str) -> None:
        """It is not needed any more."""
        self._connection.execute(f"DROP DATABASE {database_of(url)} WITH (FORCE)".encode())

    def log_bytes(self) -> int:
        """Where the server's log of writes ends, in bytes since its making."""
        return int(str(self._one("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")))

    def syncs(self) -> int:
        """How often the log of writes was synced since the server's start. Sessions tell when they end."""
        return int(str(self._one("SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'")))

    def _one(self, query: str) -> object:
        row = self._connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]

    def close(self) -> None:
        """Before the server ends."""
        self._connection.close()


@contextmanager
def databases(tell: Callable[[str], None], missing: dict[str, str]) -> Iterator[Databases | None]:
    """A server for as long as this lasts; None, with the reason among the missing, where none can be started."""
    folder = Path(tempfile.mkdtemp(prefix="surefoot-bench-"))
    server: OnDisk | None = None
    try:
        try:
            server = OnDisk(folder)
            server.make()
            server.start(SETTINGS)
            made = Databases(server)
        except Exception as error:
            missing["postgres"] = f"its server could not be started: {str(error).strip()[-300:]}"
            tell(f"PostgreSQL is MISSING from what follows: {missing['postgres']}")
            yield None
        else:
            tell(f"PostgreSQL {made.version} has been started, its data below build/")
            yield made
            made.close()
    finally:
        if server is not None:
            server.remove()
        shutil.rmtree(folder, ignore_errors=True)
