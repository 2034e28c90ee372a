"""The World's process, one for all stories of a test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.processes.story import PULLS, WorldProcess, described
from tests.testing.processes import process


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorldProcess]:
    """The World."""
    folder = tmp_path_factory.mktemp("world")
    log = folder / "world.jsonl"
    with process("surefoot.testing.world_server", *described(PULLS), "--log", str(log), port_file=folder / "port") as (
        _,
        url,
    ):
        yield WorldProcess(url, log)
