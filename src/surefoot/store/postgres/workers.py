"""The workers of this process with their locks, and what locks and sessions say of others.

A free lock on this host proves that a worker's processes are gone. An ended session of the server does not: it only
lets others take the worker's runs, after a while in which a worker that lives would have come back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from surefoot.core.codec import decode_value, encode_value
from surefoot.doors import Clock
from surefoot.errors import StoreUnavailable
from surefoot.store import lock
from surefoot.store.access import Takes
from surefoot.store.postgres.link import Link, Row
from surefoot.store.postgres.writer import Server

PROOF_SECONDS = 0.1
"""The locks of lease owners are looked at no more often than this, save when a run is about to be taken."""
SESSION_SECONDS = 5.0
"""So long a session has to be away before its worker's runs may be taken: a worker that lives has a new one by then."""


class Proven(msgspec.Struct, frozen=True):
    """What a look at the owners of a tenant's leases came to."""

    dead: tuple[str, ...] = ()
    """Their processes are gone for certain."""
    away: tuple[str, ...] = ()
    """Their sessions have ended."""


class Workers:
    """The workers of this process, for all tenants."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._folder = ""
        self._host = os.uname().nodename
        self._locks: dict[str, lock.Lock] = {}
        self._takes: dict[tuple[str, str], str] = {}
        """By tenant and worker: what it takes."""
        self._written: set[tuple[str, str]] = set()
        """Workers that have a row in a tenant."""
        self._recorded: set[tuple[str, str]] = set()
        """Those of them whose row names the session that this process listens on."""
        self._others: dict[str, dict[str, str]] = {}
        """By tenant: owners on this host of whom no death is known, with the names of their locks."""
        self._missed: dict[str, float] = {}
        """Owners whose session has ended, since when that was seen."""
        self._session: tuple[int, float] | None = None
        self._looked_at = float("-inf")

    def found(self, database: str) -> None:
        """The database's identity is known: its workers' locks lie together."""
        # Not Python's own choice of a folder, which writes there, and takes another one where it cannot: whoever only
        # reads needs none, and all workers of a host need the same.
        temporary = os.environ.get("TMPDIR") or "/tmp"
        place = os.environ.get("XDG_RUNTIME_DIR") or os.path.join(temporary, f"surefoot-{os.getuid()}")
        self._folder = os.path.join(place, f"surefoot-{database}.workers")

    @property
    def any(self) -> bool:
        """Whether this process has workers."""
        return bool(self._locks)

    @property
    def tenants(self) -> list[str]:
        """The tenants whose runs this process works on."""
        return sorted({tenant_id for tenant_id, _ in self._written})

    def owner(self, worker_id: str) -> str:
        """The name under which this process holds leases for a worker; takes the worker's lock the first time."""
        held = self._locks.get(worker_id)
        if held is None:
            self._check_folder()
            held = self._locks[worker_id] = lock.take(self._folder, worker_id)
        return held.owner

    def _check_folder(self) -> None:
        """The folder may lie in a place where anybody may write: nobody else's is used."""
        parent = os.path.dirname(self._folder)
        try:
            os.makedirs(parent, mode=0o700, exist_ok=True)
            owner = os.stat(parent).st_uid
        except OSError as error:
            raise StoreUnavailable(
                f"cannot write lock files in {parent}: {error}. Make room there, or set XDG_RUNTIME_DIR"
            ) from error
        if owner != os.getuid():
            raise StoreUnavailable(f"{parent} belongs to another user. Set XDG_RUNTIME_DIR to a folder of this user")

    # This process's own

    def is_recorded(self, tenant_id: str, worker_id: str) -> bool:
        """Whether others can see who the worker is."""
        return (tenant_id, worker_id) in self._recorded

    def takes(self, worker_id: str, takes: Takes | None) -> None:
        """What is to be written down with the worker."""
        if takes is not None:
            self._takes[takes.tenant_id, worker_id] = encode_value(takes)

    async def record(self, server: Server, link: Link, tenant_id: str, worker_id: str) -> None:
        """Write the worker down, before its first lease: without this row its death proves nothing to others."""
        held = self._locks[worker_id]
        session = self._session or (None, None)
        params = {
            "tenant_id": tenant_id, "id": held.owner, "host": self._host, "boot_id": self._clock.boot_id(),
            "pid": os.getpid(), "lock_name": held.name, "session_pid": session[0], "session_started": session[1],
            "takes": self._takes.get((tenant_id, worker_id)),
        }  # fmt: skip
        self._written.add((tenant_id, worker_id))  # also where nobody is told whether it is there
        await server.commit(link, "worker_put", params)
        self._recorded.add((tenant_id, worker_id))

    def session(self, session: tuple[int, float] | None) -> None:
        """This process listens on another session of the server: every worker's row is to be written again."""
        if session != self._session:
            self._session = session
            self._recorded.clear()

    async def take_out(self, server: Server, link: Link) -> list[lock.Lock]:
        """Take this process's workers out of the table that hold no lease, and give their locks. The others keep theirs
        until the process ends: a lock must not be free while something of its worker may still send.
        """
        kept: set[str] = set()
        owners = [held.owner for held in self._locks.values()]
        for tenant_id in self.tenants:
            rows = await server.commit(link, "worker_remove", {"tenant_id": tenant_id, "ids": owners})
            removed = {row["id"] for row in rows}
            kept |= {
                held.owner
                for worker_id, held in self._locks.items()
                if (tenant_id, worker_id) in self._written and held.owner not in removed
            }
        return [held for held in self._locks.values() if held.owner not in kept]

    def vanish(self) -> None:
        """What the process's death does: the locks are free, and nothing was written."""
        for held in self._locks.values():
            held.release()

    # Others

    def due(self) -> bool:
        """Whether the locks were not looked at for PROOF_SECONDS."""
        return self._clock.now().mono - self._looked_at >= PROOF_SECONDS

    def died(self, tenant_id: str) -> list[str]:
        """Owners seen earlier on this host whose locks are free now: nothing is asked of the server for that.

        A lock that is free stays free: the names of locks are used once.
        """
        self._looked_at = self._clock.now().mono
        others = self._others.get(tenant_id, {})
        return [owner for owner, name in others.items() if lock.is_free(self._folder, name)]

    @property
    def seen(self) -> list[str]:
        """The tenants with owners on this host whose locks are worth a look."""
        return [tenant_id for tenant_id, others in self._others.items() if others]

    def look(self, tenant_id: str, rows: Iterable[Row]) -> Proven:
        """What the owners of the tenant's leases (worker_owners) prove."""
        own = {held.owner for held in self._locks.values()}
        others = [row for row in rows if row["id"] not in own]
        here = {str(row["id"]): str(row["lock_name"]) for row in others if row["here"]}
        self._others[tenant_id] = here
        dead = tuple(self.died(tenant_id))
        return Proven(dead, tuple(self._away(others, dead)))

    def _away(self, others: Sequence[Row], dead: Sequence[str]) -> list[str]:
        now = self._clock.now().mono
        gone = {str(row["id"]) for row in others if row["gone"] and row["id"] not in dead}
        for owner in [o for o in self._missed if o not in gone]:
            del self._missed[owner]
        for owner in gone:
            self._missed.setdefault(owner, now)
        return [owner for owner in gone if now - self._missed[owner] >= SESSION_SECONDS]

    def take_params(self, tenant_id: str) -> Mapping[str, object]:
        """What workers_take binds."""
        return {"tenant_id": tenant_id, "host": self._host, "boot_id": self._clock.boot_id()}

    def take(self, rows: Iterable[Row]) -> list[Takes]:
        """What the workers of a tenant take (workers_take), less those whose processes are gone."""
        lives = [row for row in rows if not (row["here"] and lock.is_free(self._folder, str(row["lock_name"])))]
        return [decode_value(str(row["takes"]), Takes, "what a worker takes") for row in lives]

    def owners_params(self, tenant_id: str) -> Mapping[str, object]:
        """What worker_owners and worker_forget bind."""
        return {
            "tenant_id": tenant_id, "host": self._host, "boot_id": self._clock.boot_id(), "up_s": 2 * SESSION_SECONDS,
        }  # fmt: skip

    def remove_locks(self, rows: Iterable[Row]) -> None:
        """Lock files of dead workers that hold no lease any more."""
        for row in rows:
            if row["here"]:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._folder, str(row["lock_name"])))
