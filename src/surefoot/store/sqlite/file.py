"""One SQLite connection: settings, named queries, transactions, and the database's errors as ours.

The file itself is never opened by other means than SQLite once it is there: closing any descriptor of it would drop, in
POSIX, all locks that this process has on it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import quote

import msgspec

from surefoot.doors import Hook
from surefoot.errors import InvalidInput, StoreClosed, StoreUnavailable, StoreUnsupported, Unreadable
from surefoot.store.migrate import Applied, Migration, pending
from surefoot.store.sqlfile import queries
from surefoot.store.sqlite.place import Place

APPLICATION_ID = 1_937_073_766
SQLITE_VERSION_MIN = (3, 37, 0)
"""STRICT tables."""

Row = Mapping[str, object]
Params = Mapping[str, object] | Sequence[object]

_SETTINGS = (
    "pragma_busy_timeout",
    "pragma_synchronous",
    "pragma_wal_autocheckpoint",
    "pragma_cache_size",
    "pragma_cell_size_check",
    "pragma_trusted_schema",
    "pragma_secure_delete",
)
_MACOS_SETTINGS = ("pragma_fullfsync", "pragma_checkpoint_fullfsync")
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT})
_WAL_HEADER = struct.Struct(">IIIIII")
_FRAME_HEADER_BYTES = 24


class Busy(Exception):
    """Another process has the lock just now. Nothing happened; try again after a pause."""


class NotCommitted(Exception):
    """COMMIT failed. `certain` says that nothing of the transaction can come back."""

    def __init__(self, message: str, certain: bool) -> None:
        super().__init__(message)
        self.certain = certain


class SqliteFile:
    """A connection to one file. Synchronous; raises Busy and StoreError, and sqlite3.IntegrityError as it is."""

    def __init__(self, path: str, hook: Hook) -> None:
        self.path = path
        self._hook = hook
        self._sql = queries("sqlite")
        self._connection: sqlite3.Connection | None = None
        self._place: Place | None = None
        self._schema: object = None

    # Opening

    def open(self, migrations: tuple[Migration, ...], wall: Callable[[], float]) -> None:
        """Connect, choose WAL and bring the schema up to date. Raises Busy: call again, each part is done once.

        Raises StoreUnsupported for a file that is not ours or newer, StoreUnavailable, Unreadable.
        """
        if self._connection is None:
            self._connection = self._connect()
        for name in _SETTINGS + (_MACOS_SETTINGS if sys.platform == "darwin" else ()):
            self.run(name)
        self._check_owner()
        self._use_wal()
        # Read once: from here on SQLite holds the log and its shared memory for as long as this connection lives.
        self._missing(migrations)
        self._place = Place(self.path)
        self._migrate(migrations, wall)
        self._schema = self.value("pragma_schema_version")

    def open_frozen(self, migrations: tuple[Migration, ...]) -> None:
        """Connect for reading alone and write nothing at all, not even beside the file: for a disk that takes nothing.

        Raises StoreUnavailable where that would not show everything: others write now, or the schema is older.
        """
        log = self.path + "-wal"
        if not os.path.isfile(self.path) or (os.path.exists(log) and os.path.getsize(log) > 0):
            raise StoreUnavailable(
                f"{self.path}: its newest commits are in its log, which cannot be read without writing"
            )
        try:
            address = f"file:{quote(self.path)}?mode=ro&immutable=1"
            self._connection = sqlite3.connect(address, uri=True, isolation_level=None, cached_statements=256)
        except sqlite3.Error as error:
            raise self._translate(error) from error
        self._check_owner()
        if self._missing(migrations):
            raise StoreUnavailable(f"{self.path} has an older schema, and cannot be upgraded now; check its free space")

    def _connect(self) -> sqlite3.Connection:
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder):
            raise StoreUnavailable(f"{self.path}: there is no directory {folder}. Create it")
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            kind = "a directory" if os.path.isdir(self.path) else "no ordinary file"
            raise StoreUnavailable(f"{self.path} is {kind}. Give the path of a file, such as sqlite:///surefoot.db")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StoreUnavailable(f"{self.path}: the directory {folder} cannot be written. Change its permissions")
        if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
            raise StoreUnsupported(
                f"SQLite {sqlite3.sqlite_version} lacks STRICT tables. Use a Python that brings SQLite 3.37 or newer"
            )
        try:
            self._make_private()
            connection = sqlite3.connect(self.path, timeout=0.01, isolation_level=None, cached_statements=256)
        except sqlite3.Error as error:
            raise self._translate(error) from error
        except OSError as error:
            raise StoreUnavailable(f"{self.path}: {error.strerror}. Choose a path that can be written") from error
        return connection

    def _make_private(self) -> None:
        """A new file is its owner's alone, and SQLite gives the log the same permissions. One that exists is let be."""
        # The log is looked at first: whoever makes a store makes the file before it.
        if wal_bytes(self.path) > 0 and not os.path.exists(self.path):
            # SQLite would take it for the log of another file, and empty it.
            raise StoreUnavailable(
                f"{self.path}: its log {os.path.basename(self.path)}-wal is there, and the file is not; the newest "
                "commits are in the log alone. Put the file back, or remove the log to begin with an empty store"
            )
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))

    def _check_owner(self) -> None:
        # Both from one state of the file: another process may make the schema between two looks.
        with self.reading():
            mark, tables = self.value("pragma_application_id"), self.value("count_tables")
        if mark != APPLICATION_ID and (mark != 0 or tables != 0):
            raise StoreUnsupported(
                f"{self.path} is an SQLite file of another program. Choose another path: surefoot needs its own file"
            )

    def _use_wal(self) -> None:
        if not self.value("count_tables"):
            # It would take the write lock and a commit of a file that has its pages already.
            self.run("pragma_auto_vacuum")
        mode = self.value("pragma_journal_mode")
        if mode != "wal":
            raise StoreUnsupported(
                f"{self.path} cannot be switched to WAL (its mode stays {mode}). Use a local disk with shared memory"
            )

    def _migrate(self, migrations: tuple[Migration, ...], wall: Callable[[], float]) -> None:
        if not self._missing(migrations):
            return
        with self.writing():
            # Another process may have been first while this one waited for the lock.
            missing = self._missing(migrations)
            if not missing:
                return
            self.run("pragma_set_application_id")
            self.run("create_schema_migration")
            for migration in missing:
                for statement in statements(migration.sql):
                    self._execute(statement, ())
                self.run("schema_migration_put", {**msgspec.structs.asdict(migration), "wall": wall()})

    def _missing(self, migrations: tuple[Migration, ...]) -> tuple[Migration, ...]:
        applied: list[Applied] = []
        if self.value("has_schema_migration"):
            applied = [msgspec.convert(row, Applied) for row in self.all("schema_migrations")]
        return pending(migrations, applied, self.path)

    def close(self) -> None:
        """Close the connection; the last one to close copies the log into the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error as error:
                raise self._translate(error) from error

    # Statements

    def run(self, name: str, params: Params = ()) -> int:
        """Execute a query; the number of changed rows."""
        cursor = self._execute(self._sql[name], params)
        count = cursor.rowcount
        cursor.close()
        return count

    def many(self, name: str, rows: Sequence[Sequence[object]]) -> int:
        """Execute a query once for each row; the number of changed rows in all."""
        try:
            return self._open().executemany(self._sql[name], rows).rowcount
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise self._translate(error) from error

    def all(self, name: str, params: Params = ()) -> list[Row]:
        """All rows."""
        return list(self.each(name, params))

    def each(self, name: str, params: Params = ()) -> Iterator[Row]:
        """All rows, one by one: of many, none is kept that is not needed any more. Nothing is read before the first."""
        try:
            cursor = self._execute(self._sql[name], params)
            rows: list[tuple[object, ...]] = cursor.fetchall()
        except sqlite3.Error as error:
            raise self._translate(error) from error
        names = [column[0] for column in cursor.description or ()]
        for row in rows:
            yield dict(zip(names, row, strict=True))

    def rough(self, name: str, params: Params = ()) -> list[Row]:
        """All rows, also where a text of one is no UTF-8: it is bytes then, and its reader refuses that row alone."""
        with contextlib.suppress(Unreadable):
            return self.all(name, params)
        connection = self._open()
        connection.text_factory = _text
        try:
            return self.all(name, params)
        finally:
            connection.text_factory = str

    def exhaust(self, name: str) -> None:
        """Execute a pragma that works a page at each step, to its end: `execute` would take the first step only."""
        try:
            self._open().executescript(self._sql[name])
        except sqlite3.Error as error:
            raise self._translate(error) from error

    def one(self, name: str, params: Params = ()) -> Row | None:
        """The only row, or None."""
        rows = self.all(name, params)
        return rows[0] if rows else None

    def value(self, name: str, params: Params = ()) -> object:
        """The first column of the first row, or None if there is no row."""
        row = self.one(name, params)
        return next(iter(row.values())) if row else None

    def _execute(self, sql: str, params: Params) -> sqlite3.Cursor:
        try:
            return self._open().execute(sql, params)
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise self._translate(error) from error
        except UnicodeEncodeError as error:
            raise InvalidInput(f"an id or another text that was asked for is in no store ({error})") from None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreClosed(f"{self.path} is closed. Open the store again")
        return self._connection

    # Transactions

    def check_place(self) -> None:
        """Raises StoreUnavailable where the file is no longer the one at its path: what is committed would be lost."""
        if self._place is not None:
            self._place.check()

    def check_schema(self, migrations: tuple[Migration, ...]) -> None:
        """Raises StoreUnsupported where a newer program has upgraded the file since it was opened."""
        schema = self.value("pragma_schema_version")
        if schema != self._schema:
            self._missing(migrations)
            self._schema = schema

    def begin(self) -> None:
        """Take the write lock. Raises Busy, and StoreUnavailable as `check_place` does."""
        self.check_place()
        self.run("begin")

    def commit(self) -> None:
        """Make it durable. Raises NotCommitted; the transaction is over in any case."""
        try:
            self._open().execute(self._sql["commit"])
        except sqlite3.Error as error:
            inside = self._open().in_transaction
            self.rollback()
            # A write that failed left no whole commit frame; after a failed sync a power cut may bring the frame back.
            code = getattr(error, "sqlite_errorcode", 0)
            certain = inside or code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_WRITE
            raise NotCommitted(f"{self.path}: {error}", certain) from error

    def rollback(self) -> None:
        """Forget the transaction, if there still is one."""
        connection = self._open()
        if connection.in_transaction:
            try:
                connection.execute(self._sql["rollback"])
            except sqlite3.Error as error:
                raise self._translate(error) from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction of its own, for opening. Raises StoreUnavailable if it was not committed."""
        self.begin()
        try:
            yield
            self._hook("commit", "before")
            self.commit()
        except NotCommitted as error:
            raise StoreUnavailable(f"{error}. Nothing was written; try again") from error
        except BaseException:
            self.rollback()
            raise
        self._hook("commit", "after")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """One state of the file for several reads."""
        self.run("begin_read")
        try:
            yield
        finally:
            self.rollback()

    def changes(self) -> int:
        """How many rows this connection has changed so far."""
        return self._open().total_changes

    def _translate(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _BUSY:
            return Busy(str(error))
        if code == sqlite3.SQLITE_NOTADB:
            return Unreadable(
                f"{self.path} is no SQLite database. Give the path of the store; if this is it, it is damaged: stop "
                "all workers, copy the file aside, and restore it from a backup"
            )
        if code in _DAMAGED or "Could not decode to UTF-8" in str(error):
            return Unreadable(
                f"{self.path} is damaged: {error}. Stop all workers, copy the file aside, and run `surefoot doctor`"
            )
        if isinstance(error, (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError)):
            return ValueError(f"the store cannot take this value: {error}")
        return StoreUnavailable(f"{self.path}: {error}. Nothing was written; {self._what_to_do()}")

    def _what_to_do(self) -> str:
        """What helps where SQLite cannot open, read or write: it says little about why."""
        if _no_more_files():
            return "this process may open no more files: raise `ulimit -n`"
        for path in (self.path, self.path + "-wal", self.path + "-shm"):
            if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
                return f"this user may not read and write {path}: change its owner or its permissions"
        return "check the disk and its free space"


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _no_more_files() -> bool:
    """SQLite says of a process that has too many files open only that it cannot open this one."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as problem:
        return problem.errno in (errno.EMFILE, errno.ENFILE)
    return False


def statements(script: str) -> Iterator[str]:
    """The single statements of a script: `executescript` would commit first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def wal_bytes(path: str) -> int:
    """The length of the log's file, which only grows; 0 if there is none."""
    try:
        return os.stat(path + "-wal").st_size
    except OSError:
        return 0


def wal_frames(path: str) -> int:
    """How many frames the log of the database at `path` holds; 0 if there is none.

    The log is used again from its start and not shortened, so its length says little: frames of the present round carry
    the salts of its header, and stand before all older ones.
    """
    try:
        with open(path + "-wal", "rb") as file:
            head = file.read(32)
            if len(head) < 32:
                return 0
            page = _WAL_HEADER.unpack_from(head)[2] + _FRAME_HEADER_BYTES
            low, high = 0, (os.fstat(file.fileno()).st_size - 32) // page
            while low < high:
                middle = (low + high) // 2
                frame = os.pread(file.fileno(), 16, 32 + middle * page)
                low, high = (middle + 1, high) if frame[8:16] == head[16:24] else (low, middle)
            return low
    except OSError:
        return 0
