"""Make a run: its conversation, its first message or its one call, in one commit; the same start key makes one run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from surefoot.agent.messages import user_body
from surefoot.agent.prepare import Preparer
from surefoot.agent.tools import ToolCall
from surefoot.core import events as ev, policy
from surefoot.core.decide import ProposedCall, propose, start_run
from surefoot.core.draft import Draft
from surefoot.core.evolve import begin
from surefoot.core.facts import check_name
from surefoot.core.ids import RANDOM_BYTES, mint
from surefoot.core.state import Limits, Run, RunStatus
from surefoot.core.values import canonical, check_key, digest
from surefoot.errors import CommitUnknown, InvalidInput, KeyReused, NotAllowed, NotFound, StoreError, StoreUnavailable
from surefoot.runtime.context import Context
from surefoot.runtime.drive import Driver
from surefoot.runtime.execute import redact_json
from surefoot.runtime.loop import Loop, known_calls
from surefoot.runtime.worker import Worker
from surefoot.store.port import Claimed, Create

PERFORM = "perform"
FIRST_TOKEN = 1
"""Of the lease that a run is born with."""
ON_ITS_WAY_SECONDS_MAX = 90.0
"""So long a commit without an answer is looked for: networks give up sending again after about as long."""
METADATA_BYTES_MAX = 64 * 1024
"""As JSON: every row of a list carries them."""
PRIORITY_MAX = 100
"""A step is worth a minute of waiting: the highest goes before what has waited for less than an hour and 40 minutes."""

OWN_KEYS = re.compile(r"retry:|schedule:|perform[0-9]*:|run_[0-9a-z]+:step_")
"""How start keys of surefoot's own begin. They are in one store with those of users, who may not take their places."""


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is to be. Either `body` (the user's message) or `call` (kind perform)."""

    agent: str
    version: str
    kind: str
    limits: Limits
    by: str
    key: str | None
    """Unique in the tenant where it is given."""
    asked: str
    """A hash of what was asked: the same key with another hash is refused."""
    body: bytes | None = None
    call: ToolCall | None = None
    business_key: str | None = None
    asks_owner: bool = True
    """Whether it is read first who holds the business key. If not, a key that is held is a Conflict."""
    conversation_id: str | None = None
    parent_step_id: str | None = None
    parent_token: int | None = None
    """Of the lease under which it begins to work for that step's run."""
    metadata: Mapping[str, object] = {}
    priority: int = 0


def _check_priority(priority: object) -> None:
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > PRIORITY_MAX:
        raise InvalidInput(f"a priority is a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}, and 0 by default")


def new_id(ctx: Context, prefix: str) -> str:
    """A fresh id."""
    return mint(prefix, ctx.doors.clock.now().wall, ctx.doors.entropy.token(RANDOM_BYTES))


def agent_run(
    agent: tuple[str, str, Limits],
    text: tuple[str, str],
    by: str,
    key: str | None,
    conversation_id: str | None,
    metadata: Mapping[str, object],
    priority: int = 0,
) -> NewRun:
    """A run of an agent (name, version, limits) with the user's text as it was given, and as it is kept.

    Raises InvalidInput for a key, metadata or a priority that are none, and (`key_reserved`) for a key as OWN_KEYS has.
    """
    check_key(key)
    if key is not None and OWN_KEYS.match(key):
        raise InvalidInput(
            f"the key {key!r} begins like those that surefoot makes itself, for retries, due times, performed calls "
            "and the runs of agents that work on calls: give it another beginning",
            code="key_reserved",
        )
    _check_priority(priority)
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata is a mapping of texts to JSON values, not {type(metadata).__name__}")
    canonical(dict(metadata), "metadata")
    name, version, limits = agent
    given, kept = text
    return NewRun(
        agent=name,
        version=version,
        kind="agent",
        limits=limits,
        by=by,
        key=key,
        asked=digest(canonical([name, given, conversation_id, dict(metadata), *([priority] if priority else [])])),
        body=user_body(kept),
        conversation_id=conversation_id,
        metadata=metadata,
        priority=priority,
    )


First = Callable[[Draft, Sequence[ProposedCall]], None]
"""Adds to a run's first commit what it starts with; given the calls that are proposed in it."""


class Born(msgspec.Struct, frozen=True):
    """What became of making a run. `made` is False where its key had made it before; of an unacknowledged commit that
    happened nothing is sent, though the run is there."""

    run: Run
    made: bool
    acknowledged: bool = True


async def create_run(
    ctx: Context,
    new: NewRun,
    lease_owner: str | None = None,
    first: First | None = None,
) -> Born:
    """The run, born leased to `lease_owner` where one is given; `first` adds to its first commit what it starts with.

    Raises KeyReused, NotFound (conversation), NotAllowed (`conversation_busy`), InvalidInput (the call, the metadata).
    """
    metadata = canonical(dict(new.metadata))
    if len(metadata) > METADATA_BYTES_MAX and new.body is not None:
        await _refuse_metadata(ctx, new, len(metadata))
    at, by = ctx.store.now(), ctx.redactor.text(check_name(new.by, "by"))
    conversation, position, queued = new.conversation_id, 0, []
    if conversation is not None:
        position, _ = await ctx.store.conversation(ctx.tenant_id, conversation)
        queued = await ctx.store.queued(ctx.tenant_id, conversation)
    started = ev.RunStarted(
        run_id=new_id(ctx, "run"),
        tenant_id=ctx.tenant_id,
        conversation_id=conversation or new_id(ctx, "conv"),
        agent=new.agent,
        agent_version=new.version,
        kind=new.kind,
        position=position,
        created_by=by,
        limits=new.limits,
        parent_step_id=new.parent_step_id,
    )
    run = begin(started, at)
    draft = Draft(run, at, rules=ctx.registry.of(run).rules)
    draft.events.append(started)
    for row in queued:
        draft.emit(ev.MessageAppended(row.id, row.role, draft.run.next_position))
    start_run(draft, new.body)
    calls: list[ProposedCall] = []
    if new.call is not None:
        preparer = Preparer(ctx, None, asks_owner=new.asks_owner)
        calls = [await _propose(preparer, draft, run, new.call, new.business_key)]
    if first is not None:
        first(draft, calls)
    create = Create(
        after=msgspec.structs.replace(draft.finish(), version=1),
        events=tuple(draft.events),
        at=at,
        payloads=tuple(draft.payloads),
        new_conversation=new.conversation_id is None,
        start_key=None if new.key is None else ctx.redactor.text(new.key),
        start_hash=new.asked,
        created_by=by,
        metadata=redact_json(ctx.redactor, metadata),
        priority=new.priority,
        lease_owner=lease_owner,
        lease_s=ctx.lease_s,
        parent_token=new.parent_token,
    )
    try:
        made = await ctx.store.create(create)
    except CommitUnknown as unknown:
        return Born(await _found(ctx, create, unknown), made=True, acknowledged=False)
    return Born(made, made.id == run.id)


async def _refuse_metadata(ctx: Context, new: NewRun, size: int) -> None:
    """Unless an older version has made the run, under the same key: that it is there is what its maker asks for."""
    if new.key is not None and await ctx.store.run_of_key(ctx.tenant_id, ctx.redactor.text(new.key)) is not None:
        return
    raise InvalidInput(
        f"the metadata have {size} bytes as JSON, and a run carries {METADATA_BYTES_MAX}: put large things into "
        "the input, or into a store of your own and a reference to them here",
        code="too_large",
    )


async def create_driven(
    ctx: Context, new: NewRun, worker: Worker, loop_for: Callable[[Run], Loop | None]
) -> tuple[Run, bool]:
    """The run, driven by this process's worker from its first commit on, which holds what it starts with too; False if
    its key had made it before.

    Raises as `create_run` does.
    """
    drivers: list[Driver] = []
    begun: list[str] = []
    until = ctx.store.now().mono + ctx.lease_s

    def first(d: Draft, calls: Sequence[ProposedCall]) -> None:
        loop = loop_for(d.run)
        assert loop is not None, "the agent is known here"
        drivers.append(worker.driver(d.run, loop, Claimed(d.run.id, FIRST_TOKEN, until, owner_died=False)))
        worker.unheard.come(d.run.id)
        drivers[0].held.remember(known_calls(calls))
        begun.extend(drivers[0].held.go_on(d))

    try:
        born = await create_run(ctx, new, worker.id, first)
    except (asyncio.CancelledError, CommitUnknown):
        if drivers:
            # If the commit happens all the same, nobody else could know that nothing was sent on its intents.
            worker.unheard.come(drivers[0].handle.run.id)
            worker.look_after(_take_up(ctx, worker, drivers[0]))
        raise
    else:
        if born.made:
            drivers[0].handle.run = born.run
            worker.drive(drivers[0], begun if born.acknowledged else ())
    finally:
        for driver in drivers:
            worker.unheard.came(driver.handle.run.id)
    if not born.made:
        worker.wake()
    return born.run, born.made


async def _take_up(ctx: Context, worker: Worker, driver: Driver) -> None:
    """Drive a run whose maker has gone away or does not know, if it was made; what it was to begin with begins then.

    Its commit may still be on its way when the store has no such run; its lease begins with it.
    """
    run, failures, clock = driver.handle.run, 0, ctx.doors.clock
    until = clock.now().mono + ON_ITS_WAY_SECONDS_MAX
    try:
        while clock.now().mono < until:
            try:
                await ctx.store.fence(run.tenant_id, run.id)
                made = await ctx.store.load(run.tenant_id, run.id)
                ends = await ctx.store.renew(run.tenant_id, {run.id: FIRST_TOKEN}, ctx.lease_s)
            except (StoreError, NotFound):
                failures += 1
                await clock.sleep(policy.backoff(failures, 0.5, base_s=0.2, max_s=5.0))
                continue
            if run.id in ends and run.id not in worker.drivers:
                driver.handle.run = made
                driver.held.keep(ends[run.id])
                worker.drive(driver)
            return
    finally:
        worker.unheard.came(run.id)


async def _found(ctx: Context, create: Create, unknown: CommitUnknown) -> Run:
    """Read back after a commit whose reply was lost. Raises StoreUnavailable where it did not happen, `unknown` where
    that cannot be told now.
    """
    run_id = create.after.id
    try:
        confirmed = await ctx.store.confirm()
        return await ctx.store.load(ctx.tenant_id, run_id)
    except NotFound:
        if confirmed:
            # It may still wait for its conversation, for the run that it is to work for, or in the network.
            raise unknown from None
        raise StoreUnavailable(f"run {run_id}: the commit did not happen. Nothing was written; try again") from None
    except StoreError:
        raise unknown from None


async def run_again(ctx: Context, run_id: str, by: str, known: tuple[str, Limits] | None) -> NewRun:
    """What takes up a failed or cancelled run: what a new one is to be, or what found the run that did so already.

    It has no message of its own and a fresh budget: `known` is the agent's version and limits, else those of the run
    count. Raises NotFound, NotAllowed (`run_under_way`, `run_completed`, `conversation_moved_on`), InvalidInput.
    """
    row = await ctx.store.run(ctx.tenant_id, run_id)
    run, key = row.run, f"retry:{run_id}"
    if run.kind == PERFORM:
        raise InvalidInput("a performed call is no agent's run: perform it again with its key")
    if not run.ended:
        asked = ", ".join(action.id for action in run.waiting_actions)
        what = f"it goes on when {asked} is answered" if asked else "it goes on by itself"
        raise NotAllowed(f"run {run_id} is {run.status.value}: {what}", code="run_under_way")
    if run.status is RunStatus.completed:
        raise NotAllowed(f"run {run_id} is completed: start a new run in its conversation", code="run_completed")
    position, _ = await ctx.store.conversation(ctx.tenant_id, run.conversation_id)
    # Whether what was made under the key is a retry, the hash of what was asked says when it is made again.
    if position != run.next_position and await ctx.store.run_of_key(ctx.tenant_id, key) is None:
        raise NotAllowed(
            f"the conversation has gone on since run {run_id}: start a new run in it", code="conversation_moved_on"
        )
    version, limits = known or (run.agent_version, run.limits)
    return NewRun(
        agent=run.agent,
        version=version,
        kind=run.kind,
        limits=limits,
        by=by,
        key=key,
        asked=digest(key.encode()),
        conversation_id=run.conversation_id,
        metadata=msgspec.json.decode(row.metadata, type=dict[str, object]),
    )


async def _propose(
    preparer: Preparer, draft: Draft, run: Run, call: ToolCall, business_key: str | None
) -> ProposedCall:
    proposed = await preparer.call(run, call.tool, call.arguments, business_key)
    if proposed.refusal is not None and proposed.refusal.code == KeyReused.code:
        raise KeyReused(proposed.refusal.text)
    if proposed.refusal is not None:
        raise InvalidInput(proposed.refusal.text, code=proposed.refusal.code)
    propose(draft, proposed, 0, 0, None)
    return proposed
