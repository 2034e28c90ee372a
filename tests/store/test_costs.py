"""What a step costs: commits, statements, bytes and index use, none of which may grow with the length of a run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sqlite3
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from surefoot.core.payloads import MessageBody, StepView
from surefoot.store.sqlfile import queries
from surefoot.store.sqlite import SqliteStore
from surefoot.store.sqlite.checkpoint import FORCED_PAGES_MIN, IDLE_PAGES_MIN
from surefoot.store.sqlite.file import wal_frames
from tests.store.build import TENANT, Story, new_run, noise
from tests.store.conftest import SqliteBench, ticks_of
from tests.support import eventually

pytestmark = pytest.mark.sqlite_only("pages, frames of the log and query plans are SQLite's own")


async def steps(story: Story, count: int) -> None:
    for _ in range(count):
        sequence = story.run.step_count + 1
        view = StepView(story.step_id(sequence), b'{"body":"' + b"x" * 200 + b'"}')
        await story.append(story.created(sequence), story.started(sequence), payloads=[view])
        await story.end_step(sequence)


async def test_the_64_runs_of_a_tick_share_their_commits(bench: SqliteBench) -> None:
    store = await bench.open()
    stories = [await Story.begin(store, n) for n in range(1, 65)]
    before = bench.commits.count
    await asyncio.gather(*[steps(story, 20) for story in stories])
    assert bench.commits.count - before <= 2 * 20 + 2


async def test_a_run_that_is_alone_waits_for_nobody(bench: SqliteBench) -> None:
    """Neither for others that could share its commit, nor for the loop to tell it that it is durable."""
    store = await bench.open()
    story, other = await Story.begin(store, 1), await Story.begin(store, 2)
    before = bench.commits.count
    alone = replace(story.next(story.created()), alone=True)
    with pytest.raises(StopIteration):
        story.write(alone).send(None)
    assert bench.commits.count == before + 1 and await story.reloaded()
    joins = replace(story.next(story.created(2)), alone=True)
    await asyncio.gather(other.append(other.created()), story.write(joins))
    assert bench.commits.count == before + 2, "where others wait already, it shares their commit"


async def test_statements_and_bytes_a_step_are_flat(bench: SqliteBench) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    counted: list[int] = []
    store._file._open().set_trace_callback(lambda sql: counted.append(len(sql)))
    costs: list[tuple[int, int]] = []
    await steps(story, 10)
    for _ in range(2):
        counted.clear()
        size = _size(store)
        await steps(story, 100)
        costs.append((len(counted), _size(store) - size))
        await steps(story, 700)
    store._file._open().set_trace_callback(None)
    (statements, size), (later_statements, later_size) = costs
    assert later_statements <= statements + 2, "a checkpoint may come between"
    assert later_size <= size * 1.1
    assert later_size / 100 < 8_000


def _size(store: SqliteStore) -> int:
    """Pages in use, in bytes, wherever they are."""
    connection = sqlite3.connect(store.path)
    try:
        return int(connection.execute("PRAGMA page_count").fetchone()[0]) * 4_096
    finally:
        connection.close()


async def test_loading_does_not_grow_with_the_run(bench: SqliteBench) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    work: list[int] = []
    for _ in range(2):
        await steps(story, 300)
        with ticks_of(store) as ticks:
            await store.load(TENANT, story.run.id)
        work.append(len(ticks))
    assert work[1] <= work[0] + 5


async def test_claiming_does_not_grow_with_the_runs_that_wait(bench: SqliteBench) -> None:
    store = await bench.open()
    work: list[int] = []
    number = 0
    for waiting in (50, 500):
        while number < waiting:
            number += 1
            story = await Story.begin(store, number)
            await story.append(story.created(), story.asked(f"act_{number}"))
        with ticks_of(store) as ticks:
            for _ in range(20):
                await store.claim(TENANT, "w", {"other": "1"}, 30.0, 10)
                await store.next_wake(TENANT, {"other": "1"})
        work.append(len(ticks))
        await store._call(lambda tx: tx.file._open().execute("UPDATE run SET ready_at = NULL").rowcount)
    assert work[1] <= work[0] * 20, "unknown agents are looked at, runs that wait are not"
    with ticks_of(store) as ticks:
        await store.claim(TENANT, "w", {"other": "1"}, 30.0, 10)
    assert len(ticks) <= work[0]


# A query that finds its rows by an index, and the index.
PLANS: Mapping[str, str] = {
    "append_guard": "sqlite_autoindex_run_1 (tenant_id=? AND id=?)",
    "append_guard_state": "sqlite_autoindex_run_1 (tenant_id=? AND id=?)",
    "step_update": "sqlite_autoindex_step_1 (tenant_id=? AND run_id=? AND sequence=?)",
    "steps_live": "sqlite_autoindex_step_1 (tenant_id=? AND run_id=? AND sequence>?)",
    "steps_unknown_at": "step_late (tenant_id=?)",
    "count_steps": "sqlite_autoindex_step_1 (tenant_id=? AND run_id=? AND sequence>?)",
    "steps_asked": "pending_action_run (tenant_id=? AND run_id=? AND status=?)",
    "actions_waiting": "pending_action_run (tenant_id=? AND run_id=? AND status=?)",
    "actions_list": "pending_action USING INTEGER PRIMARY KEY (rowid>?)",
    "actions_list_waiting": "pending_action_waiting (tenant_id=? AND arrival>?)",
    "claimable_ready": "run_ready (tenant_id=? AND ready_at<?)",
    "claimable_other": "run_ready_other (tenant_id=? AND ready_at<?)",
    "claimable_awake": "run_wake (tenant_id=? AND wake_at<?)",
    "next_ready": "run_ready (tenant_id=?",
    "next_awake": "run_wake (tenant_id=?",
    "next_lease_end": "run_leased (lease_owner>?)",
    "worker_leases_over": "run_leased (lease_owner=?)",
    "unblock": "run_blocked (tenant_id=? AND blocked_code>?)",
    "run_by_start_key": "run_start_key (tenant_id=? AND start_key=?)",
    "conversation_facts": "run_under_way (tenant_id=? AND conversation_id=?)",
    "step_same_action": "step_same_action (tenant_id=? AND conversation_id=? AND identity_hash=?)",
    "steps_acted": "step_same_action (tenant_id=? AND conversation_id=? AND identity_hash>?)",
    "runs_of_parent": "run_children (tenant_id=? AND parent_run_id=?)",
    "events_after": "sqlite_autoindex_event_1 (tenant_id=? AND run_id=? AND sequence>?)",
    "steps_all": "message_one_result (tenant_id=? AND call_id=?)",
    "message_place": "sqlite_autoindex_message_1 (tenant_id=? AND conversation_id=? AND position=?)",
    "messages_placed": "sqlite_autoindex_message_1 (tenant_id=? AND conversation_id=? AND position>?)",
    "messages_queued": "sqlite_autoindex_message_1 (tenant_id=? AND conversation_id=? AND position=?)",
    "evidence_of_run": "evidence_run (tenant_id=? AND run_id=?)",
    "runs_blocked": "run_blocked (tenant_id=? AND blocked_code=?)",
    "count_runs_blocked": "run_blocked (tenant_id=? AND blocked_code>?)",
    "count_runs_over": "COVERING INDEX run_over (tenant_id=? AND status=?)",
    "announcements_due": "pending_action_waiting (tenant_id=? AND arrival>?)",
    "announcements_next": "announcement_again (tenant_id=? AND hook=? AND next_at>?)",
    "announcements_over": "announcement_again (tenant_id=? AND hook=? AND next_at<?)",
    "credential_get": "sqlite_autoindex_credential_1 (tenant_id=? AND id=?)",
    "blob_drop_transient": "blob_transient (tenant_id=? AND run_id=?)",
    "mark_get": "sqlite_autoindex_mark_1 (tenant_id=? AND kind=? AND name=?)",
}


async def test_queries_use_their_indexes(bench: SqliteBench) -> None:
    await bench.open()
    with contextlib.closing(sqlite3.connect(bench.path)) as plain, plain:
        indexes = {
            row[0] for row in plain.execute("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
        }
        for name, index in PLANS.items():
            sql = queries("sqlite")[name]
            named = set(re.findall(r":(\w+)", sql))
            params: object = dict.fromkeys(named) if named else [None] * sql.count("?")
            plan = " ".join(row[3] for row in plain.execute(f"EXPLAIN QUERY PLAN {sql}", params))  # type: ignore[arg-type]
            assert index in plan, f"{name}: {plan}"
    used = " ".join(PLANS.values())
    assert all(index in used for index in indexes - {"message_said"}), "an index that no query needs"


async def test_the_log_is_copied_when_nothing_happens(bench: SqliteBench) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    big = noise(IDLE_PAGES_MIN * 5_000)
    await story.append(story.created(), payloads=[StepView(story.step_id(1), big)])
    await eventually(lambda: os.path.getsize(bench.path) > len(big), "the copy of the log into the file")
    await story.append(story.created(story.run.step_count + 1))
    assert wal_frames(bench.path) < IDLE_PAGES_MIN, "the log is used again from its start"
    assert await story.reloaded()


async def test_the_log_does_not_grow_without_end_under_load(bench: SqliteBench) -> None:
    store = await bench.open()
    stories = [await Story.begin(store, n) for n in range(1, 65)]
    await asyncio.gather(*[steps(story, 40) for story in stories])
    most = os.path.getsize(bench.path + "-wal") / 4_120
    assert most < FORCED_PAGES_MIN * 1.5


async def test_frames_of_the_log_are_counted(bench: SqliteBench) -> None:
    assert wal_frames(bench.path) == 0
    store = await bench.open()
    counts = []
    for number in range(1, 6):
        await store.create(new_run(store, number))
        counts.append(wal_frames(bench.path))
        checkpoint = store._file.one("checkpoint")
        assert checkpoint is not None and checkpoint["log"] == counts[-1]
    assert counts[-1] < counts[0] + 100


async def test_c042_what_is_written_is_linear_in_what_is_new(bench: SqliteBench) -> None:
    store = await bench.open()
    fixed = noise(50_000)
    stories = [await Story.begin(store, n) for n in range(1, 5)]
    for story in stories:
        from surefoot.core import events as ev

        message = f"msg_{story.number}"
        await story.append(ev.MessageAppended(message, "user", 0), payloads=[MessageBody(message, fixed)])
        await steps(story, 50)
    distinct = 4 * (50_000 + 50 * (200 + 200 + 200))
    assert _size(store) < 6 * distinct
    before = store.now().wall + 10.0
    for story in stories:
        await story.complete()
    size = _size(store)
    await store.prune(TENANT, before, blobs_before=before)
    assert _size(store) < size / 2, "prune gives pages back"
