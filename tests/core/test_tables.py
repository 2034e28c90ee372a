"""Every cell of both tables: what is listed leads where it says, what is not is refused and changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from surefoot.core import events as ev
from surefoot.core.evolve import evolve
from surefoot.core.state import (
    TERMINAL,
    Attempt,
    AttemptEnd,
    EffectClass,
    Instant,
    Rules,
    Run,
    RunStatus,
    Step,
    StepStatus,
    StepType,
)
from surefoot.core.transitions import RUN, RUN_CHANGES, STEP
from surefoot.errors import NotAllowed

AT = Instant(1_000.0, 1_700_000_000.0)
STEP_EVENTS: dict[type[ev.StepEvent], Callable[[], ev.AnyEvent]] = {
    ev.StepWaitingForApproval: lambda: ev.StepWaitingForApproval("s", "act_1"),
    ev.StepReleased: lambda: ev.StepReleased("s", "act_1"),
    ev.StepStarted: lambda: ev.StepStarted("s", 2, 1, 30.0, 20.0),
    ev.StepDeferred: lambda: ev.StepDeferred("s", 5.0),
    ev.StepOutcomeUnknown: lambda: ev.StepOutcomeUnknown("s", 1, "reset"),
    ev.StepSucceeded: lambda: ev.StepSucceeded("s"),
    ev.StepFailed: lambda: ev.StepFailed("s", "refused"),
}
RUN_EVENTS: dict[type[ev.Event], Callable[[], ev.AnyEvent]] = {
    ev.RunCompleted: ev.RunCompleted,
    ev.RunFailed: lambda: ev.RunFailed("broken"),
    ev.RunCancelled: lambda: ev.RunCancelled("ann"),
}


def run_with(step: StepStatus | None, status: RunStatus = RunStatus.running) -> Run:
    attempt = Attempt(1, 1, None, None, AT, 1_020.0, 1_030.0)
    one = Step(
        "s",
        1,
        StepType.tool_call,
        step or StepStatus.pending,
        Rules(EffectClass.opaque),
        attempt=1,
        attempts=(attempt,),
    )
    steps = {} if step is None else {"s": one}
    return Run("t", "run_1", "conv_1", "a", "1", "agent", status, 3, 7, len(steps), 4, AT, steps=steps)


def test_the_tables_name_only_events_that_are_tried_here() -> None:
    assert {kind for _, kind in STEP} == {ev.StepCreated, *STEP_EVENTS}
    assert {kind for _, kind in RUN} == set(RUN_EVENTS)


@pytest.mark.parametrize("kind", STEP_EVENTS)
@pytest.mark.parametrize("status", [None, *StepStatus])
def test_each_cell_of_the_step_table(status: StepStatus | None, kind: type[ev.StepEvent]) -> None:
    run, event = run_with(status), STEP_EVENTS[kind]()
    before = copy.deepcopy(run)
    target = STEP.get((status, kind))
    if target is None:
        with pytest.raises(NotAllowed) as refused:
            evolve(run, event, AT)
        assert refused.value.code == "illegal_transition"
    else:
        after = evolve(run, event, AT)
        assert after.steps["s"].status is target
        assert after.event_sequence == 8
    assert run == before


@pytest.mark.parametrize("status", [None, *StepStatus])
def test_a_step_is_created_once(status: StepStatus | None) -> None:
    run = run_with(status)
    event = ev.StepCreated("s", run.step_count + 1, StepType.tool_call, Rules(EffectClass.opaque))
    if status is None:
        assert evolve(run, event, AT).steps["s"].status is STEP[None, ev.StepCreated]
    else:
        with pytest.raises(NotAllowed):
            evolve(run, event, AT)


def test_steps_are_numbered_without_a_gap() -> None:
    for number in (0, 1, 3):
        with pytest.raises(NotAllowed):
            event = ev.StepCreated("s2", number, StepType.tool_call, Rules(EffectClass.opaque))
            evolve(run_with(StepStatus.pending), event, AT)


@pytest.mark.parametrize("kind", RUN_EVENTS)
@pytest.mark.parametrize("status", RunStatus)
def test_each_cell_of_the_run_table(status: RunStatus, kind: type[ev.Event]) -> None:
    run, event = run_with(None, status), RUN_EVENTS[kind]()
    target = RUN.get((status, kind))
    if target is None:
        with pytest.raises(NotAllowed):
            evolve(run, event, AT)
        assert run == run_with(None, status)
    else:
        assert evolve(run, event, AT).status is target


@pytest.mark.parametrize("to", RunStatus)
@pytest.mark.parametrize("status", RunStatus)
def test_each_change_of_a_run(status: RunStatus, to: RunStatus) -> None:
    run = run_with(None, status)
    legal = status is not to and status not in TERMINAL and to not in TERMINAL
    assert ((status, to) in RUN_CHANGES) is legal
    if legal:
        assert evolve(run, ev.RunStatusChanged(status, to), AT).status is to
    else:
        with pytest.raises(NotAllowed):
            evolve(run, ev.RunStatusChanged(status, to), AT)


@pytest.mark.parametrize("status", RunStatus)
def test_a_change_names_the_status_that_is(status: RunStatus) -> None:
    other = next(s for s in RunStatus if s is not status and s not in TERMINAL)
    target = next(s for s in RunStatus if s not in (status, other) and s not in TERMINAL)
    with pytest.raises(NotAllowed):
        evolve(run_with(None, status), ev.RunStatusChanged(other, target), AT)


@pytest.mark.parametrize("status", StepStatus)
def test_only_what_is_unknown_is_given_up(status: StepStatus) -> None:
    run = run_with(status)
    if status is StepStatus.outcome_unknown:
        after = evolve(run, ev.StepGivenUp("s"), AT).steps["s"]
        assert after.status is status and not after.open_in_loop and after.look_at is None
    else:
        with pytest.raises(NotAllowed):
            evolve(run, ev.StepGivenUp("s"), AT)


def test_attempts_are_numbered_without_a_gap() -> None:
    for number in (0, 1, 3):
        with pytest.raises(NotAllowed):
            evolve(run_with(StepStatus.pending), ev.StepStarted("s", number, 1, 30.0, 20.0), AT)


@pytest.mark.parametrize("status", StepStatus)
def test_events_that_leave_the_status_alone(status: StepStatus) -> None:
    for event in (
        ev.AttemptEnded("s", 1, AttemptEnd.in_doubt),
        ev.LookupAnswered("s", "undetermined"),
        ev.EvidenceRecorded("s", "report", "found", resource_id="c1"),
        ev.ReceiptRecorded("s", "c1"),
        ev.DuplicateDetected("s", ("c1", "c2")),
        ev.SweepScheduled("s", 0, 60.0),
    ):
        assert evolve(run_with(status), event, AT).steps["s"].status is status
        with pytest.raises(NotAllowed):
            evolve(run_with(None), event, AT)


def test_a_message_stands_at_its_place_only() -> None:
    run = run_with(StepStatus.pending)
    run = replace(run, steps={"s": replace(run.steps["s"], position=2, call_id="call_1")})
    result = ev.MessageAppended("m", "tool_result", 2, step_id="s", call_id="call_1")
    assert evolve(run, result, AT).steps["s"].answered
    for wrong in (
        replace(result, position=3),
        replace(result, call_id="call_2"),
        replace(result, step_id="other"),
        ev.MessageAppended("m", "user", 4),
    ):
        with pytest.raises(NotAllowed):
            evolve(run, wrong, AT)
    with pytest.raises(NotAllowed):
        evolve(evolve(run, result, AT), replace(result, message_id="m2"), AT)
    closed = run_with(None)
    assert evolve(closed, ev.MessageAppended("m", "user", 4), AT).next_position == 5
    with pytest.raises(NotAllowed):
        evolve(closed, ev.MessageAppended("m", "user", 3), AT)
