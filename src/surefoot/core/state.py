"""The records that the core decides on: frozen, without payloads. Times are the store's clock, in seconds.

`mono` times count since boot (SQLite) or are the database's clock (PostgreSQL); `wall` times count since 1970 UTC.
A Run in memory holds its live steps only: those that are open, in doubt, or to be looked up again.

Records of the core are values without cycles, so the garbage collector need not look at them (`gc=False`).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Instant(msgspec.Struct, frozen=True, gc=False):
    """One reading of both clocks, in seconds: `mono` since boot (runs through sleep), `wall` since 1970 UTC."""

    mono: float
    wall: float

    def earlier(self, wall: float) -> Instant:
        """The instant of an earlier wall time: both clocks tell the same age. A later one is this instant."""
        age = max(self.wall - wall, 0.0)
        return Instant(self.mono - age, self.wall - age)


class RunStatus(StrEnum):
    """Where the whole task stands. The last three are final."""

    running = "running"
    waiting_for_user = "waiting_for_user"
    reconciling = "reconciling"
    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"


class StepStatus(StrEnum):
    """How far one unit of work got."""

    pending = "pending"
    running = "running"
    waiting_for_approval = "waiting_for_approval"
    outcome_unknown = "outcome_unknown"
    succeeded = "succeeded"
    failed = "failed"


class StepType(StrEnum):
    """What kind of work a step is."""

    model_call = "model_call"
    tool_call = "tool_call"
    human_approval = "human_approval"


class AttemptEnd(StrEnum):
    """What one try may have done, once sorted."""

    not_sent = "not_sent"
    refused = "refused"
    applied = "applied"
    in_doubt = "in_doubt"


class EffectClass(StrEnum):
    """How the world may be asked about a call."""

    read = "read"
    idempotent = "idempotent"
    lookup = "lookup"
    opaque = "opaque"


class WaitsFor(StrEnum):
    """What a call waits for that neither sends anything nor asks a person: it never has an attempt."""

    signal = "signal"
    run = "run"


class ActionKind(StrEnum):
    """What a person is asked."""

    approve = "approve"
    resolve = "resolve"
    ask = "ask"
    duplicate = "duplicate"


class ActionStatus(StrEnum):
    """Where a question stands; `expired` carries why: time, cancelled, superseded or settled."""

    waiting = "waiting"
    approved = "approved"
    rejected = "rejected"
    expired = "expired"


class Resolution(StrEnum):
    """How a step in doubt was closed by something other than its own receipt."""

    found = "found"
    not_applied = "not_applied"
    happened = "happened"
    did_not_happen = "did_not_happen"
    given_up = "given_up"
    answered_by = "answered_by"


TERMINAL = frozenset({RunStatus.completed, RunStatus.failed, RunStatus.cancelled})
STEP_ENDS = frozenset({StepStatus.succeeded, StepStatus.failed})


class Rules(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a tool's declaration means for decisions: that of now counts, a step keeps that by which it was tried."""

    effect: EffectClass
    settle_s: float = 60.0
    key_lifetime_s: float | None = None
    has_lookup: bool = False
    attempts_max: int = 8
    timeout_s: float = 30.0
    ask_after_s: float = 120.0
    approval_expires_s: float = 604_800.0
    starts_programs: bool = False
    waits_for: WaitsFor | None = None


class Limits(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Budgets of a run: model turns, seconds from its start, tokens sent and got, and what they cost (None: no end)."""

    turns_max: int = 100
    seconds_max: float | None = None
    tokens_max: int | None = None
    cost_microdollars_max: int | None = None


class Attempt(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """What one try may have done."""

    number: int
    token: int
    account: str | None
    key_id: str | None
    started: Instant
    first_byte_before: float
    """mono: no request starts later."""
    last_byte_before: float
    """mono: nothing is written later."""
    ended: float | None = None
    """mono: when a live worker saw it end, or its process was proven dead; None while nobody knows."""
    end: AttemptEnd | None = None
    code: str | None = None
    absent: bool = False
    """A look proved that this attempt had no effect, or a person said so."""

    @property
    def possibly_sent(self) -> bool:
        """True unless it certainly did nothing."""
        return not self.absent and self.end not in (AttemptEnd.not_sent, AttemptEnd.refused)


class Step(msgspec.Struct, frozen=True, gc=False):
    """How far one unit of work got. Payloads (input, output, views) live in rows and blobs only."""

    id: str
    sequence: int
    type: StepType
    status: StepStatus
    rules: Rules
    tool_name: str | None = None
    tool_version: str | None = None
    call_id: str | None = None
    position: int | None = None
    """Where its result stands in the conversation; reserved when the model's answer is stored."""
    operation_key: str = ""
    input_hash: str = ""
    input_ref: str | None = None
    identity_hash: str | None = None
    target: str | None = None
    credential: str | None = None
    account: str | None = None
    owner_step_id: str | None = None
    """Another step owns this business key: this one is answered from it."""
    action_id: str | None = None
    """The approval that the step waits for or runs under."""
    external_resource_id: str | None = None
    resource_url: str | None = None
    resolution: Resolution | None = None
    error_code: str | None = None
    purpose: str | None = None
    """What a model call was for, where it was not the next turn: `compact`."""
    attempt: int = 0
    attempts: tuple[Attempt, ...] = ()
    not_before: float = 0.0
    """mono: a pending step does not start earlier."""
    doubt_since: float | None = None
    look_at: float | None = None
    """mono: the next lookup."""
    looks: int = 0
    sweep: int | None = None
    """How many later looks were made after the step ended; None where none is owed."""
    person_absent: bool = False
    """A person said that it did not happen: one more look where there is one, then again under the same key."""
    answered: bool = False
    """Its call has its one result in the conversation."""
    receipts: tuple[str, ...] = ()
    """Resource ids seen for this key; two of them are a duplicate."""

    @property
    def open_in_loop(self) -> bool:
        """True while the agent loop has to wait for this step."""
        if self.status is StepStatus.outcome_unknown:
            return self.resolution is not Resolution.given_up
        return self.status not in (StepStatus.succeeded, StepStatus.failed)

    @property
    def in_doubt(self) -> bool:
        """Outcome unknown and not knowingly closed."""
        return self.status is StepStatus.outcome_unknown and self.resolution is not Resolution.given_up

    @property
    def live(self) -> bool:
        """True while a run in memory has to keep it."""
        return self.status not in STEP_ENDS or self.look_at is not None

    @property
    def doubtful_attempts(self) -> tuple[Attempt, ...]:
        """The attempts that may have acted and that nobody has proven absent."""
        return tuple(attempt for attempt in self.attempts if attempt.possibly_sent)

    @property
    def counted_attempts(self) -> int:
        """Attempts that count against the limit: possibly sent ones and those that killed the worker."""
        return len([a for a in self.attempts if a.end not in (AttemptEnd.not_sent, AttemptEnd.refused)])


class Action(msgspec.Struct, frozen=True, gc=False):
    """What waits for a person."""

    id: str
    step_id: str
    kind: ActionKind
    input_hash: str
    status: ActionStatus = ActionStatus.waiting
    why: str | None = None
    permission: str | None = None
    expires_wall: float | None = None
    decision: str | None = None
    decided_by: str | None = None
    decided_from: str | None = None
    """Where the decision came in: the command line, an address with a token's name, a link."""
    decision_key: str | None = None


class Signal(msgspec.Struct, frozen=True, gc=False):
    """A signal that no call has taken yet. `number` is the sequence of its event; the value is a blob under `ref`."""

    number: int
    name: str
    ref: str


class Signals(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The unread signals of a run, oldest first, and marks of the newest keys, read or not."""

    unread: tuple[Signal, ...] = ()
    keys: tuple[str, ...] = ()


NO_SIGNALS = Signals()


class Run(msgspec.Struct, frozen=True, gc=False):
    """Where the whole task stands, with its live steps and the actions that matter to them."""

    tenant_id: str
    id: str
    conversation_id: str
    agent: str
    agent_version: str
    kind: str
    """`agent` or `perform`."""
    status: RunStatus
    version: int
    event_sequence: int
    step_count: int
    next_position: int
    """The next free place in the conversation."""
    started: Instant
    limits: Limits = Limits()
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microdollars: int = 0
    """What the answers of the model came to, as far as providers and prices say."""
    result_step_id: str | None = None
    """The call whose output is the run's result, once every call beside it has its own; a user's message undoes it."""
    queued: tuple[str, ...] = ()
    """Messages that wait for a legal place in the conversation."""
    signals: Signals = NO_SIGNALS
    parent_step_id: str | None = None
    """The step of another run that waits for this one."""
    error_code: str | None = None
    steps: dict[str, Step] = {}
    actions: dict[str, Action] = {}

    @property
    def ended(self) -> bool:
        """True once the run is terminal."""
        return self.status in TERMINAL

    @property
    def talks(self) -> bool:
        """False for a performed call: its conversation is a name only, in which nothing is ever said."""
        return self.kind != "perform"

    @property
    def batch_open(self) -> bool:
        """True while a model call or a call of its answer has no result yet."""
        # A list, and no generator: this is asked several times in every decision.
        return True in [step.open_in_loop for step in self.steps.values()]

    @property
    def waiting_actions(self) -> tuple[Action, ...]:
        """Questions that are open."""
        if not self.actions:
            return ()
        return tuple(action for action in self.actions.values() if action.status is ActionStatus.waiting)


def last_committed_sequence(run: Run) -> int:
    """The largest n such that all steps up to n have ended or are given up."""
    return min([s.sequence for s in run.steps.values() if s.open_in_loop], default=run.step_count + 1) - 1


def wake_times(run: Run) -> tuple[float | None, float | None]:
    """When a worker has something to do next: (mono, wall); (None, None) while only a person can move the run."""
    mono: float | None = None
    for step in run.steps.values():
        if step.status is StepStatus.running:
            return 0.0, None
        due = step.not_before if step.status is StepStatus.pending and not run.ended else None
        for time in (step.look_at, due):
            if time is not None and (mono is None or time < mono):
                mono = time
    if run.ended:
        return mono, None
    if not run.batch_open:
        mono = 0.0 if mono is None else min(mono, 0.0)
    wall = [a.expires_wall for a in run.waiting_actions if a.expires_wall is not None]
    return mono, min(wall, default=None)
