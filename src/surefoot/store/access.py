"""The part of the storage port that the service needs: who may call, what was announced, what came in, counts.

`Store` in `port.py` is this and the rest. All methods take the tenant first. Nothing here changes a run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, Protocol

import msgspec

from surefoot.core.throttle import NO_TOKENS, Throttle, Tokens
from surefoot.store.listed import Listed


class Credential(msgspec.Struct, frozen=True):
    """An API token, or the session of somebody who logged in with one. Times are wall seconds."""

    tenant_id: str
    id: str
    kind: Literal["token", "session"]
    name: str
    """Whose it is: what stands under decisions."""
    secret_hash: str
    """SHA-256 of the secret in hex; the secret itself is nowhere."""
    permissions: tuple[str, ...] = ()
    parent_id: str | None = None
    """A session's token."""
    expires_at: float | None = None
    revoked_at: float | None = None
    created_at: float = 0.0

    def usable(self, wall: float) -> bool:
        """True while it is neither revoked nor over."""
        return self.revoked_at is None and (self.expires_at is None or wall < self.expires_at)


class Takes(msgspec.Struct, frozen=True):
    """Which runs a worker takes."""

    tenant_id: str
    agents: Mapping[str, str]
    """Names to versions, as a claim has them."""


class Counts(msgspec.Struct, frozen=True):
    """How much of what there is in a tenant, for metrics: read from indexes, without reading a run."""

    runs: Mapping[str, int]
    """By status."""
    blocked: Mapping[str, int]
    """Runs that no worker can take, by blocked_code."""
    steps: Mapping[str, int]
    """Steps that are open or will be looked up again, by status."""
    actions: Mapping[str, int]
    """Questions that wait, by kind."""
    oldest_action_at: float | None
    """wall: since when the oldest of them waits."""
    leased: int
    """Runs that a worker drives."""
    workers: int
    """Processes that hold a lease or have held one and are not known to be dead."""


class Span(msgspec.Struct, frozen=True):
    """How far back statistics look, and how much of each kind they read at most."""

    since: float
    """wall"""
    bucket_s: float
    rows_max: int


class Statistics(msgspec.Struct, frozen=True):
    """What happened in a tenant in a span of time."""

    runs: Mapping[int, Mapping[str, int]]
    """Runs that began in the nth bucket, by the status that they have now."""
    approval_seconds: list[float]
    """From the question to the decision, of each approval that a person decided."""
    lookups: Mapping[str, int]
    """Answers of lookups by verdict, of runs that began in the span."""


class Wish(msgspec.Struct, frozen=True):
    """What a worker asks of a throttle: calls at once in all (0 gives all back), further tokens, and for how long."""

    worker_id: str
    name: str
    throttle: Throttle
    slots: int
    tokens: int
    lease_s: float


class Share(msgspec.Struct, frozen=True):
    """What it got. `slots` are those of the worker in all, until the store's mono `until`, unless asked for again."""

    slots: int = 0
    until: float = 0.0
    tokens: Tokens = NO_TOKENS


class AccessStore(Protocol):
    """Credentials, announcements, marks and counts. Errors of every method: StoreUnavailable, Unreadable."""

    async def put_credential(self, credential: Credential) -> None:
        """Keep a new one. Raises Conflict for an id that exists."""
        ...

    async def credential(self, tenant_id: str, credential_id: str) -> Credential | None:
        """One credential, whether or not it can still be used."""
        ...

    async def credentials(self, tenant_id: str, kind: str) -> Listed[Credential]:
        """All of a kind, oldest first."""
        ...

    async def token_tenants(self) -> list[str]:
        """The tenants that have a token which was not revoked: whose runs a server has to work on."""
        ...

    async def revoke_credential(self, tenant_id: str, credential_id: str) -> bool:
        """End it, and the sessions that began with it, now and for ever. False where there was nothing to end."""
        ...

    async def take_announcements(
        self, tenant_id: str, hook: str, again_s: float, limit: int, attempts_max: int
    ) -> list[tuple[str, int]]:
        """The waiting actions that `hook` is to be told of now: (action id, which attempt this is).

        Each is taken for `again_s`: no other process gets it before, and it comes again then unless `announced` was
        called. Actions that were decided or have expired are not given any more.
        """
        ...

    async def announced(self, tenant_id: str, action_id: str, hook: str, outcome: str, again_s: float | None) -> None:
        """How an announcement went: again after `again_s`, or never with None."""
        ...

    async def next_announcement(self, tenant_id: str, hook: str, attempts_max: int) -> float | None:
        """wall: when `take_announcements` has something next, a time that is over where it has already; None: never."""
        ...

    async def mark(self, tenant_id: str, kind: str, name: str, value: str) -> str | None:
        """Keep a small fact under its name, replacing what was there, which is returned; None for a new one."""
        ...

    async def marked(self, tenant_id: str, kind: str, name: str) -> str | None:
        """What is kept under that name."""
        ...

    async def marks(self, tenant_id: str, kind: str, limit: int, after: str = "") -> list[str]:
        """The names of a kind in their order, from behind the name `after` on."""
        ...

    async def unmark(self, tenant_id: str, kind: str, name: str) -> None:
        """Keep it no longer."""
        ...

    async def counts(self, tenant_id: str) -> Counts:
        """How much there is. Costs the more, the more there is."""
        ...

    async def workers_take(self, tenant_id: str) -> list[Takes]:
        """What the workers of the tenant take that claim runs and are not known to be dead."""
        ...

    async def blocked(self, tenant_id: str) -> Mapping[str, int]:
        """Runs that no worker can take, by why; reads only those."""
        ...

    async def blocked_runs(self, tenant_id: str, code: str, after: str, limit: int) -> list[str]:
        """Those of one reason by id, from behind the id `after` on ("" for the first)."""
        ...

    async def leases(self, tenant_id: str, worker_id: str) -> Mapping[str, int]:
        """The leases that this process's worker holds, over or not: runs to tokens."""
        ...

    async def unknown_at(self, tenant_id: str, target: str, limit: int) -> list[str]:
        """Steps whose outcome is unknown and whose target has this name, in whatever case, by id."""
        ...

    async def unlooked_calls(self, tenant_id: str, tools: Collection[str], after: str, limit: int) -> list[str]:
        """Calls of these tools whose outcome is unknown and that nobody looks up, less those that were given up.

        By step id, from behind the id `after` on ("" for the first).
        """
        ...

    async def untold_calls(self, tenant_id: str, ahead_s: float, limit: int) -> list[str]:
        """Calls that wait for a run which has ended, and whose next look at it is still to come, within `ahead_s`; by
        step id. Of runs that are blocked there are none.
        """
        ...

    async def evidence_counts(self, tenant_id: str, after: int) -> tuple[int, Mapping[tuple[str, str], int]]:
        """Evidence written behind the place `after` by (verdict, source), and the place of the newest."""
        ...

    async def statistics(self, tenant_id: str, span: Span) -> Statistics:
        """What happened since `span.since`: read from the newest `rows_max` of each kind by their sortable ids."""
        ...

    async def check_writable(self) -> None:
        """Commit something of no consequence. Raises StoreUnavailable where nothing can be written."""
        ...

    async def confirm(self) -> bool:
        """Whoever tells somebody that something was written, and knows it from a read, asks this first.

        True: a commit of its own was made, so that what the same server showed before is there to stay; read again, for
        another server may have taken over since. False where a read shows nothing but what is there to stay, and
        nothing was done. Raises StoreUnavailable, CommitUnknown.
        """
        ...

    async def fence(self, tenant_id: str, run_id: str) -> None:
        """Commit something of no consequence to a run, behind whatever is on its way to it: how that came out, and that
        it is there to stay, can be read then. Raises StoreUnavailable, CommitUnknown.
        """
        ...

    async def share(self, tenant_id: str, wish: Wish) -> Share:
        """Calls at once and tokens of a throttle, as far as there are any; no two workers ever get the same.

        Slots that a worker does not ask for again end by themselves: whoever died gives them back like that.
        """
        ...
