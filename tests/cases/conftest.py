"""The two stages on which field cases play, and the two hands of a person."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from surefoot.connectors import github_api
from surefoot.testing.world import TOKEN, World
from surefoot.testing.world_server import WorldServer
from tests.cases.rig import Hand, Live, PythonHand, ShellHand, Sim

RAM_DISK = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for the store, on a RAM disk where there is one: durability is tested elsewhere."""
    made = Path(tempfile.mkdtemp(prefix="surefoot-case-", dir=RAM_DISK if RAM_DISK.is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    github_api._accounts.clear()


@pytest.fixture
def sim(folder: Path) -> Sim:
    """Virtual time."""
    return Sim(folder)


@pytest.fixture
async def live(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    """Real time."""
    world = World()
    async with WorldServer(world) as url:
        monkeypatch.setenv("GITHUB_API_URL", url)
        case = Live(folder, world, url)
        yield case
        await case.end()
        await case.judge(case.doors.clock)


@pytest.fixture(params=["python", "command_line"])
def hand(request: pytest.FixtureRequest, live: Live) -> Hand:
    """Each story in which a person acts is told twice."""
    return PythonHand(live) if request.param == "python" else ShellHand(live)
