"""Stories of one tool call on the World, in virtual time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.connectors import github_api, github_app
from surefoot.testing.world import TOKEN
from tests.connectors.databases import Database, PostgresDatabase, SqliteDatabase
from tests.connectors.rig import ToolSim
from tests.places import Databases, Place

RAM_DISK = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for databases of the user's, on a RAM disk where there is one."""
    made = Path(tempfile.mkdtemp(prefix="surefoot-connectors-", dir=RAM_DISK if RAM_DISK.is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    for name in ("GITHUB_API_URL", "GITHUB_APP_ID", "SUREFOOT_GITHUB_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    github_api._accounts.clear()
    github_app._tokens.clear()


@pytest.fixture
def sim(place: Place) -> ToolSim:
    """Virtual time."""
    return ToolSim(place)


@pytest.fixture(scope="session")
def postgres_uri(databases: Databases) -> Iterator[str]:
    """A database of the user's, in which surefoot has nothing."""
    name = databases.fresh(empty=True)
    yield databases.url(name)
    databases.drop(name)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, folder: Path) -> Database:
    if request.param == "sqlite":
        return SqliteDatabase(folder)
    return PostgresDatabase(request.getfixturevalue("postgres_uri"))
