"""Ends of attempts: each end, late ends in each status, attempts used up, and a worker that is gone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from surefoot.core import events as ev, policy
from surefoot.core.attempts import Outcome, ask_about_model, end_used_up, recover_step
from surefoot.core.decide import cancel_run, record_model_answer, start_model_call
from surefoot.core.reconcile import ask_what_happened
from surefoot.core.state import ActionKind, AttemptEnd, Resolution, RunStatus, StepStatus
from surefoot.errors import NotAllowed
from tests.core.play import ABSENT, RULES, UNDETERMINED, Play, call, found

LOST = Outcome("in_doubt", "reset")


def applied(resource: str | None = "c1") -> Outcome:
    return Outcome("applied", look=found(resource, source="worker"))


def ask(play: Play, step: str) -> None:
    questions = play.questions
    play.do(lambda d: ask_what_happened(d, step, questions))


# The end of the attempt that is under way


def test_a_receipt_ends_the_step_and_answers_its_call() -> None:
    play = Play()
    step = play.sent()
    play.end(step, applied())
    assert play.status(step) is StepStatus.succeeded
    assert play.step(step).external_resource_id == "c1" and play.step(step).attempts[0].end is AttemptEnd.applied
    assert play.results(step) == 1 and play.run_status is RunStatus.running


def test_a_receipt_without_anything_in_it_is_a_receipt() -> None:
    play = Play()
    step = play.sent()
    play.end(step, Outcome("applied"))
    assert play.status(step) is StepStatus.succeeded and play.results(step) == 1


def test_refused_for_good_fails_the_step() -> None:
    play = Play()
    step = play.sent()
    play.end(step, Outcome("refused", "http_403"))
    assert play.status(step) is StepStatus.failed and play.step(step).error_code == "http_403"
    assert play.results(step) == 1


def test_refused_for_now_begins_again_on_the_same_step_not_before_its_time() -> None:
    play = Play()
    step = play.sent()
    play.end(step, Outcome("refused", "http_429", again_s=5.0))
    assert play.status(step) is StepStatus.pending and play.step(step).not_before == play.at.mono + 5.0
    with pytest.raises(NotAllowed) as early:
        play.begin(step)
    assert early.value.code == "not_yet"
    play.wait(5.0)
    assert play.begin(step).attempt == 2
    assert play.step(step).counted_attempts == 1, "a refusal for now does not count"


def test_not_sent_begins_again_only_so_often() -> None:
    play = Play()
    step = play.sent()
    for _ in range(policy.NOT_SENT_MAX):
        play.end(step, Outcome("not_sent", "no_connection", again_s=0.0))
        play.begin(step)
    play.end(step, Outcome("not_sent", "no_connection", again_s=0.0))
    assert play.status(step) is StepStatus.failed and play.results(step) == 1


def test_doubt_is_looked_at_at_once() -> None:
    play = Play()
    step = play.doubt()
    assert play.status(step) is StepStatus.outcome_unknown and play.step(step).look_at == play.at.mono
    assert play.run_status is RunStatus.reconciling and play.results(step) == 0


def test_a_read_in_doubt_is_called_again_and_the_run_does_not_reconcile() -> None:
    play = Play()
    step = play.doubt("fetch")
    assert play.status(step) is StepStatus.pending and play.run_status is RunStatus.running
    assert play.begin(step).attempt == 2


def test_a_read_uses_up_its_attempts_and_the_model_is_told() -> None:
    play = Play()
    step = play.sent("fetch")
    for _ in range(2):
        play.end(step, LOST)
        play.begin(step)
    play.end(step, LOST)
    assert play.status(step) is StepStatus.failed and play.results(step) == 1


def test_a_model_call_uses_up_its_attempts_and_the_run_fails() -> None:
    play = Play()
    model = play.do(lambda d: start_model_call(d, play.start(), "h"))
    for _ in range(7):
        play.end(model.id, LOST)
        play.begin(model.id)
    play.end(model.id, Outcome("in_doubt", "http_500"))
    assert play.run_status is RunStatus.failed and play.full.error_code == "model_unavailable"


def test_a_model_call_that_is_refused_for_good_fails_the_run_and_keeps_its_end() -> None:
    play = Play()
    model = play.do(lambda d: start_model_call(d, play.start(), "h"))
    play.end(model.id, Outcome("refused", "http_400"))
    assert play.run_status is RunStatus.failed and play.step(model.id).attempts[0].end is AttemptEnd.refused


def test_a_pending_step_that_may_not_begin_again_fails() -> None:
    play = Play()
    step = play.doubt("fetch")
    play.rules = {**RULES, "fetch": replace(RULES["fetch"], attempts_max=1)}
    with pytest.raises(NotAllowed) as refused:
        play.begin(step)
    assert refused.value.code == "attempts_used_up"
    play.do(lambda d: end_used_up(d, step))
    assert play.status(step) is StepStatus.failed and play.results(step) == 1
    with pytest.raises(NotAllowed):
        play.do(lambda d: end_used_up(d, step), step_id=step)


# A worker that is gone


@pytest.mark.parametrize("died", [True, False])
def test_a_lost_worker_leaves_a_doubt(died: bool) -> None:
    play = Play()
    step = play.sent()
    play.wait(500.0)
    assert play.do(lambda d: recover_step(d, step, owner_died=died, start=play.start())) is False
    now = play.step(step)
    assert now.status is StepStatus.outcome_unknown and now.look_at == play.at.mono
    assert now.attempts[0].ended == (now.attempts[0].last_byte_before if died else None)


def test_a_lost_read_begins_again_in_the_same_append() -> None:
    play = Play()
    step = play.sent("fetch")
    before = len(play.recorded)
    assert play.do(lambda d: recover_step(d, step, owner_died=True, start=play.start())) is True
    assert play.status(step) is StepStatus.running and play.step(step).attempt == 2
    assert len({line.version for line in play.recorded[before:]}) == 1
    assert not play.events(ev.RunStatusChanged)


def test_a_lost_read_waits_where_nothing_may_begin() -> None:
    play = Play()
    step = play.sent("fetch")
    play.do(lambda d: recover_step(d, step, owner_died=True, start=None))
    assert play.status(step) is StepStatus.pending and play.step(step).attempts[0].end is AttemptEnd.in_doubt


def test_a_lost_read_whose_approval_is_over_waits_for_a_new_one() -> None:
    play = Play()
    (step,) = play.calls(call("fetch", gate=play.ask(expires_s=100.0)))
    play.decide("act_1", "approve")
    play.begin(step)
    play.wait(200.0)
    assert play.do(lambda d: recover_step(d, step, owner_died=True, start=play.start())) is False
    assert play.status(step) is StepStatus.pending
    with pytest.raises(NotAllowed) as refused:
        play.begin(step)
    assert refused.value.code == "approval_expired"


def test_attempts_that_kill_the_worker_count() -> None:
    play = Play()
    step = play.sent("fetch")
    for _ in range(2):
        recovered(play, step)
    play.do(lambda d: recover_step(d, step, owner_died=True, start=play.start()))
    assert play.status(step) is StepStatus.failed


def recovered(play: Play, step_id: str) -> float:
    """The worker of a step is gone, and it runs again: how many seconds later."""
    if play.do(lambda d: recover_step(d, step_id, owner_died=True, start=play.start())):
        return 0.0
    left = play.step(step_id).not_before - play.at.mono
    play.wait(left)
    play.begin(step_id)
    return left


def test_what_loses_its_worker_again_and_again_begins_after_a_growing_pause_of_its_own() -> None:
    play = Play()
    model = play.do(lambda d: start_model_call(d, play.start(), "h"))
    pauses = [recovered(play, model.id) for _ in range(7)]
    assert pauses[0] == 0.0, "after one crash work goes on at once"
    bounds = [2.0**number for number in range(6)]
    assert all(full / 2 <= pause <= full for pause, full in zip(pauses[1:], bounds, strict=True)), pauses


def test_calls_that_lost_one_worker_do_not_begin_together_again() -> None:
    play = Play()
    steps = play.calls(call("fetch"), call("fetch"), call("fetch"))
    for step in steps:
        play.begin(step)
        recovered(play, step)
    assert len({recovered(play, step) for step in steps}) == len(steps)


def test_a_call_with_a_key_that_loses_its_worker_again_is_sent_again_after_a_pause() -> None:
    play = Play()
    step = play.sent("charge")
    for pause in (0.0, 1.0):
        play.do(lambda d: recover_step(d, step, owner_died=True, start=play.start()))
        look_at = play.step(step).look_at
        assert look_at is not None and pause / 2 <= look_at - play.at.mono <= pause
        play.wait(look_at - play.at.mono)
        play.begin(step)


def test_a_run_whose_model_call_killed_each_worker_does_not_blame_the_provider() -> None:
    play = Play()
    model = play.do(lambda d: start_model_call(d, play.start(), "h"))
    for _ in range(7):
        recovered(play, model.id)
    play.do(lambda d: recover_step(d, model.id, owner_died=True, start=play.start()))
    assert play.run_status is RunStatus.failed and play.full.error_code == "attempts_used_up"


def test_recovery_leaves_what_does_not_run_alone() -> None:
    play = Play()
    step = play.doubt()
    count = len(play.recorded)
    assert play.do(lambda d: recover_step(d, step, owner_died=True, start=None)) is False
    assert len(play.recorded) == count


# Late ends


def test_a_late_receipt_settles_the_doubt() -> None:
    play = Play()
    step = play.doubt()
    play.end(step, applied(), attempt=1)
    assert play.status(step) is StepStatus.succeeded and play.step(step).resolution is Resolution.found
    assert play.results(step) == 1 and not play.events(ev.DuplicateDetected)


def test_c040_a_late_receipt_after_the_runs_end_is_a_receipt_and_a_note() -> None:
    play = Play()
    step = play.sent()
    play.do(lambda d: cancel_run(d, "ann"))
    play.end(step, applied())
    assert play.run_status is RunStatus.cancelled and play.status(step) is StepStatus.succeeded
    assert play.events(ev.ReceiptRecorded)[0].resource_id == "c1"
    assert play.results(step) == 1 and play.notes() == 1
    assert not [m for m in play.events(ev.MessageAppended) if m.role == "note"], "its place is the next run's to give"


def test_the_same_receipt_again_changes_nothing_more() -> None:
    play = Play()
    step = play.doubt()
    play.look(step, found("c1"))
    play.end(step, applied("c1"), attempt=1)
    assert play.step(step).receipts == ("c1",) and not play.events(ev.DuplicateDetected)
    count = len(play.recorded)
    play.end(step, applied("c1"), attempt=1)
    assert len(play.recorded) == count, "an end is written once"


def test_another_receipt_after_success_is_a_duplicate_with_both_links() -> None:
    play = Play()
    step = play.doubt()
    play.look(step, found("c1"))
    play.end(step, applied("c2"), attempt=1)
    (duplicate,) = play.events(ev.DuplicateDetected)
    assert set(duplicate.resource_ids) == {"c1", "c2"}
    assert set(duplicate.resource_urls) == {"https://x/c1", "https://x/c2"}
    assert play.waits(ActionKind.duplicate) and play.run_status is RunStatus.running


def test_a_late_receipt_on_a_failed_step_is_a_receipt_a_note_and_a_question() -> None:
    play = Play()
    step = play.doubt("label")
    play.rules = {**RULES, "label": replace(RULES["label"], attempts_max=1)}
    play.wait(200.0)
    play.look(step, ABSENT)
    assert play.status(step) is StepStatus.failed and play.step(step).resolution is Resolution.not_applied
    play.end(step, applied(), attempt=1)
    assert play.status(step) is StepStatus.failed
    assert len(play.events(ev.ReceiptRecorded)) == 1 and play.notes() == 1 and play.waits(ActionKind.duplicate)


def resent(tool: str = "comment") -> tuple[Play, str]:
    """A step whose first attempt was concluded absent, and whose second is under way."""
    play = Play()
    step = play.doubt(tool)
    play.wait(200.0)
    assert play.look(step, ABSENT) is True
    return play, step


def test_a_receipt_of_an_earlier_attempt_waits_for_the_one_under_way() -> None:
    play, step = resent()
    play.end(step, applied("c1"), attempt=1)
    assert play.status(step) is StepStatus.running and not play.step(step).attempts[0].absent
    play.end(step, applied("c2"))
    (duplicate,) = play.events(ev.DuplicateDetected)
    assert set(duplicate.resource_urls) == {"https://x/c1", "https://x/c2"}


@pytest.mark.parametrize("end", ["refused", "not_sent", "in_doubt"])
def test_a_receipt_of_an_earlier_attempt_counts_when_the_one_under_way_has_none(end: str) -> None:
    play, step = resent()
    play.end(step, applied("c1"), attempt=1)
    play.end(step, Outcome(end, "code", again_s=1.0))  # type: ignore[arg-type]  # one of its words
    assert play.status(step) is StepStatus.succeeded and play.step(step).external_resource_id == "c1"
    assert play.step(step).attempt == 2 and play.results(step) == 1


def test_a_receipt_of_an_earlier_attempt_counts_when_the_worker_is_gone() -> None:
    play, step = resent()
    play.end(step, applied("c1"), attempt=1)
    play.do(lambda d: recover_step(d, step, owner_died=True, start=None))
    assert play.status(step) is StepStatus.succeeded


def test_a_late_refusal_settles_the_only_doubt() -> None:
    play = Play()
    step = play.doubt()
    play.end(step, Outcome("refused", "http_422"), attempt=1)
    assert play.status(step) is StepStatus.failed and play.step(step).resolution is Resolution.not_applied


def test_a_late_refusal_for_now_begins_again_then() -> None:
    play = Play()
    step = play.doubt()
    play.end(step, Outcome("refused", "http_429", again_s=9.0), attempt=1)
    assert play.status(step) is StepStatus.pending and play.step(step).not_before == play.at.mono + 9.0


def test_a_late_not_sent_begins_again() -> None:
    play = Play()
    step = play.doubt()
    play.end(step, Outcome("not_sent", "no_connection"), attempt=1)
    assert play.status(step) is StepStatus.pending
    assert play.begin(step).attempt == 2


def test_a_late_end_of_a_given_up_step_sends_nothing_again() -> None:
    play = Play()
    step = play.doubt("mail")
    ask(play, step)
    play.decide(play.open_action(ActionKind.resolve).id, "give_up")
    play.end(step, Outcome("not_sent", "no_connection"), attempt=1)
    assert play.status(step) is StepStatus.failed and play.step(step).resolution is Resolution.not_applied
    assert play.results(step) == 1 and play.notes() == 1


def test_the_late_end_of_a_call_that_hung_is_its_real_end_and_brings_the_look_forward() -> None:
    play = Play()
    step = play.sent()
    play.end(step, Outcome("in_doubt", "timeout", over=False))
    play.look(step, UNDETERMINED)
    play.wait(100.0)
    play.end(step, LOST, attempt=1)
    attempt = play.step(step).attempts[0]
    assert attempt.ended == play.at.mono
    assert (play.step(step).look_at or 1e9) <= play.at.mono
    play.look(step, ABSENT)
    assert play.status(step) is StepStatus.outcome_unknown, "settle counts from the end that was seen"
    play.wait(61.0)
    play.look(step, ABSENT)
    assert play.status(step) is StepStatus.running


def test_a_read_that_ends_after_a_cancel_asks_nobody() -> None:
    play = Play()
    step = play.sent("fetch")
    play.do(lambda d: cancel_run(d, "ann"))
    play.end(step, applied())
    assert play.status(step) is StepStatus.failed and play.notes() == 0 and not play.full.waiting_actions


def test_a_late_model_answer_is_refused() -> None:
    play = Play()
    model = play.do(lambda d: start_model_call(d, play.start(), "h"))
    play.end(model.id, LOST)
    play.begin(model.id)
    with pytest.raises(NotAllowed) as refused:
        play.do(lambda d: record_model_answer(d, model.id, 1, b"{}", []))
    assert refused.value.code == "superseded"


# Doubt belongs to an attempt


def test_a_refusal_ends_its_own_attempt_only() -> None:
    play = Play()
    step = play.doubt("charge")
    play.begin(step)
    play.end(step, Outcome("refused", "http_422"))
    now = play.step(step)
    assert now.status is StepStatus.outcome_unknown
    assert [a.end for a in now.attempts] == [AttemptEnd.in_doubt, AttemptEnd.refused]
    assert [a.code for a in now.attempts] == ["reset", "http_422"]


def test_a_step_is_not_started_twice_at_once() -> None:
    play = Play()
    for tool in RULES:
        step = play.sent(tool)
        with pytest.raises(NotAllowed) as refused:
            play.begin(step)
        assert refused.value.code == "possibly_sent"
        play.end(step, applied(None))


# A model that a person can mend


def model_question() -> tuple[Play, str]:
    play = Play()
    model = play.do(lambda d: start_model_call(d, play.start(), "h"))
    questions = play.questions
    play.do(lambda d: ask_about_model(d, model.id, 1, "http_401", questions))
    return play, model.id


def test_a_model_call_asks_a_person_and_goes_on_even_long_after_the_question_would_have_ended() -> None:
    play, model = model_question()
    assert play.run_status is RunStatus.waiting_for_user
    play.decide(play.open_action(ActionKind.ask).id, "answer")
    play.wait(10 * 86_400.0)
    assert play.begin(model).status is StepStatus.running


def test_a_model_call_asks_a_person_who_stops_it() -> None:
    play, _ = model_question()
    play.decide(play.open_action(ActionKind.ask).id, "reject")
    assert play.run_status is RunStatus.failed and play.full.error_code == "http_401"
