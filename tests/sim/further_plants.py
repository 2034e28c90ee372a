"""Bugs that only show where a store is late or unclear, others tell, runs are taken up, limits hold or workers stop."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

import msgspec

from surefoot import app
from surefoot.agent import starting
from surefoot.core import events as ev, reconcile
from surefoot.core.draft import Draft
from surefoot.core.duplicates import Questions
from surefoot.core.reconcile import Look
from surefoot.core.state import Instant, StepStatus
from surefoot.errors import CommitUnknown
from surefoot.runtime import deciding, throttles
from surefoot.runtime.handle import Handle
from surefoot.store.access import Wish
from surefoot.store.port import Append
from surefoot.store.rows import Values, guard_values
from surefoot.store.sqlite import jobs
from surefoot.testing.further import Further
from tests.sim.plants import lease_by_worker_name

if TYPE_CHECKING:
    import pytest

    from surefoot.runtime.context import Context
    from tests.sim.plants import Plant


def an_unclear_commit_counts_as_made(patch: pytest.MonkeyPatch) -> None:
    """Who gets no answer to a commit goes on as if it had been a good one."""

    async def append(handle: Handle, draft: Draft, release: object) -> None:
        after = draft.finish()
        what = Append(
            before=draft.before, after=after, events=tuple(draft.events), at=draft.at, payloads=tuple(draft.payloads),
            token=handle.token, needs_lease=draft.needs_lease, wall_before=draft.wall_before,
        )  # fmt: skip
        with contextlib.suppress(CommitUnknown):
            await handle.store.append(what)
        handle._committed(what)

    patch.setattr(Handle, "_append", append)


def a_late_commit_is_not_guarded_by_its_lease(patch: pytest.MonkeyPatch) -> None:
    """What arrives is written whoever has the run by now: the lease was looked at by the one who sent it."""

    def without_lease(append: Append, now: Instant) -> Values:
        return guard_values(msgspec.structs.replace(append, token=None, needs_lease=False), now)

    patch.setattr(jobs, "guard_values", without_lease)


def a_reported_absence_is_believed(patch: pytest.MonkeyPatch) -> None:
    """Somebody outside has not seen it: it is sent again."""
    real = reconcile.record_report

    def believing(d: Draft, step_id: str, look: Look, questions: Questions) -> bool:
        if look.verdict == "absent" and d.step(step_id).status is StepStatus.outcome_unknown:
            d.emit(ev.LookupAnswered(step_id, "absent", concluded=True))
            reconcile.after_absent(d, step_id, None)
            return True
        return real(d, step_id, look, questions)

    patch.setattr(deciding, "record_report", believing)


def a_report_is_early_and_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What is told of a call while it is under way is left to its own answer."""
    real = reconcile.record_report

    def forgetting(d: Draft, step_id: str, look: Look, questions: Questions) -> bool:
        return d.step(step_id).status is not StepStatus.running and real(d, step_id, look, questions)

    patch.setattr(deciding, "record_report", forgetting)


def each_retry_is_another_run(patch: pytest.MonkeyPatch) -> None:
    """That a run was taken up is not known by its key."""
    numbers = itertools.count()
    real = starting.run_again

    async def run_again(ctx: Context, run_id: str, by: str, known: object) -> starting.NewRun:
        new = await real(ctx, run_id, by, known)  # type: ignore[arg-type]  # the caller's own
        return msgspec.structs.replace(new, key=f"{new.key} {next(numbers)}")

    patch.setattr(app, "run_again", run_again)


def each_worker_has_the_limit_for_itself(patch: pytest.MonkeyPatch) -> None:
    """The same calls at once for every process."""
    wish = throttles.Gate._wish

    def own(gate: throttles.Gate, slots: int, tokens: int) -> Wish:
        made = wish(gate, slots, tokens)
        return msgspec.structs.replace(made, name=f"{made.name} {made.worker_id}")

    patch.setattr(throttles.Gate, "_wish", own)


FURTHER_PLANTS: tuple[tuple[Plant, tuple[Further, ...], int, int], ...] = (
    (an_unclear_commit_counts_as_made, ("unclear",), 60, 7),
    (a_late_commit_is_not_guarded_by_its_lease, ("unclear", "stops"), 200, 7),
    (a_reported_absence_is_believed, ("reports",), 100, 7),
    (a_report_is_early_and_forgotten, ("reports",), 60, 18),
    (each_retry_is_another_run, ("retries",), 60, 1),
    (each_worker_has_the_limit_for_itself, ("limits",), 60, 18),
    (lease_by_worker_name, ("stops",), 60, 1),
)
"""Each with what its stories have, and then as PLANTS."""
