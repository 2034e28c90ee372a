"""Runs: the derived status, budgets, the model's turns, completion, messages, and work outside any agent."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from surefoot.core import events as ev
from surefoot.core.attempts import Outcome
from surefoot.core.decide import (
    Refusal,
    add_message,
    answer_from_owner,
    cancel_run,
    complete_run,
    defer,
    propose,
    start_model_call,
)
from surefoot.core.draft import derive_status
from surefoot.core.evolve import replay
from surefoot.core.ids import RANDOM_BYTES, call_id, mint, run_of_step, step_id
from surefoot.core.state import (
    TERMINAL,
    Action,
    ActionKind,
    ActionStatus,
    EffectClass,
    Instant,
    Limits,
    Resolution,
    Rules,
    Run,
    RunStatus,
    Step,
    StepStatus,
    StepType,
    last_committed_sequence,
    wake_times,
)
from surefoot.errors import NotAllowed, RunEnded, Unreadable
from tests.core.play import Play, call, found

AT = Instant(1_000.0, 1_700_000_000.0)
RULES = Rules(EffectClass.opaque)
# A step's part in the derivation: its status, and which question about it is open.
PARTS = [
    *((status, None) for status in StepStatus),
    (StepStatus.waiting_for_approval, ActionKind.approve),
    (StepStatus.waiting_for_approval, ActionKind.ask),
    (StepStatus.outcome_unknown, ActionKind.resolve),
    (StepStatus.outcome_unknown, ActionKind.duplicate),
    (StepStatus.succeeded, ActionKind.duplicate),
    ("given_up", None),
]
Part = tuple[StepStatus | str, ActionKind | None]


def derived(parts: tuple[Part, ...]) -> tuple[Run, list[Step]]:
    steps, actions = {}, {}
    for number, (status, kind) in enumerate(parts, start=1):
        given_up = status == "given_up"
        name = f"s{number}"
        steps[name] = Step(
            name,
            number,
            StepType.tool_call,
            StepStatus.outcome_unknown if given_up else StepStatus(status),
            RULES,
            resolution=Resolution.given_up if given_up else None,
        )
        if kind is not None:
            actions[name] = Action(f"act_{number}", name, kind, "h", ActionStatus.waiting)
    run = Run("t", "run_1", "conv_1", "a", "1", "agent", RunStatus.running, 1, 1, len(parts), 1, AT)
    return replace(run, steps=steps, actions=actions), list(steps.values())


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_the_derived_status_by_enumeration(count: int) -> None:
    for parts in itertools.product(PARTS, repeat=count):
        run, steps = derived(parts)
        doubt = [s for s in steps if s.status is StepStatus.outcome_unknown and s.resolution is None]
        asked = {a.step_id for a in run.actions.values() if a.kind is ActionKind.resolve}
        moves = any(s.status in (StepStatus.running, StepStatus.pending) for s in steps)
        all_closed = all(
            s.status in (StepStatus.succeeded, StepStatus.failed) or s.resolution is not None for s in steps
        )
        waits = bool(run.actions) and not moves and not all_closed and all(s.id in asked for s in doubt)
        expected = RunStatus.waiting_for_user if waits else RunStatus.reconciling if doubt else RunStatus.running
        assert derive_status(run) is expected, parts


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_an_ended_run_keeps_its_status_whatever_its_steps_do(status: RunStatus) -> None:
    for part in PARTS:
        run, _ = derived((part,))
        assert derive_status(replace(run, status=status)) is status


# Budgets and turns


def test_the_budget_of_turns() -> None:
    play = Play(limits=Limits(turns_max=1))
    play.calls()
    with pytest.raises(NotAllowed) as refused:
        play.do(lambda d: start_model_call(d, play.start(), "h"))
    assert refused.value.code == "turns_used_up"


def test_the_budget_of_time() -> None:
    play = Play(limits=Limits(seconds_max=60.0))
    play.wait(61.0)
    with pytest.raises(NotAllowed) as refused:
        play.do(lambda d: start_model_call(d, play.start(), "h"))
    assert refused.value.code == "time_used_up"


def test_no_model_call_begins_while_a_call_has_no_result() -> None:
    play = Play()
    play.calls(call())
    with pytest.raises(NotAllowed) as refused:
        play.do(lambda d: start_model_call(d, play.start(), "h"))
    assert refused.value.code == "batch_open"


def test_results_stand_in_call_order_however_they_come() -> None:
    play = Play()
    one, two, three = play.calls(call("fetch"), call("fetch"), call(refusal=Refusal("too_long", "Too long.")))
    assert play.status(three) is StepStatus.failed and play.results(three) == 1
    for step in (two, one):
        play.begin(step)
        play.end(step, Outcome("applied", look=found(None)))
    places = [play.step(step).position for step in (one, two, three)]
    assert places == [2, 3, 4]
    assert [play.laws.places[n] for n in sorted(play.laws.places)] == ["user", "assistant", *["tool_result"] * 3]


# Completion


def test_a_run_completes_when_nothing_is_open() -> None:
    play = Play()
    (step,) = play.calls(call())
    with pytest.raises(NotAllowed):
        play.do(lambda d: complete_run(d, b"{}"))
    play.begin(step)
    play.end(step, Outcome("applied", look=found("c1")))
    play.do(lambda d: complete_run(d, b"{}"))
    assert play.run_status is RunStatus.completed
    for command in (lambda d: complete_run(d, b"{}"), lambda d: cancel_run(d, "ann")):
        with pytest.raises(RunEnded):
            play.do(command)


def test_an_unread_message_keeps_a_run_from_completing() -> None:
    play = Play()
    play.do(lambda d: start_model_call(d, play.start(), "h"))
    play.do(lambda d: add_message(d, "msg_u1", "user", b"{}"))
    with pytest.raises(NotAllowed):
        play.do(lambda d: complete_run(d, b"{}"))


# Wake times


def test_when_a_worker_has_something_to_do() -> None:
    play = Play()
    assert wake_times(play.run) == (0.0, None), "the next model call"
    (step,) = play.calls(call(gate=play.ask(expires_s=100.0)))
    assert wake_times(play.run) == (None, play.at.wall + 100.0)
    play.decide("act_1", "approve")
    assert wake_times(play.run)[0] == 0.0
    play.do(lambda d: defer(d, step, 7.0, "busy"))
    assert wake_times(play.run) == (play.at.mono + 7.0, None)
    play.wait(7.0)
    play.begin(step)
    assert wake_times(play.run) == (0.0, None), "a step that runs, should its worker be gone"
    play.do(lambda d: cancel_run(d, "ann"))
    assert wake_times(play.run) == (0.0, None), "also after the run's end"
    play.end(step, Outcome("in_doubt", "reset"))
    assert wake_times(play.run) == (play.at.mono, None)


def test_the_last_committed_sequence_counts_what_has_ended_without_a_hole() -> None:
    play = Play()
    assert last_committed_sequence(play.full) == 0
    one, two = play.calls(call(), call("fetch"))
    assert last_committed_sequence(play.full) == 1
    play.begin(two)
    play.end(two, Outcome("applied", look=found(None)))
    assert last_committed_sequence(play.full) == 1
    play.begin(one)
    play.end(one, Outcome("refused", "http_403"))
    assert last_committed_sequence(play.full) == 3


# Business keys


def test_a_key_that_was_answered_already_gives_the_first_receipt() -> None:
    play = Play()
    (step,) = play.calls(call())
    play.do(lambda d: answer_from_owner(d, step, "c1", "https://x/c1", b"{}"))
    assert play.step(step).resolution is Resolution.answered_by and play.results(step) == 1
    assert play.step(step).external_resource_id == "c1"
    sent = play.sent()
    with pytest.raises(NotAllowed):
        play.do(lambda d: answer_from_owner(d, sent, "c1", None, b"{}"))


def test_only_a_pending_step_is_put_off() -> None:
    play = Play()
    step = play.sent()
    with pytest.raises(NotAllowed):
        play.do(lambda d: defer(d, step, 1.0, None))


# Without an agent


def test_perform_is_a_run_of_one_step_without_a_conversation() -> None:
    play = Play(kind="perform")
    with pytest.raises(NotAllowed):
        play.do(lambda d: add_message(d, "msg_1", "user", b"{}"))
    step = play.do(lambda d: propose(d, call(), 0, 0, None))
    play.begin(step)
    play.end(step, Outcome("in_doubt", "reset"))
    play.wait(60.0)
    play.look(step, found("c1", also=("c2",)))
    assert play.status(step) is StepStatus.succeeded
    assert play.results(step) == 0 and play.notes() == 0 and play.waits(ActionKind.duplicate)
    play.do(lambda d: complete_run(d, b"{}"))
    assert play.run_status is RunStatus.completed


# Replay


def test_events_that_cannot_be_are_unreadable() -> None:
    play = Play()
    play.calls(call())
    for broken in (
        [],
        play.recorded[1:],
        [*play.recorded[:2], *play.recorded[3:]],
        [*play.recorded, play.recorded[-1]],
    ):
        with pytest.raises(Unreadable):
            replay(broken)
    started = play.recorded[0]
    with pytest.raises(Unreadable):
        replay([started, replace(started, sequence=2)])
    with pytest.raises(Unreadable):
        replay([started, replace(started, sequence=2, event=ev.StepReleased("s", "a"))])


# Ids


def test_ids_sort_by_time_and_name_what_they_belong_to() -> None:
    early = mint("run", 1_700_000_000.0, b"\xff" * RANDOM_BYTES)
    late = mint("run", 1_700_000_000.001, b"\x00" * RANDOM_BYTES)
    assert early < late and len(early) == len("run_") + 26
    assert run_of_step(step_id(early, 7)) == early and step_id(early, 7) < step_id(early, 10)
    assert len({call_id(early, m, p) for m in range(12) for p in range(12)}) == 144
