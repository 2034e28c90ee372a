"""The conformance suite on SQLite."""

from __future__ import annotations

import pytest

from tests.store.conformance import StoreConformance


@pytest.mark.store_sqlite
class TestSqlite(StoreConformance):
    """The embedded store."""
