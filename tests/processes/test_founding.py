"""The founding fault, three ways: GitHub created the comment, and nobody wrote that down."""

from __future__ import annotations

import asyncio
import signal

import pytest

from surefoot.snapshot import RunSnapshot
from surefoot.testing.faults import Delay, LostReply, Rule
from surefoot.vocabulary import LANGUAGES
from tests.places import Place
from tests.processes.story import COMMENTS, Story, WorldProcess, comment_step

pytestmark = pytest.mark.real_process

PROPOSED = "pass@model:after:2"
"""From here on the next tool is the comment's."""
LOOK_SECONDS = 0.4
"""How long the World takes to answer a look, so that the reconciling run is seen for certain."""
POSTING = ("posting", "sending", "calling", "发表评论", "正在发表", "正在调用")
CHECKING = {"en": "Checking whether the comment was created", "zh-CN": "正在核对评论是否已创建"}


async def _texts(story: Story, seen: list[tuple[str, str]]) -> None:
    """Read snapshot after snapshot and keep all texts of the reconciling ones, with their language."""
    while True:
        count = story.sf.store.change_count()
        for language in LANGUAGES:
            snapshot = await story.sf.snapshot(story.run_id, language)
            if snapshot.status == "reconciling":
                seen += [(language, text) for text in _shown(snapshot)]
        await story.sf.store.changed(count, 60.0)


def _shown(snapshot: RunSnapshot) -> list[str]:
    return [snapshot.display.text, *(step.display.text for step in snapshot.steps if step.status != "succeeded")]


def _slow_looks(story: Story) -> None:
    story.world.hit(Rule(Delay(LOOK_SECONDS), method="GET", path=COMMENTS, account=story.account, times=None))


async def _assert_rescued(story: Story, seen: list[tuple[str, str]]) -> None:
    await story.completed()
    await story.once()
    step = await story.step()
    assert step.attempt == 1
    assert len(story.posts()) == 1
    assert len(story.looks()) >= 1, "found by looking, not by luck"
    assert [(e.verdict, e.source) for e in step.evidence][-1] == ("found", "lookup")
    assert await story.statuses() == ["running", "reconciling", "running", "completed"]
    assert {language for language, _ in seen} == set(LANGUAGES), "no reconciling snapshot was seen"
    for language, text in seen:
        assert not any(word in text.lower() for word in POSTING), text
        assert text in (CHECKING[language], "Checking what happened", "正在核对结果")


async def _rescue(story: Story, *points: str, restart_after: str | None) -> None:
    _slow_looks(story)
    worker = await story.approved(*points)
    seen: list[tuple[str, str]] = []
    watching = asyncio.create_task(_texts(story, seen))
    try:
        if restart_after is not None:
            await worker.reached(restart_after)
            await worker.ended()
            assert comment_step(await story.snapshot()).external_resource_id is None, "the receipt was lost"
            story.worker()
        await _assert_rescued(story, seen)
    finally:
        watching.cancel()


async def test_c001_sigkill_after_github_committed(world: WorldProcess, place: Place) -> None:
    async with Story(world, place) as story:
        world.hit(Rule(LostReply("hang"), method="POST", path=COMMENTS, account=story.account))
        _slow_looks(story)
        worker = await story.approved()
        seen: list[tuple[str, str]] = []
        watching = asyncio.create_task(_texts(story, seen))
        await story.comment_made()
        worker.kill()
        assert (await story.step()).status == "running", "nobody wrote down an end"
        story.worker()
        try:
            await _assert_rescued(story, seen)
        finally:
            watching.cancel()


async def test_c001_exception_between_reply_and_commit_on_a_live_worker(world: WorldProcess, place: Place) -> None:
    async with Story(world, place) as story:
        await _rescue(story, PROPOSED, "raise@tool:after", restart_after=None)
        assert story.workers[0].notes() == [PROPOSED, "raise@tool:after:1"]
        assert len(story.workers) == 1


@pytest.mark.parametrize(
    ("points", "last"),
    [
        # The exception ends the process: the row says running.
        ((PROPOSED, "exit@tool:after"), "exit@tool:after:1"),
        # The exception was noted, and then the process ended: the row says outcome_unknown.
        ((PROPOSED, "raise@tool:after", "kill@commit:after"), "kill@commit:after:1"),
    ],
)
async def test_c001_exception_between_reply_and_commit_with_a_restart(
    world: WorldProcess, place: Place, points: tuple[str, ...], last: str
) -> None:
    async with Story(world, place) as story:
        await _rescue(story, *points, restart_after=last)


async def test_a_stopped_worker_ends_its_call_first(world: WorldProcess, place: Place) -> None:
    """The other way to end a worker: SIGTERM in the middle of a call lets it finish, and there is nothing to rescue."""
    async with Story(world, place) as story:
        world.hit(Rule(Delay(LOOK_SECONDS), method="POST", path=COMMENTS, account=story.account))
        worker = await story.approved()
        await story.comment_made()
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
        story.worker()
        await story.completed()
        await story.once()
        assert story.looks() == []
        assert await story.statuses() == ["running", "completed"]
