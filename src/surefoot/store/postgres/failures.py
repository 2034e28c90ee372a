"""What the driver raises, sorted by the one question that counts: may the write have been committed?"""

from __future__ import annotations

import asyncio
import socket
import ssl

import asyncpg

from surefoot.errors import InvalidInput, StoreError, StoreUnavailable, StoreUnsupported, Unreadable

_UNKNOWN_OPTION = (
    "the store's URL has something that is neither an option that surefoot knows nor a setting of the server, "
    "or a value that does not fit. Correct it, or take it out"
)
_ADVICE = {
    "25006": "the server takes no writes (a standby, a primary that is being replaced, or "
    "default_transaction_read_only of the database or the user). Connect to the primary, or let this user write",
    "28": "the server does not let this user in. Check user and password in the store's URL, and pg_hba.conf",
    "3D000": "there is no such database. Create it: createdb NAME",
    "3F000": "there is no such schema. Create it, or change the search_path in the store's URL",
    "42601": _UNKNOWN_OPTION,
    "42704": _UNKNOWN_OPTION,
    "55P02": _UNKNOWN_OPTION,
    "42P01": "surefoot's tables are not there (dropped, or another database or schema is in their place). Put them "
    "back, or stop every process and start it again",
    "42501": "the user lacks a right. Let it own the database, or grant it what the message names",
    "53100": "the server's disk is full. Free some space",
    "53300": "the server has no connection left. Raise max_connections, or run fewer processes, or use a pooler",
    "55P03": "another transaction has held a lock for too long. End it (see pg_stat_activity and pg_prepared_xacts)",
    "57P03": "the server is starting or stopping. Try again",
}
_POOLERS = (
    (
        "startup parameter",
        "a pooler stands in between and does not pass a setting of the store's URL on. Give it to the user instead, "
        "such as ALTER ROLE name SET search_path = schema",
    ),
    (
        "statement pooling mode",
        "the pooler is in statement mode, where no transaction can be. Set pool_mode = transaction there, or "
        "connect to the server itself",
    ),
)
"""pgbouncer says all that it has to say under a few codes that mean other things too."""
_TRANSIENT = ("57P", "08", "53300", "25006", "55000")


_DOWN = (OSError, asyncio.TimeoutError, StoreUnavailable, asyncpg.PostgresConnectionError,
         asyncpg.TargetServerAttributeNotMatched)  # fmt: skip


_LOST = (OSError, asyncio.TimeoutError, asyncio.CancelledError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""The driver's own state is not known any more after an error inside it."""


class Spoiled(Exception):
    """Something in the statement cannot be written, or a concurrent transaction was in the way. Certainly not
    committed; what shares the statement has to be written without it.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(one_line(error))
        self.state = state_of(error)
        self.constraint = str(getattr(error, "constraint_name", None) or "")
        self.again = self.state in ("40001", "40P01")
        """A serialization failure or a deadlock: the same statement may succeed at once."""
        self.unique = self.state == "23505"
        self.unchanged = self.state == "22012"
        """A row that has to be changed was not: the division by zero of batch_check."""


class Locked(StoreUnavailable):
    """Another transaction held a lock for too long. Nothing was written; others need not wait for it."""


class Unsent(Exception):
    """The connection broke before the statement was sent: it can be sent over another one."""


class Unclear(Exception):
    """Whether it was committed is not known: the connection broke, or the wait for it was cut short."""

    def __init__(self, message: str, *, broken: bool) -> None:
        super().__init__(message)
        self.broken = broken
        """The connection is of no use any more."""


def state_of(error: BaseException) -> str:
    """The SQLSTATE of an error of the server, or an empty text."""
    return str(getattr(error, "sqlstate", None) or "") if isinstance(error, asyncpg.PostgresError) else ""


def one_line(error: BaseException) -> str:
    """What an error says, with the server's detail and hint; without the detail of a refused value, which shows it."""
    if not isinstance(error, asyncpg.PostgresError) or not error.args:
        return " ".join(str(error).split())
    detail = None if state_of(error)[:2] in ("22", "23") else getattr(error, "detail", None)
    parts = (error.args[0], detail, getattr(error, "hint", None))
    return ". ".join(" ".join(str(part).split()).removesuffix(".") for part in parts if part)


def sort_write(name: str, error: BaseException) -> Spoiled | Unclear | StoreError:
    """What an error means for a statement that was sent and may have been committed."""
    state = state_of(error)
    if isinstance(error, asyncpg.PostgresError):
        fatal = str(getattr(error, "severity_en", None) or "ERROR") != "ERROR"
        # A fatal error may come behind a commit, before the server has said that it is ready again. A cancelled
        # statement has not committed by all we know; a wait that was cut short is not relied upon.
        if fatal or state[:2] == "08" or state.startswith("57P") or state in ("57014", "40003"):
            return Unclear(f"{name}: {one_line(error)}", broken=fatal or state != "57014")
        if state[:2] in ("21", "22", "23", "40", "54"):
            return Spoiled(error)
        return unavailable(name, error)
    if isinstance(error, (asyncpg.DataError, UnicodeError, OverflowError)) or (
        isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
    ):
        # The driver could not put a value into the message: nothing was sent.
        return Spoiled(error)
    return Unclear(f"{name}: the connection was lost ({type(error).__name__})", broken=True)


def is_broken(error: BaseException) -> bool:
    """Whether the connection that an error came from is of no use any more."""
    if isinstance(error, asyncpg.PostgresError):
        state = state_of(error)
        fatal = str(getattr(error, "severity_en", None) or "ERROR") != "ERROR"
        return fatal or state[:2] == "08" or state.startswith("57P") or state == "25006"
    return isinstance(error, _LOST)


def passes(error: BaseException) -> bool:
    """Whether it is worth trying to connect again: the server is down, starting, full or being replaced."""
    if isinstance(error, StoreUnsupported):
        return False
    state = state_of(error)
    if state:
        return state.startswith(_TRANSIENT) and _of_pooler(error) is None
    return isinstance(error, _DOWN)


def _of_pooler(error: BaseException) -> str | None:
    if not state_of(error).startswith("08"):
        return None
    return next((advice for phrase, advice in _POOLERS if phrase in str(error)), None)


def unavailable(name: str, error: BaseException) -> StoreError:
    """An error of the store that tells what to do. Nothing was written."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, Unsent):
        cause = error.__cause__
        if cause is None or _of_pooler(cause) is None:
            return StoreUnavailable(f"{error}. Nothing was written; try again")
        error = cause
    state = state_of(error)
    if state.startswith("XX00"):
        return Unreadable(f"{name} is damaged: {one_line(error)}. Stop all workers and look at the server's log")
    advice = _of_pooler(error) or _ADVICE.get(state) or _ADVICE.get(state[:2])
    if advice is not None:
        kind = Locked if state == "55P03" else StoreUnavailable
        return kind(f"{name}: {advice} ({state}: {one_line(error)}). Nothing was written")
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return StoreUnavailable(f"{name}: no server is a primary, and standbys take no writes. Promote one, or name it")
    if isinstance(error, _LOST):
        text = f"{name}: the server cannot be reached ({said(error)}). Nothing was written; {_what_next(error)}"
        return StoreUnavailable(text)
    return StoreUnavailable(f"{name}: {said(error)}. Nothing was written; look at the server's log")


def _what_next(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return (
            "there is no socket of a server: start it, or name the folder of its socket (SHOW unix_socket_directories) "
            "as host=FOLDER in the store's URL"
        )
    if isinstance(error, socket.gaierror):
        return "check the name of the host in the store's URL"
    if isinstance(error, ConnectionRefusedError):
        return "start the server, or check host and port in the store's URL"
    if isinstance(error, ssl.SSLError):
        return "check the server's certificate, and sslrootcert and sslmode in the store's URL"
    if type(error) is ConnectionError and "SSL" in str(error):
        return "the server has no TLS: turn ssl on there, or take sslmode out of the store's URL"
    if isinstance(error, PermissionError):
        return "let this user enter the folder of the server's socket"
    return "try again"


def said(error: BaseException) -> str:
    """An error in words, without what a URL may have brought into it."""
    if isinstance(error, asyncpg.PostgresError):
        return f"{state_of(error)}: {one_line(error)}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def refused_value(error: BaseException) -> InvalidInput | None:
    """For a text that was asked for and that no database can hold: a lone surrogate, or a NUL."""
    if not isinstance(error, asyncpg.DataError | UnicodeError):
        return None
    return InvalidInput(f"an id or another text that was asked for is in no store ({said(error)})")


def invalid(error: Spoiled) -> InvalidInput:
    """A value that the database cannot take."""
    return InvalidInput(f"the store cannot take a value ({error}). Nothing was written")
