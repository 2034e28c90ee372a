"""PostgreSQL servers of one test's own, which it may stop, kill and fail over."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg

from tests.postgres import USER, Server

DATABASE = "surefoot"


@contextmanager
def own_server() -> Iterator[Server]:
    """A server with an empty database `surefoot`."""
    with _folder() as folder:
        server = Server(folder)
        try:
            server.make()
            server.start()
            _create(server)
            yield server
        finally:
            server.remove()


class Pair:
    """A primary and its synchronous standby. A commit is acknowledged once both have it on their disks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self.primary = self._next()
        self.standby = self._next()
        self.servers = [self.primary, self.standby]
        self._folders = [self.primary.sockets, self.standby.sockets]

    def _next(self) -> Server:
        self._count += 1
        return Server(self._folder, f"server{self._count}")

    @property
    def url(self) -> str:
        """Both of them: whoever connects takes the one that is the primary."""
        hosts = quote(",".join(map(str, self._folders)), safe=",")
        return f"postgresql://{USER}@/{DATABASE}?host={hosts}&target_session_attrs=primary"

    def begin(self) -> None:
        """Start both."""
        self.primary.make()
        self.primary.start()
        _create(self.primary)
        self._follow()

    def _follow(self) -> None:
        self.standby.copy_of(self.primary)
        self.standby.start({"hot_standby": "on"})
        with psycopg.connect(self.primary.url(), autocommit=True) as conn:
            conn.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            conn.execute("SELECT pg_reload_conf()")

    def cut_off(self) -> None:
        """The standby is gone: commits wait for it."""
        self.standby.stop(signal.SIGINT)

    def waits(self) -> int:
        """How many commits wait for the standby."""
        with psycopg.connect(self.primary.url(), autocommit=True) as conn:
            waiting = "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            return len(conn.execute(waiting).fetchall())

    def cancel_waits(self) -> int:
        """Cancel every commit's wait for the standby: each stands on the primary alone. How many there were."""
        with psycopg.connect(self.primary.url(), autocommit=True) as conn:
            waiting = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            return len(conn.execute(waiting).fetchall())

    def fail_over(self) -> None:
        """The primary dies for good, the standby takes its place, and another standby follows that one."""
        self.primary.kill()
        self.primary.remove()
        # Fenced: its folder is gone, so that nobody can reach what might be left of it.
        shutil.rmtree(self.primary.sockets)
        if self.standby.process is None:
            self.standby.start({"hot_standby": "on"})
        self.standby.promote()
        old, self.primary, self.standby = self.primary, self.standby, self._next()
        # The new one listens where the old one did, which is where everybody looks.
        self.standby.sockets = old.sockets
        self.servers.append(self.standby)
        self._follow()

    def remove(self) -> None:
        """The end of both."""
        for server in self.servers:
            server.remove()


@contextmanager
def pair() -> Iterator[Pair]:
    """A primary with a synchronous standby."""
    with _folder() as folder:
        made = Pair(folder)
        try:
            made.begin()
            yield made
        finally:
            made.remove()


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="surefoot-postgres-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _create(server: Server) -> None:
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {DATABASE}".encode())
