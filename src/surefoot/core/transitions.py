"""The two tables: everything that changes a run's or a step's status is in this file, as data, and nothing else is.

A pair that is not listed is refused. docs/lifecycle.md is generated from here.
"""

from __future__ import annotations

from surefoot.core import events as ev
from surefoot.core.state import TERMINAL, RunStatus, StepStatus

STEP: dict[tuple[StepStatus | None, type[ev.StepEvent]], StepStatus] = {
    (None, ev.StepCreated): StepStatus.pending,
    (StepStatus.pending, ev.StepStarted): StepStatus.running,
    (StepStatus.pending, ev.StepDeferred): StepStatus.pending,
    (StepStatus.pending, ev.StepWaitingForApproval): StepStatus.waiting_for_approval,
    (StepStatus.pending, ev.StepSucceeded): StepStatus.succeeded,
    (StepStatus.pending, ev.StepFailed): StepStatus.failed,
    (StepStatus.waiting_for_approval, ev.StepReleased): StepStatus.pending,
    (StepStatus.waiting_for_approval, ev.StepSucceeded): StepStatus.succeeded,
    (StepStatus.waiting_for_approval, ev.StepFailed): StepStatus.failed,
    (StepStatus.running, ev.StepStarted): StepStatus.running,
    (StepStatus.running, ev.StepDeferred): StepStatus.pending,
    (StepStatus.running, ev.StepOutcomeUnknown): StepStatus.outcome_unknown,
    (StepStatus.running, ev.StepSucceeded): StepStatus.succeeded,
    (StepStatus.running, ev.StepFailed): StepStatus.failed,
    (StepStatus.outcome_unknown, ev.StepStarted): StepStatus.running,
    (StepStatus.outcome_unknown, ev.StepDeferred): StepStatus.pending,
    (StepStatus.outcome_unknown, ev.StepWaitingForApproval): StepStatus.waiting_for_approval,
    (StepStatus.outcome_unknown, ev.StepSucceeded): StepStatus.succeeded,
    (StepStatus.outcome_unknown, ev.StepFailed): StepStatus.failed,
}

RUN: dict[tuple[RunStatus, type[ev.Event]], RunStatus] = {
    (RunStatus.running, ev.RunCompleted): RunStatus.completed,
    (RunStatus.running, ev.RunFailed): RunStatus.failed,
    (RunStatus.waiting_for_user, ev.RunFailed): RunStatus.failed,
    (RunStatus.reconciling, ev.RunFailed): RunStatus.failed,
    (RunStatus.running, ev.RunCancelled): RunStatus.cancelled,
    (RunStatus.waiting_for_user, ev.RunCancelled): RunStatus.cancelled,
    (RunStatus.reconciling, ev.RunCancelled): RunStatus.cancelled,
}

RUN_CHANGES: frozenset[tuple[RunStatus, RunStatus]] = frozenset(
    (a, b) for a in RunStatus for b in RunStatus if a is not b and a not in TERMINAL and b not in TERMINAL
)
"""The pairs that run_status_changed may carry."""
