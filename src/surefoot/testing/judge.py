"""What only a simulation can judge, beside the invariants of `checker`: it knows when each request left and arrived."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from surefoot.core import events as ev, policy
from surefoot.core.marker import encode_key
from surefoot.core.state import ActionKind, AttemptEnd, Instant
from surefoot.testing import checker
from surefoot.testing.checker import Book, Commit, Lived, Owner
from surefoot.testing.clock import MONO_AT_START, WALL_AT_START
from surefoot.testing.limits import Limits, Watched, judge_limits
from surefoot.testing.reports import Acknowledged
from surefoot.testing.virtual import Sent
from surefoot.testing.wire import Applied, LogEntry, Received
from surefoot.testing.world import BOT

READING = checker.Reading(
    accounts={BOT.login: str(BOT.id)},
    gated=("create_issue_comment",),
    faults_are_over=True,
)
RECORDED_WITHIN_SECONDS = 30.0
"""A worker that lives on for so long after an answer has written down what it learned."""


class Outside(msgspec.Struct, frozen=True):
    """What happened outside of the store."""

    log: Sequence[LogEntry]
    commits: Sequence[Commit]
    sent: Sequence[Sent]
    died: Mapping[str, float]
    """When each process ended; those that outlived the story are missing."""
    went_on: Mapping[str, float]
    """When each process that was stopped went on for the last time."""
    one_boot: bool
    """False: times since boot were counted anew in between."""
    over: float
    """When the story was over."""
    doors_hold: bool
    """False: an answer that came may have been lost between the door and the tool."""
    waited: Mapping[str, Sequence[tuple[float, float]]] = {}
    """When each process waited for a store that was late: from, until."""
    reported: Sequence[Acknowledged] = ()
    """Each report from outside that was acknowledged, of something that was made."""
    limits: Limits = Limits({})
    stops: Sequence[tuple[str, float]] = ()
    """Each stop of a process: its name, and when."""


def judge(runs: Sequence[Lived], outside: Outside) -> list[str]:
    """Everything that is wrong, in words that begin with the invariant."""
    log, commits = as_sent(outside)
    found = checker.judge(log, runs, commits=commits, reading=READING)
    book = Book(log, runs, commits, READING)
    watched = Watched(outside.sent, outside.died, outside.stops, outside.one_boot)
    texts = [f"{violation.invariant}: {violation.text}" for violation in found]
    texts += [f"I1: {text}" for text in _doubles_are_excused(book, outside)]
    texts += [f"I1: {text}" for text in _duplicates_are_ours(book)]
    texts += [f"I3: {text}" for text in _absent_is_true(book, outside)]
    texts += [f"P2: {text}" for text in _answers_are_kept(book, outside)]
    texts += [f"P2: {text}" for text in _reports_are_kept(book, outside)]
    texts += [f"P2: {text}" for text in _nobody_is_asked_in_vain(book, outside)]
    texts += [f"L1: {text}" for text in judge_limits(outside.limits, book, watched)]
    texts += [f"I8: run {r.row.run.id} was refused by the model" for r in runs if _refused_history(r)]
    return texts


def as_sent(outside: Outside) -> tuple[list[LogEntry], list[Commit]]:
    """The log and the commits with each request standing where its times were judged, not where it arrived.

    What the network delays comes later than what was sent later; that does not make it a repeat.
    """
    sent = {one.request: one for one in outside.sent}
    log: list[LogEntry] = []
    for entry in outside.log:
        one = sent.get(entry.request) if isinstance(entry, Received) else None
        order = 2 * entry.order if one is None else 2 * one.entries + 1
        log.append(msgspec.structs.replace(entry, order=order))
    log.sort(key=lambda entry: entry.order)
    return log, [msgspec.structs.replace(commit, entries=2 * commit.entries) for commit in outside.commits]


def _refused_history(lived: Lived) -> bool:
    return lived.row.run.error_code == "model_refused_request"


def _doubles_are_excused(book: Book, outside: Outside) -> Iterator[str]:
    """A double that is reported is still a fault, unless a request took longer than anybody can wait for."""
    for key, owner in book.owners.items():
        made = book.effects(key)
        if len({effect.resource_id for effect in made}) > 1 and not any(
            _took_too_long(owner, outside, effect) for effect in made
        ):
            yield f"{key} ({owner.step.tool_name}) had {len(made)} effects, each of them in time"


def _took_too_long(owner: Owner, outside: Outside, effect: Applied) -> bool:
    """From the last check of its times to its effect, more than the settle time passed."""
    sent = next(s for s in outside.sent if s.request == effect.request)
    return effect.at - _true(sent.checked) > owner.step.rules.settle_s


def _true(elapsed: float) -> float:
    return WALL_AT_START + elapsed


def _duplicates_are_ours(book: Book) -> Iterator[str]:
    for key, owner in book.owners.items():
        made = {str(effect.resource_id) for effect in book.effects(key)}
        for line in owner.events():
            if isinstance(line.event, ev.DuplicateDetected) and not set(line.event.resource_ids) <= made:
                yield f"{key} is said to be doubled by {sorted(set(line.event.resource_ids) - made)}, which is not ours"


def _absent_is_true(book: Book, outside: Outside) -> Iterator[str]:
    """What was concluded absent was not there, unless it came later than anybody can wait for."""
    if not outside.one_boot:
        return
    for key, owner in book.owners.items():
        for line in owner.events():
            event = line.event
            if not (isinstance(event, ev.LookupAnswered) and event.concluded and event.verdict == "absent"):
                continue
            at = _true(line.at.mono - MONO_AT_START)
            there = [e for e in book.effects(key) if e.at < at and not _took_too_long(owner, outside, e)]
            if there:
                yield f"{key} was concluded absent (event {line.sequence}) while {there[0].resource_id} was there"


def _answers_are_kept(book: Book, outside: Outside) -> Iterator[str]:
    """A receipt that reached a worker which lived on is in the store: as an end, or as evidence."""
    if not outside.doors_hold:
        return
    numbers = {e.request: e for e in outside.log if isinstance(e, Received)}
    for sent in outside.sent:
        owner = book.owners.get(checker.key_of_request(numbers[sent.request]) or "") if sent.request else None
        if owner is None or sent.answered is None:
            continue
        made = [e for e in book.effects(encode_key(owner.step.operation_key)) if e.request == sent.request]
        if made and _was_read(sent) and _lived_on(sent, outside) and not _is_written(owner, str(made[0].resource_id)):
            yield f"{sent.process} was told of {made[0].resource_id} and wrote nothing down ({owner.step.id})"


def _was_read(sent: Sent) -> bool:
    outcome = sent.outcome
    if outcome is None or outcome.reply is None or outcome.body_bytes is not None:
        return False
    return outcome.reply.status in (201, 202) and outcome.reply.body.endswith(b"}")


def _lived_on(sent: Sent, outside: Outside) -> bool:
    read = max(sent.answered or 0.0, outside.went_on.get(sent.process, 0.0))
    end, waited = outside.died.get(sent.process, outside.over), outside.waited.get(sent.process, ())
    return without(waited, read, end) > RECORDED_WITHIN_SECONDS


def without(intervals: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """How much of the time from `begin` to `end` lies in none of `intervals`."""
    covered, reached = 0.0, begin
    for first, last in sorted(intervals):
        first, last = max(first, reached), min(last, end)
        if last > first:
            covered += last - first
            reached = last
    return end - begin - covered


def _reports_are_kept(book: Book, outside: Outside) -> Iterator[str]:
    """What somebody was told to have been taken down is there, and nobody sends or asks any more what became of it."""
    for told in outside.reported:
        owner = book.owners.get(encode_key(told.key))
        if owner is None or told.resource_id not in owner.step.receipts:
            yield f"it was acknowledged that {told.key} made {told.resource_id}, and nothing of it is written down"
            continue
        for line in owner.events() if outside.one_boot else ():
            asks = isinstance(line.event, ev.ActionRequested) and line.event.kind is ActionKind.resolve
            if line.at.mono - MONO_AT_START > told.at and (asks or isinstance(line.event, ev.StepStarted)):
                kind = "asked about" if asks else "sent"
                yield f"{told.key} was {kind} (event {line.sequence}) after its effect had been reported"


def _nobody_is_asked_in_vain(book: Book, outside: Outside) -> Iterator[str]:
    """Where every worker lived on, it knows of each call whether it has sent anything of it."""
    if outside.stops or not outside.one_boot or any("worker" in name for name in outside.died):
        return
    for key, owner in book.owners.items():
        asked = [
            line.at
            for line in owner.events()
            if isinstance(line.event, ev.ActionRequested) and line.event.kind is ActionKind.resolve
        ]
        if not all(_drifted(owner, at) for at in asked) and not any(_carries(sent, key) for sent in outside.sent):
            yield f"somebody was asked what became of {key}, and nothing of it was ever sent"


def _drifted(owner: Owner, at: Instant) -> bool:
    """Whether the clocks had moved apart since an intent: no absence is believed then, and asking is right."""
    began = [line.at for line in owner.intents()]
    return any(abs((at.wall - a.wall) - (at.mono - a.mono)) > policy.CLOCK_DRIFT_SECONDS_MAX for a in began)


def _carries(sent: Sent, key: str) -> bool:
    header, body = sent.wire.headers.get("idempotency-key"), sent.wire.body.decode("utf-8", "replace")
    return key == encode_key(header) if header is not None else f"agent-operation:{key} " in body


def _is_written(owner: Owner, resource_id: str) -> bool:
    # A look may have been quicker: then a call that is stopped, since its lease is over, adds nothing.
    ended = any(attempt.end is AttemptEnd.applied for attempt in owner.step.attempts)
    return ended or resource_id in owner.step.receipts
