"""What happened, in order: past tense, frozen, small. Never a copy of a payload. Durations in seconds, not times.

The names on the wire are the tags. A step event that ends an attempt carries its number and its end.
"""

from __future__ import annotations

import msgspec

from surefoot.core.state import (
    ActionKind,
    ActionStatus,
    AttemptEnd,
    Limits,
    Resolution,
    Rules,
    RunStatus,
    StepType,
)


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type"):
    """Base of all events."""


class RunStarted(Event, frozen=True, tag="run_started"):
    """A run exists."""

    run_id: str
    tenant_id: str
    conversation_id: str
    agent: str
    agent_version: str
    kind: str
    position: int
    created_by: str
    limits: Limits = Limits()
    parent_step_id: str | None = None


class RunStatusChanged(Event, frozen=True, tag="run_status_changed", rename={"from_status": "from", "to_status": "to"}):
    """The derived status changed, between states that are not final."""

    from_status: RunStatus
    to_status: RunStatus


class RunCompleted(Event, frozen=True, tag="run_completed"):
    """The run reached its result."""


class RunFailed(Event, frozen=True, tag="run_failed"):
    """The run ended without its result."""

    error_code: str


class RunCancelled(Event, frozen=True, tag="run_cancelled"):
    """Somebody stopped the run; `may_have_been_sent` lists the steps whose calls had begun."""

    by: str
    may_have_been_sent: tuple[str, ...] = ()


class StepEvent(Event, frozen=True):
    """Base of what happens to one step."""

    step_id: str


class StepCreated(StepEvent, frozen=True, tag="step_created"):
    """A unit of work was written down."""

    sequence: int
    step_type: StepType
    rules: Rules
    tool_name: str | None = None
    tool_version: str | None = None
    call_id: str | None = None
    position: int | None = None
    operation_key: str = ""
    input_hash: str = ""
    input_ref: str | None = None
    identity_hash: str | None = None
    target: str | None = None
    credential: str | None = None
    owner_step_id: str | None = None


class StepWaitingForApproval(StepEvent, frozen=True, tag="step_waiting_for_approval"):
    """The step waits for a person's decision."""

    action_id: str


class StepReleased(StepEvent, frozen=True, tag="step_released"):
    """A person approved: the step may start."""

    action_id: str


class StepStarted(StepEvent, frozen=True, tag="step_started"):
    """The intent of an attempt: from here on the call may have been sent."""

    attempt: int
    token: int
    timeout_s: float
    send_window_s: float
    account: str | None = None
    key_id: str | None = None
    since_wall: float | None = None
    """Where a copy of the store was put back: the call may have been sent by others, this wall time or later."""
    rules: Rules | None = None
    """What holds for the call, where the code that begins it declares it otherwise; it counts from now on."""


class StepDeferred(StepEvent, frozen=True, tag="step_deferred"):
    """Not now: again after `delay_s`, on the same step."""

    delay_s: float
    code: str | None = None
    attempt: int | None = None
    end: AttemptEnd | None = None


class StepOutcomeUnknown(StepEvent, frozen=True, tag="step_outcome_unknown"):
    """The call may have been sent and nobody wrote down its end."""

    attempt: int
    code: str
    ended: bool = True
    """False where the call may still be under way."""
    died: bool = False
    """The process of the attempt is proven dead; when it died is not known."""
    look_s: float = 0.0
    """Until the first look or resend."""


class StepSucceeded(StepEvent, frozen=True, tag="step_succeeded"):
    """There is a receipt."""

    attempt: int | None = None
    external_resource_id: str | None = None
    resource_url: str | None = None
    resolution: Resolution | None = None
    is_result: bool = False
    """The step's output is what the run ends with."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microdollars: int = 0
    """Of a model call; 0 where no price is known."""
    purpose: str | None = None
    """Of a model call that was not the next turn: `compact`."""


class StepFailed(StepEvent, frozen=True, tag="step_failed"):
    """Nothing happened, with proof."""

    error_code: str
    attempt: int | None = None
    end: AttemptEnd | None = None
    resolution: Resolution | None = None


class StepGivenUp(StepEvent, frozen=True, tag="step_given_up"):
    """The question was closed knowingly; the step keeps outcome_unknown and later evidence still counts."""


class AttemptEnded(StepEvent, frozen=True, tag="attempt_ended"):
    """An attempt's end became known without a change of the step's status."""

    attempt: int
    end: AttemptEnd
    code: str | None = None


class LookupAnswered(StepEvent, frozen=True, tag="lookup_answered"):
    """A look at the target: found, absent or undetermined. `concluded` says whether an absent was believed."""

    verdict: str
    reason: str | None = None
    concluded: bool = False
    next_look_s: float | None = None
    resource_id: str | None = None


class EvidenceRecorded(StepEvent, frozen=True, tag="evidence_recorded"):
    """Evidence from a worker, a webhook, a report or a person."""

    source: str
    verdict: str
    attempt: int | None = None
    resource_id: str | None = None
    resource_url: str | None = None


class ReceiptRecorded(StepEvent, frozen=True, tag="receipt_recorded"):
    """A receipt came after the call had its result, or after the run's end."""

    resource_id: str | None = None
    resource_url: str | None = None


class DuplicateDetected(StepEvent, frozen=True, tag="duplicate_detected"):
    """More than one effect under one key."""

    resource_ids: tuple[str, ...]
    resource_urls: tuple[str, ...] = ()


class SweepScheduled(StepEvent, frozen=True, tag="sweep_scheduled"):
    """The step will be looked up again after it ended; None: no more."""

    sweep: int | None
    delay_s: float | None = None


class ActionRequested(Event, frozen=True, tag="action_requested"):
    """A person is asked."""

    action_id: str
    step_id: str
    kind: ActionKind
    input_hash: str
    permission: str | None = None
    expires_s: float | None = None


class ActionDecided(Event, frozen=True, tag="action_decided"):
    """A person decided."""

    action_id: str
    step_id: str
    status: ActionStatus
    decision: str
    by: str
    decision_key: str | None = None
    source: str | None = None


class ActionExpired(Event, frozen=True, tag="action_expired"):
    """The question is gone: time, cancelled, superseded or settled."""

    action_id: str
    step_id: str
    why: str


class SignalReceived(Event, frozen=True, tag="signal_received"):
    """A program said something to the run; it is kept until a call takes it. `ref` names the value's blob."""

    name: str
    ref: str
    by: str
    key: str | None = None


class SignalTaken(Event, frozen=True, tag="signal_taken"):
    """A call that waited took a signal as its result: `signal` is the sequence of its signal_received."""

    signal: int
    step_id: str


class MessageQueued(Event, frozen=True, tag="message_queued"):
    """A message waits for a legal place: it never stands between a call and its result."""

    message_id: str
    role: str


class MessageAppended(Event, frozen=True, tag="message_appended"):
    """The conversation grew by one message at `position`."""

    message_id: str
    role: str
    position: int
    step_id: str | None = None
    call_id: str | None = None


AnyEvent = (
    RunStarted | RunStatusChanged | RunCompleted | RunFailed | RunCancelled
    | StepCreated | StepWaitingForApproval | StepReleased | StepStarted | StepDeferred | StepOutcomeUnknown
    | StepSucceeded | StepFailed | StepGivenUp | AttemptEnded | LookupAnswered | EvidenceRecorded | ReceiptRecorded
    | DuplicateDetected | SweepScheduled | ActionRequested | ActionDecided | ActionExpired
    | SignalReceived | SignalTaken | MessageQueued | MessageAppended
)  # fmt: skip
