"""Bugs that are planted into the real code, one at a time, to see whether the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from surefoot.connectors import github_lookup
from surefoot.connectors.github_api import Account
from surefoot.core import attempts, decide, ends, events as ev, people, policy, reconcile
from surefoot.core.draft import Draft
from surefoot.core.people import Decision
from surefoot.core.reconcile import Doubt, Look
from surefoot.core.state import Action, Instant, Run, Step
from surefoot.runtime import doubt as runtime_doubt, handle, look as runtime_look
from surefoot.store.packing import for_blob
from surefoot.store.port import Append, StepRow
from surefoot.store.rows import append_rows, guard_values
from surefoot.store.sqlite import jobs
from surefoot.store.sqlite.store import SqliteStore
from surefoot.store.sqlite.writer import Transaction
from surefoot.testing import far

if TYPE_CHECKING:
    import pytest

Plant = Callable[["pytest.MonkeyPatch"], None]


def no_commit_before_the_call(patch: pytest.MonkeyPatch) -> None:
    """The intent of a call is acknowledged at once, and written with what the process asks of its store next."""
    append, read = SqliteStore.append, SqliteStore.step
    waiting: dict[SqliteStore, Append] = {}

    async def written(store: SqliteStore) -> None:
        what = waiting.pop(store, None)
        if what is not None:
            await append(store, what)

    async def late(store: SqliteStore, what: Append) -> None:
        await written(store)
        if any(isinstance(event, ev.StepStarted) for event in what.events) and not (what.payloads or what.release):
            waiting[store] = what
        else:
            await append(store, what)

    async def step(store: SqliteStore, tenant_id: str, step_id: str) -> StepRow:
        await written(store)
        return await read(store, tenant_id, step_id)

    patch.setattr(SqliteStore, "append", late)
    patch.setattr(SqliteStore, "step", step)


def lookup_error_read_as_absent(patch: pytest.MonkeyPatch) -> None:
    """A look that could not see is taken for one that saw nothing."""
    verdict_look, undetermined = runtime_look.verdict_look, runtime_look._undetermined

    def seen(look: Look) -> Look:
        return msgspec.structs.replace(look, verdict="absent") if look.verdict == "undetermined" else look

    patch.setattr(runtime_look, "verdict_look", lambda *given, **named: seen(verdict_look(*given, **named)))
    patch.setattr(runtime_look, "_undetermined", lambda *given: seen(undetermined(*given)))


def no_version_check(patch: pytest.MonkeyPatch) -> None:
    """The last writer wins, whatever the other one believed."""
    patch.setattr(jobs.AppendJob, "write", lambda job, tx: _write_over(job, tx, lambda append: True))


def cancel_not_checked_at_the_intent(patch: pytest.MonkeyPatch) -> None:
    """An intent that was decided before a cancel is written after it."""

    def starts(append: Append) -> bool:
        return any(isinstance(event, ev.StepStarted) for event in append.events)

    patch.setattr(jobs.AppendJob, "write", lambda job, tx: _write_over(job, tx, starts))


_write = jobs.AppendJob.write


def _write_over(job: jobs.AppendJob, tx: Transaction, which: Callable[[Append], bool]) -> None:
    if which(job._append):
        append = _on_top(job._append, tx)
        job._append, job._written = msgspec.structs.replace(append, needs_lease=False), append_rows(append, for_blob)
    _write(job, tx)


def _on_top(append: Append, tx: Transaction) -> Append:
    run = append.after
    row = tx.file.one("run_get", {"tenant_id": run.tenant_id, "run_id": run.id})
    assert row is not None
    version, sequence = int(str(row["version"])), int(str(row["event_sequence"]))
    return msgspec.structs.replace(
        append,
        before=msgspec.structs.replace(append.before, version=version, event_sequence=sequence),
        after=msgspec.structs.replace(run, version=version + 1, event_sequence=sequence + len(append.events)),
    )


def lease_by_worker_name(patch: pytest.MonkeyPatch) -> None:
    """All workers go by one name, such as the host's, and a lease is theirs by that name: no token is looked at."""
    renew = SqliteStore.renew

    def without_token(append: Append, now: Instant) -> object:
        return guard_values(msgspec.structs.replace(append, token=None), now)

    async def renew_by_name(
        store: SqliteStore, tenant_id: str, tokens: Mapping[str, int], lease_s: float
    ) -> Mapping[str, float]:
        facts = {i: store._file.one("guard_facts", {"tenant_id": tenant_id, "run_id": i}) for i in tokens}
        return await renew(store, tenant_id, {i: int(str(f["lease_token"])) for i, f in facts.items() if f}, lease_s)

    patch.setattr(jobs, "guard_values", without_token)
    patch.setattr(SqliteStore, "renew", renew_by_name)


def strangers_marker_accepted(patch: pytest.MonkeyPatch) -> None:
    """A hit counts whoever wrote it."""
    judge = github_lookup._Search._judge

    def trusting(search: github_lookup._Search, comment: github_lookup.Comment, account: Account) -> None:
        judge(search, msgspec.structs.replace(comment, author_id=account.id), account)

    patch.setattr(github_lookup._Search, "_judge", trusting)


def settle_ignored(patch: pytest.MonkeyPatch) -> None:
    """An absent is believed as soon as the attempt is over."""
    patch.setattr(policy, "settle_left", lambda step, rules, at: 0.0)


def resent_without_looking(patch: pytest.MonkeyPatch) -> None:
    """After doubt the same call goes out again under the same key, whether or not the target drops repeats."""
    real = reconcile.next_for_doubt

    def hasty(d: Draft, step: Step, *, live: bool, approved: bool = True) -> Doubt:
        doubt = real(d, step, live=live, approved=approved)
        return Doubt("resend") if doubt.action in ("look", "ask") and not (live or d.run.ended) else doubt

    patch.setattr(reconcile, "next_for_doubt", hasty)
    patch.setattr(runtime_doubt, "next_for_doubt", hasty)
    patch.setattr(decide, "_may_repeat", lambda d, step, rules: True)


def approval_not_bound_to_the_hash(patch: pytest.MonkeyPatch) -> None:
    """A decision counts for whatever the action holds now."""
    real = people.check_decision

    def careless(action: Action, decision: Decision, wall: float) -> None:
        real(action, msgspec.structs.replace(decision, input_hash=None), wall)

    patch.setattr(people, "check_decision", careless)


def late_result_thrown_away(patch: pytest.MonkeyPatch) -> None:
    """What a call did is not kept once its step has moved on."""
    patch.setattr(attempts, "late_end", lambda *given, **named: None)


def second_result_appended(patch: pytest.MonkeyPatch) -> None:
    """A receipt is given to the model as the call's result, although the call has one."""
    real = ends.answer

    def twice(d: Draft, step: Step, body: bytes) -> None:
        d.run = msgspec.structs.replace(
            d.run,
            steps={
                **d.run.steps,
                step.id: msgspec.structs.replace(d.run.steps[step.id], answered=False),
            },
        )
        real(d, d.run.steps[step.id], body)

    # The database refuses a second result; that it is decided again and again is what is found, so a few times will do.
    patch.setattr(handle, "CONFLICTS_MAX", 5)
    for module in (ends, people, reconcile, decide, attempts):
        if hasattr(module, "answer"):
            patch.setattr(module, "answer", twice)


def looked_at_while_a_decision_is_written(patch: pytest.MonkeyPatch) -> None:
    """The run is read again between a commit and the answer to it: its new intents look like nobody's."""

    async def reload(self: handle.Handle, step_id: str | None = None) -> Run:
        return await self._read(step_id)

    patch.setattr(handle.Handle, "reload", reload)
    # Nothing comes between a commit and its answer where the store is near, and only what others say comes there.
    for name, value in {"FAR_SHARE": 1.0, "WORDS": 90, "PAUSE_SECONDS_MAX": 0.3}.items():
        patch.setattr(far, name, value)


PLANTS: tuple[tuple[Plant, int, int], ...] = (
    (no_commit_before_the_call, 100, 23),
    (lookup_error_read_as_absent, 400, 32),
    (no_version_check, 400, 7),
    (lease_by_worker_name, 400, 34),
    (strangers_marker_accepted, 200, 33),
    (settle_ignored, 200, 43),
    (resent_without_looking, 100, 1),
    (cancel_not_checked_at_the_intent, 400, 7),
    (approval_not_bound_to_the_hash, 100, 3),
    (late_result_thrown_away, 1_100, 942),
    (second_result_appended, 200, 3),
    (looked_at_while_a_decision_is_written, 400, 62),
)
"""Each with the number of seeds, from 0 on, within which it has to be found, and the one that found it last, around
which the search begins."""
