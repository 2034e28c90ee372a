"""Opening: URLs, places that are refused, files that are not ours, migrations, another boot."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from surefoot.core import codec, events as ev
from surefoot.core.payloads import StepView
from surefoot.core.policy import clocks_drifted, key_usable
from surefoot.core.state import AttemptEnd, EffectClass, Instant, Rules, RunStatus
from surefoot.doors import Doors, SystemClock, SystemEntropy, no_hook
from surefoot.errors import InvalidInput, StoreUnavailable, StoreUnsupported, Unreadable
from surefoot.store import migrate, open as opening, sqlfile
from surefoot.store.port import ANOTHER_BOOT_MONO
from surefoot.store.sqlite import SqliteStore
from tests.store.bench import ShiftedClock
from tests.store.build import RULES, TENANT, Story
from tests.store.conftest import SqliteBench

pytestmark = pytest.mark.sqlite_only("files, their places, their modes and SQLite's settings")

MOUNTINFO = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/my\\040share rw,relatime shared:2 - nfs4 server:/x rw,vers=4.2
31 22 0:41 / /mnt/laptop rw shared:3 - fuse.sshfs me@laptop: rw
32 31 8:2 / /mnt/laptop/disk rw shared:4 - xfs /dev/sdb1 rw
33 22 0:42 / /mnt/win rw - 9p drvfs rw
34 22 0:43 / /mnt/twice rw - cifs //nas/x rw
35 22 0:44 / /mnt/twice rw - tmpfs none rw
36 22 0:45 / /mnt/photos rw - fuse.gvfsd-fuse gvfsd-fuse rw
"""
MACOS = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
//me@nas/work on /Volumes/My Work (smbfs, nodev, nosuid, mounted by me)
host:/export on /Volumes/nfs (nfs, asynchronous)
/dev/disk4 on /Volumes/stick (exfat, local, nodev)
"""


def doors() -> Doors:
    class NoHttp:
        clock = SystemClock()

        def transport(self, op: object) -> object:
            raise AssertionError("a store sends nothing")

    return Doors(clock=SystemClock(), entropy=SystemEntropy(), http=NoHttp(), hook=no_hook)  # type: ignore[arg-type]  # no HTTP here


async def test_a_store_is_opened_by_its_url(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for url, path in (("sqlite:///rel.db", folder / "rel.db"), (f"sqlite:///{folder}/abs.db", folder / "abs.db")):
        store = await opening.open_store(url, doors())
        assert Path(store.path) == path and path.exists()
        await store.close()


@pytest.mark.parametrize(
    "url",
    ["", "surefoot.db", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///a.db?mode=ro", "mysql://u:pw@h/d"],
)
async def test_other_urls_are_refused_without_their_secrets(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"sqlite:///relative\.db") as caught:
        await opening.open_store(url, doors())
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("place", ["/mnt/my share/a", "/mnt/laptop", "/mnt/laptop/x", "/mnt/win/c"])
def test_network_file_systems_are_refused(place: str) -> None:
    with pytest.raises(StoreUnsupported, match="network file system"):
        opening.refuse_network(f"{place}/store.db", opening.linux_mounts(MOUNTINFO))


@pytest.mark.parametrize("place", ["/", "/srv/me", "/mnt", "/mnt/laptop/disk/x", "/mnt/twice", "/mnt/laptops"])
def test_local_file_systems_are_taken(place: str) -> None:
    opening.refuse_network(f"{place}/store.db", opening.linux_mounts(MOUNTINFO))
    opening.refuse_network(f"{place}/store.db", opening.mount_table())


def test_network_volumes_of_macos_are_refused() -> None:
    mounts = opening.macos_mounts(MACOS)
    assert ("/Volumes/My Work", "smbfs") in mounts
    for place in ("/Volumes/My Work/x", "/Volumes/nfs"):
        with pytest.raises(StoreUnsupported):
            opening.refuse_network(f"{place}/store.db", mounts)
    for place in ("/Applications/me", "/Volumes/stick"):
        opening.refuse_network(f"{place}/store.db", mounts)


async def test_windows_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(StoreUnsupported, match="WSL"):
        await opening.open_store(f"sqlite:///{folder}/a.db", doors())


async def test_a_place_that_cannot_be_written_is_refused(folder: Path) -> None:
    (folder / "file").write_text("x")
    for path in (folder / "missing" / "a.db", folder / "file" / "a.db"):
        with pytest.raises(StoreUnavailable, match="there is no directory"):
            await SqliteStore(str(path), SystemClock()).open()
    with pytest.raises(StoreUnavailable):
        await SqliteStore("/proc/surefoot.db", SystemClock()).open()
    with pytest.raises(StoreUnavailable, match=r"is a directory\. Give the path of a file"):
        await SqliteStore(str(folder), SystemClock()).open()
    with pytest.raises(StoreUnavailable, match="is no ordinary file"):
        await SqliteStore(os.devnull, SystemClock()).open()
    with pytest.raises(InvalidInput, match="write sqlite:///"):
        await opening.open_store(f"sqlite:///{folder}/a\0.db", doors())


async def test_a_new_store_is_its_owners_alone(bench: SqliteBench) -> None:
    store = await bench.open()
    await Story.begin(store, owner="w")
    for path in (bench.path, bench.path + "-wal", bench.path + ".workers"):
        assert os.stat(path).st_mode & 0o077 == 0, path


async def test_an_old_sqlite_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 0))
    with pytest.raises(StoreUnsupported, match=r"3\.37"):
        await SqliteStore(str(folder / "a.db"), SystemClock()).open()


async def test_the_file_of_another_program_is_refused(folder: Path) -> None:
    path = str(folder / "other.db")
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (a)")
    other.close()
    before = Path(path).read_bytes()
    with pytest.raises(StoreUnsupported, match="another program"):
        await SqliteStore(path, SystemClock()).open()
    assert Path(path).read_bytes() == before
    (folder / "text.db").write_text("this is no database, and it is long enough to be read as one" * 20)
    with pytest.raises(Unreadable, match=r"text\.db is no SQLite database\. Give the path of the store; if this is it"):
        await SqliteStore(str(folder / "text.db"), SystemClock()).open()


def _migration(version: int, name: str, sql: str) -> migrate.Migration:
    return migrate.Migration(version, name, f"sum-{name}-{len(sql)}", sql)


async def _open_with(path: str, known: Sequence[migrate.Migration]) -> SqliteStore:
    store = SqliteStore(path, SystemClock(), known=tuple(known))
    await store.open()
    return store


async def test_a_newer_schema_and_a_changed_migration_are_refused(folder: Path) -> None:
    path = str(folder / "store.db")
    first = migrate.migrations("sqlite")
    more = _migration(
        len(first) + 1, "more", "CREATE TABLE more (a INTEGER) STRICT;\n-- why; this\nCREATE INDEX m ON more (a);\n"
    )
    await (await _open_with(path, first)).close()
    await (await _open_with(path, (*first, more))).close()
    await (await _open_with(path, (*first, more))).close()
    with pytest.raises(StoreUnsupported, match="newer one"):
        await _open_with(path, first)
    with pytest.raises(StoreUnsupported, match="another content"):
        await _open_with(path, (*first, replace(more, checksum="other")))


async def test_a_migration_that_fails_changes_nothing(folder: Path) -> None:
    path = str(folder / "store.db")
    first = migrate.migrations("sqlite")
    wrong = _migration(
        len(first) + 1, "wrong", "CREATE TABLE good (a INTEGER) STRICT;\nCREATE TABLE run (a INTEGER) STRICT;\n"
    )
    await (await _open_with(path, first)).close()
    with pytest.raises(StoreUnavailable, match="already exists"):
        await _open_with(path, (*first, wrong))
    await (await _open_with(path, first)).close()
    with contextlib.closing(sqlite3.connect(path)) as plain, plain:
        assert plain.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'good'").fetchone() == (0,)


async def test_a_fresh_schema_is_what_the_migrations_make(bench: SqliteBench) -> None:
    await bench.open()
    with contextlib.closing(sqlite3.connect(bench.path)) as plain, plain:
        made = dict(plain.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall())
        tables = [name for name, sql in made.items() if sql.startswith("CREATE TABLE")]
        for table in tables:
            assert "STRICT" in made[table].rpartition(")")[2], table
            columns = {row[1] for row in plain.execute(f"PRAGMA table_xinfo({table})")}
            assert {"created_at", "updated_at"} <= columns, table
    assert {
        "conversation", "message", "run", "step", "evidence", "pending_action", "checkpoint", "event",
        "blob", "operation_key", "worker", "schedule", "meta", "schema_migration", "credential", "announcement", "mark",
        "throttle", "throttle_share",
    } == set(tables)  # fmt: skip


async def test_events_that_were_written_one_by_one_are_still_read(bench: SqliteBench) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    await story.begin_step()
    await story.end_step()
    lines = await store.events(TENANT, story.run.id, 0, 10)
    with contextlib.closing(sqlite3.connect(bench.path)) as plain, plain:
        plain.execute("DELETE FROM event")
        plain.executemany(
            "INSERT INTO event (tenant_id, run_id, sequence, version, type, step_id, at_mono, format, data, created_at)"
            " VALUES (?, ?, ?, ?, ?, NULL, ?, 1, ?, ?)",
            [
                (TENANT, line.run_id, line.sequence, line.version, codec.event_type(line.event), line.at.mono,
                 codec.encode_event(line.event), line.at.wall)
                for line in lines
            ],
        )  # fmt: skip
    assert await store.events(TENANT, story.run.id, 0, 10) == lines
    assert await store.events(TENANT, story.run.id, 2, 2) == lines[2:4]
    await story.append(ev.RunStatusChanged(RunStatus.running, RunStatus.reconciling))
    assert len(await store.events(TENANT, story.run.id, 0, 10)) == len(lines) + 1
    assert await store.integrity() == []


async def test_what_an_older_schema_held_is_all_there(folder: Path) -> None:
    path = str(folder / "store.db")
    await (await _open_with(path, migrate.migrations("sqlite")[:8])).close()
    rows: dict[str, list[tuple[str | int | float | None, ...]]] = {
        "message": [
            (7, TENANT, "msg_a", "conv_1", "run_1", None, None, 0, "user", "{}", 1.0, 2.0),
            (9, TENANT, "msg_b", "conv_1", "run_1", "step_1", "call_1", 1, "tool_result", '{"content":1}', 1.0, 2.0),
            (11, TENANT, "msg_c", "conv_1", None, None, None, None, "user", "{}", 1.0, 2.0),
        ],
    }
    with contextlib.closing(sqlite3.connect(path)) as plain, plain:
        for table, lines in rows.items():
            plain.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(lines[0]))})", lines)
    await (await _open_with(path, migrate.migrations("sqlite"))).close()
    with contextlib.closing(sqlite3.connect(path)) as plain, plain:
        for table, lines in rows.items():
            assert plain.execute(f"SELECT * FROM {table} ORDER BY 3").fetchall() == lines
        for again in ("'msg_c', 'conv_2', 5, 'user', NULL", "'msg_d', 'conv_2', 6, 'tool_result', 'call_1'"):
            with pytest.raises(sqlite3.IntegrityError):
                plain.execute(
                    "INSERT INTO message (tenant_id, id, conversation_id, position, role, call_id, body, created_at,"
                    f" updated_at) VALUES ('{TENANT}', {again}, '', 0.0, 0.0)"
                )


async def test_what_was_written_before_texts_were_packed_is_read(bench: SqliteBench) -> None:
    store = await bench.open()
    story = await Story.begin(store)
    step, text = story.step_id(1), '{"body":"' + "Looks good to me. " * 90 + '"}'
    view = StepView(step, text.encode(), text.encode())
    await story.append(story.created(), payloads=[view])
    with contextlib.closing(sqlite3.connect(bench.path)) as plain, plain:
        plain.execute("UPDATE step SET safe_input = ?, safe_output = ?", (text, text))
        plain.execute("UPDATE step SET operation_key = run_id || ':' || id")
        plain.execute("UPDATE step SET rules = ?", (codec.encode_value(RULES),))
        plain.execute("UPDATE event SET format = 2, data = ? WHERE version = 2",
                      (msgspec.json.encode([story.created()]).decode(),))  # fmt: skip
    row = await store.step(TENANT, step)
    assert (row.safe_input, row.safe_output, row.step) == (text.encode(), text.encode(), story.run.steps[step])
    assert await store.step_by_key(TENANT, story.run.steps[step].operation_key) == row
    assert await store.events(TENANT, story.run.id, 1, 1) == (await store.events(TENANT, story.run.id, 0, 9))[1:]
    assert await story.reloaded()
    await story.append(story.started())
    assert (await store.step(TENANT, step)).safe_input == text.encode()


async def test_the_rows_of_steps_pass_into_the_schema_that_packs(folder: Path) -> None:
    path = str(folder / "store.db")
    await (await _open_with(path, migrate.migrations("sqlite")[:10])).close()
    made: dict[str, object] = {}
    with contextlib.closing(sqlite3.connect(path)) as plain, plain:
        for _, name, kind, needed, _, _ in plain.execute("PRAGMA table_info(step)").fetchall():
            number = len(made) + 1
            made[name] = None if not needed and number % 5 == 0 else f"{name}" if kind == "TEXT" else number
        places = ", ".join("?" * len(made))
        plain.execute(f"INSERT INTO step ({', '.join(made)}) VALUES ({places})", tuple(made.values()))
    await (await _open_with(path, migrate.migrations("sqlite"))).close()
    with contextlib.closing(sqlite3.connect(path)) as plain, plain:
        plain.row_factory = sqlite3.Row
        assert [dict(row) for row in plain.execute("SELECT * FROM step")] == [{**made, "attempts": "[]"}]


def test_migrations_are_numbered(tmp_path: Path) -> None:
    for name in ("0001_first.sql", "0003_third.sql"):
        (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match="0002"):
        migrate.read_migrations(sorted(tmp_path.iterdir()))


def test_every_query_has_a_name_a_comment_and_a_statement() -> None:
    assert sqlfile.parse("-- name: a\n-- Why.\nSELECT 1\n") == {"a": "SELECT 1"}
    for text in (
        "-- name: a\nSELECT 1",
        "-- name: a\n-- Why.\n",
        "-- name: a\n-- W.\nSELECT 1\n\n-- name: a\n-- W.\nSELECT 2",
    ):
        with pytest.raises(ValueError):
            sqlfile.parse(text)
    assert "append_guard" in sqlfile.queries("sqlite")


async def test_settings_that_durability_rests_on(bench: SqliteBench) -> None:
    store = await bench.open()
    value = store._file.value
    assert value("pragma_journal_mode") == "wal"
    with contextlib.closing(sqlite3.connect(bench.path)) as plain, plain:
        assert plain.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert plain.execute("PRAGMA application_id").fetchone() == (1_937_073_766,)
    connection = store._file._open()
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)


async def test_another_boot_ends_leases_and_starts_settle_anew(bench: SqliteBench) -> None:
    store = await bench.open()
    story = await Story.begin(store, 1, owner="w", lease_s=3_600.0)
    await story.append(story.created(1), story.started(1), story.created(2), story.started(2), story.created(3))
    await story.append(
        ev.StepDeferred(story.step_id(3), 500.0),
        ev.StepOutcomeUnknown(story.step_id(2), 1, "reset"),
        ev.LookupAnswered(story.step_id(2), "absent", concluded=True, next_look_s=700.0),
    )
    person = await Story.begin(store, 2)
    await person.wait_for_person(expires_s=3_600.0)
    done = await Story.begin(store, 3)
    await done.begin_step()
    await done.end_step()
    finished = (await store.step(TENANT, done.step_id(1))).step
    await store.close()
    bench.clock.advance(50.0)
    bench.clock.reboot()
    again = await bench.open()
    now = again.now()
    assert now.mono < 200.0
    run = await again.load(TENANT, story.run.id)
    running, doubt, pending = run.steps.values()
    (attempt,) = running.attempts
    assert attempt.started == Instant(ANOTHER_BOOT_MONO, story.run.steps[running.id].attempts[0].started.wall)
    assert attempt.end is None and attempt.ended is not None and attempt.ended == attempt.last_byte_before <= now.mono
    assert not clocks_drifted(running, now)
    assert not key_usable(running, Rules(EffectClass.idempotent, key_lifetime_s=1e9), now)
    assert key_usable(running, Rules(EffectClass.idempotent), now)
    assert doubt.look_at is not None and doubt.doubt_since == doubt.look_at <= now.mono
    assert doubt.attempts[0].end is AttemptEnd.in_doubt and doubt.attempts[0].absent
    assert pending.not_before <= now.mono
    assert 50.0 <= now.mono - run.started.mono < 60.0 and run.started.wall == story.run.started.wall
    assert run.version == story.run.version
    assert (await again.load(TENANT, person.run.id)).actions == person.run.actions
    assert (await again.step(TENANT, done.step_id(1))).step == finished
    claimed = await again.claim(TENANT, "w", {"reviewer": "1"}, 30.0, 10)
    assert {one.run_id: one.token for one in claimed} == {story.run.id: 2, done.run.id: 1}
    assert len(os.listdir(bench.path + ".workers")) == 1
    await again.close()
    assert await (await bench.open()).load(TENANT, story.run.id) == run, "the same boot changes nothing"


def test_the_clock_of_these_tests_knows_a_boot() -> None:
    clock = ShiftedClock()
    wall = clock.now().wall
    clock.reboot()
    assert clock.boot_id() != SystemClock().boot_id()
    assert 99.0 < clock.now().mono < 110.0 and clock.now().wall - wall < 10.0


async def test_a_worker_that_died_is_known_dead_by_whatever_name_the_file_is_reached(folder: Path) -> None:
    (folder / "link.db").symlink_to(folder / "real.db")
    first, second = (SqliteStore(str(folder / name), SystemClock()) for name in ("link.db", "real.db"))
    await first.open()
    await second.open()
    story = await Story.begin(first, owner="w")
    first._workers.vanish()
    await first.close()
    claimed = await second.claim_one(TENANT, story.run.id, "other", 30.0)
    assert claimed is not None and claimed.owner_died
    await second.close()
