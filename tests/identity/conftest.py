"""A store on a RAM disk with a clock that tests move."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from surefoot.doors import SystemEntropy
from surefoot.server.tokens import Tokens
from surefoot.store.sqlite import SqliteStore
from tests.store.bench import ShiftedClock
from tests.store.conftest import RAM


@pytest.fixture
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="surefoot-", dir=RAM if RAM.is_dir() else None))
    yield place
    shutil.rmtree(place)


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def store(folder: Path, clock: ShiftedClock) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(str(folder / "store.db"), clock)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def tokens(store: SqliteStore, clock: ShiftedClock) -> Tokens:
    return Tokens(store, clock, SystemEntropy())
