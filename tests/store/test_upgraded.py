"""A store that a newer program upgrades while an older one has it open: the older one takes no more runs."""

from __future__ import annotations

import contextlib
import hashlib

from surefoot.errors import StoreUnsupported
from surefoot.store import migrate
from surefoot.store.postgres import PostgresStore
from surefoot.store.sqlite import SqliteStore
from tests.places import Place
from tests.store.bench import ShiftedClock
from tests.store.build import TENANT

TEXT = "CREATE TABLE more (a INTEGER);\n"


def _store(place: Place, clock: ShiftedClock, *, more: bool) -> SqliteStore | PostgresStore:
    postgres = place.url.startswith("postgresql")
    known = migrate.migrations("postgres" if postgres else "sqlite")
    if more:
        checksum = hashlib.sha256(TEXT.encode()).hexdigest()
        known = (*known, migrate.Migration(len(known) + 1, "more", checksum, TEXT))
    if postgres:
        return PostgresStore(place.url, clock, known=known)
    return SqliteStore(place.url.removeprefix("sqlite:///"), clock, known=known)


async def _refused(store: SqliteStore | PostgresStore) -> bool:
    try:
        await store.claim(TENANT, "w", {}, 30.0, 1)
    except StoreUnsupported as error:
        assert "newer one" in str(error)
        return True
    return False


async def test_an_older_worker_takes_nothing_of_a_store_that_was_upgraded_under_it(place: Place) -> None:
    clock = ShiftedClock()
    older, newer = _store(place, clock, more=False), _store(place, clock, more=True)
    async with contextlib.AsyncExitStack() as opened:
        for store in (older, newer):
            opened.push_async_callback(store.close)
        await older.open()
        assert not await _refused(older)
        await newer.open()
        clock.advance(5.0)
        assert await _refused(older)
        assert await _refused(older), "not once, but from then on"
        assert not await _refused(newer)
