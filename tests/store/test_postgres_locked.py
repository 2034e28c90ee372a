"""A run whose row somebody else holds, such as a transaction that was left open: no other run waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from surefoot.doors import SystemClock
from surefoot.errors import StoreUnavailable
from surefoot.store.postgres import PostgresStore, link
from surefoot.store.postgres.statements import Shape, Statements
from tests.places import Place
from tests.store.build import TENANT, Story

pytestmark = pytest.mark.postgres_only("rows are locked")

LOCK = "SELECT FROM run WHERE id = $1 FOR UPDATE"


@pytest.fixture
async def store(place: Place) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(place.url, SystemClock())
    await made.open()
    yield made
    await made.close()


def test_a_statement_waits_for_as_long_as_the_writer_counts_for_a_turn() -> None:
    sql = Statements(of_door=False).batch(Shape(False, (("append_guard", 1),))).sql
    assert f"set_config('lock_timeout', '{int(link.LOCK_SECONDS_ONCE * 1000)}', true)" in sql


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 1, 3), (2, 3, 1)])
async def test_decisions_about_other_runs_do_not_wait_for_it(
    store: PostgresStore, beside: asyncpg.Connection[asyncpg.Record], order: tuple[int, ...]
) -> None:
    stories = {number: await Story.begin(store, number) for number in (1, 2, 3)}
    async with beside.transaction():
        await beside.execute(LOCK, stories[1].run.id)
        waiting = {number: asyncio.ensure_future(stories[number].append(stories[number].created())) for number in order}
        for step in (2, 3, 4):
            async with asyncio.timeout(link.LOCK_SECONDS_MAX / 2):
                await waiting[2]
                await waiting[3]
            for number in (2, 3):
                waiting[number] = asyncio.ensure_future(stories[number].append(stories[number].created(step)))
        assert not waiting[1].done(), "it goes on waiting for its turn"
    await asyncio.gather(*waiting.values())
    assert [await story.reloaded() for story in stories.values()] == [True] * 3
    assert await store.integrity() == []


async def test_it_is_told_as_before_once_that_takes_too_long(
    store: PostgresStore, beside: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LOCK_SECONDS_MAX", 3 * link.LOCK_SECONDS_ONCE)
    story = await Story.begin(store)
    async with beside.transaction():
        await beside.execute(LOCK, story.run.id)
        with pytest.raises(StoreUnavailable, match=r"held a lock for too long.*pg_prepared_xacts.*Nothing was written"):
            await story.append(story.created())
    assert await story.reloaded()
    await story.append(story.created())


async def test_the_leases_of_other_runs_are_renewed_all_the_same(
    store: PostgresStore, beside: asyncpg.Connection[asyncpg.Record]
) -> None:
    stories = [await Story.begin(store, number, owner="w", lease_s=30.0) for number in (1, 2, 3)]
    tokens = {story.run.id: 1 for story in stories}
    first = await store.renew(TENANT, tokens, 30.0)
    async with beside.transaction():
        await beside.execute(LOCK, stories[1].run.id)
        ends = await store.renew(TENANT, tokens, 60.0)
    assert set(ends) == set(tokens), "it is not lost: its lease has the end that it had"
    assert ends[stories[1].run.id] == first[stories[1].run.id]
    assert min(ends[stories[0].run.id], ends[stories[2].run.id]) > max(first.values()) + 20.0
    ends = await store.renew(TENANT, {**tokens, stories[2].run.id: 7}, 60.0)
    assert set(ends) == {stories[0].run.id, stories[1].run.id}, "of another token nothing is said"
