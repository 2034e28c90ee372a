"""The two stages on which field cases play, and the two hands of a person."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from surefoot.connectors import github_api
from surefoot.testing.world import TOKEN, World
from surefoot.testing.world_server import WorldServer
from tests.cases.rig import Hand, Live, PythonHand, ShellHand, Sim
from tests.places import Place


@pytest.fixture
def folder(place: Place) -> Path:
    """The folder that the store is in, on a RAM disk where there is one: durability is tested elsewhere."""
    return place.folder


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    github_api._accounts.clear()


@pytest.fixture
def sim(place: Place) -> Sim:
    """Virtual time."""
    return Sim(place)


@pytest.fixture
async def live(place: Place, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    """Real time."""
    world = World()
    async with WorldServer(world) as url:
        monkeypatch.setenv("GITHUB_API_URL", url)
        case = Live(place, world, url)
        yield case
        await case.end()
        await case.judge(case.doors.clock)


@pytest.fixture(params=["python", "command_line"])
def hand(request: pytest.FixtureRequest, live: Live) -> Hand:
    """Each story in which a person acts is told twice."""
    return PythonHand(live) if request.param == "python" else ShellHand(live)
