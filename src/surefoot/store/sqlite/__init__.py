"""The SQLite store: one file, one writer, durable commits."""

from __future__ import annotations

from surefoot.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
