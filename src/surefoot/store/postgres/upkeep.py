"""The schema, the integrity of the rows, and pruning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from surefoot.errors import StoreUnsupported
from surefoot.store.migrate import Applied, Migration, pending
from surefoot.store.postgres.failures import Unclear
from surefoot.store.postgres.link import Link, Row
from surefoot.store.postgres.writer import Server, unknown

RUNS_A_TRANSACTION = 50
CONVERSATIONS_A_TRANSACTION = 200


async def upgrade(server: Server, link: Link, migrations: tuple[Migration, ...]) -> None:
    """Bring the schema up to date; one process does it, the others wait and find it done.

    Raises StoreUnsupported (newer schema, tables of another program).
    """
    if not await _missing(server, link, migrations):
        return
    async with link.transaction():
        await server.ask(link, "migration_lock", {})
        # Another process may have been first while this one waited for the lock.
        missing = await _missing(server, link, migrations)
        if len(missing) == len(migrations):
            await _refuse_foreign(server, link)
            await link.script(server.texts.text("create_schema_migration"))
        for migration in missing:
            await link.script(migration.sql)
            await server.put(link, "schema_migration_put", msgspec.structs.asdict(migration))


async def check_schema(server: Server, link: Link, migrations: tuple[Migration, ...]) -> None:
    """Raises StoreUnsupported where a newer program has upgraded the database since it was opened."""
    await _missing(server, link, migrations)


async def _missing(server: Server, link: Link, migrations: tuple[Migration, ...]) -> tuple[Migration, ...]:
    applied: list[Applied] = []
    (row,) = await server.ask(link, "has_schema_migration", {})
    if row["found"]:
        rows = await server.ask(link, "schema_migrations", {})
        applied = [msgspec.convert(dict(row.items()), Applied) for row in rows]
    return pending(migrations, applied, server.name)


async def _refuse_foreign(server: Server, link: Link) -> None:
    (row,) = await server.ask(link, "count_tables", {})
    if row["count"]:
        raise StoreUnsupported(
            f"{server.name} has tables of another program under names that surefoot needs. "
            "Give surefoot a database of its own"
        )


async def prune_runs(server: Server, link: Link, tenant_id: str, ended_before: float) -> dict[str, int]:
    """Remove up to RUNS_A_TRANSACTION whole runs; counts by record. `runs` is 0 once none is left."""
    params = {"tenant_id": tenant_id, "ended_before": ended_before, "limit": RUNS_A_TRANSACTION}
    return await _pruned(server, link, "prunable_runs", params, "prune_runs", "run_ids")


async def prune_conversations(server: Server, link: Link, tenant_id: str, ended_before: float) -> dict[str, int]:
    """The same for conversations that no run is left of."""
    params = {"tenant_id": tenant_id, "ended_before": ended_before, "limit": CONVERSATIONS_A_TRANSACTION}
    return await _pruned(server, link, "prunable_conversations", params, "prune_conversations", "conversation_ids")


async def _pruned(
    server: Server, link: Link, look: str, params: Mapping[str, object], remove: str, ids: str
) -> dict[str, int]:
    server.before()
    try:
        async with link.transaction():
            found = [str(row["id"]) for row in await server.ask(link, look, params)]
            counts = by_record(await server.put(link, remove, {"tenant_id": params["tenant_id"], ids: found}))
    except Unclear as unclear:
        raise unknown(unclear) from unclear
    server.after()
    return counts


def by_record(rows: Iterable[Row]) -> dict[str, int]:
    """Counts by record, as a query of pruning answers."""
    return {str(row["record"]): count for row in rows if isinstance(count := row["count"], int)}


def added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The sum by record."""
    total: dict[str, int] = {}
    for part in counts:
        for record, count in part.items():
            total[record] = total.get(record, 0) + count
    return total
