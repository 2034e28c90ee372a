"""Runs to write: a Story evolves a run by events and appends it, as the runtime does, without deciding anything."""

from __future__ import annotations

from base64 import b85encode
from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from surefoot.core import events as ev
from surefoot.core.evolve import begin, evolve, forget_closed
from surefoot.core.ids import step_id
from surefoot.core.payloads import MessageBody, Payload
from surefoot.core.state import (
    ActionKind,
    EffectClass,
    Instant,
    Rules,
    Run,
    RunStatus,
    StepType,
)
from surefoot.store.port import Append, Create, ShownRun, Store

TENANT = "t"


def noise(size: int) -> bytes:
    """A JSON text of about so many bytes that no packing makes smaller."""
    return b'"' + b85encode(Random(size).randbytes(size * 4 // 5)) + b'"'


RULES = Rules(effect=EffectClass.lookup, has_lookup=True, settle_s=60.0)


def names(number: int) -> tuple[str, str]:
    """The ids of the nth run and of its conversation."""
    return f"run_{number:026d}", f"conv_{number:026d}"


def new_run(
    store: Store,
    number: int = 1,
    *,
    conversation: str | None = None,
    position: int = 0,
    kind: str = "agent",
    agent: str = "reviewer",
    version: str = "1",
    tenant: str = TENANT,
    events: Sequence[ev.AnyEvent] = (),
    payloads: Sequence[Payload] = (),
    start_key: str | None = None,
    start_hash: str = "",
    owner: str | None = None,
    lease_s: float = 30.0,
    parent: str | None = None,
    parent_token: int | None = None,
) -> Create:
    """A run to create; `parent` is the run that it works for."""
    run_id, own = names(number)
    at = store.now()
    works_on = None if parent is None else step_id(parent, 1)
    started = ev.RunStarted(
        run_id, tenant, conversation or own, agent, version, kind, position, "ann", parent_step_id=works_on
    )
    after = begin(started, at)
    for event in events:
        after = evolve(after, event, at)
    return Create(
        after=after,
        events=(started, *events),
        at=at,
        payloads=tuple(payloads),
        new_conversation=conversation is None,
        start_key=start_key,
        start_hash=start_hash,
        created_by="ann",
        lease_owner=owner,
        lease_s=lease_s,
        parent_token=parent_token,
    )


class Story:
    """One run as somebody believes it to be."""

    def __init__(self, store: Store, run: Run, token: int | None = None) -> None:
        self.store = store
        self.run = run
        self.token = token

    @classmethod
    async def begin(
        cls, store: Store, number: int = 1, *, owner: str | None = None, lease_s: float = 30.0, kind: str = "agent"
    ) -> Story:
        run = await store.create(new_run(store, number, owner=owner, lease_s=lease_s, kind=kind))
        return cls(store, run, None if owner is None else 1)

    def next(
        self,
        *events: ev.AnyEvent,
        payloads: Sequence[Payload] = (),
        at: Instant | None = None,
        needs_lease: bool = False,
        wall_before: float | None = None,
        release: bool = False,
    ) -> Append:
        """The append of these events, not yet written."""
        at = at or self.store.now()
        after = self.run
        for event in events:
            after = evolve(after, event, at)
        after = replace(after, version=self.run.version + 1)
        return Append(
            before=self.run,
            after=after,
            events=events,
            at=at,
            payloads=tuple(payloads),
            token=self.token,
            needs_lease=needs_lease,
            wall_before=wall_before,
            release=release,
        )

    async def write(self, append: Append) -> None:
        await self.store.append(append)
        self.run = forget_closed(append.after)

    async def append(
        self,
        *events: ev.AnyEvent,
        payloads: Sequence[Payload] = (),
        needs_lease: bool = False,
        wall_before: float | None = None,
        release: bool = False,
    ) -> None:
        await self.write(
            self.next(*events, payloads=payloads, needs_lease=needs_lease, wall_before=wall_before, release=release)
        )

    # Events

    @property
    def number(self) -> str:
        return self.run.id.removeprefix("run_")

    def step_id(self, sequence: int) -> str:
        return f"step_{self.number}_{sequence:05d}"

    def created(self, sequence: int = 1, *, key: str | None = None, identity: str | None = None) -> ev.StepCreated:
        step = self.step_id(sequence)
        return ev.StepCreated(
            step_id=step,
            sequence=sequence,
            step_type=StepType.tool_call,
            rules=RULES,
            tool_name="post_comment",
            tool_version="1",
            call_id=f"call_{self.number}_{sequence}",
            position=self.run.next_position + sequence - self.run.step_count - 1,
            operation_key=key or f"{self.run.id}:{step}",
            input_hash="hash",
            input_ref=None,
            identity_hash=identity,
            target="acme/app#1",
        )

    def started(self, sequence: int = 1, attempt: int = 1) -> ev.StepStarted:
        return ev.StepStarted(self.step_id(sequence), attempt, self.token or 1, 30.0, 10.0, "bot", "k1")

    def succeeded(self, sequence: int = 1, attempt: int = 1, resource: str = "c1") -> ev.StepSucceeded:
        return ev.StepSucceeded(self.step_id(sequence), attempt, resource, f"https://x/{resource}")

    def result(self, sequence: int = 1, position: int = 0) -> tuple[ev.MessageAppended, MessageBody]:
        """The one result of a step's call, with its body."""
        message = f"msg_{self.number}_{sequence}"
        appended = ev.MessageAppended(
            message, "tool_result", position, self.step_id(sequence), f"call_{self.number}_{sequence}"
        )
        return appended, MessageBody(message, b'{"content":"done"}')

    def asked(self, action: str = "act_1", sequence: int = 1, expires_s: float | None = None) -> ev.ActionRequested:
        return ev.ActionRequested(action, self.step_id(sequence), ActionKind.approve, "hash", "billing", expires_s)

    # Short stories

    async def begin_step(self, sequence: int = 1, *, key: str | None = None, identity: str | None = None) -> None:
        """A step that is under way."""
        await self.append(self.created(sequence, key=key, identity=identity), self.started(sequence))

    async def end_step(self, sequence: int = 1, *more: ev.AnyEvent) -> None:
        """Its end, with its result in the conversation."""
        position = self.run.steps[self.step_id(sequence)].position
        assert position is not None
        appended, body = self.result(sequence, position)
        await self.append(self.succeeded(sequence), appended, *more, payloads=[body])

    async def wait_for_person(self, action: str = "act_1", expires_s: float | None = None) -> None:
        """A step that waits for a person."""
        await self.append(
            self.created(),
            self.asked(action, expires_s=expires_s),
            ev.StepWaitingForApproval(self.step_id(1), action),
            ev.RunStatusChanged(RunStatus.running, RunStatus.waiting_for_user),
        )

    async def complete(self) -> None:
        await self.append(ev.RunCompleted())

    async def reloaded(self) -> bool:
        """Whether the store gives back exactly what is in memory, and shows it as its parts are."""
        tenant, run_id = self.run.tenant_id, self.run.id
        shown, kept = await self.store.shown(tenant, run_id), forget_closed(self.run)
        steps = [
            row if row.step.id in kept.steps else replace(row, step=replace(row.step, attempts=()))
            for row in await self.store.steps(tenant, run_id)
        ]
        parts = ShownRun(
            await self.store.run(tenant, run_id),
            steps,
            await self.store.evidence(tenant, run_id),
            await self.store.actions(tenant, run_id=run_id),
        )
        return await self.store.load(tenant, run_id) == kept and shown == parts
