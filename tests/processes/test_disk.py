"""A disk that takes nothing more, at each commit of the story in turn: nothing is sent on a commit that failed."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.places import Place
from tests.processes.story import Story, WorldProcess
from tests.support import eventually

pytestmark = [
    pytest.mark.sqlite_only("the worker's own disk is full; PostgreSQL's is another machine's"),
    pytest.mark.real_process,
]

COMMITS = 10
"""Commits of the worker in the story, from its own registration to the run's end."""
AT_ONCE = 5
ADVICE = "check the disk and its free space"


async def _full_at(world: WorldProcess, place: Place, commit: int) -> bool:
    """The story with a disk that is full from this commit on, until the error was told; whether it came so far."""
    async with Story(world, place) as story:
        await story.start()
        worker = story.worker(f"full@commit:before:{commit}")
        approving = asyncio.create_task(story.approve())
        ended = asyncio.create_task(story.completed())
        try:
            await eventually(lambda: worker.notes() or ended.done(), f"commit {commit}; {worker.said}", seconds_max=60)
            if not worker.notes():
                return False
            await eventually(lambda: ADVICE in worker.said, f"a clear error at commit {commit}: {worker.said}")
            sent, status = len(story.posts()), await _comment_status(story)
            assert sent == (1 if status in ("running", "succeeded") else 0), (
                f"{status}: a request left without its intent on the disk"
            )
            await eventually(
                lambda: worker.said.count(ADVICE) >= 2 or worker.process.poll() is not None, "a second try"
            )
            assert len(story.posts()) == sent, "a request was sent after a commit that failed"
            if worker.process.poll() is None:
                worker.send(signal.SIGUSR1)
            else:
                assert commit == 1, f"only a worker that cannot even register may give up: {worker.said}"
                story.worker()
            await ended
            await story.once()
            assert len(story.posts()) == 1
            return True
        finally:
            approving.cancel()
            ended.cancel()


async def _comment_status(story: Story) -> str | None:
    steps = (await story.snapshot()).steps
    return next((step.status for step in steps if step.tool_name == "create_issue_comment"), None)


async def test_full_disk_at_each_commit(world: WorldProcess, place: Place) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(commit: int) -> bool:
        async with places:
            return await _full_at(world, place, commit)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(commit)) for commit in range(1, COMMITS + 2)]
    reached = [task.result() for task in tasks]
    assert reached == [True] * COMMITS + [False], "every commit of the story was hit, and the last one came through"
