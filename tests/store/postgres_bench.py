"""Stores on one PostgreSQL database of the session's server."""

from __future__ import annotations

from surefoot.store.postgres import PostgresStore
from tests.store.bench import Commits, ShiftedClock


class PostgresBench:
    """Each store has connections of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = ShiftedClock()
        self.commits = Commits()
        self.stores: list[PostgresStore] = []

    async def open(self) -> PostgresStore:
        store = PostgresStore(self.url, self.clock, self.commits)
        await store.open()
        self.stores.append(store)
        return store

    async def close(self) -> None:
        self.commits.before = self.commits.after = None
        for store in self.stores:
            await store.close()
