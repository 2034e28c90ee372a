"""The comparison of rows with events finds what was tampered with, and nothing where nothing was."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from surefoot.core import events as ev
from surefoot.core.attempts import Outcome
from surefoot.core.audit import check_run, compare, history_faults
from surefoot.core.decide import cancel_run
from surefoot.core.evolve import Recorded
from surefoot.core.state import ActionStatus, AttemptEnd, RunStatus, StepStatus
from tests.core.play import ABSENT, Play, call, found


def lived() -> Play:
    play = Play()
    step = play.doubt()
    play.wait(60.0)
    play.look(step, ABSENT)
    play.end(step, Outcome("applied", look=found("c1", source="worker")))
    play.calls(call(gate=play.ask()))
    return play


def check(play: Play) -> list[str]:
    steps, actions = list(play.full.steps.values()), list(play.full.actions.values())
    return check_run(play.full, steps, actions, play.recorded)


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    play = lived()
    assert check(play) == []
    play.do(lambda d: cancel_run(d, "ann"))
    assert check(play) == []


def test_times_are_the_stores_own() -> None:
    play = lived()
    steps = [replace(s, not_before=9.0, look_at=9.0) for s in play.full.steps.values()]
    assert compare(play.full, steps, list(play.full.actions.values()), play.full) == []


@pytest.mark.parametrize(
    "field", ["status", "version", "event_sequence", "step_count", "turns", "next_position", "error_code", "queued"]
)
def test_a_changed_run_is_found(field: str) -> None:
    play = lived()
    values: dict[str, object] = {"status": RunStatus.failed, "error_code": "x", "queued": ("m",)}
    run = replace(play.full, **{field: values.get(field, 99)})
    (text,) = compare(run, list(run.steps.values()), list(run.actions.values()), play.full)
    assert f"{field} is" in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", StepStatus.failed),
        ("external_resource_id", "c9"),
        ("input_hash", "x"),
        ("operation_key", "x"),
        ("attempt", 7),
        ("answered", False),
        ("resolution", "given_up"),
    ],
)
def test_a_changed_step_is_found(field: str, value: object) -> None:
    play = lived()
    steps = [replace(s, **{field: value}) if s.attempt == 2 else s for s in play.full.steps.values()]
    (text,) = compare(play.full, steps, list(play.full.actions.values()), play.full)
    assert f"{field} is" in text


@pytest.mark.parametrize(("field", "value"), [("end", AttemptEnd.refused), ("token", 9), ("absent", False)])
def test_a_changed_attempt_is_found(field: str, value: object) -> None:
    play = lived()
    steps = [
        replace(s, attempts=(replace(s.attempts[0], **{field: value}), *s.attempts[1:])) if s.attempt == 2 else s
        for s in play.full.steps.values()
    ]
    (text,) = compare(play.full, steps, list(play.full.actions.values()), play.full)
    assert f"{field} is" in text


def test_rows_without_events_and_events_without_rows_are_found() -> None:
    play = lived()
    steps, actions = list(play.full.steps.values()), list(play.full.actions.values())
    assert "events without a row" in compare(play.full, steps[1:], actions, play.full)[0]
    assert "a row without events" in compare(play.full, [*steps, replace(steps[0], id="x")], actions, play.full)[0]
    assert compare(play.full, steps, [replace(a, status=ActionStatus.approved) for a in actions], play.full)
    twice = [replace(s, attempts=s.attempts[:1]) for s in steps]
    assert "attempt 2: events without a row" in compare(play.full, twice, actions, play.full)[0]


def with_event(
    play: Play, event: ev.AnyEvent, *, sequence: int | None = None, version: int | None = None
) -> list[Recorded]:
    last = play.recorded[-1]
    number = last.sequence + 1 if sequence is None else sequence
    return [*play.recorded, Recorded("run_1", number, last.version + 1 if version is None else version, play.at, event)]


def test_a_history_that_cannot_be_is_found() -> None:
    play = lived()
    step = next(iter(play.full.steps))
    assert history_faults(play.recorded) == []
    assert history_faults(with_event(play, ev.RunCompleted(), sequence=99))
    assert history_faults(with_event(play, ev.RunCompleted(), version=99))
    assert history_faults(with_event(play, ev.RunCompleted(), version=1))
    assert "token 0" in history_faults(with_event(play, ev.StepStarted(step, 2, 0, 30.0, 20.0)))[0]
    play.do(lambda d: cancel_run(d, "ann"))
    assert "more than once" in history_faults(with_event(play, ev.RunCompleted()))[0]
    assert "after the run's end" in history_faults(with_event(play, ev.StepStarted(step, 2, 1, 30.0, 20.0)))[0]
    assert "cannot follow" in check_run(play.full, [], [], with_event(play, ev.RunCompleted()))[0]
