"""The storage port: what a store takes and gives, and what each method guarantees. Stores decide nothing.

One append is one atomic, durable commit of events with the rows that they mean. Every status change rides on `append`.
All methods take the tenant first; a record of another tenant does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from surefoot.core.events import AnyEvent
from surefoot.core.evolve import Recorded
from surefoot.core.payloads import (
    ActionAnswer as ActionAnswer,
    ActionView as ActionView,
    BlobPut as BlobPut,
    ClaimKey as ClaimKey,
    EvidenceDetail as EvidenceDetail,
    MessageBody as MessageBody,
    Payload as Payload,
    RunResult as RunResult,
    StepView as StepView,
    TransientDrop as TransientDrop,
)
from surefoot.core.state import Action, Instant, Run, Step
from surefoot.store.access import AccessStore, Takes
from surefoot.store.listed import Listed

ANOTHER_BOOT_MONO = -1e18
"""Stands for an attempt's `started.mono` after the machine was booted again: its key's lifetime counts as over, and how
far the clocks drifted since cannot be judged. `started.wall` stays."""


class Append(msgspec.Struct, frozen=True, gc=False):
    """One decision to be written.

    Guards, all checked in the transaction by the store's own clock: the row's version is `before.version`; with a
    `token`, the row's lease token is the same; with `needs_lease`, the lease is not over and the run is not terminal;
    with `wall_before`, the wall clock is earlier (approvals that the intents in it run under).
    """

    before: Run
    after: Run
    """`before` evolved by `events`; `after.version` is `before.version + 1`."""
    events: tuple[AnyEvent, ...]
    at: Instant
    payloads: tuple[Payload, ...] = ()
    token: int | None = None
    needs_lease: bool = False
    wall_before: float | None = None
    release: bool = False
    """The lease ends with this append."""
    alone: bool = False
    """No other run is driven beside it: a store need not wait for others that could share its commit."""


class Create(msgspec.Struct, frozen=True, gc=False):
    """A new run with its first events (run_started first). The row must not exist."""

    after: Run
    events: tuple[AnyEvent, ...]
    at: Instant
    payloads: tuple[Payload, ...]
    new_conversation: bool
    start_key: str | None = None
    """Unique in the tenant where it is given."""
    start_hash: str = ""
    """sha256 of what was asked: the same key with another hash raises KeyReused."""
    created_by: str = ""
    metadata: bytes = b"{}"
    priority: int = 0
    """Of the runs that wait for a worker, the one that has waited longest comes first; a step up is worth a minute."""
    lease_owner: str | None = None
    """The run is born leased to this worker, with token 1."""
    lease_s: float = 0.0
    parent_token: int | None = None
    """Of the lease of the run that it works for: with another one it is not made."""


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A lease that was won."""

    run_id: str
    token: int
    lease_until: float
    """mono"""
    owner_died: bool
    """The process of the owner before is proven dead: its attempts, under the token before this one, have ended."""


class MessageRow(msgspec.Struct, frozen=True, gc=False):
    """A message as it stands in the conversation; position None while it is queued. `body` is JSON."""

    id: str
    conversation_id: str
    run_id: str | None
    step_id: str | None
    call_id: str | None
    position: int | None
    role: str
    body: bytes
    created_at: float


class StepRow(msgspec.Struct, frozen=True, gc=False):
    """A step with its redacted views and times (wall)."""

    step: Step
    run_id: str
    conversation_id: str
    safe_input: bytes | None
    safe_output: bytes | None
    created_at: float
    updated_at: float


class ActionRow(msgspec.Struct, frozen=True):
    """An action with what the person is shown and what was answered."""

    action: Action
    run_id: str
    tool_name: str | None
    arguments: bytes
    preview: bytes
    reason: str | None
    answer: bytes | None
    created_at: float
    updated_at: float
    decided_at: float | None


class EvidenceRow(msgspec.Struct, frozen=True):
    """Evidence as it was stored."""

    step_id: str
    attempt: int | None
    verdict: str
    source: str
    reason: str | None
    resource_id: str | None
    resource_url: str | None
    detail: bytes
    created_at: float


class RunRow(msgspec.Struct, frozen=True, gc=False):
    """A run for listing and snapshots; `run` holds its live steps only."""

    run: Run
    created_by: str
    result: bytes | None
    metadata: bytes
    blocked_code: str | None
    """Why no worker can take it (unreadable, unknown_agent, unknown_tool), or None."""
    created_at: float
    updated_at: float
    lease_owner: str | None
    last_committed_sequence: int
    ready_at: float | None
    """mono: when a worker has something to do next."""
    lease_until: float = 0.0
    """mono: when the lease of lease_owner is over, unless it is renewed."""
    lease_token: int = 0
    """Of the newest lease: +1 with every acquisition."""


class ShownRun(msgspec.Struct, frozen=True, gc=False):
    """What a run is shown by, all of one state of the store. Only steps that are live have their attempts here."""

    row: RunRow
    steps: list[StepRow]
    evidence: list[EvidenceRow]
    actions: list[ActionRow]


class KeyOwner(msgspec.Struct, frozen=True):
    """Who holds a business key."""

    run_id: str
    step_id: str
    input_hash: str


class Following(Protocol):
    """Knows whether a run may have changed since it was last asked."""

    async def changed(self, timeout_s: float) -> Run | None:
        """Wait until the run may have changed since the last call (the first returns at once), or the time is over.

        The run as this process committed it, or None where it has to be read.
        """
        ...

    def close(self) -> None:
        """The end of it."""
        ...


class Store(AccessStore, Protocol):
    """The one port. Errors of every method: StoreUnavailable (nothing was written), StoreUnsupported, Unreadable."""

    path: str
    """Where it is, without secrets, for messages."""

    def now(self) -> Instant:
        """A reading of the store's clock that is never ahead of it."""
        ...

    def local(self, mono: float) -> float:
        """By the boot clock: a time at which the store's clock has not passed `mono`. To be asked once, and kept."""
        ...

    def stepped(self, mono: float) -> bool:
        """Whether the store's clock was set forward since `mono`: no wait since then is known to have been one."""
        ...

    async def close(self) -> None:
        """Finish what is queued, then close. Idempotent."""
        ...

    # Writing

    async def create(self, create: Create) -> Run:
        """Durably make a run; with a start_key that exists and the same hash, the run made first is returned, as
        durable as if it had been made now. Raises KeyReused (other hash), NotAllowed(code="conversation_busy") if the
        conversation has a run that is not terminal, NotFound if one that should exist does not; RunEnded and LeaseLost
        of the run that it is to work for.
        """
        ...

    async def append(self, append: Append) -> None:
        """Durably write one decision: all of it or nothing.

        Raises Conflict (version, business key), LeaseLost (token or time), NotAllowed(code="approval_expired"),
        StoreUnavailable (certainly not committed) or CommitUnknown. A refused append does not spoil those that share
        its commit. Cancelling the wait does not cancel the commit.
        """
        ...

    async def claim(
        self, tenant_id: str, worker_id: str, agents: Mapping[str, str], lease_s: float, limit: int
    ) -> list[Claimed]:
        """Take leases of runs that are ready (by ready_at or wake_at) and free: their lease is over, or its owner's
        process on this machine is proven dead. Only a changed row counts. `agents`: names to versions, both fit; or
        `perform:TOOL`. Those with a blocked_code are not taken. Raises StoreUnsupported: the store was upgraded.
        """
        ...

    async def claim_one(
        self, tenant_id: str, run_id: str, worker_id: str, lease_s: float, aside: str = "unknown_tool"
    ) -> Claimed | None:
        """The same for one run, ready or not; None if it is leased to a live owner, or blocked, but not by `aside`.
        Raises NotFound.
        """
        ...

    async def renew(self, tenant_id: str, tokens: Mapping[str, int], lease_s: float) -> Mapping[str, float]:
        """Lengthen leases that are still ours and not over; the new ends (mono). Missing ones are lost."""
        ...

    async def release(self, tenant_id: str, run_id: str, token: int) -> None:
        """Give a lease back; nothing happens if it is not ours any more."""
        ...

    async def block(self, tenant_id: str, run_id: str, token: int | None, code: str) -> None:
        """Note why no worker can take the run, and end its lease if `token` holds it; not claimable until `unblock`."""
        ...

    async def unblock(self, tenant_id: str) -> None:
        """Let runs that were blocked be looked at again (a worker with other code has started)."""
        ...

    async def see_schedule(self, tenant_id: str, name: str, until: float) -> None:
        """The due times of a schedule up to this wall time were dealt with."""
        ...

    # Reading

    async def schedule_seen(self, tenant_id: str, name: str) -> float | None:
        """Up to which wall time they were; None for a schedule that nobody has seen."""
        ...

    async def load(self, tenant_id: str, run_id: str, step_id: str | None = None) -> Run:
        """The run with its live steps and actions, and with the step named even if it is closed (then all its actions).
        Raises NotFound.
        """
        ...

    async def load_all(self, tenant_id: str, run_ids: Sequence[str]) -> Listed[Run]:
        """The runs with these ids that are there, oldest first, as `load` gives them."""
        ...

    async def run(self, tenant_id: str, run_id: str) -> RunRow:
        """One run. Raises NotFound."""
        ...

    async def shown(self, tenant_id: str, run_id: str) -> ShownRun:
        """A run with all its steps, evidence and actions, in order. Raises NotFound."""
        ...

    async def run_of_key(self, tenant_id: str, start_key: str) -> str | None:
        """The id of the run that was made under a start key."""
        ...

    async def runs(
        self, tenant_id: str, *, status: str | None, agent: str | None, before: str | None, limit: int
    ) -> Listed[RunRow]:
        """Newest first, ids lower than `before`."""
        ...

    async def children(self, tenant_id: str, run_id: str) -> Listed[Run]:
        """The runs that work on calls of this one, oldest first, as `load` gives them."""
        ...

    async def steps(self, tenant_id: str, run_id: str) -> list[StepRow]:
        """All steps of a run, in order, with their attempts."""
        ...

    async def step(self, tenant_id: str, step_id: str) -> StepRow:
        """One step. Raises NotFound."""
        ...

    async def step_by_key(self, tenant_id: str, operation_key: str) -> StepRow | None:
        """The step that owns an operation key."""
        ...

    async def evidence(self, tenant_id: str, run_id: str) -> list[EvidenceRow]:
        """All evidence of a run, oldest first."""
        ...

    async def action(self, tenant_id: str, action_id: str) -> ActionRow:
        """One action. Raises NotFound."""
        ...

    async def actions(
        self,
        tenant_id: str,
        *,
        status: str | None = None,
        run_id: str | None = None,
        below: bool = False,
        after: str | None = None,
        limit: int = 1000,
    ) -> Listed[ActionRow]:
        """Actions, oldest first, from behind the action `after` on; with `below` also those of the runs that work for
        `run_id`, and for them.
        """
        ...

    async def events(self, tenant_id: str, run_id: str, after: int, limit: int) -> list[Recorded]:
        """Events with a sequence above `after`, in order. Raises NotFound."""
        ...

    async def messages(
        self, tenant_id: str, conversation_id: str, after: int = -1, limit: int | None = None
    ) -> list[MessageRow]:
        """Placed messages with a position above `after`, in order, at most `limit`."""
        ...

    async def queued(self, tenant_id: str, conversation_id: str) -> list[MessageRow]:
        """Messages that wait for a place, in the order of their arrival."""
        ...

    async def conversation(self, tenant_id: str, conversation_id: str) -> tuple[int, str | None]:
        """The next free position, and the run under way if there is one. Raises NotFound."""
        ...

    async def blob(self, tenant_id: str, ref: str) -> bytes:
        """The bytes. Raises Unreadable if they are missing or do not fit their hash."""
        ...

    async def key_owner(self, tenant_id: str, operation_key: str) -> KeyOwner | None:
        """Who holds a business key."""
        ...

    async def same_action(self, tenant_id: str, conversation_id: str, identity_hash: str) -> StepRow | None:
        """The newest step of the conversation with this identity that has acted, late perhaps, or is unresolved."""
        ...

    async def acted(self, tenant_id: str, conversation_id: str) -> list[StepRow]:
        """The calls of a conversation that change something outside, refused proposals aside, oldest first."""
        ...

    # Waiting

    def change_count(self) -> int:
        """Grows with each commit that this process made or noticed."""
        ...

    async def changed(self, since: int, timeout_s: float) -> int:
        """Wait until change_count() is above `since` (others are noticed within 100 ms) or the time is over."""
        ...

    def follow(self, run_id: str, when: Callable[[Run], bool] | None = None, *, seen: bool = False) -> Following:
        """Know when one run may have changed, by this process or another; to be closed.

        Of this process's commits only those are told for which `when` holds. With `seen` the caller knows the run as it
        stands: only what changes from now on is told.
        """
        ...

    def foreign_count(self) -> int:
        """Grows with each commit of another process that was noticed."""
        ...

    async def foreign_changed(self, since: int, timeout_s: float) -> int:
        """Wait until foreign_count() is above `since` (noticed within 100 ms) or the time is over."""
        ...

    async def versions(self, tenant_id: str, run_ids: Sequence[str]) -> Mapping[str, int]:
        """The versions of these runs, as they stand now."""
        ...

    # Upkeep

    async def register_worker(self, worker_id: str, takes: Takes | None = None) -> None:
        """Note this process as a worker, by its first claim at the latest, and hold its lock for the process's life,
        children included: its death can be proven. `takes` where it claims. A first lease does the same.
        """
        ...

    async def next_wake(
        self, tenant_id: str, agents: Mapping[str, str] | None = None
    ) -> tuple[float | None, float | None]:
        """The earliest (mono, wall) at which an unleased run becomes ready, or a live lease ends; with `agents`, of the
        runs alone that a claim with the same `agents` would take.
        """
        ...

    async def integrity(self) -> list[str]:
        """What the database itself says is damaged; empty if nothing."""
        ...

    async def run_ids(self, tenant_id: str) -> Sequence[str]:
        """All runs, oldest first."""
        ...

    async def prune(self, tenant_id: str, ended_before: float, *, blobs_before: float) -> Mapping[str, int]:
        """Remove whole terminal runs older than a wall time, and request blobs of ended steps; counts by record. What
        an open question or a look still needs stays.
        """
        ...
