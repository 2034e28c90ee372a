"""Another program holds the database's write lock: nothing is sent meanwhile, nothing is lost, nothing is asked."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.testing.faults import Delay, Rule
from tests.processes.story import COMMENTS, Story, WorldProcess
from tests.support import eventually

pytestmark = pytest.mark.real_process

SLOW_SECONDS = 0.5
LOCKED_SECONDS = 1.5


@contextlib.contextmanager
def _locked(story: Story) -> Iterator[None]:
    """As an sqlite3 shell does that somebody left inside a transaction."""
    with contextlib.closing(sqlite3.connect(story.database, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        yield
        shell.execute("ROLLBACK")


async def test_locked_before_the_intent(world: WorldProcess, tmp_path: Path) -> None:
    async with Story(world, tmp_path) as story:
        world.hit(Rule(Delay(SLOW_SECONDS), method="GET", path="/user", account=story.account, times=None))
        await story.approved()
        await eventually(lambda: any(r.path == "/user" for r in story.requests()), "the account being asked for")
        with _locked(story):
            until = time.monotonic() + LOCKED_SECONDS
            await eventually(lambda: time.monotonic() >= until or story.posts(), "the lock's time")
            assert story.posts() == [], "sent without a committed intent"
        await story.completed()
        await story.once()
        assert await story.statuses() == ["running", "completed"]


async def test_locked_while_the_call_is_in_flight(world: WorldProcess, tmp_path: Path) -> None:
    async with Story(world, tmp_path) as story:
        world.hit(Rule(Delay(SLOW_SECONDS), method="POST", path=COMMENTS, account=story.account))
        await story.approved()
        await eventually(story.posts, "the request")
        with _locked(story):
            until = time.monotonic() + SLOW_SECONDS + LOCKED_SECONDS
            await eventually(lambda: time.monotonic() >= until, "the lock's time")
            assert (await story.step()).status == "running"
        await story.completed()
        await story.once()
        assert len(story.posts()) == 1
        assert await story.statuses() == ["running", "completed"]
