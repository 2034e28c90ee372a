"""The PostgreSQL store: many processes, on many machines, on one database."""

from __future__ import annotations

from surefoot.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
