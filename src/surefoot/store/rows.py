"""From decisions to rows: a query's name with the values that it binds, in its order. Decides nothing, does no I/O.

Enumerations and flags are bound as plain text and numbers: sqlite3 looks for adapters of any other type, which is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache

import msgspec

from surefoot.core import codec, events as ev
from surefoot.core.ids import operation_key, run_of_step, sequence_of_step
from surefoot.core.state import (
    Action,
    ActionKind,
    ActionStatus,
    Instant,
    Limits,
    Resolution,
    Run,
    RunStatus,
    Signals,
    Step,
    StepStatus,
    StepType,
    last_committed_sequence,
    wake_times,
)
from surefoot.errors import InvalidInput
from surefoot.store import port

Values = tuple[object, ...]
Keep = Callable[[bytes], str | bytes]
"""How a store keeps a text that may be large: one of packing.py."""

_WORDS: dict[StrEnum, str] = {
    member: member.value
    for kind in (StepType, StepStatus, RunStatus, ActionStatus, ActionKind, Resolution)
    for member in kind
}
"""What members are bound as. A look into a table costs a third of what `member.value` does."""

FLUSH_ORDER = (
    "conversation_insert", "conversation_position", "step_insert", "step_update", "step_view", "action_insert",
    "action_update", "message_insert", "evidence_insert", "blob_drop_transient", "blob_put", "event_insert",
)  # fmt: skip
"""The queries that may wait until all guards of a batch were checked, and the order in which they then run."""


class Written(msgspec.Struct):
    """What one decision writes: rows that may wait, and writes that may be refused and so are made with the guard."""

    rows: dict[str, list[Values]]
    keys: list[Values]
    """For operation_key_claim."""
    places: list[Values]
    """For message_place."""
    result: str | None = None
    """Of the run; None where it is not given. As all of the run's own row, written with the guard."""


class _Payloads:
    """The payloads of a decision, by what they belong to."""

    def __init__(self, payloads: Iterable[port.Payload]) -> None:
        self.bodies: dict[str, port.MessageBody] = {}
        self.views: dict[str, port.StepView] = {}
        self.shown: dict[str, port.ActionView] = {}
        self.answers: dict[str, port.ActionAnswer] = {}
        self.blobs: list[port.BlobPut] = []
        self.drop = False
        self.evidence: list[port.EvidenceDetail] = []
        self.keys: list[port.ClaimKey] = []
        self.result: port.RunResult | None = None
        for payload in payloads:
            self._add(payload)

    def _add(self, payload: port.Payload) -> None:
        # The commonest first: this is on the path of every append.
        if isinstance(payload, port.StepView):
            self.views[payload.step_id] = _merged(self.views.get(payload.step_id), payload)
        elif isinstance(payload, port.MessageBody):
            self.bodies[payload.message_id] = payload
        elif isinstance(payload, port.BlobPut):
            self.blobs.append(payload)
        elif isinstance(payload, port.RunResult):
            self.result = payload
        elif isinstance(payload, port.ClaimKey):
            self.keys.append(payload)
        elif isinstance(payload, port.TransientDrop):
            self.drop = True
        elif isinstance(payload, port.ActionView):
            self.shown[payload.action_id] = payload
        elif isinstance(payload, port.ActionAnswer):
            self.answers[payload.action_id] = payload
        else:
            self.evidence.append(payload)


def _merged(first: port.StepView | None, then: port.StepView) -> port.StepView:
    if first is None:
        return then
    return port.StepView(
        then.step_id,
        first.safe_input if then.safe_input is None else then.safe_input,
        first.safe_output if then.safe_output is None else then.safe_output,
    )


class _Builder:
    """Collects the rows of one decision."""

    def __init__(self, run: Run, at: Instant, keep: Keep) -> None:
        self.run = run
        self.at = at
        self.keep = keep
        self.written = Written({}, [], [])

    def add(self, query: str, *values: object) -> None:
        self.written.rows.setdefault(query, []).append(values)

    def steps(self, before: Mapping[str, Step], payloads: _Payloads) -> None:
        for step in self.run.steps.values():
            old = before.get(step.id)
            if step is not old:
                self._step(step, old, payloads.views.pop(step.id, None))
        for view in payloads.views.values():
            values = (
                *_views(view, self.keep),
                self.at.wall,
                self.run.tenant_id,
                self.run.id,
                sequence_of_step(view.step_id),
            )
            self.add("step_view", *values)

    def _step(self, step: Step, old: Step | None, view: port.StepView | None) -> None:
        changing = (*_step_values(step, self.run.id), *_views(view, self.keep), self.at.wall)
        if old is None:
            run = self.run
            self.add(
                "step_insert", *changing, run.tenant_id, step.id, run.id, run.conversation_id, step.sequence,
                _WORDS[step.type], step.identity_hash, self.at.wall,
            )  # fmt: skip
        else:
            self.add("step_update", *changing, self.run.tenant_id, self.run.id, step.sequence)

    def actions(self, before: Mapping[str, Action], payloads: _Payloads) -> None:
        for action in self.run.actions.values():
            old = before.get(action.id)
            if action is not old:
                self._action(action, old, payloads)

    def _action(self, action: Action, old: Action | None, payloads: _Payloads) -> None:
        answer = payloads.answers.get(action.id)
        decided = self.at.wall if action.decision is not None else None
        changing = (
            _WORDS[action.status], action.why, action.expires_wall, action.decision, action.decided_by, decided,
            action.decided_from, action.decision_key, answer.reason if answer else None,
            _text(answer.answer) if answer else None, self.at.wall,
        )  # fmt: skip
        if old is not None:
            self.add("action_update", *changing, self.run.tenant_id, action.id)
            return
        shown = payloads.shown.get(action.id)
        self.add(
            "action_insert", *changing, self.run.tenant_id, action.id, self.run.id, action.step_id, _WORDS[action.kind],
            action.input_hash, action.permission, _text(shown.arguments) if shown else "null",
            _text(shown.preview) if shown else "null", self.at.wall,
        )  # fmt: skip

    def messages(self, events: Sequence[ev.AnyEvent], bodies: Mapping[str, port.MessageBody]) -> None:
        last: dict[str, ev.MessageQueued | ev.MessageAppended] = {
            event.message_id: event for event in events if isinstance(event, (ev.MessageQueued, ev.MessageAppended))
        }
        if bodies.keys() - last.keys():
            raise InvalidInput("a message's body came without its event: append both together")
        for event in last.values():
            self._message(event, bodies.get(event.message_id))

    def _message(self, event: ev.MessageQueued | ev.MessageAppended, body: port.MessageBody | None) -> None:
        run, wall = self.run, self.at.wall
        position, step_id, call_id = None, None, None
        if isinstance(event, ev.MessageAppended):
            position, step_id, call_id = event.position, event.step_id, event.call_id
        if body is not None:
            self.add(
                "message_insert", run.tenant_id, event.message_id, run.conversation_id, run.id, step_id, call_id,
                position, event.role, self.keep(body.body), wall, wall,
            )  # fmt: skip
        elif position is not None:
            placed = (position, run.id, step_id, call_id, wall, run.tenant_id, event.message_id, run.conversation_id)
            self.written.places.append(placed)
        elif event.role != "note":
            # A note without one was left queued by an earlier run, and waits for its place with this one now.
            raise InvalidInput(f"message {event.message_id} is queued without its body: append both together")

    def events(self, events: Sequence[ev.AnyEvent]) -> None:
        run, at = self.run, self.at
        if events:
            self.add(
                "event_insert", run.tenant_id, run.id, run.event_sequence, len(events), run.version, codec.EVENTS,
                at.mono, codec.FORMAT, codec.encode_events(events, run.id), at.wall,
            )  # fmt: skip

    def others(self, payloads: _Payloads) -> None:
        run, wall = self.run, self.at.wall
        if payloads.drop:
            self.add("blob_drop_transient", run.tenant_id, run.id)
        for blob in payloads.blobs:
            self.add("blob_put", run.tenant_id, blob.ref, blob.data, blob.retention, run.id, wall, wall)
        for line in payloads.evidence:
            self.add(
                "evidence_insert", run.tenant_id, run.id, line.step_id, line.attempt, line.verdict, line.source,
                line.reason, line.resource_id, line.resource_url, _text(line.detail), wall,
            )  # fmt: skip
        for key in payloads.keys:
            self.written.keys.append(
                (run.tenant_id, key.operation_key, run.id, key.step_id, key.input_hash, wall, wall)
            )
        if payloads.result is not None:
            self.written.result = _text(payloads.result.result)


def append_rows(append: port.Append, keep: Keep) -> Written:
    """The rows of an append, beside its guard. Raises InvalidInput for a text that is not UTF-8 or lacks its event."""
    before, after = append.before, append.after
    build = _Builder(after, append.at, keep)
    if after.ended and after.talks:
        build.add("conversation_position", after.next_position, append.at.wall, after.tenant_id, after.conversation_id)
    return _filled(build, before, append.events, append.payloads)


def create_rows(create: port.Create, keep: Keep) -> Written:
    """The rows of a new run, beside the run's own. Raises InvalidInput as `append_rows` does."""
    after, wall = create.after, create.at.wall
    build = _Builder(after, create.at, keep)
    if create.new_conversation and after.talks:
        build.add("conversation_insert", after.tenant_id, after.conversation_id, after.next_position, wall, wall)
    elif after.ended and after.talks:
        build.add("conversation_position", after.next_position, wall, after.tenant_id, after.conversation_id)
    return _filled(build, None, create.events, create.payloads)


def _filled(
    build: _Builder, before: Run | None, events: Sequence[ev.AnyEvent], given: Iterable[port.Payload]
) -> Written:
    expected = (before.event_sequence if before is not None else 0) + len(events)
    assert build.run.event_sequence == expected, "`after` is `before` evolved by `events`"
    payloads = _Payloads(given)
    try:
        build.steps(before.steps if before is not None else {}, payloads)
        build.actions(before.actions if before is not None else {}, payloads)
        build.messages(events, payloads.bodies)
        build.others(payloads)
        build.events(events)
    except UnicodeError as error:
        raise InvalidInput(f"a text is not valid UTF-8: {error}. Clean it before it is stored") from error
    return build.written


def counters(append: port.Append) -> Values:
    """What every append writes of the run's own row."""
    after = append.after
    return (
        after.version, after.event_sequence, after.step_count, after.next_position, after.turns, after.input_tokens,
        after.output_tokens, after.cost_microdollars, after.result_step_id, _queued(after.queued),
        last_committed_sequence(after), append.at.wall,
    )  # fmt: skip


def decided_on(append: port.Append) -> Values:
    """The row that an append changes: tenant, run, the version that was decided on, the lease's token or None."""
    return (append.after.tenant_id, append.after.id, append.before.version, append.token)


def guard_values(append: port.Append, now: Instant) -> Values:
    """What a guard compares; `now` is read in the transaction."""
    mono = now.mono if append.needs_lease else -1e308
    return (*decided_on(append), mono, int(append.needs_lease), append.wall_before, now.wall)


def changed_state(append: port.Append, result: str | None) -> Values:
    """What append_guard_state writes beside the counters; nothing where the append leaves all of it as it is."""
    release = int(append.release)
    if not release and result is None and _same_state(append.before, append.after):
        return ()
    return (*state_values(append.after), result, release, release)


def _same_state(before: Run, after: Run) -> bool:
    """Whether `state_values` would be the same; asked of every append."""
    return (
        before.status is after.status
        and before.limits is after.limits
        and before.signals is after.signals
        and before.error_code == after.error_code
        and before.agent_version == after.agent_version
        and wake_times(before) == wake_times(after)
    )


def run_values(create: port.Create, owner: str | None, now: Instant, result: str | None) -> Values:
    """What run_insert binds; the run is born leased to `owner`."""
    run = create.after
    status, error_code, ready_at, wake_at, version, limits, signals = state_values(run)
    parent = run.parent_step_id
    token, until = (1, now.mono + create.lease_s) if owner is not None else (0, 0.0)
    return (
        run.tenant_id, run.id, run.conversation_id, run.agent, version, run.kind, status, run.version,
        run.event_sequence, run.step_count, run.next_position, run.turns, last_committed_sequence(run),
        run.started.mono, run.started.wall, limits, _queued(run.queued), error_code, ready_at, wake_at, owner, token,
        until, create.start_key, create.start_hash, create.created_by, _text(create.metadata), signals,
        parent, None if parent is None else run_of_step(parent), create.at.wall, create.at.wall, result,
        create.priority,
    )  # fmt: skip


def state_values(run: Run) -> Values:
    """What the run's state is made of, as it is bound."""
    ready_at, wake_at = wake_times(run)
    signals = _signals(run.signals)
    return (_WORDS[run.status], run.error_code, ready_at, wake_at, run.agent_version, _limits(run.limits), signals)


def _step_values(step: Step, run_id: str) -> Values:
    key: str | None = step.operation_key
    if key == operation_key(run_id, step.id):
        # As it is in most steps, and read_step knows it.
        key = None
    return (
        _WORDS[step.status], codec.encode_rules(step.rules), step.tool_name, step.tool_version, step.call_id,
        step.position, key, step.input_hash, step.input_ref, step.target, step.credential, step.account,
        step.owner_step_id, step.action_id, step.external_resource_id, step.resource_url, _word(step.resolution),
        step.error_code, step.purpose, step.attempt, step.not_before, step.doubt_since, step.look_at, step.looks,
        step.sweep, int(step.person_absent), int(step.answered),
        codec.encode_value(step.receipts) if step.receipts else "[]",
        codec.encode_value(step.attempts) if step.attempts else "[]",
    )  # fmt: skip


def _views(view: port.StepView | None, keep: Keep) -> Values:
    if view is None:
        return (None, None)
    given, made = view.safe_input, view.safe_output
    return (None if given is None else keep(given), None if made is None else keep(made))


def _word(member: Resolution | None) -> str | None:
    return None if member is None else _WORDS[member]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _queued(ids: tuple[str, ...]) -> str:
    return codec.encode_value(ids) if ids else "[]"


@lru_cache(maxsize=256)
def _limits(limits: Limits) -> str:
    return codec.encode_value(limits)


@lru_cache(maxsize=256)
def _signals(signals: Signals) -> str:
    return codec.encode_value(signals)
