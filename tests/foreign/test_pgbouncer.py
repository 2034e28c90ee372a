"""The conformance suite through pgbouncer in transaction mode: nothing relies on a session of the server."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import psycopg
import pytest

from surefoot.doors import SystemClock
from surefoot.errors import StoreError
from surefoot.store.postgres import PostgresStore
from tests.places import Place, database_of
from tests.store.build import TENANT, Story
from tests.store.conformance import StoreConformance
from tests.store.postgres_bench import PostgresBench
from tests.support import eventually_sync

pytestmark = [pytest.mark.foreign, pytest.mark.postgres_only("a pooler of PostgreSQL's")]

SETTINGS = """[databases]
* = host={server} user=postgres
[pgbouncer]
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = {mode}
default_pool_size = 3
logfile = {folder}/log
pidfile = {folder}/pid
"""


def program() -> str:
    """pgbouncer, installed with the system's packages where it is missing and that is possible."""
    if shutil.which("pgbouncer") is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "pgbouncer"]):
            subprocess.run(["apt-get", *words], check=True, capture_output=True)
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    assert found is not None, "pgbouncer is missing: apt-get install pgbouncer, or brew install pgbouncer"
    return found


@pytest.fixture
def pooled(place: Place) -> Iterator[str]:
    """The URL of the test's database by way of a pgbouncer in transaction mode."""
    with pooler(place, "transaction") as url:
        yield url


@contextmanager
def pooler(place: Place, mode: str) -> Iterator[str]:
    """The URL of the test's database by way of a pgbouncer."""
    server = parse_qs(urlsplit(place.url).query)["host"][0]
    owner = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    with tempfile.TemporaryDirectory(prefix="surefoot-pooler-") as name:
        folder = Path(name)
        (folder / "pgbouncer.ini").write_text(SETTINGS.format(server=server, folder=folder, mode=mode))
        if os.geteuid() == 0:
            for path in (folder, folder / "pgbouncer.ini"):
                shutil.chown(path, owner)
        running = subprocess.Popen(
            [program(), "-q", str(folder / "pgbouncer.ini")],
            user=owner if os.geteuid() == 0 else None,
            cwd=folder,
            stdin=subprocess.DEVNULL,
        )
        url = f"postgresql://postgres@/{database_of(place.url)}?host={quote(name, safe='')}&port=6432"

        def answers() -> bool:
            try:
                psycopg.connect(url).close()
            except psycopg.OperationalError:
                return False
            return True

        eventually_sync(answers, "pgbouncer", seconds_max=20.0)
        yield url
        running.kill()
        running.wait()


@pytest.fixture
async def bench(pooled: str) -> AsyncIterator[PostgresBench]:
    made = PostgresBench(pooled)
    yield made
    await made.close()


class TestPooled(StoreConformance):
    """All that every store has to do."""


async def test_a_pooler_is_found_out_and_settings_hold_behind_it(pooled: str) -> None:
    store = PostgresStore(pooled, SystemClock())
    await store.open()
    link = await store._links.writer()
    assert link.pooled
    async with link.transaction():
        (row,) = await link.rows(
            "SELECT current_setting('lock_timeout') AS lock, current_setting('synchronous_commit') AS c"
        )
    assert (row["lock"], row["c"]) == ("10s", "on")
    (outside,) = await link.rows("SELECT current_setting('lock_timeout') AS lock")
    assert outside["lock"] == "0", "the session belongs to everybody"
    await Story.begin(store)
    assert await store.run_ids(TENANT)
    store._listen()
    await store.changed(store.change_count(), 0.5)
    assert store._listener is not None and not store._listener.listens
    await store.close()


async def test_session_mode_is_used_as_transaction_mode_is(place: Place) -> None:
    with pooler(place, "session") as url:
        store = PostgresStore(url, SystemClock())
        await store.open()
        assert (await store._links.writer()).pooled
        await Story.begin(store)
        assert await store.run_ids(TENANT)
        await store.close()


async def test_statement_mode_is_told_apart(place: Place) -> None:
    with pooler(place, "statement") as url, pytest.raises(StoreError, match="pool_mode = transaction"):
        store = PostgresStore(url, SystemClock())
        await store.open()
        await store.close()


async def test_a_setting_that_is_not_passed_on_is_told_where_to_put_it(pooled: str) -> None:
    with pytest.raises(StoreError, match="ALTER ROLE name SET search_path"):
        await PostgresStore(f"{pooled}&options=-csearch_path%3Dother", SystemClock()).open()
