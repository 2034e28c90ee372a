"""The conformance suite on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.places import Place
from tests.store.conformance import StoreConformance
from tests.store.postgres_bench import PostgresBench


@pytest.fixture
async def bench(place: Place) -> AsyncIterator[PostgresBench]:
    made = PostgresBench(place.url)
    yield made
    await made.close()


@pytest.mark.postgres_only("the suite on PostgreSQL; the one on SQLite stands beside it")
class TestPostgres(StoreConformance):
    """The store for many workers."""
