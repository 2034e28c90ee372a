"""Doubt with real processes: nothing had left, nobody may look, and the request that comes too late."""

from __future__ import annotations

import pytest

from surefoot.core import ends, people, policy
from surefoot.core.events import DuplicateDetected
from surefoot.testing.faults import Delay, Hang, Late, LostReply, LostRequest, Rule, StatusBefore
from tests.places import Place
from tests.processes.story import COMMENTS, Story, WorldProcess
from tests.support import eventually

pytestmark = pytest.mark.real_process

BEFORE_THE_FIRST_BYTE = ("tool:before", "http.connect:before", "http.connect:after", "http.send:before")


@pytest.mark.parametrize("passage", BEFORE_THE_FIRST_BYTE)
async def test_sigkill_before_the_first_byte(world: WorldProcess, place: Place, passage: str) -> None:
    async with Story(world, place) as story:
        begun = () if passage.startswith("tool") else ("pass@tool:before",)
        points = ("pass@model:after:2", *begun, f"kill@{passage}")
        worker = await story.approved(*points)
        await worker.ended()
        killed = await story.step()
        assert (killed.status, killed.attempt) == ("running", 1)
        assert story.posts() == []
        approved = (await story.sf.store.step(story.sf.tenant, killed.id)).step
        story.worker()
        await story.completed()
        await story.once()
        step = (await story.sf.store.step(story.sf.tenant, killed.id)).step
        assert (await story.step()).id == killed.id
        assert (step.operation_key, step.input_hash, step.input_ref) == (
            approved.operation_key,
            approved.input_hash,
            approved.input_ref,
        )
        assert step.attempt == 2
        assert [attempt.absent for attempt in step.attempts] == [True, False]
        assert len(story.posts()) == 1, "one request, of the second attempt"


async def test_both_attempts_send_the_same_bytes(world: WorldProcess, place: Place) -> None:
    """The first request is on the World's log, and had no effect: the second is the same to the byte."""
    async with Story(world, place, timeout=2.0) as story:
        world.hit(Rule(LostRequest("hang"), method="POST", path=COMMENTS, account=story.account))
        worker = await story.approved()
        await eventually(story.posts, "the request")
        worker.kill()
        story.worker()
        await story.completed()
        await story.once()
        first, second = story.posts()
        assert first.body_sha256 == second.body_sha256
        assert (await story.step()).attempt == 2


def _forbid_looks(story: Story) -> None:
    """Every look is answered 403, without a word about limits."""
    story.world.hit(Rule(StatusBefore(403), method="GET", path=COMMENTS, account=story.account, times=None))


async def _asked_what_happened(story: Story) -> str:
    """A reply is lost, the worker killed, no look is allowed: a person is asked, and nothing was sent again."""
    _forbid_looks(story)
    worker = await story.approved()
    await eventually(story.posts, "the request")
    worker.kill()
    story.worker()
    await story.until(lambda s: s.status == "reconciling", "reconciling")
    action = await story.asked("resolve")
    assert len(story.looks()) >= 2, "it went on looking"
    assert len(story.posts()) == 1
    assert (await story.step()).status == "outcome_unknown"
    return action


async def test_forbidden_look_and_happened(world: WorldProcess, place: Place) -> None:
    async with Story(world, place) as story:
        world.hit(Rule(LostReply("hang"), method="POST", path=COMMENTS, account=story.account))
        action = await _asked_what_happened(story)
        made = str(story.comments()[0].resource_id)
        await story.sf.resolve(action, "happened", by="ann", external_resource_id=made)
        await story.completed()
        await story.once()
        step = await story.step()
        assert (step.external_resource_id, step.resolution, step.attempt) == (made, "happened", 1)
        assert len(story.posts()) == 1


async def test_forbidden_look_and_did_not_happen(world: WorldProcess, place: Place) -> None:
    async with Story(world, place) as story:
        world.hit(Rule(LostRequest("hang"), method="POST", path=COMMENTS, account=story.account))
        action = await _asked_what_happened(story)
        looks = len(story.looks())
        await story.sf.resolve(action, "did_not_happen", by="ann")
        await story.completed()
        await story.once()
        first, second = story.posts()
        assert first.body_sha256 == second.body_sha256, "the same key and the same bytes once more"
        assert len(story.looks()) > looks, "one more look came before"
        assert [look.order < second.order for look in story.looks()[: looks + 1]] == [True] * (looks + 1)
        assert (await story.step()).attempt == 2


async def test_forbidden_look_and_did_not_happen_is_overruled_by_a_hit(world: WorldProcess, place: Place) -> None:
    """The person errs, and the look that is owed may see again: found beats the answer, nothing is sent."""
    async with Story(world, place) as story:
        world.hit(Rule(LostReply("hang"), method="POST", path=COMMENTS, account=story.account))
        action = await _asked_what_happened(story)
        world.heal()
        await story.sf.resolve(action, "did_not_happen", by="ann")
        await story.completed()
        await story.once()
        assert len(story.posts()) == 1


async def test_forbidden_look_and_give_up(world: WorldProcess, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ends, people, policy):
        # The decision, and with it the first sweep, is made in this process.
        monkeypatch.setattr(module, "SWEEP_SECONDS", (0.5, 1.0, 2.0))
    async with Story(world, place) as story:
        world.hit(Rule(LostReply("hang"), method="POST", path=COMMENTS, account=story.account))
        action = await _asked_what_happened(story)
        story.workers[-1].kill()
        story.worker(options=["--sweep", "0.5", "1", "2"])
        await story.sf.resolve(action, "give_up", by="ann")
        await story.completed()
        step = await story.step()
        assert len(await story.results()) == 1
        assert "not known" in (await story.results())[0]
        assert (step.status, step.resolution) == ("outcome_unknown", "given_up")
        world.heal()
        made = str(story.comments()[0].resource_id)
        found = await story.until(
            lambda s: any(step.external_resource_id == made for step in s.steps), "later evidence counts"
        )
        assert found.status == "completed"
        assert len(await story.results()) == 1, "a receipt that comes later is never a second result"
        assert len(story.posts()) == 1
        assert await story.findings() == []


async def test_late_arrival_past_the_settle_time_is_detected(world: WorldProcess, place: Place) -> None:
    async with Story(world, place, timeout=2.0) as story:
        world.hit(Rule(Late(8.0, "hang"), method="POST", path=COMMENTS, account=story.account))
        worker = await story.approved()
        await eventually(story.posts, "the request")
        worker.kill()
        story.worker(options=["--sweep", "3", "6", "12"])
        await story.completed()
        assert (await story.step()).attempt == 2
        await eventually(lambda: len(story.comments()) == 2, "the late comment")
        await story.until(
            lambda s: any(action.kind == "duplicate" for action in s.pending_actions), "a question about the double"
        )
        (found,) = [event for event in await story.events() if isinstance(event, DuplicateDetected)]
        made = {str(comment.resource_id) for comment in story.comments()}
        assert set(found.resource_ids) == made
        assert len(found.resource_urls) == 2
        assert all(any(url.endswith(number) for url in found.resource_urls) for number in made), found.resource_urls
        assert await story.findings() == []


async def test_late_arrival_within_the_settle_time_is_found(world: WorldProcess, place: Place) -> None:
    async with Story(world, place, settle=6.0, timeout=2.0) as story:
        world.hit(Rule(Late(3.5, "hang"), method="POST", path=COMMENTS, account=story.account))
        worker = await story.approved()
        await eventually(story.posts, "the request")
        worker.kill()
        story.worker()
        await story.completed()
        await story.once()
        assert (await story.step()).attempt == 1


async def test_a_call_that_hangs_is_looked_up_by_the_live_worker(world: WorldProcess, place: Place) -> None:
    async with Story(world, place, timeout=1.0) as story:
        world.hit(Rule(Hang(applied=True), method="POST", path=COMMENTS, account=story.account))
        world.hit(Rule(Delay(0.1), method="GET", path=COMMENTS, account=story.account, times=None))
        await story.approved()
        await story.completed()
        await story.once()
        assert await story.statuses() == ["running", "reconciling", "running", "completed"]
        assert (await story.step()).attempt == 1
