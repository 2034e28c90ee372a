"""The SQLite store behind the port, method by method in the port's order. It decides nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from surefoot.core.codec import encode_value
from surefoot.core.state import Instant, Run
from surefoot.doors import Clock, Hook, no_hook
from surefoot.errors import StoreClosed, StoreError
from surefoot.store.access import Takes
from surefoot.store.looked import Looked
from surefoot.store.migrate import Migration, migrations
from surefoot.store.port import Append, Claimed, Create
from surefoot.store.sqlite import leases, upkeep
from surefoot.store.sqlite.access import SqliteAccess
from surefoot.store.sqlite.checkpoint import Checkpointer
from surefoot.store.sqlite.file import Busy, SqliteFile
from surefoot.store.sqlite.jobs import AppendJob, CreateJob
from surefoot.store.sqlite.writer import Call, Job, Transaction, Writer
from surefoot.store.watch import Follower, Watch

T = TypeVar("T")


class SqliteStore(SqliteAccess):
    """One SQLite file, used from one event loop. `await store.open()` first; other processes may use the file too."""

    def __init__(
        self,
        path: str,
        clock: Clock,
        hook: Hook = no_hook,
        known: tuple[Migration, ...] | None = None,
        *,
        frozen: bool = False,
    ) -> None:
        self._frozen = frozen
        self.path = os.path.abspath(path)
        self._clock = clock
        self._migrations = known if known is not None else migrations("sqlite")
        self._file = SqliteFile(self.path, hook)
        self._workers = leases.Workers(self._file, clock)
        self._checkpointer = Checkpointer(self._file)
        self._looked = Looked()
        self._watch = Watch(clock, self._look_now)
        self._writer = Writer(self._file, clock, hook, self._committed)
        self._data_version: object = None
        self._closed = False

    async def open(self) -> None:
        """Connect, bring the schema up to date, and settle what another boot of the machine means.

        Raises StoreUnsupported (not our file, newer schema, no WAL), StoreUnavailable, Unreadable.
        """
        try:
            await self._patiently(self._open)
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        if self._frozen:
            self._file.open_frozen(self._migrations)
            self._data_version = self._file.value("data_version")
            return
        self._file.open(self._migrations, lambda: self._clock.now().wall)
        boot_id = self._clock.boot_id()
        if self._file.value("meta_get", {"key": "boot_id"}) != boot_id:
            with self._file.writing():
                if upkeep.another_boot(self._file, boot_id, self._clock.now()):
                    self._workers.remove_all_locks()
        self._data_version = self._file.value("data_version")

    @property
    def busy(self) -> bool:
        """Whether appends wait for another process's lock."""
        return self._writer.busy

    def now(self) -> Instant:
        """The clock door: SQLite has no clock of its own."""
        return self._clock.now()

    def local(self, mono: float) -> float:
        """The same: both are times since boot."""
        return mono

    def stepped(self, mono: float) -> bool:
        """Never: nobody sets a boot clock."""
        return False

    async def close(self) -> None:
        """Finish what is queued, take out this process's workers that hold no lease, close. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._watch.stop()
        try:
            await self._writer.drain()
            if self._workers.any:
                await self._stop_workers()
        finally:
            # Also where it is cut off: nobody closes it a second time.
            self._checkpointer.stop()
            self._file.close()

    async def _stop_workers(self) -> None:
        try:
            for held in await self._writer.submit(Call(self._workers.take_out)):
                held.remove()
        except StoreError:
            # The rows stay: the locks are held until the process ends, and then they are free.
            return

    def abandon(self) -> None:
        """What the death of the process does, for simulations: nothing queued is written, the locks are free."""
        self._closed = True
        self._watch.stop()
        self._writer.drop()
        self._checkpointer.stop()
        self._workers.vanish()
        self._file.close()

    # Writing

    async def create(self, create: Create) -> Run:
        """Durably make a run, or find the one that its start key made."""
        owner, worker_id = None, create.lease_owner
        if worker_id is not None:
            owner = self._workers.owner(worker_id)
        job = CreateJob(create, owner, lambda tx: self._workers.record(tx, worker_id or ""))
        run_id = await self._submit(job)
        if run_id != create.after.id:
            return await self.load(create.after.tenant_id, run_id)
        if worker_id is not None:
            self._workers.recorded(worker_id)
        return create.after

    async def append(self, append: Append) -> None:
        """Durably write one decision: all of it or nothing."""
        await self._submit(AppendJob(append, self._watch.touched), at_once=append.alone)

    async def register_worker(self, worker_id: str, takes: Takes | None = None) -> None:
        """Take the worker's lock and write it down, before its first lease does so."""
        self._workers.owner(worker_id)
        self._workers.takes(worker_id, takes)
        await self._call(lambda tx: self._workers.record(tx, worker_id))
        self._workers.recorded(worker_id)

    async def workers_take(self, tenant_id: str) -> list[Takes]:
        """What the workers of the tenant take that claim runs and are not known to be dead."""
        return await self._read(lambda: self._workers.take(tenant_id))

    async def claim(
        self, tenant_id: str, worker_id: str, agents: Mapping[str, str], lease_s: float, limit: int
    ) -> list[Claimed]:
        """Take leases of runs that are ready and free. No commit is made where there is nothing to take."""

        def look() -> tuple[list[str], bool]:
            # A worker that has nothing to write would never hear that others work on another file.
            self._file.check_place()
            self._file.check_schema(self._migrations)
            dead = self._workers.dead(also_idle=True) if self._workers.due() else []
            found = bool(dead) or bool(leases.candidates(self._file, tenant_id, agents, self._clock.now(), 1))
            return (list(dict.fromkeys([*dead, *self._workers.dead()])) if found else []), found

        dead, found = await self._read(look)
        if not found:
            return []

        def choose(tx: Transaction) -> list[str]:
            self._workers.note_dead(tx, dead)
            return leases.candidates(tx.file, tenant_id, agents, tx.clock.now(), limit)

        return await self._take(tenant_id, worker_id, lease_s, choose, forget=bool(dead))

    async def claim_one(
        self, tenant_id: str, run_id: str, worker_id: str, lease_s: float, aside: str = "unknown_tool"
    ) -> Claimed | None:
        """Take the lease of one run. Raises NotFound."""
        dead = await self._read(self._workers.dead)

        def choose(tx: Transaction) -> list[str]:
            self._workers.note_dead(tx, dead)
            return [run_id]

        taken = await self._take(tenant_id, worker_id, lease_s, choose, aside=aside)
        return taken[0] if taken else None

    async def _take(
        self,
        tenant_id: str,
        worker_id: str,
        lease_s: float,
        choose: Callable[[Transaction], list[str]],
        *,
        aside: str | None = None,
        forget: bool = False,
    ) -> list[Claimed]:
        owner = self._workers.owner(worker_id)

        def write(tx: Transaction) -> tuple[list[Claimed], list[str]]:
            answers = [leases.take(tx, tenant_id, run_id, owner, lease_s, aside) for run_id in choose(tx)]
            taken = [claimed for claimed in answers if claimed is not None]
            if taken:
                self._workers.record(tx, worker_id)
            gone = forget or any(claimed.owner_died for claimed in taken)
            return taken, leases.forget_dead(tx) if gone else []

        taken, locks = await self._call(write)
        if taken:
            self._workers.recorded(worker_id)
        self._workers.remove_locks(locks)
        return taken

    async def leases(self, tenant_id: str, worker_id: str) -> Mapping[str, int]:
        """The leases that this process's worker holds: runs to tokens."""
        params = {"tenant_id": tenant_id, "owner": self._workers.owner(worker_id)}
        return leases.held(await self._read(lambda: self._file.all("lease_list", params)))

    async def renew(self, tenant_id: str, tokens: Mapping[str, int], lease_s: float) -> Mapping[str, float]:
        """Lengthen leases; the new ends of those that are still ours."""

        def write(tx: Transaction) -> dict[str, float]:
            ends: dict[str, float] = {}
            for run_id, token in tokens.items():
                now = tx.clock.now().mono
                params = {"tenant_id": tenant_id, "run_id": run_id, "token": token, "until": now + lease_s, "now": now}
                if tx.file.run("lease_renew", params) == 1:
                    ends[run_id] = now + lease_s
            return ends

        return await self._call(write) if tokens else {}

    async def release(self, tenant_id: str, run_id: str, token: int) -> None:
        """Give a lease back, if it is still ours."""
        params = {"tenant_id": tenant_id, "run_id": run_id, "token": token}
        await self._call(lambda tx: tx.file.run("lease_release", params))

    async def block(self, tenant_id: str, run_id: str, token: int | None, code: str) -> None:
        """Note why no worker can take the run, and give its lease back where `token` is ours."""
        params = {"tenant_id": tenant_id, "run_id": run_id, "token": token, "code": code}

        def write(tx: Transaction) -> None:
            tx.file.run("block", params)
            tx.file.run("lease_release", params)

        await self._call(write)

    async def unblock(self, tenant_id: str) -> None:
        """Let blocked runs be looked at again."""
        await self._call(lambda tx: tx.file.run("unblock", {"tenant_id": tenant_id}))

    async def see_schedule(self, tenant_id: str, name: str, until: float) -> None:
        """The due times of a schedule up to this wall time were dealt with."""

        def write(tx: Transaction) -> None:
            params = {"tenant_id": tenant_id, "name": name, "until": until, "wall": tx.clock.now().wall}
            tx.file.run("schedule_put", params)

        await self._call(write)

    # Waiting

    def change_count(self) -> int:
        """Grows with each commit that this process made or noticed."""
        return self._watch.count

    async def changed(self, since: int, timeout_s: float) -> int:
        """Wait until change_count() is above `since` or the time is over."""
        return await self._watch.changed(since, timeout_s)

    def follow(self, run_id: str, when: Callable[[Run], bool] | None = None, *, seen: bool = False) -> Follower:
        """Know when a run may have changed; close it."""
        return self._watch.follow(run_id, when, seen)

    def foreign_count(self) -> int:
        """Grows with each commit of another process that was noticed, and with each proof of a worker's death."""
        return self._watch.foreign

    async def foreign_changed(self, since: int, timeout_s: float) -> int:
        """Wait until foreign_count() is above `since` or the time is over."""
        return await self._watch.foreign_changed(since, timeout_s)

    async def versions(self, tenant_id: str, run_ids: Sequence[str]) -> Mapping[str, int]:
        """The versions of these runs, as they stand now."""
        rows = await self._rows("run_versions", {"tenant_id": tenant_id, "run_ids": encode_value(list(run_ids))}, dict)
        return {str(row["id"]): version for row in rows if isinstance(version := row["version"], int)}

    # Upkeep

    async def next_wake(
        self, tenant_id: str, agents: Mapping[str, str] | None = None
    ) -> tuple[float | None, float | None]:
        """The earliest (mono, wall) at which a run becomes ready and free."""
        return await self._read(lambda: leases.next_wake(self._file, tenant_id, agents, self._clock.now()))

    async def integrity(self) -> list[str]:
        """What the database itself says is damaged; empty if nothing."""
        return await self._patiently(lambda: upkeep.integrity(self._file))

    async def run_ids(self, tenant_id: str) -> Sequence[str]:
        """All runs, oldest first."""
        return await self._rows("run_ids", {"tenant_id": tenant_id}, lambda row: str(row["id"]))

    async def prune(self, tenant_id: str, ended_before: float, *, blobs_before: float) -> Mapping[str, int]:
        """Remove old terminal runs, a few in each transaction, then old request blobs; gives free pages back."""
        counts: list[dict[str, int]] = []
        while not counts or counts[-1]["runs"]:
            counts.append(await self._call(lambda tx: upkeep.prune_some(tx, tenant_id, ended_before)))
        counts.append(await self._call(lambda tx: upkeep.prune_rest(tx, tenant_id, ended_before, blobs_before)))
        await self._patiently(lambda: self._file.exhaust("incremental_vacuum"))
        await self._patiently(lambda: self._file.all("checkpoint"))
        return upkeep.added(counts)

    # How it is done

    async def _submit(self, job: Job[T], *, at_once: bool = False) -> T:
        if self._closed:
            raise StoreClosed(f"{self.path} is closed. Open the store again")
        return await self._writer.submit(job, at_once=at_once)

    async def _call(self, function: Callable[[Transaction], T], run_id: str | None = None) -> T:
        return await self._submit(Call(function, run_id))

    def _committed(self) -> None:
        self._watch.bump()
        self._checkpointer.committed()

    def _look_now(self) -> bool:
        try:
            return self._look()
        except Busy:
            return False

    def _look(self) -> bool:
        if self._workers.due() and (dead := self._workers.dead()):
            noted = self._writer.submit(Call(lambda tx: self._workers.note_dead(tx, dead)))
            noted.add_done_callback(self._death_noted)
        seen, self._data_version = self._data_version, self._file.value("data_version")
        return seen != self._data_version

    def _death_noted(self, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._watch.bump_foreign()
