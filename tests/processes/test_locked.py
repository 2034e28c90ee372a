"""Another program keeps everybody from writing: nothing is sent meanwhile, nothing is lost, nothing is asked."""

from __future__ import annotations

import time

import pytest

from surefoot.testing.faults import Delay, Rule
from tests.places import Place
from tests.processes.story import COMMENTS, Story, WorldProcess
from tests.support import eventually

pytestmark = pytest.mark.real_process

SLOW_SECONDS = 0.5
LOCKED_SECONDS = 1.5


async def test_locked_before_the_intent(world: WorldProcess, place: Place) -> None:
    async with Story(world, place) as story:
        world.hit(Rule(Delay(SLOW_SECONDS), method="GET", path="/user", account=story.account, times=None))
        await story.approved()
        await eventually(lambda: any(r.path == "/user" for r in story.requests()), "the account being asked for")
        with story.place.locked():
            until = time.monotonic() + LOCKED_SECONDS
            await eventually(lambda: time.monotonic() >= until or story.posts(), "the lock's time")
            assert story.posts() == [], "sent without a committed intent"
        await story.completed()
        await story.once()
        assert await story.statuses() == ["running", "completed"]


async def test_locked_while_the_call_is_in_flight(world: WorldProcess, place: Place) -> None:
    async with Story(world, place) as story:
        world.hit(Rule(Delay(SLOW_SECONDS), method="POST", path=COMMENTS, account=story.account))
        await story.approved()
        await eventually(story.posts, "the request")
        with story.place.locked():
            until = time.monotonic() + SLOW_SECONDS + LOCKED_SECONDS
            await eventually(lambda: time.monotonic() >= until, "the lock's time")
            assert (await story.step()).status == "running"
        await story.completed()
        await story.once()
        assert len(story.posts()) == 1
        assert await story.statuses() == ["running", "completed"]
