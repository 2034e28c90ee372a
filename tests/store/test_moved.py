"""A file that is moved, removed or replaced while it is open: nothing is committed into what nobody else sees."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from surefoot.doors import SystemClock
from surefoot.errors import StoreUnavailable
from surefoot.store.sqlite import SqliteStore
from tests.store.build import TENANT, Story
from tests.store.conftest import SqliteBench
from tests.support import in_a_forked_child

NOBODY = 65_534

pytestmark = pytest.mark.sqlite_only("a file is what can be moved")


async def _work_for_a_while(story: Story, path: str) -> None:
    """Until commits are later than the last change in the folder, by its own clock: only that is looked at then."""
    while os.stat(path + "-wal").st_ctime_ns <= os.stat(os.path.dirname(path)).st_ctime_ns:
        await story.append(story.created(story.run.step_count + 1))
    await story.append(story.created(story.run.step_count + 1))


@pytest.mark.parametrize("worked", [False, True])
@pytest.mark.parametrize("part", ["", "-wal", "-shm"])
async def test_nothing_is_committed_into_a_file_that_is_gone(bench: SqliteBench, part: str, worked: bool) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    if worked:
        await _work_for_a_while(story, bench.path)
    step = story.run.step_count + 1
    os.rename(bench.path + part, bench.path + ".aside")
    with pytest.raises(StoreUnavailable, match=r"removed or replaced .* Nothing was written; stop every process"):
        await story.append(story.created(step))
    with pytest.raises(StoreUnavailable, match="moved, removed or replaced"):
        await store.claim(TENANT, "w", {}, 30.0, 1)
    os.rename(bench.path + ".aside", bench.path + part)
    await story.append(story.created(step))
    assert await story.reloaded() and await store.integrity() == []


async def test_nothing_is_committed_beside_a_copy_that_was_put_in_its_place(bench: SqliteBench) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    await _work_for_a_while(story, bench.path)
    copy = bench.path + ".copy"
    with closing(sqlite3.connect(bench.path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    os.replace(copy, bench.path)
    with pytest.raises(StoreUnavailable, match="replaced"):
        await story.append(story.created(story.run.step_count + 1))


async def test_a_backup_that_is_put_back_with_its_times_is_noticed(bench: SqliteBench) -> None:
    """As `rsync -a` and `tar` do it: the folder says that nothing in it has changed since."""
    store = await bench.open()
    story = await Story.begin(store)
    await _work_for_a_while(story, bench.path)
    folder = os.path.dirname(bench.path)
    before, copy = os.stat(folder), bench.path + ".copy"
    with closing(sqlite3.connect(bench.path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    os.replace(copy, bench.path)
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(StoreUnavailable, match="replaced"):
        await story.append(story.created(story.run.step_count + 1))


async def test_a_file_behind_a_link_is_looked_at_where_it_is(bench: SqliteBench, folder: Path) -> None:
    real = folder / "real"
    real.mkdir()
    os.symlink(real / "store.db", bench.path)
    store = await bench.open()
    story = await Story.begin(store)
    for _ in range(50):
        await story.append(story.created(story.run.step_count + 1))
    os.rename(real / "store.db", real / "aside.db")
    with pytest.raises(StoreUnavailable, match="moved, removed or replaced"):
        await story.append(story.created(story.run.step_count + 1))


async def test_nothing_is_committed_where_the_folder_is_gone(bench: SqliteBench, tmp_path: Path) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    await _work_for_a_while(story, bench.path)
    folder = os.path.dirname(bench.path)
    shutil.move(folder, tmp_path / "aside")
    with pytest.raises(StoreUnavailable, match="moved"):
        await story.append(story.created(story.run.step_count + 1))
    shutil.move(tmp_path / "aside", folder)


async def test_a_log_without_its_file_is_not_made_empty(bench: SqliteBench, folder: Path) -> None:
    """Opening would make a new file, and throw the log away with all that is only there."""
    store = await bench.open()
    await Story.begin(store)
    other = folder / "other"
    other.mkdir()
    shutil.copy(bench.path + "-wal", other / "store.db-wal")
    held = (other / "store.db-wal").read_bytes()
    with pytest.raises(StoreUnavailable, match=r"log store\.db-wal is there, and the file is not.*Put the file back"):
        await SqliteBench(other).open()
    assert (other / "store.db-wal").read_bytes() == held and not (other / "store.db").exists()


def _opened_by_another_user(path: str) -> str:
    """What a user who is nobody in particular is told; where that takes a process of its own, in one."""
    if os.geteuid() != 0:
        return asyncio.run(_told(path))

    def work() -> str:
        os.setresuid(NOBODY, NOBODY, NOBODY)
        return asyncio.run(_told(path))

    return in_a_forked_child(work)


async def _told(path: str) -> str:
    store = SqliteStore(path, SystemClock())
    try:
        await store.open()
        await store.register_worker("w")
    except StoreUnavailable as error:
        return str(error)
    return "nothing"


@pytest.mark.parametrize(("mode", "may"), [(0o000, "unable to open"), (0o444, "readonly")])
def test_a_user_who_may_not_use_the_file_is_told_so(folder: Path, mode: int, may: str) -> None:
    path = folder / "store.db"
    asyncio.run(_make(str(path)))
    path.chmod(mode)
    folder.chmod(0o777)
    told = _opened_by_another_user(str(path))
    assert may in told and f"may not read and write {path}" in told and "free space" not in told, told


async def _make(path: str) -> None:
    store = SqliteStore(path, SystemClock())
    await store.open()
    await store.close()
