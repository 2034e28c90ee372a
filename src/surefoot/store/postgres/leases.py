"""Leases: taking, keeping, giving back. Each is one statement on the writer's connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from surefoot.errors import CommitUnknown, NotFound
from surefoot.store.port import Claimed
from surefoot.store.postgres.link import Link, Row
from surefoot.store.postgres.workers import Proven, Workers
from surefoot.store.postgres.writer import Server


async def look(
    server: Server, link: Link, workers: Workers, tenant_id: str, agents: Mapping[str, str]
) -> tuple[bool, Proven]:
    """Whether there is something to take, and which owners of leases are gone."""
    proven = Proven()
    if workers.due():
        proven = workers.look(tenant_id, await server.ask(link, "worker_owners", workers.owners_params(tenant_id)))
    if proven.dead or proven.away:
        return True, proven
    (row,) = await server.ask(link, "claimable", _claim_params(tenant_id, agents))
    return bool(row["found"]), proven


async def note_gone(server: Server, link: Link, tenant_id: str, proven: Proven) -> None:
    """The leases of owners that are gone end at once; of those that are dead, that is kept."""
    if proven.dead:
        await server.commit(link, "workers_dead", {"tenant_id": tenant_id, "ids": list(proven.dead)})
    if proven.away:
        await server.commit(link, "workers_over", {"tenant_id": tenant_id, "ids": list(proven.away)})


async def claim(
    server: Server, link: Link, tenant_id: str, agents: Mapping[str, str], owner: str, lease_s: float, limit: int
) -> list[Claimed]:
    """Take leases of runs that are ready, then of those with a question that has expired."""
    params = {**_claim_params(tenant_id, agents), "owner": owner, "lease_s": lease_s}
    taken = await server.commit(link, "claim_ready", {**params, "limit": limit})
    if len(taken) < limit:
        try:
            taken = [*taken, *await server.commit(link, "claim_awake", {**params, "limit": limit - len(taken)})]
        except CommitUnknown:
            raise  # whoever claims looks for leases that it was not told of
        except Exception:
            # The first leases are won: told of nobody, they would stand idle until their end.
            if not taken:
                raise
    return [_claimed(row) for row in taken]


async def claim_one(
    server: Server, link: Link, tenant_id: str, run_id: str, owner: str, lease_s: float, aside: str
) -> Claimed | None:
    """Take one lease; None if the run is not free, or is blocked, but not by `aside`. Raises NotFound."""
    params = {"tenant_id": tenant_id, "run_id": run_id, "owner": owner, "lease_s": lease_s, "aside": aside}
    taken = await server.commit(link, "claim_one", params)
    if taken:
        return _claimed(taken[0])
    (row,) = await server.ask(link, "run_exists", {"tenant_id": tenant_id, "run_id": run_id})
    if not row["count"]:
        raise NotFound(f"no run {run_id}")
    return None


def wake_params(tenant_id: str, agents: Mapping[str, str] | None) -> Mapping[str, object]:
    """What next_wake binds."""
    if agents is None:
        return {"tenant_id": tenant_id, "agents": None, "agent_versions": None}
    return _claim_params(tenant_id, agents)


def earliest(row: Row) -> tuple[float | None, float | None]:
    """The earliest (mono, wall) at which a run can be taken, from next_wake."""
    mono = [at for at in (row["ready"], row["lease_end"]) if isinstance(at, float)]
    awake = row["awake"]
    return min(mono, default=None), awake if isinstance(awake, float) else None


def _claim_params(tenant_id: str, agents: Mapping[str, str]) -> dict[str, object]:
    return {"tenant_id": tenant_id, "agents": list(agents), "agent_versions": list(agents.values())}


def _claimed(row: Row) -> Claimed:
    token, until = row["lease_token"], row["lease_until"]
    assert isinstance(token, int) and isinstance(until, float), "as the columns say"
    return Claimed(str(row["id"]), token, until, bool(row["owner_died"]))


def renewed(rows: Sequence[Row]) -> dict[str, float]:
    """The new ends of leases, from lease_renew."""
    return {str(row["id"]): until for row in rows if isinstance(until := row["lease_until"], float)}


def held(rows: Sequence[Row]) -> dict[str, int]:
    """Runs to tokens, from lease_list."""
    return {str(row["id"]): token for row in rows if isinstance(token := row["lease_token"], int)}
