"""Numbered migrations: applied once each, in order, by whoever comes first; a changed one is refused."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache

import msgspec

from surefoot.errors import StoreUnsupported
from surefoot.store.sqlfile import FOLDER

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


class Migration(msgspec.Struct, frozen=True):
    """One numbered file; `checksum` is the sha256 of its bytes in hex."""

    version: int
    name: str
    checksum: str
    sql: str


class Applied(msgspec.Struct, frozen=True):
    """A line of the table schema_migration."""

    version: int
    name: str
    checksum: str


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """The migrations of a dialect in order. Raises ValueError if the numbers are not 1, 2, 3 and so on."""
    folder = os.path.join(FOLDER, dialect, "migrations")
    return read_migrations(sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".sql")))


def read_migrations(files: Iterable[str | os.PathLike[str]]) -> tuple[Migration, ...]:
    """The migrations of these files. Raises ValueError for a name or number that does not fit."""
    found: list[Migration] = []
    for number, path in enumerate(files, 1):
        name = os.path.basename(path)
        match = _FILE.fullmatch(name)
        if match is None or int(match[1]) != number:
            raise ValueError(f"migration {name}: expected {number:04d}_name.sql")
        with open(path, "rb") as file:
            data = file.read()
        found.append(Migration(number, match[2], hashlib.sha256(data).hexdigest(), data.decode()))
    return tuple(found)


def pending(known: tuple[Migration, ...], applied: Iterable[Applied], where: str) -> tuple[Migration, ...]:
    """What is still to be applied.

    Raises StoreUnsupported if `where` has a newer schema, a gap, or a migration with another content.
    """
    by_version: Mapping[int, Applied] = {line.version: line for line in applied}
    newest = max(by_version, default=0)
    if newest > len(known):
        raise StoreUnsupported(
            f"{where} has schema {newest}; this version of surefoot knows schemas up to {len(known)}. "
            "Use the version that upgraded it, or a newer one"
        )
    for migration in known[:newest]:
        line = by_version.get(migration.version)
        if line is None or line.checksum != migration.checksum:
            raise StoreUnsupported(
                f"{where}: migration {migration.version:04d}_{migration.name} was applied with another content than "
                "this version of surefoot has. Use the version that applied it; never edit an applied migration"
            )
    return known[newest:]
