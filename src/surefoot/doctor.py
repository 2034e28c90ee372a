"""The doctor: what is wrong in a store, and what is merely open. It reads; it mends nothing.

Findings are damage (rows that differ from their events, unreadable values, a damaged file) and what stands still
without anybody's knowing. Open questions and runs under way are information.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from surefoot.core.audit import check_run
from surefoot.core.codec import decode_value
from surefoot.core.evolve import Recorded
from surefoot.core.state import Instant, Run, RunStatus, StepStatus
from surefoot.errors import NotFound, SurefootError, Unreadable
from surefoot.runtime.late import UNDO, not_begun
from surefoot.snapshot import untaken_seconds
from surefoot.store.listed import ODD, to_the_end
from surefoot.store.port import ActionRow, RunRow, StepRow, Store
from surefoot.store.requests import request_of

STUCK_SECONDS = 300.0
"""A run that has been ready and free for longer is stuck: no worker takes it."""
EVENTS_PAGE = 1_000
MESSAGES_PAGE = 1_000
MARKS_PAGE = 1_000
ALL_MESSAGES = 2**62
"""A position behind every message."""


class Finding(msgspec.Struct, frozen=True):
    """Something wrong.

    `code` is stable: damaged, unreadable, differs, no_worker, stuck, blocked, no_result, no_owner, not_undone.
    """

    code: str
    run_id: str | None
    text: str
    next: str
    """What to do about it."""


class Information(msgspec.Struct, frozen=True):
    """What is open or under way, which is nothing wrong. Ids of runs and actions."""

    store: str
    runs: dict[str, int]
    """Number of runs by status."""
    live: list[str]
    in_doubt: list[str]
    questions: list[str]


class Report(msgspec.Struct, frozen=True):
    """What the doctor found."""

    findings: list[Finding]
    information: Information


def damaged(store: str, text: str) -> Report:
    """What is said of a file that cannot be opened at all."""
    next_action = "stop all workers, keep a copy of the file, then restore it from a backup"
    return Report([Finding("damaged", None, text, next_action)], Information(store, {}, [], [], []))


async def examine(store: Store, tenant_id: str) -> Report:
    """Read the whole store of one tenant. Raises StoreUnavailable; what cannot be read is a finding."""
    findings = [
        Finding("damaged", None, text, "keep a copy of the file, then restore it from a backup")
        for text in await store.integrity()
    ]
    seen = _Seen()
    for run_id in await store.run_ids(tenant_id):
        try:
            found = await _examine_run(store, tenant_id, run_id, seen)
        except NotFound:
            continue  # pruned meanwhile
        except SurefootError as problem:
            if problem.code != "unreadable":
                raise
            found = [Finding("unreadable", run_id, str(problem), await _mending(store, tenant_id, run_id))]
        findings += found
    findings = await _with_workers(store, tenant_id, findings, seen.to_take)
    findings += [
        Finding(
            "unreadable",
            None,
            token.message,
            f"nobody can use it: `surefoot tokens revoke {token.id}`, and make a new one",
        )
        for token in (await store.credentials(tenant_id, "token")).unreadable
    ]
    findings += await _not_undone(store, tenant_id)
    return Report(findings, Information(store.path, dict(seen.statuses), seen.live, seen.in_doubt, seen.questions))


async def _not_undone(store: Store, tenant_id: str) -> list[Finding]:
    """What a person has decided to undo and nobody begins: its business key is held until then."""
    found: list[Finding] = []
    noted: list[str] = []
    while page := await store.marks(tenant_id, UNDO, MARKS_PAGE, noted[-1] if noted else ""):
        noted += page
    for action_id in noted:
        try:
            asked = await store.action(tenant_id, action_id)
            waits = store.now().wall - (asked.decided_at or math.inf)
            left = await not_begun(store, tenant_id, asked) if waits > STUCK_SECONDS else []
        except (NotFound, *ODD):
            continue  # what cannot be read is a finding of its run
        if left and asked.action.decision == "approve":
            text = f"{action_id}: decided {waits:.0f} s ago to undo {', '.join(left)}, and no worker has begun it"
            next_action = (
                f"start a worker whose code of {asked.tool_name} says how it is undone (`compensate`); with one that "
                "has the tool without it, a person is asked to undo it by hand"
            )
            found.append(Finding("not_undone", asked.run_id, text, next_action))
    return found


async def _mending(store: Store, tenant_id: str, run_id: str) -> str:
    """What can be done about a run that cannot be read whole. Who cancels it has to read what is open in it."""
    try:
        await store.load(tenant_id, run_id)
    except SurefootError:
        return (
            "nothing is executed on it, nor can it be cancelled; restore the row from a backup, or use a newer version"
        )
    return "restore the row from a backup, use a newer version, or cancel the run"


class _Seen:
    """What was counted on the way."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.live: list[str] = []
        self.in_doubt: list[str] = []
        self.questions: list[str] = []
        self.to_take: list[Run] = []
        """Those of agents that a worker has to take once they go on."""
        self.messages: dict[str, int] = {}
        """How far a conversation was read, by its id: its runs share it."""

    def count(self, row: RunRow, steps: Sequence[StepRow], actions: Sequence[ActionRow], now: Instant) -> None:
        self.statuses[row.run.status.value] += 1
        if not row.run.ended:
            self.live.append(row.run.id)
            driven = row.lease_owner is not None and row.lease_until > now.mono
            if row.run.kind == "agent" and not driven and row.blocked_code is None:
                self.to_take.append(row.run)
        if any(s.step.status is StepStatus.outcome_unknown for s in steps):
            self.in_doubt.append(row.run.id)
        self.questions += [a.action.id for a in actions if a.action.status.value == "waiting"]


async def _with_workers(
    store: Store, tenant_id: str, findings: Sequence[Finding], runs: Sequence[Run]
) -> list[Finding]:
    """The findings, with the runs whose agent no living worker has in their version, if one lives at all.

    Whether or not such a run is due: who answers its question would wait in vain.
    """
    workers = [takes.agents for takes in await store.workers_take(tenant_id)]
    lacking = [run for run in runs if all(agents.get(run.agent) != run.agent_version for agents in workers)]
    if not workers or not lacking:
        return list(findings)
    named = {run.id for run in lacking}
    found = [one for one in findings if one.code != "stuck" or one.run_id not in named]
    for run in lacking:
        others = sorted({agents[run.agent] for agents in workers if run.agent in agents})
        what = f"they have it in version {', '.join(others)}" if others else "they do not have that agent"
        text = f"no living worker has agent {run.agent} in version {run.agent_version}: {what}"
        found.append(Finding("no_worker", run.id, text, _start_one(run)))
    return found


def _start_one(run: Run) -> str:
    return (
        f"start `surefoot worker` with the file of agent {run.agent} in version {run.agent_version}, and leave it "
        "running until the run is over; or cancel the run"
    )


async def _examine_run(store: Store, tenant_id: str, run_id: str, seen: _Seen) -> list[Finding]:
    """One run, read between two equal versions, so that an append meanwhile is no difference."""
    while True:
        row = await store.run(tenant_id, run_id)
        steps = await store.steps(tenant_id, run_id)
        asked = await to_the_end(lambda after: store.actions(tenant_id, run_id=run_id, after=after))
        actions = asked.whole()
        recorded = await _all_events(store, tenant_id, run_id)
        after = await store.run(tenant_id, run_id)
        if after.run.version == row.run.version:
            break
    seen.count(row, steps, actions, store.now())
    whole = check_run(row.run, [s.step for s in steps], [a.action for a in actions], recorded)
    found = [
        Finding("differs", run_id, text, "rows and events are written together: report it, with a copy of the store")
        for text in whole
    ]
    found += await _unreadable_requests(store, tenant_id, steps)
    found += [
        Finding("unreadable", run_id, text, await _mending(store, tenant_id, run_id))
        for text in [*_unreadable_parts(row, steps, actions), *await _unreadable_messages(store, row.run, seen)]
    ]
    return found + _standing_still(row, steps, store.now())


async def _all_events(store: Store, tenant_id: str, run_id: str) -> list[Recorded]:
    recorded: list[Recorded] = []
    while page := await store.events(tenant_id, run_id, recorded[-1].sequence if recorded else 0, EVENTS_PAGE):
        recorded += page
    return recorded


def _unreadable_parts(row: RunRow, steps: Sequence[StepRow], actions: Sequence[ActionRow]) -> list[str]:
    """What is JSON, and holds what no program can read (a number beyond every one): it is passed on as it stands."""
    of_run = {"metadata": row.metadata, "result": row.result}
    parts = [(f"{name} of run {row.run.id}", data) for name, data in of_run.items()]
    for step in steps:
        parts.append((f"safe_input of step {step.step.id}", step.safe_input))
        parts.append((f"safe_output of step {step.step.id}", step.safe_output))
    for asked in actions:
        of_action = {"arguments": asked.arguments, "preview": asked.preview, "answer": asked.answer}
        parts += [(f"{name} of action {asked.action.id}", data) for name, data in of_action.items()]
    return [problem for what, data in parts if (problem := _problem(data, what)) is not None]


async def _unreadable_messages(store: Store, run: Run, seen: _Seen) -> list[str]:
    """Messages of the run's conversation, each once: every model call from then on needs it."""
    after = seen.messages.get(run.conversation_id, -1)
    found: list[str] = []
    try:
        while page := await store.messages(run.tenant_id, run.conversation_id, after, MESSAGES_PAGE):
            found += [text for line in page if (text := _problem(line.body, f"message {line.id}")) is not None]
            after = seen.messages[run.conversation_id] = max(line.position or 0 for line in page)
    except SurefootError as problem:
        if problem.code != "unreadable":
            raise
        found.append(str(problem))
        seen.messages[run.conversation_id] = ALL_MESSAGES
    return found


def _problem(data: bytes | None, what: str) -> str | None:
    try:
        decode_value(data or b"null", object, what)
    except Unreadable as problem:
        return str(problem)
    return None


async def _unreadable_requests(store: Store, tenant_id: str, steps: Sequence[StepRow]) -> list[Finding]:
    """Requests that may be needed yet: those of steps that have not ended."""
    found = []
    for row in steps:
        if row.step.input_ref is None or not row.step.live:
            continue
        try:
            await request_of(store, tenant_id, row)
        except SurefootError as problem:
            text = f"step {row.step.id}: its exact request cannot be read ({problem.code})"
            found.append(Finding("unreadable", row.run_id, text, "restore it from a backup, or cancel the run"))
    return found


def _standing_still(row: RunRow, steps: Sequence[StepRow], now: Instant) -> list[Finding]:
    run = row.run
    found = []
    waited = untaken_seconds(row, now)
    if row.blocked_code is not None:
        next_action = "start a worker with the code that knows it, or cancel the run"
        if row.blocked_code == "drive_failed":
            next_action = "read the worker's log, mend the code, start a worker again; or cancel the run"
        elif row.blocked_code == "unknown_agent":
            next_action = _start_one(run)
        text = f"no worker can take it: {row.blocked_code} (agent {run.agent}, version {run.agent_version})"
        found.append(Finding("blocked", run.id, text, next_action))
    elif waited > STUCK_SECONDS:
        text = f"ready for {waited:.0f} s, and no worker takes it (agent {run.agent}, version {run.agent_version})"
        found.append(Finding("stuck", run.id, text, "start `surefoot worker` with the file of this agent and version"))
    if run.status is RunStatus.completed and row.result is None:
        found.append(Finding("no_result", run.id, "completed without a result", "report it, with a copy of the store"))
    if run.status is RunStatus.failed and run.error_code is None:
        found.append(Finding("no_result", run.id, "failed without a code", "report it, with a copy of the store"))
    if row.lease_owner is None and row.ready_at is None and row.blocked_code is None:
        ownerless = [s.step.id for s in steps if s.step.status is StepStatus.running]
        found += [
            Finding("no_owner", run.id, f"step {i} says running, has no owner, and no worker will come", "report it")
            for i in ownerless
        ]
    return found
