"""SIGSTOP for longer than the lease, at drawn passages: another worker takes over, then the first one wakes up."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Sequence

import msgspec

from surefoot.core.events import DuplicateDetected
from tests.places import Place
from tests.processes.story import Story, WorldProcess
from tests.support import eventually

LEASE_SECONDS = 1.5
TIMEOUT_SECONDS = 2.0
SETTLE_SECONDS = 0.5
STOPPED_SECONDS_MAX = 5.0
"""Beyond the time at which the other worker has sent for itself."""

BEFORE = "before the intent"
BETWEEN = "between the intent and the check at the write"
AFTER = "after the write"
UNCHECKED = "between the check and the write"

_PROPOSED = "pass@model:after:2"
_COMMENT = "pass@tool:before"
_WRITING = "pass@http.send:before"
_SENT = "stop@http.send:after:1"
"""A second stop, until the World has the bytes: the worker would reset its connection when it looks at its clock."""
_AWAKE = "pass@clock.sleep:before:3"
"""Behind a stop: the worker has gone round its loops again."""

_HTTP = ("http.connect:before", "http.connect:after", "http.send:before", "http.send:after", "http.reply:after")
AT_THE_WRITE = (_PROPOSED, _COMMENT, "stop@http.send:before")
"""The last passage before the check: connected, nothing written."""
PASSAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    # commit:after:2 is the claim. Not commit:before: whoever stops in a transaction of SQLite stops everybody.
    BEFORE: tuple((_PROPOSED, f"stop@{passage}") for passage in (*_HTTP, "commit:after:2")),
    BETWEEN: (
        (_PROPOSED, "stop@commit:after:3"),
        (_PROPOSED, "stop@tool:before"),
        *((_PROPOSED, _COMMENT, f"stop@{passage}") for passage in _HTTP[:3]),
    ),
    AFTER: (
        *(
            (_PROPOSED, _COMMENT, f"stop@{passage}")
            for passage in ("http.send:after", "http.reply:before", "http.reply:after")
        ),
        (_PROPOSED, "stop@tool:after"),
    ),
    # The head and the body are two writes: a stop before the first one is still met by the check before the second.
    UNCHECKED: (
        (_PROPOSED, _COMMENT, _WRITING, "stop@http.check:after:1"),
        (_PROPOSED, _COMMENT, _WRITING, "stop@http.check:after:2"),
        (_PROPOSED, _COMMENT, _WRITING, "stop@http.check:after:2", _SENT),
    ),
}


class Stop(msgspec.Struct, frozen=True):
    """One drawn stop, `seconds` long (None: until another worker has completed the run)."""

    place: str
    points: tuple[str, ...]
    seconds: float | None


def draw(chance: random.Random, place: str) -> Stop:
    """A passage at the place, and a time beyond the lease; a third of them until the other worker is done."""
    drawn = chance.uniform(LEASE_SECONDS + 0.2, STOPPED_SECONDS_MAX)
    return Stop(place, chance.choice(PASSAGES[place]), None if chance.random() < 1 / 3 else drawn)


async def stop_once(world: WorldProcess, place: Place, stop: Stop) -> int:
    """One story with one stop, to its good end; how many comments there are."""
    async with Story(world, place, settle=SETTLE_SECONDS, timeout=TIMEOUT_SECONDS) as story:
        lease = ["--lease", str(LEASE_SECONDS)]
        first = await story.approved(*stop.points, _AWAKE, options=lease)
        await first.reached(next(_in_full(point) for point in stop.points if point.startswith("stop")))
        at = time.monotonic() + (stop.seconds or 0.0)
        story.worker(options=[*lease, "--sweep", "1", "2", "4"])
        if stop.seconds is None:
            await story.completed()
        await eventually(lambda: time.monotonic() >= at, "the drawn time")
        sent = len(story.posts())
        first.send(signal.SIGCONT)
        if stop.points[-1] == _SENT:
            await first.reached(_SENT)
            await eventually(lambda: len(story.posts()) > sent, "the late request")
            first.send(signal.SIGCONT)
        await first.reached(_AWAKE)
        await story.completed()
        first.send(signal.SIGTERM)
        assert await first.ended() == 0, first.said
        if stop.place == UNCHECKED and len(story.comments()) > 1:
            await assert_detected(story)
        else:
            await story.once()
        if stop.place != UNCHECKED:
            assert len(story.posts()) == 1, (
                stop,
                "the stale worker was stopped at the socket, or its request was found",
            )
        return len(story.comments())


def _in_full(point: str) -> str:
    return point if point.count(":") == 2 else f"{point}:1"


async def assert_detected(story: Story) -> None:
    """The double is reported with both links, and a person is asked about it."""
    await story.until(lambda s: any(a.kind == "duplicate" for a in s.pending_actions), "a question about the double")
    found = [event for event in await story.events() if isinstance(event, DuplicateDetected)]
    made = {str(comment.resource_id) for comment in story.comments()}
    assert len(made) == 2
    assert set(found[-1].resource_ids) == made
    assert {url.rpartition("-")[2] for url in found[-1].resource_urls} == made, found[-1].resource_urls
    assert len(await story.results()) == 1
    assert await story.findings() == []


async def stop_all(world: WorldProcess, place: Place, stops: Sequence[Stop], at_once: int) -> list[int]:
    """All of them, some side by side; how many comments each left."""
    places = asyncio.Semaphore(at_once)

    async def one(stop: Stop) -> int:
        async with places:
            return await stop_once(world, place, stop)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(stop)) for stop in stops]
    return [task.result() for task in tasks]
