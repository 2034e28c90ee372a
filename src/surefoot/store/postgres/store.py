"""The PostgreSQL store behind the port, method by method in the port's order. It decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from surefoot.core.state import Instant, Run
from surefoot.doors import Clock, Hook, no_hook
from surefoot.errors import NotFound, StoreClosed, StoreError, StoreUnavailable
from surefoot.store.access import Takes
from surefoot.store.looked import Looked
from surefoot.store.migrate import Migration, migrations
from surefoot.store.port import Append, Claimed, Create
from surefoot.store.postgres import access, leases, upkeep
from surefoot.store.postgres.access import PostgresAccess
from surefoot.store.postgres.address import read_address
from surefoot.store.postgres.bridge import Bridge, bridge_for
from surefoot.store.postgres.jobs import AppendJob, CreateJob
from surefoot.store.postgres.link import Link, Row
from surefoot.store.postgres.links import Links
from surefoot.store.postgres.listener import Listener
from surefoot.store.postgres.server_clock import ServerClock
from surefoot.store.postgres.statements import DIALECT, Statements
from surefoot.store.postgres.workers import Proven, Workers
from surefoot.store.postgres.writer import Alone, Job, Server, Writer
from surefoot.store.watch import Follower, Watch

T = TypeVar("T")

LOOK_SECONDS = 0.25
"""So often others' commits are assumed where nobody tells of them."""
LOOK_SECONDS_LISTENING = 5.0
"""And where notifications arrive: one may have been lost."""

FAILOVERS_MAX = 3
"""While one run is made."""

_commits: dict[str, int] = {}
"""Commits of this process by database: several stores of one process need not be told by the server."""


class PostgresStore(PostgresAccess):
    """One database, used from one event loop. `await store.open()` first; other processes may use it too."""

    def __init__(
        self, url: str, clock: Clock, hook: Hook = no_hook, known: tuple[Migration, ...] | None = None
    ) -> None:
        self._address = read_address(url)
        self.path = self._address.name
        self._clock = clock
        self._migrations = known if known is not None else migrations(DIALECT)
        self._server_clock = ServerClock(clock)
        texts = Statements(self._server_clock.of_door)
        self._server = Server(texts, self._server_clock, clock, hook, self.path)
        self._workers = Workers(clock)
        self._looked = Looked()
        self._watch = Watch(clock, self._look_now)
        self._texts = texts
        self._links: Links
        self._writer: Writer
        self._listener: Listener | None = None
        self._name = ""
        self._commits_seen = 0
        self._looked_at = 0.0
        self._closed = False

    async def open(self) -> None:
        """Connect and bring the schema up to date.

        Raises StoreUnsupported (server too old or not durable, newer schema, tables of another program),
        StoreUnavailable, Unreadable.
        """
        bridge: Bridge | None = bridge_for(asyncio.get_running_loop())
        self._links = Links(self._address, self._texts, self._clock, self._server_clock, bridge)
        self._writer = Writer(self._links, self._server, self._committed)
        try:
            await self._call(self._open, tells=False)
        except BaseException:
            self._closed = True
            self._links.end()
            raise
        self._commits_seen = _commits.get(self.path, 0)
        self._looked_at = self._clock.now().mono
        if bridge is None:
            self._listener = Listener(self._links, self._server, self._clock, self._name, self._heard, self._session)

    async def _open(self, server: Server, link: Link) -> None:
        await upkeep.upgrade(server, link, self._migrations)
        fresh = hashlib.sha256(f"{link.probe.pid}:{link.probe.clock!r}:{link.probe.booted!r}".encode()).hexdigest()[:16]
        name = {"key": "database", "value": fresh}
        # Nothing comes back where another process gives the name between this statement's beginning and its turn.
        (row,) = await server.put(link, "meta_first", name) or await server.put(link, "meta_first", name)
        self._name = fresh
        self._workers.found(str(row["value"]))

    @property
    def busy(self) -> bool:
        """Whether appends wait for the server."""
        return self._writer.busy

    def now(self) -> Instant:
        """The server's clock, as far as it has certainly come; mono and wall are the same."""
        return self._server_clock.now()

    def local(self, mono: float) -> float:
        """A boot time of this machine at which the server's clock has not passed `mono`."""
        return self._server_clock.local(mono)

    def stepped(self, mono: float) -> bool:
        """Whether this process has seen the server's clock set forward since `mono`."""
        return self._server_clock.stepped(mono)

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
            if self._listener is not None:
                await self._listener.stop()
            await self._links.close()
        except BaseException:
            # Cut off: nobody closes it a second time.
            if self._listener is not None:
                self._listener.drop()
            self._links.end()
            raise

    async def _stop_workers(self) -> None:
        try:
            for held in await self._writer.submit(Alone(self._workers.take_out, tells=False)):
                held.remove()
        except StoreError:
            # The rows stay: the locks are held until the process ends, and then they are free.
            return

    def abandon(self) -> None:
        """What the death of the process does, for simulations: nothing queued is written, the locks are free."""
        self._closed = True
        self._watch.stop()
        self._writer.drop()
        if self._listener is not None:
            self._listener.drop()
        self._workers.vanish()
        self._links.end()

    # Writing

    async def create(self, create: Create) -> Run:
        """Durably make a run, or find the one that its start key made."""
        tenant_id, worker_id, owner = create.after.tenant_id, create.lease_owner, None
        if worker_id is not None:
            owner = self._workers.owner(worker_id)
            if not self._workers.is_recorded(tenant_id, worker_id):
                await self._record(tenant_id, worker_id)
        for _ in range(FAILOVERS_MAX):
            run_id = await self._submit(CreateJob(create, owner))
            if run_id == create.after.id:
                return create.after
            await self.confirm()
            try:
                return await self.load(tenant_id, run_id)
            except NotFound:
                # It went with the primary that alone had it.
                continue
        raise StoreUnavailable(f"{self.path}: one server after another took over. Nothing was written; try again")

    async def append(self, append: Append) -> None:
        """Durably write one decision: all of it or nothing."""
        await self._submit(AppendJob(append, self._watch.touched))

    async def register_worker(self, worker_id: str, takes: Takes | None = None) -> None:
        """Take the worker's lock; its rows are written by its first claim or lease of each tenant."""
        self._workers.owner(worker_id)
        self._workers.takes(worker_id, takes)

    async def workers_take(self, tenant_id: str) -> list[Takes]:
        """What the workers of the tenant take that claim runs and are not known to be dead."""
        return self._workers.take(await self._all("workers_take", self._workers.take_params(tenant_id)))

    async def claim(
        self, tenant_id: str, worker_id: str, agents: Mapping[str, str], lease_s: float, limit: int
    ) -> list[Claimed]:
        """Take leases of runs that are ready and free. No commit is made where there is nothing to take."""

        async def write(server: Server, link: Link) -> list[Claimed]:
            if self._workers.due():
                await upkeep.check_schema(server, link, self._migrations)
            found, proven = await leases.look(server, link, self._workers, tenant_id, agents)
            if not found:
                # Once for each session: who is asked how many workers there are counts those that wait, too.
                await self._owner(server, link, tenant_id, worker_id)
                return []
            await leases.note_gone(server, link, tenant_id, proven)
            owner = await self._owner(server, link, tenant_id, worker_id)
            taken = await leases.claim(server, link, tenant_id, agents, owner, lease_s, limit)
            await self._forget_dead(server, link, tenant_id, taken)
            return taken

        return await self._call(write, tells=False)

    async def claim_one(
        self, tenant_id: str, run_id: str, worker_id: str, lease_s: float, aside: str = "unknown_tool"
    ) -> Claimed | None:
        """Take the lease of one run. Raises NotFound."""

        async def write(server: Server, link: Link) -> Claimed | None:
            rows = await server.ask(link, "worker_owners", self._workers.owners_params(tenant_id))
            await leases.note_gone(server, link, tenant_id, self._workers.look(tenant_id, rows))
            owner = await self._owner(server, link, tenant_id, worker_id)
            taken = await leases.claim_one(server, link, tenant_id, run_id, owner, lease_s, aside)
            await self._forget_dead(server, link, tenant_id, [taken] if taken is not None else [])
            return taken

        return await self._call(write, tells=False)

    async def _owner(self, server: Server, link: Link, tenant_id: str, worker_id: str) -> str:
        owner = self._workers.owner(worker_id)
        if not self._workers.is_recorded(tenant_id, worker_id):
            await self._workers.record(server, link, tenant_id, worker_id)
        return owner

    async def _record(self, tenant_id: str, worker_id: str) -> None:
        async def write(server: Server, link: Link) -> None:
            if not self._workers.is_recorded(tenant_id, worker_id):
                await self._workers.record(server, link, tenant_id, worker_id)

        await self._call(write, tells=False)

    async def _forget_dead(self, server: Server, link: Link, tenant_id: str, taken: Sequence[Claimed]) -> None:
        if any(claimed.owner_died for claimed in taken):
            # It comes behind the leases that were won, and is tidying only.
            with contextlib.suppress(Exception):
                rows = await server.put(link, "worker_forget", self._workers.owners_params(tenant_id))
                self._workers.remove_locks(rows)

    async def leases(self, tenant_id: str, worker_id: str) -> Mapping[str, int]:
        """The leases that this process's worker holds: runs to tokens."""
        params = {"tenant_id": tenant_id, "owner": self._workers.owner(worker_id)}
        return leases.held(await self._all("lease_list", params))

    async def renew(self, tenant_id: str, tokens: Mapping[str, int], lease_s: float) -> Mapping[str, float]:
        """Lengthen leases; the new ends of those that are still ours."""
        if not tokens:
            return {}
        params = {"tenant_id": tenant_id, "run_ids": list(tokens), "tokens": list(tokens.values()), "lease_s": lease_s}
        asked = self._commit("lease_renew", params, tells=False)
        try:
            # A server may be silent for longer than a lease lasts: the worker has to know before.
            rows = await asyncio.wait_for(asked, lease_s / 3)
        except TimeoutError:
            raise StoreUnavailable(f"{self.path}: no answer to a renewal in {lease_s / 3:.0f} s") from None
        return leases.renewed(rows)

    async def release(self, tenant_id: str, run_id: str, token: int) -> None:
        """Give a lease back, if it is still ours."""
        await self._commit("lease_release", {"tenant_id": tenant_id, "run_id": run_id, "token": token})

    async def block(self, tenant_id: str, run_id: str, token: int | None, code: str) -> None:
        """Note why no worker can take the run, and give its lease back where `token` is ours."""
        await self._commit("block", {"tenant_id": tenant_id, "run_id": run_id, "token": token, "code": code})

    async def unblock(self, tenant_id: str) -> None:
        """Let blocked runs be looked at again."""
        await self._commit("unblock", {"tenant_id": tenant_id})

    async def see_schedule(self, tenant_id: str, name: str, until: float) -> None:
        """The due times of a schedule up to this wall time were dealt with."""
        await self._commit("schedule_put", {"tenant_id": tenant_id, "name": name, "until": until})

    # Waiting

    def change_count(self) -> int:
        """Grows with each commit that this process made or noticed."""
        return self._watch.count

    async def changed(self, since: int, timeout_s: float) -> int:
        """Wait until change_count() is above `since` or the time is over."""
        self._listen()
        return await self._watch.changed(since, timeout_s)

    def follow(self, run_id: str, when: Callable[[Run], bool] | None = None, *, seen: bool = False) -> Follower:
        """Know when a run may have changed; close it."""
        self._listen()
        return self._watch.follow(run_id, when, seen)

    def foreign_count(self) -> int:
        """Grows with each commit of another process that was noticed, and with each proof of a worker's death."""
        return self._watch.foreign

    async def foreign_changed(self, since: int, timeout_s: float) -> int:
        """Wait until foreign_count() is above `since` or the time is over."""
        self._listen()
        return await self._watch.foreign_changed(since, timeout_s)

    # Upkeep

    async def next_wake(
        self, tenant_id: str, agents: Mapping[str, str] | None = None
    ) -> tuple[float | None, float | None]:
        """The earliest (mono, wall) at which a run becomes ready and free."""
        (row,) = await self._all("next_wake", leases.wake_params(tenant_id, agents))
        return leases.earliest(row)

    async def integrity(self) -> list[str]:
        """Rows that lack the rows they belong to; empty if none does."""
        try:
            return [str(row["finding"]) for row in await self._all("orphans", {})]
        except StoreError as error:
            return [str(error)]

    async def prune(self, tenant_id: str, ended_before: float, *, blobs_before: float) -> Mapping[str, int]:
        """Remove old terminal runs and conversations, a few in each transaction, then what nothing needs any more."""
        counts: list[dict[str, int]] = []
        for prune, record in ((upkeep.prune_runs, "runs"), (upkeep.prune_conversations, "conversations")):
            more = True
            while more:
                some = await self._call(partial(prune, tenant_id=tenant_id, ended_before=ended_before))
                counts.append(some)
                more = some[record] > 0
        params = {"tenant_id": tenant_id, "ended_before": ended_before, "blobs_before": blobs_before}
        counts.append(upkeep.by_record(await self._commit("prune_rest", params)))
        return upkeep.added(counts)

    # How it is done

    async def _submit(self, job: Job[T]) -> T:
        if self._closed:
            raise StoreClosed(f"{self.path} is closed. Open the store again")
        return await self._writer.submit(job)

    async def _call(self, function: Callable[[Server, Link], Awaitable[T]], *, tells: bool = True) -> T:
        return await self._submit(Alone(function, tells=tells))

    async def _commit(self, query: str, params: Mapping[str, object], *, tells: bool = True) -> list[Row]:
        return await self._call(lambda server, link: access.commit(server, link, query, params), tells=tells)

    def _committed(self, run_ids: Sequence[str] | None) -> None:
        if run_ids is None:
            # No news: two workers of one process would wake each other for ever by claims that take nothing.
            return
        self._watch.bump()
        _commits[self.path] = _commits.get(self.path, 0) + 1
        self._commits_seen += 1
        if self._listener is not None:
            self._listener.tell(run_ids)

    def _listen(self) -> None:
        if self._listener is not None and not self._closed:
            self._listener.start()

    def _heard(self, run_ids: list[str] | None) -> None:
        self._watch.bump_foreign(run_ids)

    def _session(self, link: Link | None) -> None:
        began = None if link is None else link.probe.began
        self._workers.session(None if link is None or began is None else (link.probe.pid, began))

    def _look_now(self) -> bool:
        if self._closed:
            return False
        if self._workers.due():
            for tenant_id in self._workers.seen:
                if dead := self._workers.died(tenant_id):
                    self._note_dead(tenant_id, dead)
        seen, self._commits_seen = self._commits_seen, _commits.get(self.path, 0)
        return seen != self._commits_seen or self._may_have_missed()

    def _may_have_missed(self) -> bool:
        if self._listener is None:
            return False
        now = self._clock.now().mono
        if now - self._looked_at < (LOOK_SECONDS_LISTENING if self._listener.listens else LOOK_SECONDS):
            return False
        self._looked_at = now
        return True

    def _note_dead(self, tenant_id: str, dead: list[str]) -> None:
        async def write(server: Server, link: Link) -> None:
            await leases.note_gone(server, link, tenant_id, Proven(dead=tuple(dead)))

        noted = self._writer.submit(Alone(write, tells=False))
        noted.add_done_callback(self._death_noted)

    def _death_noted(self, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._watch.bump_foreign()
