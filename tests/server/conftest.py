"""A folder for the store of each test, and what its tools do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.processes.conftest import world as world
from tests.server import watching
from tests.server.house import Outside


@pytest.fixture
def outside() -> Outside:
    """What the tools did."""
    return Outside()


@pytest.fixture(autouse=True)
async def _connections() -> AsyncIterator[None]:
    yield
    while watching.opened:
        await watching.opened.pop().closed()
