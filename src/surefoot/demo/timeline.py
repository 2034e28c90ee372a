"""The timeline: the store's events, GitHub's own log and what was done to the processes, in one order."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from surefoot.core import events as ev
from surefoot.core.evolve import Recorded
from surefoot.core.state import Step
from surefoot.testing.wire import Applied, LogEntry, Received, Replied

TOOL = "create_issue_comment"
HASH_CHARACTERS = 16
GAP_SECONDS = 0.25
"""Reads further apart belong to different looks."""
RUN_STATES = {"running": "the run goes on", "waiting_for_user": "the run waits for a person"}
DECIDED = {
    "approve": "approved exactly these bytes, once",
    "reject": "rejected it",
    "happened": "said that it happened, and named the comment",
    "did_not_happen": "said that it did not happen",
    "give_up": "closed the question without an answer",
}


class Line(msgspec.Struct, frozen=True):
    """One thing that happened: a wall time, who did it, and what."""

    at: float
    who: str
    text: str


class Facts(msgspec.Struct, frozen=True):
    """What a timeline is made of. `acts` are the demo's own; `workers` are names with their starts, oldest first."""

    step: Step
    events: Sequence[Recorded]
    log: Sequence[LogEntry]
    acts: Sequence[Line]
    workers: Sequence[tuple[float, str]]


def timeline(facts: Facts) -> list[Line]:
    """What happened to the comment, from the question to the end of the run."""
    lines = [*facts.acts, *_of_github(facts)]
    for recorded in facts.events:
        line = _of_event(recorded, facts)
        if line is not None:
            lines.append(line)
    asked = next((r.at.wall for r in facts.events if isinstance(r.event, ev.ActionRequested)), 0.0)
    return sorted((line for line in lines if line.at >= asked), key=lambda line: line.at)


def _of_event(recorded: Recorded, facts: Facts) -> Line | None:
    event, at = recorded.event, recorded.at.wall
    by = _decided_by(recorded, facts)
    if isinstance(event, ev.ActionDecided):
        return Line(at, event.by, DECIDED.get(event.decision, event.decision)) if _ours(event.step_id, facts) else None
    if isinstance(event, ev.StepEvent | ev.ActionRequested) and not _ours(event.step_id, facts):
        return None
    text = _text(event, facts.step)
    if text is None:
        return None
    began = _began(event.attempt, facts) if isinstance(event, ev.AttemptEnded) else at
    return Line(at, by or _worker_at(began, facts), text)


def _began(attempt: int, facts: Facts) -> float:
    """When an attempt of the step began: its late end is told by the worker that began it."""
    mine = [r for r in facts.events if isinstance(r.event, ev.StepStarted) and _ours(r.event.step_id, facts)]
    return next((r.at.wall for r in mine if isinstance(r.event, ev.StepStarted) and r.event.attempt == attempt), 0.0)


def _decided_by(recorded: Recorded, facts: Facts) -> str | None:
    """Whose decision an event came with: they were written together."""
    same = [r.event for r in facts.events if r.version == recorded.version]
    return next((e.by for e in same if isinstance(e, ev.ActionDecided)), None)


def _ours(step_id: str, facts: Facts) -> bool:
    return step_id == facts.step.id


def _worker_at(at: float, facts: Facts) -> str:
    return next((name for started, name in reversed(facts.workers) if started <= at), facts.workers[0][1])


def _text(event: ev.AnyEvent, step: Step) -> str | None:
    """What a worker wrote down, in plain words."""
    number = f"step {step.sequence}"
    match event:
        case ev.ActionRequested(kind=kind):
            what = "may this comment be posted?" if kind.value == "approve" else "what became of this call?"
            return f"asks a person: {what} ({number}, {step.target})"
        case ev.StepStarted(attempt=attempt):
            return (
                f"wrote down BEFORE the call: {number}, attempt {attempt}\n"
                f"key  {step.operation_key}\nhash {step.input_hash[:HASH_CHARACTERS]}… of the approved bytes"
            )
        case ev.StepOutcomeUnknown():
            return (
                f"found {number} begun and without an end: it may have been sent\n"
                "outcome unknown: neither done nor failed. First look, then decide"
            )
        case ev.LookupAnswered():
            return _look(event)
        case ev.StepSucceeded(external_resource_id=resource):
            return f"{number} succeeded: comment id {resource} is on the step that was begun (attempt {step.attempt})"
        case ev.StepFailed(error_code=code):
            return f"{number} ended without a call ({code}); the model is told"
        case ev.StepGivenUp():
            return f"{number} keeps its unknown outcome; the model is told that nobody knows"
        case ev.AttemptEnded(attempt=attempt, end=end):
            return f"goes on where it stood, and may not write any more: attempt {attempt} ends as {end.value}"
        case ev.RunStatusChanged(to_status=status):
            return RUN_STATES.get(status.value, f"the run is {status.value}")
        case ev.RunCompleted():
            return "the run is completed"
        case ev.RunFailed(error_code=code):
            return f"the run failed ({code})"
    return None


def _look(event: ev.LookupAnswered) -> str:
    if event.verdict == "found":
        return f"looked: comment {event.resource_id} is ours, carries this key, and its signature fits"
    if event.verdict == "undetermined":
        return f"looked: GitHub does not tell ({event.reason})\nthat proves nothing, so nothing is sent"
    if event.concluded:
        return (
            "looked: it is NOT there, every page was read, the counts agree\nthe settle time is over: now this is proof"
        )
    return "looked: it is not there, but it is too early to believe that; nothing is sent yet"


def _of_github(facts: Facts) -> list[Line]:
    """What GitHub saw; the reads of one look are one line."""
    posts = {e.request for e in facts.log if isinstance(e, Received) and e.method == "POST"}
    writes = [(entry, _of_post(entry, posts)) for entry in facts.log]
    lines = [Line(entry.at, "GitHub", text) for entry, text in writes if text is not None]
    reads = [e.at for e in facts.log if isinstance(e, Received) and e.method == "GET"]
    return lines + [_reads(look) for look in _looks(reads)]


def _looks(reads: Sequence[float]) -> list[list[float]]:
    """Times of reads, those close together as one look."""
    looks: list[list[float]] = []
    for at in reads:
        if looks and at - looks[-1][-1] <= GAP_SECONDS:
            looks[-1].append(at)
        else:
            looks.append([at])
    return looks


def _reads(look: Sequence[float]) -> Line:
    return Line(look[0], "GitHub", f"is read: {len(look)} request{'s' if len(look) > 1 else ''}, none of which writes")


def _of_post(entry: LogEntry, posts: set[int]) -> str | None:
    if isinstance(entry, Received) and entry.request in posts:
        return f"gets {entry.method} {entry.path}"
    if isinstance(entry, Applied) and entry.request in posts:
        return f"creates comment {entry.resource_id}"
    if isinstance(entry, Replied) and entry.request in posts:
        return "its reply is lost on the way back" if entry.end != "reply" else f"answers {entry.status}"
    return None
