"""Stores on a RAM disk where there is one: nothing here counts on power being lost."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from surefoot.store.sqlite import SqliteStore
from tests.places import Place
from tests.store.bench import Commits, ShiftedClock

RAM = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="surefoot-", dir=RAM if RAM.is_dir() else None))
    yield place
    shutil.rmtree(place)


@pytest.fixture
async def beside(place: Place) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection of somebody else to the store on PostgreSQL, which does not go over the wire."""
    made = await asyncpg.connect(place.url)
    yield made
    await made.close()


class SqliteBench:
    """Stores on one SQLite file; each is a connection of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "store.db")
        self.clock = ShiftedClock()
        self.commits = Commits()
        self.stores: list[SqliteStore] = []

    async def open(self) -> SqliteStore:
        store = SqliteStore(self.path, self.clock, self.commits)
        await store.open()
        self.stores.append(store)
        return store


@pytest.fixture
async def bench(folder: Path) -> AsyncIterator[SqliteBench]:
    made = SqliteBench(folder)
    yield made
    made.commits.before = made.commits.after = None
    for store in made.stores:
        await store.close()


@contextmanager
def ticks_of(store: SqliteStore) -> Iterator[list[None]]:
    """Grows by one with every ten steps of SQLite's machine while this lasts: work that depends on no clock."""
    ticks: list[None] = []
    connection = store._file._open()
    connection.set_progress_handler(lambda: ticks.append(None), 10)
    try:
        yield ticks
    finally:
        connection.set_progress_handler(None, 10)
