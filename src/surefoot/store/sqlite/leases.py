"""Leases: taking, keeping, giving back, and the proof that an owner is dead."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from surefoot.core.codec import decode_value, encode_value
from surefoot.core.state import Instant
from surefoot.doors import Clock
from surefoot.errors import NotFound
from surefoot.store import lock
from surefoot.store.access import Takes
from surefoot.store.port import Claimed
from surefoot.store.sqlite.file import Row, SqliteFile
from surefoot.store.sqlite.writer import Transaction

PROOF_SECONDS = 0.1
"""The locks of lease owners are looked at no more often than this, save when a run is about to be taken."""
IDLE_PROOF_SECONDS = 30.0
"""The locks of workers that hold no lease are looked at no more often than this."""


class Workers:
    """The workers of this process with their locks, and what the locks say of others."""

    def __init__(self, file: SqliteFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        # By whatever name the file was reached, its locks lie in one place.
        self._folder = os.path.realpath(file.path) + ".workers"
        self._host = os.uname().nodename
        self._locks: dict[str, lock.Lock] = {}
        self._takes: dict[str, str] = {}
        self._looked_at = float("-inf")
        self._all_looked_at = float("-inf")

    def owner(self, worker_id: str) -> str:
        """The name under which this process holds leases for a worker; takes the worker's lock the first time."""
        held = self._locks.get(worker_id)
        if held is None:
            held = self._locks[worker_id] = lock.take(self._folder, worker_id)
        return held.owner

    def takes(self, worker_id: str, takes: Takes | None) -> None:
        """What is to be written down with the worker."""
        if takes is not None:
            self._takes[worker_id] = encode_value(takes)

    def record(self, tx: Transaction, worker_id: str) -> None:
        """Write the worker down with its lease: without this row its death proves nothing to others."""
        held = self._locks[worker_id]
        if held.recorded:
            return
        now = tx.clock.now()
        tx.file.run(
            "worker_put",
            {
                "id": held.owner, "host": self._host, "boot_id": tx.clock.boot_id(), "pid": os.getpid(),
                "lock_name": held.name, "takes": self._takes.get(worker_id), "now": now.mono, "wall": now.wall,
            },
        )  # fmt: skip

    def recorded(self, worker_id: str) -> None:
        """The row is durable."""
        self._locks[worker_id].recorded = True

    def due(self) -> bool:
        """Whether the locks were not looked at for PROOF_SECONDS."""
        return self._clock.now().mono - self._looked_at >= PROOF_SECONDS

    def dead(self, *, also_idle: bool = False) -> list[str]:
        """Owners of leases whose processes are gone for certain and of whom that is not noted yet. With `also_idle`,
        now and then, also workers that hold no lease: nobody else would ever take them out.

        A lock that is free stays free: the names of locks are used once.
        """
        self._looked_at = self._clock.now().mono
        whole = also_idle and self._looked_at - self._all_looked_at >= IDLE_PROOF_SECONDS
        if whole:
            self._all_looked_at = self._looked_at
        own = {held.owner for held in self._locks.values()}
        query = "worker_all" if whole else "worker_owners"
        rows = self._file.all(query, {"host": self._host, "boot_id": self._clock.boot_id()})
        return [
            str(row["id"]) for row in rows if row["id"] not in own and lock.is_free(self._folder, str(row["lock_name"]))
        ]

    def take(self, tenant_id: str) -> list[Takes]:
        """What the workers of a tenant take that are not known to be dead."""
        rows = self._file.all("workers_take", {})
        lives = [row for row in rows if not lock.is_free(self._folder, str(row["lock_name"]))]
        found = [decode_value(str(row["takes"]), Takes, "what a worker takes") for row in lives]
        return [takes for takes in found if takes.tenant_id == tenant_id]

    def note_dead(self, tx: Transaction, owners: Iterable[str]) -> None:
        """Their leases end at once."""
        for owner in owners:
            now = tx.clock.now()
            tx.file.run("worker_dead", {"id": owner, "now": now.mono, "wall": now.wall})
            tx.file.run("worker_leases_over", {"id": owner, "now": now.mono})

    def remove_locks(self, names: Iterable[str]) -> None:
        """Lock files of dead workers that hold no lease any more."""
        for name in names:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder, name))

    def remove_all_locks(self) -> None:
        """After another boot: all workers that had one are gone."""
        with contextlib.suppress(OSError):
            self.remove_locks(os.listdir(self._folder))

    def take_out(self, tx: Transaction) -> list[lock.Lock]:
        """Take this process's workers out of the table that hold no lease, and give their locks. The others keep theirs
        until the process ends: a lock must not be free while something of its worker may still send.
        """
        free = [held for held in self._locks.values() if not tx.file.value("worker_holds_lease", {"id": held.owner})]
        for held in free:
            tx.file.run("worker_remove", {"id": held.owner})
        return free

    @property
    def any(self) -> bool:
        """Whether this process has workers."""
        return bool(self._locks)

    def vanish(self) -> None:
        """What the process's death does: the locks are free, and nothing was written."""
        for held in self._locks.values():
            held.release()


def candidates(file: SqliteFile, tenant_id: str, agents: Mapping[str, str], now: Instant, limit: int) -> list[str]:
    """Runs that may be taken now, ready ones first."""
    params = {"tenant_id": tenant_id, "now": now.mono, "wall": now.wall, "agents": encode_value(agents), "limit": limit}
    ready = file.all("claimable_ready", params)
    if other := file.all("claimable_other", params):
        ready = sorted([*ready, *other], key=itemgetter("since"))
    found = [str(row["id"]) for row in ready[:limit]]
    if len(found) < limit:
        awake = [str(row["id"]) for row in file.all("claimable_awake", params)]
        found += [run_id for run_id in awake if run_id not in found]
    return found[:limit]


def next_wake(
    file: SqliteFile, tenant_id: str, agents: Mapping[str, str] | None, now: Instant
) -> tuple[float | None, float | None]:
    """The earliest (mono, wall) at which a run can be taken."""
    params = {"tenant_id": tenant_id, "agents": None if agents is None else encode_value(agents), "now": now.mono}
    ready, lease_end, awake = (file.value(name, params) for name in ("next_ready", "next_lease_end", "next_awake"))
    mono = [at for at in (ready, lease_end) if isinstance(at, float)]
    return min(mono, default=None), awake if isinstance(awake, float) else None


def take(
    tx: Transaction, tenant_id: str, run_id: str, owner: str, lease_s: float, aside: str | None = None
) -> Claimed | None:
    """Take one lease; None if the run is not free, or is blocked, but not by `aside`. Raises NotFound."""
    facts = tx.file.one("lease_facts", {"tenant_id": tenant_id, "run_id": run_id})
    if facts is None:
        raise NotFound(f"no run {run_id}")
    if facts["blocked_code"] not in (None, aside):
        return None
    now = tx.clock.now()
    until = now.mono + lease_s
    params = {"tenant_id": tenant_id, "run_id": run_id, "owner": owner, "until": until, "now": now.mono}
    if tx.file.run("lease_take", params) != 1:
        return None
    token = facts["lease_token"]
    assert isinstance(token, int), "the table is STRICT"
    return Claimed(run_id, token + 1, until, facts["dead_at"] is not None)


def forget_dead(tx: Transaction) -> list[str]:
    """Take dead workers without leases out of the table; the names of their locks."""
    return [str(row["lock_name"]) for row in tx.file.all("worker_forget")]


def held(rows: Sequence[Row]) -> dict[str, int]:
    """Runs to tokens, from lease_list."""
    return {str(row["id"]): token for row in rows if isinstance(token := row["lease_token"], int)}
