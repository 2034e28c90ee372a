"""What breaks under the store: the disk is full, pages are damaged, values cannot be read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from surefoot.core import events as ev
from surefoot.core.payloads import BlobPut
from surefoot.core.state import Run
from surefoot.errors import CommitUnknown, StoreError, StoreUnavailable, StoreUnsupported, SurefootError, Unreadable
from surefoot.store.sqlite import SqliteStore
from tests.store.build import TENANT, Story, names
from tests.store.conftest import SqliteBench

pytestmark = pytest.mark.sqlite_only("the file is damaged by hand, the disk filled below it")


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """A full disk, for this process alone: a write beyond `size` fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_r10_a_full_disk_at_each_write_loses_nothing_and_says_so(bench: SqliteBench) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    blob = BlobPut("0" * 64, b"x" * 40_000)
    refused = 0
    for room in range(0, 40):
        append = story.next(story.created(story.run.step_count + 1), payloads=[blob])
        size = os.path.getsize(bench.path + "-wal")
        try:
            with files_no_larger_than(size + room * 4_096):
                await store.append(append)
        except StoreUnavailable as error:
            refused += 1
            assert "check the disk" in str(error)
            assert await story.reloaded()
            continue
        story.run = append.after
        break
    assert refused > 3 and await story.reloaded()
    await story.append(story.created(story.run.step_count + 1))
    assert await story.reloaded() and await store.integrity() == []


async def test_r10_a_database_that_may_not_grow(bench: SqliteBench) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    pages = store._file._open().execute("PRAGMA page_count").fetchone()[0]
    store._file._open().execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailable, match="full"):
        await story.append(story.created(), payloads=[BlobPut("0" * 64, b"x" * 400_000)])
    assert await story.reloaded()
    store._file._open().execute("PRAGMA max_page_count = 1000000")
    await story.append(story.created(), payloads=[BlobPut("0" * 64, b"x" * 400_000)])
    assert await story.reloaded()


async def test_a_commit_whose_outcome_sqlite_does_not_know(bench: SqliteBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync that fails after the frames were written: a power cut may bring them back."""
    store = await bench.open()
    story = await Story.begin(store)

    class Connection:
        in_transaction = False

        def execute(self, sql: str, params: object = ()) -> object:
            if sql != "COMMIT":
                return real.execute(sql, params)  # type: ignore[arg-type]  # passed on
            real.execute("ROLLBACK")
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    real = store._file._open()
    monkeypatch.setattr(store._file, "_connection", Connection())
    with pytest.raises(CommitUnknown, match="read the row back"):
        await story.append(story.created())
    monkeypatch.setattr(store._file, "_connection", real)
    assert await story.reloaded()


DAMAGES = [
    "UPDATE step SET status = 'runing'",
    'UPDATE step SET rules = \'{"effect":"lookup","settle_z":5.0}\'',
    "UPDATE step SET rules = '{'",
    "UPDATE step SET receipts = '[1]'",
    "UPDATE step SET answered = 7",
    "UPDATE step SET resolution = 'perhaps'",
    "UPDATE step SET status = CAST(x'ff' AS TEXT)",
    'UPDATE step SET attempts = \'[{"number":1,"token":1,"end":"maybe"}]\'',
    'UPDATE step SET attempts = replace(attempts, \'"number":1\', \'"numbr":1,"number":1\')',
    "UPDATE step SET attempts = '[]'",
    "UPDATE run SET status = 'x'",
    "UPDATE run SET queued = 'null'",
    "UPDATE run SET limits = '{\"turns_may\":3}'",
    "UPDATE pending_action SET kind = 'y'",
]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_c044_a_row_that_cannot_be_read_is_an_error(bench: SqliteBench, damage: str) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    await story.append(story.created(), story.started(), story.asked())
    _damage(bench.path, damage)
    with pytest.raises(Unreadable):
        await store.load(TENANT, story.run.id)


@pytest.mark.parametrize(
    ("damage", "read"),
    [
        ("UPDATE event SET data = '[{}]' WHERE events = 1", lambda s, r: s.events(TENANT, r.id, 0, 10)),
        ("UPDATE event SET data = '[]'", lambda s, r: s.events(TENANT, r.id, 0, 10)),
        ("UPDATE event SET events = events + 1", lambda s, r: s.events(TENANT, r.id, 0, 10)),
        ("UPDATE event SET type = 'step_flew'", lambda s, r: s.events(TENANT, r.id, 0, 10)),
        ("UPDATE event SET format = 99", lambda s, r: s.events(TENANT, r.id, 0, 10)),
        ("UPDATE blob SET data = x'00'", lambda s, r: s.blob(TENANT, "0" * 64)),
        ("UPDATE message SET body = '{'", lambda s, r: s.queued(TENANT, r.conversation_id)),
        ("UPDATE step SET safe_input = 'x'", lambda s, r: s.steps(TENANT, r.id)),
        ("UPDATE run SET metadata = ''", lambda s, r: s.run(TENANT, r.id)),
        ("UPDATE pending_action SET preview = 'x'", lambda s, r: s.action(TENANT, "act_1")),
    ],
)
async def test_c044_what_is_shown_is_read_whole_or_not_at_all(
    bench: SqliteBench, damage: str, read: Callable[[SqliteStore, Run], Awaitable[object]]
) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    await story.append(story.created(), story.asked(), payloads=[BlobPut("0" * 64, b"x")])
    await _queue(story)
    _damage(bench.path, damage)
    with pytest.raises(Unreadable):
        await read(store, story.run)


async def _queue(story: Story) -> None:
    from surefoot.core.payloads import MessageBody

    await story.append(ev.MessageQueued("msg_q", "user"), payloads=[MessageBody("msg_q", b'"x"')])


def _damage(path: str, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as plain, plain:
        assert plain.execute(statement).rowcount != 0


async def test_one_damaged_run_does_not_stop_the_others(bench: SqliteBench) -> None:
    store = await bench.open()
    stories = [await Story.begin(store, n) for n in range(1, 4)]
    _damage(bench.path, f"UPDATE run SET status = 'x' WHERE id = '{stories[1].run.id}'")
    for story in (stories[0], stories[2]):
        await story.append(story.created())
        assert await story.reloaded()


async def test_findings_name_rows_without_their_parents(bench: SqliteBench) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    await story.begin_step()
    for damage, finding in (
        ("DELETE FROM event WHERE version = 2", "lacks events"),
        ("DELETE FROM run", "has no run"),
    ):
        _damage(bench.path, damage)
        assert any(finding in line for line in await store.integrity()), damage


async def test_r11_flipped_bytes_are_never_shown_as_another_run(folder: Path) -> None:
    """Damage that SQLite or the reader can see is an error; what is read is what was written, or it is said."""
    source = SqliteBench(folder)
    store = await source.open()
    stories = [await Story.begin(store, n) for n in range(1, 4)]
    for story in stories:
        await story.begin_step()
        await story.end_step()
    await store.close()
    whole = Path(source.path).read_bytes()
    random = Random(11)
    errors = 0
    for number in range(60):
        damaged = bytearray(whole)
        page = random.randrange(len(whole) // 4_096) * 4_096
        # The head of a page: where its cells are.
        for _ in range(4):
            damaged[page + random.randrange(12)] ^= 1 << random.randrange(8)
        path = folder / f"damaged-{number}.db"
        path.write_bytes(damaged)
        errors += await _read_all(str(path), stories)
        path.unlink()
    assert errors > 20


async def _read_all(path: str, stories: list[Story]) -> int:
    bench = SqliteBench(Path(path).parent)
    bench.path = path
    try:
        store = await bench.open()
    except (Unreadable, StoreUnavailable, StoreUnsupported):
        return 1
    found = await store.integrity()
    wrong = 0
    for story in stories:
        try:
            run = await store.load(TENANT, story.run.id)
        except SurefootError:
            wrong += 1
            continue
        assert run == story.run or found
    await store.close()
    return 1 if wrong or found else 0


async def test_a_damaged_file_names_itself_and_what_to_do(bench: SqliteBench) -> None:
    store = await bench.open()
    for number in range(1, 40):
        await (await Story.begin(store, number)).begin_step()
    await store.close()
    data = bytearray(Path(bench.path).read_bytes())
    data[4_096:] = b"\xa5" * (len(data) - 4_096)
    Path(bench.path).write_bytes(data)
    again = SqliteStore(bench.path, bench.clock)
    with pytest.raises(Unreadable, match=r"store\.db is damaged.*surefoot doctor"):
        await again.open()
        await again.load(TENANT, names(1)[0])
    await again.close()


async def test_abandoning_a_store_writes_nothing_more(bench: SqliteBench) -> None:
    store, other = await bench.open(), await bench.open()
    story = await Story.begin(store, owner="w")
    wait = asyncio.ensure_future(story.append(story.created()))
    queued = asyncio.Event()
    asyncio.get_running_loop().call_soon(queued.set)
    asyncio.get_running_loop().call_soon(store.abandon)
    await queued.wait()
    wait.cancel()
    bench.clock.advance(1.0)
    taken = await other.claim_one(TENANT, story.run.id, "w2", 30.0)
    assert taken is not None and taken.owner_died
    with pytest.raises(StoreError):
        await store.load(TENANT, story.run.id)
