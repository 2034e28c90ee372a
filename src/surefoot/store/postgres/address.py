"""Where a PostgreSQL database is, from a URL, and how it is named to people: never with what its URL keeps secret."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from surefoot.errors import InvalidInput

SCHEMES = ("postgresql://", "postgres://")
POOLED = "statement_cache_size"
"""The option of a URL that says that a pooler in transaction mode stands in between; without it that is found out."""


class Address(msgspec.Struct, frozen=True):
    """A database. `dsn` holds secrets and is for the driver only."""

    dsn: str
    name: str
    """For messages: the hosts and the database."""
    pooled: bool
    """The URL says that a pooler stands in between."""

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
    if not url.startswith(SCHEMES) or parts.fragment or parts.path.strip("/").count("/"):
        raise _not_understood()
    kept = [(key, value) for key, value in options if key != POOLED]
    named = dict(kept)
    hosts = parts.netloc.rpartition("@")[2] or named.get("host", "localhost")
    database = parts.path.strip("/") or named.get("dbname") or named.get("database") or ""
    if len(hosts.split(",")) > 1 and "target_session_attrs" not in named:
        kept.append(("target_session_attrs", "primary"))
    return Address(
        dsn=urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(kept), "")),
        name=f"postgresql://{hosts}/{database}",
        pooled=(POOLED, "0") in options,
    )


def _not_understood() -> InvalidInput:
    return InvalidInput(
        "the store's URL is not understood: write postgresql://user:password@host:5432/database; "
        "characters such as @ and / in a password are written as %40 and %2F"
    )
