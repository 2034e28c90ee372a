"""A run as clients see it: stable product state, never core records. The same for CLI, HTTP and Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from surefoot.core.codec import decode_value
from surefoot.core.evolve import Recorded
from surefoot.core.ids import run_of_step
from surefoot.core.state import (
    Action,
    ActionKind,
    ActionStatus,
    Instant,
    Resolution,
    Run,
    RunStatus,
    Step,
    StepStatus,
    StepType,
    WaitsFor,
    wake_times,
)
from surefoot.runtime.children import calls_run, rests
from surefoot.runtime.context import Context
from surefoot.store.listed import Listed, UnreadableRow, to_the_end
from surefoot.store.port import ActionRow, EvidenceRow, MessageRow, RunRow, StepRow
from surefoot.vocabulary import event_text, run_code, text_of

ToolTexts = Mapping[str, Mapping[str, Mapping[str, str]]]
"""The display texts of tools, by name."""


class Display(msgspec.Struct, frozen=True):
    """A stable code and its text."""

    code: str
    text: str


class Next(msgspec.Struct, frozen=True):
    """What the run waits for, since when, and when it is looked at next (ISO times, UTC)."""

    what: str
    since: str | None = None
    at: str | None = None


class EvidenceView(msgspec.Struct, frozen=True):
    """Why something is believed about a step."""

    attempt: int | None
    verdict: str
    source: str
    reason: str | None
    resource_id: str | None
    url: str | None
    coverage: object
    at: str


class StepView(msgspec.Struct, frozen=True):
    """A step."""

    id: str
    sequence: int
    type: str
    status: str
    tool_name: str | None
    purpose: str | None
    call_id: str | None
    attempt: int
    operation_key: str | None
    external_resource_id: str | None
    resource_url: str | None
    resolution: str | None
    error_code: str | None
    child_run_id: str | None
    """The run of another agent that works on it."""
    input: object
    output: object
    display: Display
    evidence: list[EvidenceView]


class ActionView(msgspec.Struct, frozen=True):
    """A question to a person."""

    id: str
    run_id: str
    step_id: str
    kind: str
    status: str
    why: str | None
    tool_name: str | None
    arguments: object
    preview: object
    input_hash: str
    permission: str | None
    expires_at: str | None
    decision: str | None
    decided_by: str | None
    decided_from: str | None
    decided_at: str | None
    reason: str | None
    answer: object
    display: Display
    created_at: str


class RunSnapshot(msgspec.Struct, frozen=True):
    """A run with its steps and its open questions."""

    id: str
    agent: str
    agent_version: str
    kind: str
    conversation_id: str
    created_by: str
    parent_step_id: str | None
    """The step of another run that waits for this one."""
    status: str
    version: int
    last_committed_sequence: int
    last_event_sequence: int
    display: Display
    can_cancel: bool
    next: Next | None
    waits_for_person: bool
    """Nothing in it, or in the runs that work for it, goes on without a person, or a program that answers."""
    steps: list[StepView]
    pending_actions: list[ActionView]
    """What is open here and in the runs that work for it; each has its own run_id."""
    result: object
    error_code: str | None
    metadata: object
    created_at: str
    updated_at: str
    unreadable: list[UnreadableRow] = []
    """Of the runs that work for it, and of their questions, what cannot be read and is in no list here."""


class RunSummary(msgspec.Struct, frozen=True):
    """A run in a list."""

    id: str
    agent: str
    agent_version: str
    kind: str
    conversation_id: str
    created_by: str
    status: str
    version: int
    last_event_sequence: int
    display: Display
    error_code: str | None
    metadata: object
    created_at: str
    updated_at: str


class MessageView(msgspec.Struct, frozen=True):
    """A message of a conversation; `body` is what is stored under its role."""

    id: str
    position: int | None
    role: str
    run_id: str | None
    step_id: str | None
    call_id: str | None
    body: object
    created_at: str


class RunEvent(msgspec.Struct, frozen=True):
    """An event on the wire. `data` is small and holds no payload."""

    run_id: str
    sequence: int
    version: int
    type: str
    at: str
    step_id: str | None
    data: dict[str, object]


NO_WORKER_SECONDS = 15.0
"""A run that has been ready and free for longer stands still: most likely no worker knows its agent and version."""
LAST_WALL = 253_402_300_799.0
"""The end of the year 9999: a later time is shown as none."""


def iso(wall: float | None) -> str | None:
    """Seconds since 1970 as an ISO time in UTC."""
    if wall is None or not 0 <= wall < LAST_WALL:
        return None
    return datetime.fromtimestamp(wall, UTC).isoformat().replace("+00:00", "Z")


def public_event(line: Recorded) -> RunEvent:
    """A stored event as clients see it."""
    data = msgspec.to_builtins(line.event)
    kind = data.pop("type")
    step_id = data.pop("step_id", None)
    data.pop("rules", None)
    return RunEvent(line.run_id, line.sequence, line.version, kind, iso(line.at.wall) or "", step_id, data)


def event_line(event: RunEvent, tools: Mapping[str, str | None], language: str, texts: ToolTexts) -> str | None:
    """An event as a line for people, None where it is of no interest. `tools` are those of the run's steps by id."""
    tool = tools.get(event.step_id or str(event.data.get("step_id") or ""))
    return event_text(event.type, event.data, language, tool=tool, texts=texts.get(tool or ""))


def run_summary(row: RunRow, language: str) -> RunSummary:
    """A run for a list."""
    run = row.run
    code = run_code(run)
    return RunSummary(
        id=run.id,
        agent=run.agent,
        agent_version=run.agent_version,
        kind=run.kind,
        conversation_id=run.conversation_id,
        created_by=row.created_by,
        status=run.status.value,
        version=run.version,
        last_event_sequence=run.event_sequence,
        display=Display(code, text_of(code, language)),
        error_code=run.error_code or row.blocked_code,
        metadata=_json(row.metadata),
        created_at=iso(row.created_at) or "",
        updated_at=iso(row.updated_at) or "",
    )


def message_view(row: MessageRow) -> MessageView:
    """A message as clients see it."""
    return MessageView(
        row.id, row.position, row.role, row.run_id, row.step_id, row.call_id, _json(row.body), iso(row.created_at) or ""
    )


def at_rest(snapshot: RunSnapshot) -> bool:
    """True where a run has ended, or nothing in it goes on without a person's answer."""
    return snapshot.status in ("completed", "failed", "cancelled") or snapshot.waits_for_person


def action_code(action: Action, tool_name: str | None) -> str:
    """The display code of a question: what it asks while it waits, then what became of it."""
    if action.status is ActionStatus.waiting:
        of_model = action.kind is ActionKind.ask and tool_name is None
        return "question_model" if of_model else f"question_{action.kind.value}"
    if action.status is ActionStatus.expired:
        return f"expired_{action.why or 'time'}"
    return f"decided_{action.decision}"


def action_view(row: ActionRow, language: str = "en") -> ActionView:
    """An action as clients see it."""
    a = row.action
    code = action_code(a, row.tool_name)
    return ActionView(
        id=a.id,
        run_id=row.run_id,
        step_id=a.step_id,
        kind=a.kind.value,
        status=a.status.value,
        why=a.why,
        tool_name=row.tool_name,
        arguments=_json(row.arguments),
        preview=_json(row.preview),
        input_hash=a.input_hash,
        permission=a.permission,
        expires_at=iso(a.expires_wall),
        decision=a.decision,
        decided_by=a.decided_by,
        decided_from=a.decided_from,
        decided_at=iso(row.decided_at),
        reason=row.reason,
        answer=_json(row.answer),
        display=Display(code, text_of(code, language, tool=row.tool_name or "")),
        created_at=iso(row.created_at) or "",
    )


def untaken_seconds(row: RunRow, now: Instant) -> float:
    """For how long a run has been ready and free without a worker that takes it; 0.0 where one has it, or need not."""
    free = row.lease_owner is None or row.lease_until <= now.mono
    if row.ready_at is None or not free:
        return 0.0
    # A run that is due at once says 0: the last append tells since when.
    return max(min(now.mono - row.ready_at, now.wall - row.updated_at), 0.0)


def blocked_code(row: RunRow, now: Instant) -> str | None:
    """Why no worker goes on with a run that has not ended, or None."""
    late = not row.run.ended and untaken_seconds(row, now) > NO_WORKER_SECONDS
    return row.blocked_code or ("no_worker" if late else None)


async def read_snapshot(ctx: Context, run_id: str, language: str) -> RunSnapshot:
    """Read a run and make its snapshot. Raises NotFound, Unreadable."""
    shown = await ctx.store.shown(ctx.tenant_id, run_id)
    row, steps, asked = shown.row, shown.steps, shown.actions
    calling = any(s.step.rules.waits_for is WaitsFor.run for s in steps)
    children: Listed[Run] = Listed()
    if calling:
        # Read after the run itself: what works for it may be shown as further than it is, and is never lost.
        children = await ctx.store.children(ctx.tenant_id, run_id)
        asked = below = await to_the_end(
            lambda after: ctx.store.actions(ctx.tenant_id, run_id=run_id, below=True, after=after)
        )
        children.unreadable += below.unreadable
    works = {child.parent_step_id: child.id for child in children}
    known: dict[str, list[EvidenceView]] = {}
    for line in shown.evidence:
        known.setdefault(line.step_id, []).append(_evidence(line))
    actions = [action_view(a, language) for a in asked]
    waiting = {a.step_id for a in actions if a.status == "waiting"}
    rest = not row.run.ended and await rests(ctx, row.run)
    run = row.run
    texts = {name: tool.display for name, tool in ctx.registry.of(run).tools.items()}
    code = run_code(run)
    return RunSnapshot(
        id=run.id,
        agent=run.agent,
        agent_version=run.agent_version,
        kind=run.kind,
        conversation_id=run.conversation_id,
        created_by=row.created_by,
        parent_step_id=run.parent_step_id,
        status=run.status.value,
        version=run.version,
        last_committed_sequence=row.last_committed_sequence,
        last_event_sequence=run.event_sequence,
        display=Display(code, text_of(code, language)),
        can_cancel=not run.ended,
        next=_next(row, steps, ctx.store.now(), rest),
        waits_for_person=rest,
        steps=[_step(s, known.get(s.step.id, []), waiting, texts, language, works.get(s.step.id)) for s in steps],
        pending_actions=[a for a in actions if a.status == "waiting"],
        # A call may have given it while others were still open.
        result=_json(row.result) if run.status is RunStatus.completed else None,
        error_code=run.error_code or blocked_code(row, ctx.store.now()),
        metadata=_json(row.metadata),
        created_at=iso(row.created_at) or "",
        updated_at=iso(row.updated_at) or "",
        unreadable=children.unreadable,
    )


async def read_calls(ctx: Context, step_ids: Sequence[str], language: str) -> list[StepView]:
    """The views of calls, which may be those of several runs: agents that work for a run are cancelled with it."""
    runs = [await read_snapshot(ctx, id, language) for id in dict.fromkeys(run_of_step(one) for one in step_ids)]
    return [step for run in runs for step in run.steps if step.id in step_ids]


def _json(data: bytes | None) -> object:
    return None if data is None else decode_value(data, object, "a stored value")


def _next(row: RunRow, steps: Sequence[StepRow], now: Instant, rest: bool) -> Next | None:
    run = row.run
    doubtful = [s for s in steps if s.step.in_doubt]
    mono, wall = wake_times(run)
    if run.waiting_actions and not doubtful:
        asked = {action.step_id for action in run.waiting_actions}
        signals = all(s.step.rules.waits_for is WaitsFor.signal for s in steps if s.step.id in asked)
        return Next("signal" if signals else "person", iso(row.updated_at), iso(wall))
    at = None if mono is None else iso(now.wall + max(mono - now.mono, 0.0))
    if doubtful:
        return Next("look" if mono is not None else "person", iso(doubtful[0].updated_at), at)
    if calls_run(run):
        return Next("person" if rest else "run", iso(row.updated_at), None if rest else at)
    if run.ended:
        return None if mono is None else Next("look", iso(row.updated_at), at)
    return Next("worker" if row.lease_owner else "start", iso(row.updated_at), at)


def step_code(step: Step, asked: bool, deferred: bool) -> str:
    """The display code of a step."""
    if step.type is StepType.model_call:
        if step.purpose == "compact":
            return "model_compacted"
        status = step.status.value.removesuffix("_for_approval")
        return f"model_{status if status in ('running', 'succeeded', 'failed', 'waiting') else 'pending'}"
    if step.status is StepStatus.outcome_unknown:
        if step.resolution is Resolution.given_up:
            return "tool_given_up"
        return "tool_asked" if asked else "tool_outcome_unknown"
    if step.rules.waits_for is WaitsFor.signal and step.status is StepStatus.waiting_for_approval:
        return "tool_waiting_for_signal"
    if step.rules.waits_for is WaitsFor.run and step.status is StepStatus.pending:
        return "tool_waiting_for_run"
    if step.status is StepStatus.pending and deferred:
        return "tool_deferred"
    return f"tool_{step.status.value}"


def _step(
    row: StepRow,
    evidence: list[EvidenceView],
    waiting: set[str],
    texts: ToolTexts,
    language: str,
    child_run_id: str | None,
) -> StepView:
    step = row.step
    code = step_code(step, step.id in waiting, step.error_code is not None)
    shown = text_of(code, language, tool=step.tool_name or "", texts=texts.get(step.tool_name or ""))
    return StepView(
        id=step.id,
        sequence=step.sequence,
        type=step.type.value,
        status=step.status.value,
        tool_name=step.tool_name,
        purpose=step.purpose,
        call_id=step.call_id,
        attempt=step.attempt,
        operation_key=step.operation_key or None,
        external_resource_id=step.external_resource_id,
        resource_url=step.resource_url,
        resolution=None if step.resolution is None else step.resolution.value,
        error_code=step.error_code,
        child_run_id=child_run_id,
        input=_json(row.safe_input),
        output=_json(row.safe_output),
        display=Display(code, shown),
        evidence=evidence,
    )


def _evidence(row: EvidenceRow) -> EvidenceView:
    detail = _json(row.detail)
    coverage = detail.get("coverage") if isinstance(detail, dict) else None
    return EvidenceView(
        attempt=row.attempt,
        verdict=row.verdict,
        source=row.source,
        reason=row.reason,
        resource_id=row.resource_id,
        url=row.resource_url,
        coverage=coverage,
        at=iso(row.created_at) or "",
    )
