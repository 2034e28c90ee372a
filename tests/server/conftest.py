"""A folder for the store of each test, and what its tools do."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.processes.conftest import world as world
from tests.server import watching
from tests.server.house import Outside

RAM_DISK = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on a RAM disk where there is one: durability is tested elsewhere."""
    made = Path(tempfile.mkdtemp(prefix="surefoot-serve-", dir=RAM_DISK if RAM_DISK.is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def outside() -> Outside:
    """What the tools did."""
    return Outside()


@pytest.fixture(autouse=True)
async def _connections() -> AsyncIterator[None]:
    yield
    while watching.opened:
        await watching.opened.pop().closed()
