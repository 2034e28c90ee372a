"""Where a PostgreSQL database is, from a URL, and how it is named to people: never with what its URL keeps secret."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from surefoot.errors import InvalidInput

SCHEMES = ("postgresql://", "postgres://")
POOLED = "statement_cache_size"
"""The option of a URL that says that a pooler in transaction mode stands in between; without it that is found out."""
PORT = 5432
PORT_MAX = 65_535
CONNECT_SECONDS_MAX = 10.0
"""For one attempt at one server."""
CONNECT_SECONDS_MIN = 2.0

_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_NO_STANDBY = ("any", "primary", "read-write")
_TAKEN = frozenset({
    "application_name", "client_encoding", "connect_timeout", "fallback_application_name", "keepalives",
    "keepalives_count", "keepalives_idle", "keepalives_interval", "load_balance_hosts", "sslcompression", "sslsni",
    "tcp_user_timeout",
})  # fmt: skip
"""Options of libpq that the driver would send to the server as settings, and that change nothing that we promise."""
_WEAK = {"channel_binding": ("prefer", "disable"), "gssencmode": ("prefer", "disable")}
"""Options of libpq that the driver does not have: the values that ask for nothing."""


class Address(msgspec.Struct, frozen=True):
    """A database. `dsn` holds secrets and is for the driver only."""

    dsn: str
    name: str
    """For messages: the hosts and the database."""
    pooled: bool
    """The URL says that a pooler stands in between."""
    servers: tuple[tuple[str, int], ...] = ()
    """The hosts (or folders of sockets) with their ports, in the order of the URL; empty where it names none."""
    connect_s: float = CONNECT_SECONDS_MAX
    """How long each of them may take to answer."""

    def __repr__(self) -> str:
        return f"Address({self.name!r})"


def read_address(url: str) -> Address:
    """The database at `url`, such as postgresql://user:password@host:5432/database. Raises InvalidInput."""
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        # Not `from`: the error's text may hold a part of the URL.
        raise _not_understood() from None
    if not url.startswith(SCHEMES) or parts.fragment or "@" in parts.path or parts.path.strip("/").count("/"):
        raise _not_understood()
    named = dict(options)
    _check(named)
    hosts = parts.netloc.rpartition("@")[2] or named.get("host", "localhost")
    servers = _servers(parts.netloc.rpartition("@")[2] or named.get("host", ""), named.get("port", ""))
    kept = [(key, value) for key, value in options if key != POOLED and key not in _TAKEN and key not in _WEAK]
    if len(servers) > 1 and "target_session_attrs" not in named:
        kept.append(("target_session_attrs", "primary"))
    database = parts.path.strip("/") or named.get("dbname") or named.get("database") or ""
    return Address(
        dsn=urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(kept), "")),
        name=f"postgresql://{hosts}/{database}",
        pooled=(POOLED, "0") in options,
        servers=servers,
        connect_s=_connect_s(named, len(servers)),
    )


def _check(named: Mapping[str, str]) -> None:
    if named.get("sslmode", "prefer") not in _SSL_MODES:
        raise InvalidInput(f"the store's URL: sslmode is one of {', '.join(_SSL_MODES)}")
    for name, fits in _WEAK.items():
        if name in named and named[name] not in fits:
            raise InvalidInput(
                f"the store's URL asks for {name}=require, which the driver does not have: take it out. "
                "sslmode=verify-full proves who the server is"
            )
    if named.get("target_session_attrs", "any") not in _NO_STANDBY:
        raise InvalidInput(
            f"the store's URL: target_session_attrs is one of {', '.join(_NO_STANDBY)}: standbys take no writes"
        )
    if named.get("sslmode", "").startswith("verify-") and not _root_certificate(named):
        raise InvalidInput(
            "the store's URL: sslmode=verify-ca and verify-full need the certificate of who signed the server's: "
            "name its file as sslrootcert=FILE"
        )


def _root_certificate(named: Mapping[str, str]) -> bool:
    file = named.get("sslrootcert") or os.environ.get("PGSSLROOTCERT") or "~/.postgresql/root.crt"
    return os.path.exists(os.path.expanduser(file))


def _connect_s(named: Mapping[str, str], servers: int) -> float:
    given = named.get("connect_timeout")
    if given is None:
        return max(CONNECT_SECONDS_MAX / max(servers, 1), CONNECT_SECONDS_MIN)
    if not given.isdecimal() or len(given) > 4:
        raise InvalidInput("the store's URL: connect_timeout is a number of seconds")
    return min(max(float(given), CONNECT_SECONDS_MIN), CONNECT_SECONDS_MAX) if int(given) else CONNECT_SECONDS_MAX


def _servers(hosts: str, ports: str) -> tuple[tuple[str, int], ...]:
    if not hosts:
        return ()
    named = [_split(host) for host in hosts.split(",")]
    given = [_port(port) for port in ports.split(",")] if ports else [PORT]
    if len(given) not in (1, len(named)):
        raise InvalidInput(f"the store's URL: the ports are {len(given)} and the hosts {len(named)}")
    given = given * len(named) if len(given) == 1 else given
    return tuple((host, other if port is None else port) for (host, port), other in zip(named, given, strict=True))


def _split(host: str) -> tuple[str, int | None]:
    """A host and its port; a folder of sockets begins with a slash, an address of version 6 stands in brackets."""
    if host.startswith("/"):
        return host, None
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name, _port(port[1:]) if port else None
    name, colon, port = host.partition(":")
    return unquote(name) or "localhost", _port(port) if colon else None


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:9]) <= PORT_MAX:
        # Not with its value: what stands there may be a part of a password.
        raise InvalidInput(
            f"the store's URL: the port is a number from 1 to {PORT_MAX}, behind the host and a colon; "
            "characters such as @ and / in a password are written as %40 and %2F"
        )
    return int(text)


def in_turn(servers: Sequence[tuple[str, int]], first: int) -> list[int]:
    """The numbers of all servers, that of the one that answered last in front."""
    return [first, *(number for number in range(len(servers)) if number != first)]


def _not_understood() -> InvalidInput:
    return InvalidInput(
        "the store's URL is not understood: write postgresql://user@host:5432/database, a password behind the user as "
        ":password; characters such as @ and / in it are written as %40 and %2F"
    )
