"""The conformance suite on SQLite."""

from __future__ import annotations

import pytest

from tests.store.conformance import StoreConformance


@pytest.mark.sqlite_only("the suite on SQLite; the one on PostgreSQL stands beside it")
class TestSqlite(StoreConformance):
    """The embedded store."""
