"""People: decisions are made once and bind to what was shown; every answer leads where the design says."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from surefoot.core import events as ev
from surefoot.core.attempts import Outcome
from surefoot.core.decide import ProposedCall, add_message, cancel_run, fail_run, start_model_call, start_step
from surefoot.core.draft import Draft
from surefoot.core.people import Decision, decide_action, expire_due, is_replay
from surefoot.core.reconcile import ask_what_happened
from surefoot.core.state import ActionKind, ActionStatus, Resolution, RunStatus, StepStatus, StepType
from surefoot.errors import AlreadyDecided, InvalidInput, NotAllowed, NotFound, RunEnded
from tests.core.play import ABSENT, UNDETERMINED, Play, call, found

LOST = Outcome("in_doubt", "reset")


def gated(*, expires_s: float | None = None) -> tuple[Play, str]:
    play = Play()
    (step,) = play.calls(call(gate=play.ask(expires_s=expires_s)))
    return play, step


def asked(tool: str = "mail") -> tuple[Play, str, str]:
    """A step in doubt with its open question."""
    play = Play()
    step = play.doubt(tool)
    questions = play.questions
    if tool == "mail":
        play.do(lambda d: ask_what_happened(d, step, questions))
    else:
        play.wait(200.0)
        play.look(step, UNDETERMINED)
    return play, step, play.open_action(ActionKind.resolve).id


def question(play: Play) -> ProposedCall:
    proposed = call("fetch")
    return ProposedCall(
        tool_name="ask_person",
        tool_version="1",
        rules=proposed.rules,
        input_ref="ref",
        input_hash="hash",
        data=b"{}",
        safe_input=b"{}",
        question=play.ask(expires_s=100.0),
    )


# Approve and reject


def test_an_approval_releases_the_step_and_nothing_else() -> None:
    play, step = gated()
    assert play.status(step) is StepStatus.waiting_for_approval and play.run_status is RunStatus.waiting_for_user
    with pytest.raises(NotAllowed):
        play.begin(step)
    play.decide("act_1", "approve")
    assert play.status(step) is StepStatus.pending and play.begin(step).status is StepStatus.running


def test_c020_a_rejection_fails_the_step_and_tells_the_model() -> None:
    play, step = gated()
    play.decide("act_1", "reject")
    assert play.status(step) is StepStatus.failed and play.step(step).error_code == "rejected"
    assert play.results(step) == 1 and not play.events(ev.StepStarted)[1:]


def test_c028_rejecting_one_of_several_leaves_the_others_alone() -> None:
    play = Play()
    free, refused = play.calls(call("fetch"), call(gate=play.ask()))
    play.decide("act_1", "reject")
    assert play.status(free) is StepStatus.pending
    play.begin(free)
    play.end(free, Outcome("applied", look=found(None)))
    assert play.results(free) == play.results(refused) == 1 and not play.full.batch_open


def test_c021_a_decision_is_made_once() -> None:
    play, _ = gated()
    play.decide("act_1", "approve")
    for again in ("approve", "reject"):
        with pytest.raises(AlreadyDecided) as refused:
            play.decide("act_1", again)
        assert refused.value.details == {"decision": "approve", "decided_by": "ann", "status": "approved"}
    assert len(play.events(ev.ActionDecided)) == 1


def test_the_same_decision_under_its_key_is_a_replay() -> None:
    play, _ = gated()
    play.decide("act_1", "approve", key="k1")
    action = play.full.actions["act_1"]
    assert is_replay(action, Decision("approve", "ann", key="k1"))
    for other in (
        Decision("approve", "ann", key="k2"),
        Decision("reject", "ann", key="k1"),
        Decision("approve", "bob", key="k1"),
        Decision("approve", "ann"),
    ):
        assert not is_replay(action, other)


def test_c019_a_decision_about_nothing_or_about_other_content_is_refused() -> None:
    play, step = gated()
    questions = play.questions
    with pytest.raises(NotFound):
        play.decide("act_99", "approve")
    with pytest.raises(NotAllowed) as refused:
        play.do(lambda d: decide_action(d, "act_1", Decision("approve", "ann", input_hash="other"), questions))
    assert refused.value.code == "input_changed"
    with pytest.raises(InvalidInput):
        play.decide("act_1", "happened")
    assert play.status(step) is StepStatus.waiting_for_approval


def test_an_approval_that_came_too_late_is_refused_and_the_model_is_told() -> None:
    play, step = gated(expires_s=100.0)
    play.wait(100.0)
    with pytest.raises(NotAllowed) as refused:
        play.decide("act_1", "approve")
    assert refused.value.code == "action_expired" and refused.value.details == {"why": "time"}
    questions = play.questions
    play.do(lambda d: expire_due(d, questions))
    assert play.status(step) is StepStatus.failed and play.step(step).error_code == "expired"
    assert play.full.actions["act_1"].why == "time" and play.results(step) == 1


def test_an_approval_that_ended_before_the_send_is_asked_again() -> None:
    play, step = gated(expires_s=100.0)
    play.decide("act_1", "approve")
    play.wait(100.0)
    with pytest.raises(NotAllowed) as refused:
        play.begin(step)
    assert refused.value.code == "approval_expired"


def test_an_intent_under_an_approval_carries_the_approvals_end_to_the_store() -> None:
    play, step = gated(expires_s=100.0)
    play.decide("act_1", "approve")
    draft = play.draft()
    start_step(draft, step, play.start())
    assert draft.wall_before == play.full.actions["act_1"].expires_wall and draft.needs_lease


def test_nothing_expires_before_its_time() -> None:
    play, step = gated(expires_s=100.0)
    play.wait(99.0)
    questions = play.questions
    play.do(lambda d: expire_due(d, questions))
    assert play.status(step) is StepStatus.waiting_for_approval


# Resolve


def test_happened_records_what_the_person_gave() -> None:
    play, step, action = asked()
    play.decide(action, "happened", resource="m1")
    now = play.step(step)
    assert now.status is StepStatus.succeeded and now.resolution is Resolution.happened
    assert now.external_resource_id == "m1" and play.results(step) == 1
    assert not play.events(ev.DuplicateDetected)


def test_happened_without_an_id_gets_it_from_a_later_look() -> None:
    play, step, action = asked("comment")
    play.decide(action, "happened")
    assert play.step(step).external_resource_id is None and play.step(step).look_at is not None
    play.wait(60.0)
    play.look(step, found("c1"))
    assert play.step(step).external_resource_id == "c1" and not play.events(ev.DuplicateDetected)


def test_did_not_happen_is_one_more_look_and_then_the_same_key_again() -> None:
    play, step, action = asked("comment")
    play.decide(action, "did_not_happen")
    assert play.step(step).look_at == play.at.mono and play.run_status is RunStatus.reconciling
    key = play.step(step).operation_key
    assert play.look(step, UNDETERMINED) is True
    assert play.step(step).attempt == 2 and play.step(step).operation_key == key


def test_what_a_person_said_is_not_said_otherwise_on_an_old_copy_of_the_question() -> None:
    play, step, action = asked("comment")
    stale, questions = play.full.actions[action], play.questions
    play.decide(action, "did_not_happen")

    def on_the_old_copy(d: Draft) -> None:
        d.run = replace(d.run, actions={**d.run.actions, action: stale})
        decide_action(d, action, Decision("happened", "bob"), questions)

    with pytest.raises(NotAllowed):
        play.do(on_the_old_copy, step_id=step)
    assert len(play.events(ev.ActionDecided)) == 1


def test_did_not_happen_is_wrong_where_the_look_finds_it() -> None:
    play, step, action = asked("comment")
    play.decide(action, "did_not_happen")
    play.look(step, found("c1"))
    assert play.status(step) is StepStatus.succeeded and play.step(step).attempt == 1


def test_did_not_happen_after_the_runs_end_is_its_proof() -> None:
    play, step, action = asked("comment")
    play.do(lambda d: cancel_run(d, "ann"))
    assert play.full.actions[action].status is ActionStatus.waiting, "the question stays open"
    play.decide(action, "did_not_happen")
    play.look(step, UNDETERMINED)
    assert play.status(step) is StepStatus.failed and play.step(step).resolution is Resolution.not_applied


def test_give_up_closes_the_question_and_leaves_the_doubt() -> None:
    play, step, action = asked("comment")
    play.decide(action, "give_up")
    now = play.step(step)
    assert now.status is StepStatus.outcome_unknown and now.resolution is Resolution.given_up
    assert play.results(step) == 1 and play.run_status is RunStatus.running and not play.full.batch_open
    play.do(lambda d: start_model_call(d, play.start(), "h2"))


@pytest.mark.parametrize("tool", ["label", "comment", "mail"])
def test_nothing_is_sent_on_a_step_that_was_given_up_whatever_its_class_allows(tool: str) -> None:
    play = Play()
    step = play.doubt(tool)
    questions = play.questions
    play.do(lambda d: ask_what_happened(d, step, questions))
    play.decide(play.open_action(ActionKind.resolve).id, "give_up")
    play.wait(31.0)
    with pytest.raises(NotAllowed) as refused:
        play.do(lambda d: start_step(d, step, play.start()), step_id=step)
    assert refused.value.code == "given_up" and play.step(step).attempt == 1


def test_give_up_then_found_is_a_receipt_and_a_note() -> None:
    play, step, action = asked("comment")
    play.decide(action, "give_up")
    play.wait(60.0)
    play.look(step, found("c1"))
    now = play.step(step)
    assert now.status is StepStatus.succeeded and now.resolution is Resolution.found
    assert len(play.events(ev.ReceiptRecorded)) == 1 and play.notes() == 1 and play.results(step) == 1


def test_give_up_then_absent_sends_nothing() -> None:
    play, step, action = asked("comment")
    play.decide(action, "give_up")
    play.wait(60.0)
    play.look(step, ABSENT)
    assert play.status(step) is StepStatus.outcome_unknown and play.step(step).attempt == 1


def test_a_question_whose_step_moved_on_is_gone() -> None:
    play, step, action = asked("comment")
    play.look(step, found("c1"))
    with pytest.raises(NotAllowed) as refused:
        play.decide(action, "did_not_happen")
    assert refused.value.details == {"why": "settled"}
    other, step, action = asked("comment")
    other.look(step, ABSENT)
    with pytest.raises(NotAllowed) as refused:
        other.decide(action, "happened")
    assert refused.value.details == {"why": "superseded"}


# Questions of the model


def test_a_question_to_a_person_is_answered_by_a_value() -> None:
    play = Play()
    (step,) = play.calls(question(play))
    assert play.step(step).type is StepType.human_approval and play.run_status is RunStatus.waiting_for_user
    questions = play.questions
    said = Decision("answer", "ann", value=b'{"colour":"red"}')
    play.do(lambda d: decide_action(d, "act_1", said, questions))
    assert play.status(step) is StepStatus.succeeded and play.results(step) == 1


@pytest.mark.parametrize("how", ["reject", "expire"])
def test_a_question_to_a_person_that_gets_no_answer_fails(how: str) -> None:
    play = Play()
    (step,) = play.calls(question(play))
    questions = play.questions
    if how == "reject":
        play.decide("act_1", "reject")
    else:
        play.wait(100.0)
        play.do(lambda d: expire_due(d, questions))
    assert play.status(step) is StepStatus.failed and play.results(step) == 1


# Duplicates


def test_a_duplicate_is_decided_without_moving_the_step() -> None:
    play = Play()
    step = play.doubt()
    play.look(step, found("c1", also=("c2",)))
    action = play.open_action(ActionKind.duplicate)
    play.decide(action.id, "reject")
    assert play.full.actions[action.id].status is ActionStatus.rejected
    assert play.status(step) is StepStatus.succeeded


# Cancel


def test_cancel_lists_exactly_the_calls_that_may_have_been_sent() -> None:
    play = Play()
    waiting, pending, running, read, doubtful, done = play.calls(
        call(gate=play.ask()), call(), call(), call("fetch"), call(), call()
    )
    for step in (running, read, doubtful, done):
        play.begin(step)
    play.end(doubtful, LOST)
    play.end(done, Outcome("applied", look=found("c1")))
    sent = play.do(lambda d: cancel_run(d, "ann"))
    assert sent == (running, doubtful) and play.events(ev.RunCancelled)[0].may_have_been_sent == sent
    assert play.run_status is RunStatus.cancelled
    for step in (waiting, pending, read):
        assert play.status(step) is StepStatus.failed and play.step(step).error_code == "cancelled"
    assert play.full.actions["act_1"].why == "cancelled"
    assert play.status(running) is StepStatus.running and play.status(doubtful) is StepStatus.outcome_unknown
    assert all(play.results(step) == 1 for step in (waiting, pending, running, read, doubtful, done))
    with pytest.raises(RunEnded):
        play.begin(pending)
    with pytest.raises(RunEnded):
        play.do(lambda d: cancel_run(d, "bob"))


def test_cancel_aborts_a_model_call() -> None:
    play = Play()
    model = play.do(lambda d: start_model_call(d, play.start(), "h"))
    assert play.do(lambda d: cancel_run(d, "ann")) == ()
    assert play.status(model.id) is StepStatus.failed


def test_a_failed_run_gives_each_call_its_result() -> None:
    play = Play()
    one, two = play.calls(call(), call("mail"))
    play.begin(two)
    play.do(lambda d: fail_run(d, "time_used_up"))
    assert play.run_status is RunStatus.failed and play.full.error_code == "time_used_up"
    assert play.results(one) == play.results(two) == 1 and play.status(two) is StepStatus.running


# Messages


def test_c025_a_message_waits_until_every_call_has_its_result() -> None:
    play, step = gated()
    play.do(lambda d: add_message(d, "msg_u1", "user", b"{}"))
    assert play.status(step) is StepStatus.waiting_for_approval, "it decides nothing"
    assert list(play.full.queued) == ["msg_u1"]
    play.decide("act_1", "reject")
    places = {m.message_id: m.position for m in play.events(ev.MessageAppended)}
    assert places["msg_u1"] > (play.step(step).position or 0) and len(play.full.queued) == 0
    play.do(lambda d: fail_run(d, "x"))
    with pytest.raises(RunEnded):
        play.do(lambda d: add_message(d, "msg_u2", "user", b"{}"))
