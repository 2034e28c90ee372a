"""Real processes: many that open one new file, dead and frozen workers, locks held by others, syncs counted."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from surefoot.errors import StoreUnavailable
from surefoot.store import lock
from surefoot.store.sqlite import SqliteStore
from tests.store.build import TENANT, Story, names, new_run
from tests.store.conftest import SqliteBench
from tests.store.helper import Helper
from tests.support import eventually, eventually_sync

pytestmark = [
    pytest.mark.sqlite_only("locks between processes on one file, and a commit of another process seen in it"),
    pytest.mark.real_process,
]

AGENTS = {"reviewer": "1"}
Start = Callable[..., Helper]


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    helpers: list[Helper] = []

    def begin(path: str = str(folder / "store.db"), *prefix: str) -> Helper:
        helpers.append(Helper(path, prefix))
        return helpers[-1]

    yield begin
    for helper in helpers:
        if helper.process.poll() is None:
            helper.process.send_signal(signal.SIGCONT)
            helper.kill()


def test_c041_eight_processes_open_new_files_at_once(folder: Path, start: Start) -> None:
    helpers = [start() for _ in range(8)]
    files = [str(folder / f"new-{number}.db") for number in range(20)]
    answers = []
    for path in files:
        for helper in helpers:
            helper.send("open_other", path)
        answers += [helper.read() for helper in helpers]
    assert answers == ["opened"] * 160


async def test_r12_a_lock_held_by_another_process_is_waited_for(bench: SqliteBench, start: Start) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    helper = start()
    assert await helper.tell("lock") == "locked"
    append = asyncio.ensure_future(story.append(story.created()))
    others = [asyncio.ensure_future(store.create(new_run(store, n))) for n in range(2, 6)]
    turns = 0
    for _ in range(50):
        # The loop is not blocked by the other's lock, and reads go on.
        turns += (await store.run(TENANT, story.run.id)).run.version
    assert turns == 50 and not append.done()
    assert await helper.tell("unlock") == "unlocked"
    await asyncio.gather(append, *others)
    assert await story.reloaded() and len(await store.run_ids(TENANT)) == 5


async def test_r12_a_lock_that_does_not_end_is_an_error_and_nothing_is_lost(bench: SqliteBench, start: Start) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    helper = start()
    assert await helper.tell("lock") == "locked"
    append = asyncio.ensure_future(story.append(story.created()))
    await eventually(lambda: store.busy, "the wait for the lock")
    bench.clock.advance(31.0)
    with pytest.raises(StoreUnavailable, match="held the lock for 30 s"):
        await append
    assert await helper.tell("unlock") == "unlocked"
    assert await story.reloaded()
    await story.append(story.created())
    assert await story.reloaded()


async def test_a_commit_of_another_process_is_noticed_within_100_ms(bench: SqliteBench, start: Start) -> None:
    store = await bench.open()
    helper = start()
    assert await helper.tell("open") == "open"
    delays = []
    for number in range(1, 8):
        await store.foreign_changed(store.foreign_count(), 0.0)
        seen = store.foreign_count()
        wait = asyncio.ensure_future(store.foreign_changed(seen, 30.0))
        assert await helper.tell("create", number) == "created"
        committed = bench.clock.now().mono
        assert await wait > seen
        delays.append(bench.clock.now().mono - committed)
    # The least of them: on a machine that is busy with other things, single ones may be late.
    assert min(delays) < 0.1


async def test_a_killed_worker_is_taken_over_at_once(bench: SqliteBench, start: Start) -> None:
    store = await bench.open()
    helper = start()
    assert await helper.tell("open") == "open"
    assert await helper.tell("create", 1, "w1", 3_600) == "created"
    assert await store.claim(TENANT, "w2", AGENTS, 30.0, 10) == []
    await store.foreign_changed(store.foreign_count(), 0.0)
    seen = store.foreign_count()
    wait = asyncio.ensure_future(store.foreign_changed(seen, 30.0))
    helper.kill()
    began = bench.clock.now().mono
    await wait
    (claimed,) = await store.claim(TENANT, "w2", AGENTS, 30.0, 10)
    assert (claimed.run_id, claimed.token, claimed.owner_died) == (names(1)[0], 2, True)
    assert bench.clock.now().mono - began < 5.0, "not after the lease of an hour"
    assert len(os.listdir(store.path + ".workers")) == 1, "the lock of the dead is gone, ours is there"


async def test_a_killed_worker_whose_lease_is_over_is_known_to_be_dead(bench: SqliteBench, start: Start) -> None:
    store = await bench.open()
    helper = start()
    assert await helper.tell("open") == "open"
    assert await helper.tell("create", 1, "w1", 30) == "created"
    helper.kill()
    bench.clock.advance(31.0)
    taken = await store.claim_one(TENANT, names(1)[0], "w2", 30.0)
    assert taken is not None and taken.owner_died


async def test_a_worker_that_was_killed_while_it_was_idle_is_counted_no_more(bench: SqliteBench, start: Start) -> None:
    store = await bench.open()
    helper, other = start(), start()
    for number, one in enumerate((helper, other), 1):
        assert await one.tell("open") == "open"
        assert await one.tell("create", number, f"w{number}", 30) == "created"
        await store.release(TENANT, names(number)[0], 1)
        await store.block(TENANT, names(number)[0], None, "unknown_tool")
    helper.kill()
    assert await store.claim(TENANT, "w3", AGENTS, 30.0, 10) == []
    assert (await store.counts(TENANT)).workers == 1
    assert not [name for name in os.listdir(store.path + ".workers") if name.startswith("w1")]
    other.kill()
    assert await store.claim(TENANT, "w3", AGENTS, 30.0, 10) == []
    bench.clock.advance(31.0)
    assert await store.claim(TENANT, "w3", AGENTS, 30.0, 10) == []
    assert (await store.counts(TENANT)).workers == 0


async def test_a_forked_child_keeps_its_workers_lock(bench: SqliteBench, start: Start) -> None:
    store = await bench.open()
    helper = start()
    assert await helper.tell("open") == "open"
    assert await helper.tell("create", 1, "w1", 30) == "created"
    child = int(await helper.tell("fork"))
    try:
        helper.kill()
        bench.clock.advance(1.0)
        assert await store.claim(TENANT, "w2", AGENTS, 30.0, 10) == [], "the child may still send"
        bench.clock.advance(30.0)
        (claimed,) = await store.claim(TENANT, "w2", AGENTS, 30.0, 10)
        assert not claimed.owner_died
    finally:
        os.kill(child, signal.SIGKILL)
    folder, (name,) = _locks_of(store, "w1")
    eventually_sync(lambda: lock.is_free(folder, name), "the end of the child")


async def test_r19_a_frozen_worker_is_not_dead(bench: SqliteBench, start: Start) -> None:
    store = await bench.open()
    helper = start()
    assert await helper.tell("open") == "open"
    assert await helper.tell("create", 1, "w1", 30) == "created"
    helper.process.send_signal(signal.SIGSTOP)
    bench.clock.advance(1.0)
    assert await store.claim(TENANT, "w2", AGENTS, 30.0, 10) == []
    bench.clock.advance(30.0)
    (claimed,) = await store.claim(TENANT, "w2", AGENTS, 30.0, 10)
    assert claimed.token == 2 and not claimed.owner_died
    helper.process.send_signal(signal.SIGCONT)
    assert (await helper.tell("claim", "w1")) == "none"


async def test_c036_a_worker_name_used_twice_proves_nothing_about_the_other(bench: SqliteBench, start: Start) -> None:
    store = await bench.open()
    first, second = start(), start()
    for number, helper in ((1, first), (2, second)):
        assert await helper.tell("open") == "open"
        assert await helper.tell("create", number, "worker-1", 3_600) == "created"
    second.kill()
    (claimed,) = await store.claim(TENANT, "worker-1", AGENTS, 30.0, 10)
    assert (claimed.run_id, claimed.owner_died) == (names(2)[0], True)
    assert await store.claim(TENANT, "worker-1", AGENTS, 30.0, 10) == []


async def test_a_lock_file_that_is_gone_proves_nothing(bench: SqliteBench, start: Start) -> None:
    store = await bench.open()
    helper = start()
    assert await helper.tell("open") == "open"
    assert await helper.tell("create", 1, "w1", 30) == "created"
    folder, (name,) = _locks_of(store, "w1")
    os.unlink(os.path.join(folder, name))
    helper.kill()
    bench.clock.advance(1.0)
    assert await store.claim(TENANT, "w2", AGENTS, 30.0, 10) == []


async def test_a_clean_stop_leaves_no_lock(bench: SqliteBench, start: Start) -> None:
    store = await bench.open()
    helper = start()
    assert await helper.tell("open") == "open"
    assert await helper.tell("create", 1) == "created"
    assert (await helper.tell("claim", "w1")).endswith(":1:False")
    folder, (name,) = _locks_of(store, "w1")
    assert not lock.is_free(folder, name)
    assert await helper.tell("close") == "closed"
    assert not lock.is_free(folder, name), "it still has a lease: held until the process ends"
    helper.end()
    assert lock.is_free(folder, name)
    (claimed,) = await store.claim(TENANT, "w2", AGENTS, 30.0, 10)
    assert claimed.owner_died
    await store.release(TENANT, claimed.run_id, claimed.token)
    await store.close()
    assert os.listdir(folder) == []


def _locks_of(store: SqliteStore, worker: str) -> tuple[str, list[str]]:
    folder = store.path + ".workers"
    return folder, [name for name in os.listdir(folder) if name.startswith(worker + "-")]


def test_a_step_of_two_commits_makes_two_syncs(folder: Path, start: Start) -> None:
    """Counted by strace where it is there, and by the commits that the door saw elsewhere."""
    assert _syncs(folder, start, 30) - _syncs(folder, start, 20) == 20


def _syncs(folder: Path, start: Start, steps: int) -> int:
    log = folder / f"strace-{steps}"
    traced = shutil.which("strace") is not None
    prefix = ["strace", "-f", "-e", "trace=fsync,fdatasync,sync_file_range", "-o", str(log)] if traced else []
    path = str(folder / f"syncs-{steps}.db")
    helper = start(path, *prefix)
    for words in (("open",), ("create", 1, "w"), ("steps", 1, steps)):
        assert not helper.ask(*words).startswith("error")
    helper.kill()
    if not traced:
        return _commits(path)
    return len(re.findall(r"\b(?:fsync|fdatasync)\(", log.read_text()))


def _commits(path: str) -> int:
    """Every commit of `steps` raises the run's version by one."""

    async def version() -> int:
        store = SqliteStore(path, SqliteBench(Path(path).parent).clock)
        await store.open()
        try:
            return (await store.run(TENANT, names(1)[0])).run.version
        finally:
            await store.close()

    return asyncio.run(version())
