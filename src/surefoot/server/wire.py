"""What requests and answers hold. A run, an action, an event and a message are those of snapshot.py."""

from __future__ import annotations

from typing import Literal

import msgspec
from fastapi import Response

from surefoot.snapshot import ActionView, MessageView, RunEvent, RunSummary, StepView
from surefoot.store.listed import UnreadableRow

INPUT_CHARACTERS_MAX = 500_000


class StartRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be done by whom."""

    agent: str
    input: str
    conversation_id: str | None = None
    """Go on with this conversation; it has no run under way."""
    metadata: dict[str, object] = {}
    priority: int = 0
    """-100 to 100: where runs wait for a worker, each step is worth a minute of waiting."""


class NewMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message of the user. It takes its place once every open call has its result; it decides nothing."""

    text: str


class Signal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that has happened, for a call of `wait_for_signal`. The Idempotency-Key makes it one signal."""

    name: str
    value: object = None


class Decide(msgspec.Struct, frozen=True):
    """A person's decision about one action. What the action is about comes from the server's own row only.

    Members that are not listed are ignored: a client may send back the action that it was given.
    """

    decision: Literal["approve", "reject", "happened", "did_not_happen", "give_up", "answer"]
    reason: str | None = None
    external_resource_id: str | None = None
    url: str | None = None
    value: object = None
    """The answer to a question of kind ask."""
    input_hash: str | None = None
    """Decide only if the action still has this content."""


class RunPage(msgspec.Struct, frozen=True):
    """Runs, newest first. `next_cursor` gives the next page, null on the last."""

    items: list[RunSummary]
    next_cursor: str | None
    unreadable: list[UnreadableRow]
    """Runs of this page that cannot be read, and are not among the items; they count towards its limit."""


class EventPage(msgspec.Struct, frozen=True):
    """Events in order. Ask again with `after` = next_after; `ended` says that the run is over and all is told."""

    items: list[RunEvent]
    next_after: int
    ended: bool


class MessagePage(msgspec.Struct, frozen=True):
    """The conversation in order; `queued` are messages that wait for their place, on the last page."""

    items: list[MessageView]
    queued: list[MessageView]
    next_cursor: str | None


class ActionPage(msgspec.Struct, frozen=True):
    """Actions, oldest first. `next_cursor` gives the next page, null on the last."""

    items: list[ActionView]
    next_cursor: str | None
    unreadable: list[UnreadableRow]
    """Actions of this page that cannot be read, and are not among the items; they count towards its limit."""


class Cancelled(msgspec.Struct, frozen=True):
    """The acknowledgement of a cancel: nothing more is sent; these calls may have been."""

    run_id: str
    status: str
    may_have_been_sent: list[StepView]


class Signalled(msgspec.Struct, frozen=True):
    """Whether the signal was new, or had come before under its key."""

    run_id: str
    new: bool


class ToolFacts(msgspec.Struct, frozen=True):
    """A tool of an agent."""

    name: str
    effect: str
    gated: bool
    """Some or all of its calls wait for an approval."""
    compensates: bool
    """It says how a surplus effect is undone: approving a duplicate does that."""


class AgentFacts(msgspec.Struct, frozen=True):
    """An agent that runs can be started with."""

    name: str
    version: str
    tools: list[ToolFacts]


class AgentPage(msgspec.Struct, frozen=True):
    """The agents of this server, by name."""

    items: list[AgentFacts]


class Vocabulary(msgspec.Struct, frozen=True):
    """The product's words in one language. Texts may name facts in braces: {tool}, {attempt}, {reason}."""

    language: str
    texts: dict[str, str]
    """By display code, of runs and steps."""
    next: dict[str, str]
    """What a run waits for."""
    events: dict[str, str]
    """By type; an event that is not here is of no interest to people."""
    tools: dict[str, dict[str, str]]
    """What tools say of themselves: doing, checking."""


class Health(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str = "ok"


class Readiness(msgspec.Struct, frozen=True):
    """Whether work goes on: each check with what is wrong, null where nothing is."""

    ready: bool
    store: str | None
    worker: str | None
    blocked_runs: dict[str, int]
    """How many runs no worker takes, by why: unreadable, unknown_agent, unknown_tool, drive_failed, no_worker."""


def reply(value: msgspec.Struct, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer that no cache keeps."""
    return Response(
        msgspec.json.encode(value), status, {"Cache-Control": "no-store", **(headers or {})}, "application/json"
    )
