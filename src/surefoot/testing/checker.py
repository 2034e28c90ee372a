"""The invariants I1 to I7, judged against the World's own log and what the store holds: never our tables alone.

    I1  for each operation key at most one effect, or duplicate_detected names them all; succeeded means it is there
    I2  each send has an earlier durable intent with its key, under the account that it was sent under
    I3  two sends of one key have between them a look that proved absence, a person's answer, or a certain refusal
    I4  what was sent is what was stored, hashed and approved; one approval serves one step; nothing gated went without
    I5  rows are what the events make of them; events without a gap, one end; one result for one call
    I6  nothing is done under a lease token after a newer one was used
    I7  once faults are over: ended, waiting for a person, or reconciling with a reason and a next time

"Before" is judged by commit order where `stamp_commits` was at work, else by the wall clocks of store and World."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from surefoot.core import events as ev
from surefoot.core.audit import check_run, token_faults
from surefoot.core.canonical import canonical, digest
from surefoot.core.evolve import Recorded
from surefoot.core.marker import append_marker, encode_key, strip_namespace
from surefoot.core.state import (
    ActionKind,
    ActionStatus,
    Attempt,
    AttemptEnd,
    EffectClass,
    Resolution,
    RunStatus,
    Step,
    StepStatus,
    StepType,
)
from surefoot.store.port import ActionRow, Append, Create, MessageRow, RunRow, StepRow, Store
from surefoot.store.requests import request_of
from surefoot.testing.wire import Applied, LogEntry, Received, Replied

_MARKER = re.compile(r"agent-operation:([A-Za-z0-9_.:%]+)")
_NOT_MADE = frozenset({"comment_edited", "comment_deleted"})
_EVENTS_PAGE = 1_000


class Violation(msgspec.Struct, frozen=True):
    """A broken invariant, in words that name the run, step or request."""

    invariant: str
    text: str


class Commit(msgspec.Struct, frozen=True):
    """An acknowledged append: how many entries the World's log had then, and the run's last event in it."""

    entries: int
    run_id: str
    event_sequence: int


class Lived(msgspec.Struct, frozen=True):
    """Everything that the store holds of one run; `requests` are the exact bytes by their ref."""

    row: RunRow
    steps: Sequence[StepRow]
    actions: Sequence[ActionRow]
    events: Sequence[Recorded]
    messages: Sequence[MessageRow] = ()
    requests: Mapping[str, bytes] = {}


def key_of_request(request: Received) -> str | None:
    """The operation key that a request carries, encoded as in a marker: its Idempotency-Key, or its body's marker."""
    header = request.headers.get("idempotency-key")
    if header is not None:
        return encode_key(header)
    found = _MARKER.search(request.body)
    return found[1] if found is not None else None


def comment_fits(request: Received, arguments: bytes) -> bool:
    """Whether a comment's text is the stored `body` with our marker behind it; True for requests of other kinds."""
    stored, sent = _object(arguments).get("body"), _object(request.body).get("body")
    if not isinstance(stored, str) or not isinstance(sent, str):
        return True
    marker = sent.rpartition("\n\n")[2]
    return sent == append_marker(stored, marker) or sent == strip_namespace(stored)


class Reading(msgspec.Struct, frozen=True):
    """How to read the World's log, and how strict to be."""

    key_of: Callable[[Received], str | None] = key_of_request
    fits: Callable[[Received, bytes], bool] = comment_fits
    """Whether a request carries the stored arguments (JSON) of its step."""
    accounts: Mapping[str, str] = {}
    """The World's login to what stands on attempts; an account that is not listed is not compared."""
    gated: Collection[str] = ()
    """Tools that never go without an approval."""
    unseen: Collection[str] = ()
    """Tools whose effects the World does not see."""
    foreign: Callable[[Received], bool] = lambda request: False
    """Sends that are none of ours, although they carry no key."""
    clock_slack_s: float = 0.0
    """How far the wall clocks of store and World may differ, where there are no commit stamps."""
    sweeps_are_over: bool = True
    """False: two effects need not be reported while a later look is owed."""
    faults_are_over: bool = False
    """True: by now lease, settle and 30 seconds have passed without a fault, and I7 holds."""


DEFAULT = Reading()


def stamp_commits(store: Store, log: Sequence[LogEntry]) -> list[Commit]:
    """From now on each acknowledged append of `store` is stamped with the length of the World's log; the list grows."""
    commits: list[Commit] = []
    append, create = store.append, store.create

    async def stamped_append(what: Append) -> None:
        await append(what)
        commits.append(Commit(len(log), what.after.id, what.after.event_sequence))

    async def stamped_create(what: Create) -> object:
        run = await create(what)
        commits.append(Commit(len(log), run.id, run.event_sequence))
        return run

    # The store is an instance of the caller's: only this one object is changed.
    vars(store)["append"] = stamped_append
    vars(store)["create"] = stamped_create
    return commits


async def check(
    world_log: Sequence[LogEntry],
    store: Store,
    tenant: str,
    *,
    commits: Sequence[Commit] | None = None,
    reading: Reading = DEFAULT,
) -> list[Violation]:
    """Every broken invariant of the tenant's runs. Raises what the store raises."""
    return judge(world_log, await read(store, tenant), commits=commits, reading=reading)


async def read(store: Store, tenant: str) -> list[Lived]:
    """Everything of the tenant's runs. Raises Unreadable."""
    return [await _read_run(store, tenant, run_id) for run_id in await store.run_ids(tenant)]


async def _read_run(store: Store, tenant: str, run_id: str) -> Lived:
    row, steps = await store.run(tenant, run_id), await store.steps(tenant, run_id)
    recorded: list[Recorded] = []
    while page := await store.events(tenant, run_id, len(recorded), _EVENTS_PAGE):
        recorded += page
    sent = [one for one in steps if one.step.input_ref is not None and one.step.attempts]
    return Lived(
        row=row,
        steps=steps,
        actions=(await store.actions(tenant, run_id=run_id)).whole(),
        events=recorded,
        messages=await store.messages(tenant, row.run.conversation_id),
        requests={one.step.input_ref or "": await request_of(store, tenant, one) for one in sent},
    )


def judge(
    log: Sequence[LogEntry],
    runs: Sequence[Lived],
    *,
    commits: Sequence[Commit] | None = None,
    reading: Reading = DEFAULT,
) -> list[Violation]:
    """Every broken invariant. Pure."""
    book = Book(log, runs, commits, reading)
    found: list[Violation] = []
    for name, law in _LAWS.items():
        found += [Violation(name, text) for text in law(book)]
    return found


class Owner(msgspec.Struct, frozen=True):
    """A step and its run."""

    lived: Lived
    row: StepRow

    @property
    def step(self) -> Step:
        """The step itself."""
        return self.row.step

    def events(self) -> list[Recorded]:
        """The events of the step, with those of its actions."""
        return [line for line in self.lived.events if getattr(line.event, "step_id", None) == self.step.id]

    def intents(self) -> list[Recorded]:
        """The intents of its attempts, in order."""
        return [line for line in self.events() if isinstance(line.event, ev.StepStarted)]


class Book:
    """The log and the runs, sorted by operation key."""

    def __init__(
        self, log: Sequence[LogEntry], runs: Sequence[Lived], commits: Sequence[Commit] | None, reading: Reading
    ) -> None:
        self.log = log
        self.runs = runs
        self.reading = reading
        self.owners: dict[str, Owner] = {}
        for lived in runs:
            for row in lived.steps:
                step = row.step
                effectful = step.type is StepType.tool_call and step.rules.effect is not EffectClass.read
                if effectful and step.owner_step_id is None:
                    self._own(Owner(lived, row))
        posts = [e for e in log if isinstance(e, Received) and e.method == "POST"]
        self.posts = [(reading.key_of(post), post) for post in posts]
        self.replies = {e.request: e for e in log if isinstance(e, Replied)}
        self._commits = commits

    def _own(self, owner: Owner) -> None:
        key = encode_key(owner.step.operation_key)
        held = self.owners.get(key)
        # A business key passes on from a step that failed; the one that was sent last owns what the World shows.
        if held is None or len(owner.step.attempts) >= len(held.step.attempts):
            self.owners[key] = owner

    def sends(self, key: str) -> list[Received]:
        """The requests that carried `key`, in the order of their arrival."""
        return [post for found, post in self.posts if found == key]

    def effects(self, key: str) -> list[Applied]:
        """What requests made under `key`, deleted since or not."""
        numbers = {post.request for post in self.sends(key)}
        return [e for e in self.log if isinstance(e, Applied) and e.request in numbers and e.kind not in _NOT_MADE]

    def committed_before(self, owner: Owner, line: Recorded, post: Received) -> bool:
        """Whether the append with this event was durable before the request arrived."""
        if self._commits is None:
            return line.at.wall <= post.at + self.reading.clock_slack_s
        run_id = owner.lived.row.run.id
        stamps = [c.entries for c in self._commits if c.run_id == run_id and c.event_sequence >= line.sequence]
        return bool(stamps) and min(stamps) < post.order


def _effects_are_single(book: Book) -> Iterator[str]:
    for key, owner in book.owners.items():
        made = {str(effect.resource_id) for effect in book.effects(key)}
        step = owner.step
        named = set(step.receipts)
        for line in owner.events():
            if isinstance(line.event, ev.DuplicateDetected):
                named |= set(line.event.resource_ids)
        reported = any(isinstance(line.event, ev.DuplicateDetected) for line in owner.events())
        excused = not book.reading.sweeps_are_over and step.look_at is not None
        if len(made) > 1 and not (reported and made <= named) and not excused:
            yield f"{key} had the effects {sorted(made)}, reported are {sorted(named) if reported else 'none'}"
        if step.tool_name not in book.reading.unseen:
            yield from _status_is_true(key, step, made, excused)


def _status_is_true(key: str, step: Step, made: set[str], excused: bool) -> Iterator[str]:
    resource = step.external_resource_id
    if step.status is StepStatus.succeeded and step.resolution is not Resolution.happened:
        if not made:
            yield f"{key} says succeeded, and nothing was made"
        elif resource is not None and resource not in made:
            yield f"{key} holds the id {resource}, made were {sorted(made)}"
    if step.status is StepStatus.failed and made and not made & set(step.receipts) and not excused:
        yield f"{key} says failed ({step.error_code}), and {sorted(made)} was made and never noticed"


def _sends_have_intents(book: Book) -> Iterator[str]:
    for key, post in book.posts:
        owner = book.owners.get(key or "")
        if owner is None:
            if not (key is None and book.reading.foreign(post)):
                yield f"request {post.request} ({post.path}) carries {key or 'no key'}, which no step has"
            continue
        count = sum(1 for other in book.sends(key or "") if other.order <= post.order)
        earlier = [line for line in owner.intents() if book.committed_before(owner, line, post)]
        if len(earlier) < count:
            yield f"request {post.request} is send {count} of {key}, with {len(earlier)} durable intents before it"
        meant = {a.account for a in owner.step.attempts if a.account}
        account = book.reading.accounts.get(post.account or "")
        if meant and account not in (None, *meant):
            yield f"request {post.request} of {key} went out as {post.account}, intended was {sorted(meant)}"


def _repeats_are_earned(book: Book) -> Iterator[str]:
    for key, owner in book.owners.items():
        sends = book.sends(key)
        for first, second in pairwise(sends):
            if not _may_repeat(book, owner, first, second):
                yield f"request {second.request} repeats {key} after request {first.request}, and nothing allowed it"


def _may_repeat(book: Book, owner: Owner, first: Received, second: Received) -> bool:
    step = owner.step
    sends = book.sends(encode_key(step.operation_key))
    mine = _attempt_of(book, owner, first)
    if step.rules.effect is EffectClass.idempotent:
        life = step.rules.key_lifetime_s
        return life is None or second.at - sends[0].at < life
    if mine is not None and mine.end in (AttemptEnd.refused, AttemptEnd.not_sent):
        return not any(isinstance(e, Applied) and e.request == first.request for e in book.log)
    begun = owner.intents()[mine.number - 1].sequence if mine is not None else math.inf
    after = [line for line in owner.events() if line.sequence > begun]
    before = [line for line in after if book.committed_before(owner, line, second)]
    if any(isinstance(x.event, ev.ActionDecided) and x.event.decision == "did_not_happen" for x in before):
        return True
    proven = any(
        isinstance(x.event, ev.LookupAnswered) and x.event.verdict == "absent" and x.event.concluded for x in before
    )
    return proven and _looked(book, first, second)


def _attempt_of(book: Book, owner: Owner, post: Received) -> Attempt | None:
    """The attempt that a send belongs to: the last one whose intent was durable before it."""
    number = sum(1 for line in owner.intents() if book.committed_before(owner, line, post))
    return next((a for a in owner.step.attempts if a.number == number), None)


def _looked(book: Book, first: Received, second: Received) -> bool:
    """Whether the World answered a listing of the place between the two sends."""
    for entry in book.log:
        if isinstance(entry, Received) and entry.method == "GET" and first.order < entry.order < second.order:
            reply = book.replies.get(entry.request)
            answered = reply is not None and reply.listed is not None and reply.end == "reply"
            if answered and first.path.startswith(entry.path):
                return True
    return False


def _sent_is_approved(book: Book) -> Iterator[str]:
    for key, owner in book.owners.items():
        yield from _bytes_are_stored(book, key, owner)
        yield from _was_allowed(book, key, owner)
    for lived in book.runs:
        bound = Counter(s.step.action_id for s in lived.steps if s.step.action_id is not None)
        for action_id, count in bound.items():
            if count > 1:
                yield f"the approval {action_id} serves {count} steps"


def _bytes_are_stored(book: Book, key: str, owner: Owner) -> Iterator[str]:
    step = owner.step
    data = owner.lived.requests.get(step.input_ref or "")
    if data is None:
        return
    if hashlib.sha256(data).hexdigest() != step.input_ref:
        yield f"{key}: the stored request is not what its ref says"
    whole = digest(canonical([digest(data), step.tool_name, step.tool_version, step.target, step.credential]))
    if step.input_hash not in (whole, step.input_ref):
        yield f"{key}: the hash of the step is not that of its stored request"
    for post in book.sends(key):
        if not book.reading.fits(post, data):
            yield f"request {post.request} of {key} carries other bytes than the stored request"


def _was_allowed(book: Book, key: str, owner: Owner) -> Iterator[str]:
    step, decided = owner.step, dict[str, ev.ActionDecided]()
    actions = {row.action.id: row.action for row in owner.lived.actions}
    gate: str | None = None
    for line in owner.events():
        match line.event:
            case ev.ActionDecided(action_id=name):
                decided[name] = line.event
            case ev.StepWaitingForApproval(action_id=name):
                gate = name
            case ev.StepStarted(attempt=number):
                said = decided.get(gate or "")
                if gate is None and step.tool_name in book.reading.gated:
                    yield f"{key}: attempt {number} of {step.tool_name} went without an approval"
                elif gate is not None and (said is None or said.status is not ActionStatus.approved):
                    yield f"{key}: attempt {number} went although {gate} was not approved"
                elif gate is not None and line.at.wall >= (actions[gate].expires_wall or math.inf):
                    yield f"{key}: attempt {number} went after its approval {gate} had ended"
            case _:
                pass
    for action in actions.values():
        if action.kind is ActionKind.approve and action.step_id == step.id and action.input_hash != step.input_hash:
            yield f"{key}: {action.id} was asked about other content than what the step holds"


def _rows_are_events(book: Book) -> Iterator[str]:
    for lived in book.runs:
        run = lived.row.run
        stale = set(token_faults(lived.events))
        rows = check_run(run, [s.step for s in lived.steps], [a.action for a in lived.actions], lived.events)
        yield from (text for text in rows if text not in stale)
        results = Counter(m.call_id for m in lived.messages if m.role == "tool_result" and m.run_id == run.id)
        yield from (f"run {run.id}: call {call} has {count} results" for call, count in results.items() if count > 1)
        yield from (
            f"run {run.id}: call {s.step.call_id} says answered, and has no result"
            for s in lived.steps
            if s.step.answered and s.step.call_id not in results
        )


def _tokens_are_fresh(book: Book) -> Iterator[str]:
    for lived in book.runs:
        yield from token_faults(lived.events)


def _nothing_hangs(book: Book) -> Iterator[str]:
    if not book.reading.faults_are_over:
        return
    for lived in book.runs:
        run = lived.row.run
        doubtful = [s.step for s in lived.steps if s.step.in_doubt]
        if run.status is RunStatus.running:
            yield f"run {run.id} still runs"
        for row in lived.steps:
            if run.ended and row.step.status in (StepStatus.running, StepStatus.pending):
                yield f"step {row.step.id} is {row.step.status.value}, and its run is {run.status.value}"
        asked = {a.action.step_id for a in lived.actions if a.action.status is ActionStatus.waiting}
        for step in doubtful:
            if step.look_at is None and step.id not in asked:
                yield f"step {step.id} is in doubt, and nobody looks or is asked"
            if step.error_code is None:
                yield f"step {step.id} is in doubt without a reason"


def _object(data: bytes | str) -> dict[str, object]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


_LAWS: dict[str, Callable[[Book], Iterator[str]]] = {
    "I1": _effects_are_single,
    "I2": _sends_have_intents,
    "I3": _repeats_are_earned,
    "I4": _sent_is_approved,
    "I5": _rows_are_events,
    "I6": _tokens_are_fresh,
    "I7": _nothing_hangs,
}
