"""The doctor: what is wrong in a store, and what is merely open. It reads; it mends nothing.

Findings are damage (rows that differ from their events, unreadable values, a damaged file) and what stands still
without anybody's knowing. Open questions and runs under way are information.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from surefoot.core.audit import check_run
from surefoot.core.evolve import Recorded
from surefoot.core.state import Instant, RunStatus, StepStatus
from surefoot.errors import NotFound, SurefootError
from surefoot.snapshot import untaken_seconds
from surefoot.store.listed import to_the_end
from surefoot.store.port import ActionRow, RunRow, StepRow, Store
from surefoot.store.requests import request_of

STUCK_SECONDS = 300.0
"""A run that has been ready and free for longer is stuck: no worker takes it."""
EVENTS_PAGE = 1_000


class Finding(msgspec.Struct, frozen=True):
    """Something wrong. `code` is stable: damaged, unreadable, differs, stuck, blocked, no_result, no_owner."""

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
    return Report(findings, Information(store.path, dict(seen.statuses), seen.live, seen.in_doubt, seen.questions))


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

    def count(self, row: RunRow, steps: Sequence[StepRow], actions: Sequence[ActionRow]) -> None:
        self.statuses[row.run.status.value] += 1
        if not row.run.ended:
            self.live.append(row.run.id)
        if any(s.step.status is StepStatus.outcome_unknown for s in steps):
            self.in_doubt.append(row.run.id)
        self.questions += [a.action.id for a in actions if a.action.status.value == "waiting"]


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
    seen.count(row, steps, actions)
    whole = check_run(row.run, [s.step for s in steps], [a.action for a in actions], recorded)
    found = [
        Finding("differs", run_id, text, "rows and events are written together: report it, with a copy of the store")
        for text in whole
    ]
    found += await _unreadable_requests(store, tenant_id, steps)
    return found + _standing_still(row, steps, store.now())


async def _all_events(store: Store, tenant_id: str, run_id: str) -> list[Recorded]:
    recorded: list[Recorded] = []
    while page := await store.events(tenant_id, run_id, recorded[-1].sequence if recorded else 0, EVENTS_PAGE):
        recorded += page
    return recorded


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
        found.append(Finding("blocked", run.id, f"no worker can take it: {row.blocked_code}", next_action))
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
