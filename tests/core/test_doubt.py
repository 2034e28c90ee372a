"""Doubt by class: when absence is earned, when a key may be used again, when a person is asked, and later sweeps."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import asdict, replace

from surefoot.core import events as ev, policy
from surefoot.core.attempts import Outcome, recover_step
from surefoot.core.decide import ask_approval, cancel_run, fail_run
from surefoot.core.reconcile import (
    Doubt,
    Look,
    ask_what_happened,
    believe_person,
    next_for_doubt,
    record_report,
    resend,
)
from surefoot.core.state import ActionKind, EffectClass, Instant, Resolution, Rules, RunStatus, StepStatus
from surefoot.errors import NotAllowed
from tests.core.play import ABSENT, RULES, UNDETERMINED, Play, call, found

LOST = Outcome("in_doubt", "reset")


def next_step(play: Play, step: str, *, live: bool = False) -> Doubt:
    return next_for_doubt(play.draft(step), play.step(step), live=live)


# Found


def test_found_is_concluded_at_once_and_the_run_goes_on() -> None:
    play = Play()
    step = play.doubt()
    play.look(step, found("c1"))
    now = play.step(step)
    assert now.status is StepStatus.succeeded and now.resolution is Resolution.found and now.attempt == 1
    assert now.external_resource_id == "c1" and play.results(step) == 1
    changes = [(c.from_status.value, c.to_status.value) for c in play.events(ev.RunStatusChanged)]
    assert changes == [("running", "reconciling"), ("reconciling", "running")]


def test_found_is_concluded_while_the_call_still_runs() -> None:
    play = Play()
    step = play.sent()
    play.end(step, Outcome("in_doubt", "timeout", over=False))
    play.look(step, found("c1"), live=True)
    assert play.status(step) is StepStatus.succeeded


def test_two_hits_are_a_duplicate_with_both_links() -> None:
    play = Play()
    step = play.doubt()
    play.look(step, found("c1", also=("c2",)))
    assert play.status(step) is StepStatus.succeeded
    (duplicate,) = play.events(ev.DuplicateDetected)
    assert set(duplicate.resource_urls) == {"https://x/c1", "https://x/c2"} and play.waits(ActionKind.duplicate)


# Absent, earned and not


def test_absent_after_settle_begins_again_in_the_same_append_on_the_same_step() -> None:
    play = Play()
    step = play.doubt()
    play.wait(60.0)
    before = play.step(step)
    assert play.look(step, ABSENT) is True
    now = play.step(step)
    assert now.status is StepStatus.running and now.attempt == 2
    assert (now.operation_key, now.input_hash) == (before.operation_key, before.input_hash)


def test_absent_where_nothing_may_begin_waits_as_pending() -> None:
    play = Play()
    step = play.doubt()
    play.wait(60.0)
    assert play.look(step, ABSENT, start=False) is False
    assert play.status(step) is StepStatus.pending and play.begin(step).attempt == 2


def why_not(play: Play, step: str) -> str | None:
    answers = [e for e in play.events(ev.LookupAnswered) if e.step_id == step]
    assert play.status(step) is StepStatus.outcome_unknown and not answers[-1].concluded
    assert play.step(step).look_at is not None
    return answers[-1].reason


def test_absent_is_not_believed_before_settle_is_over_and_the_next_look_is_when_it_is() -> None:
    play = Play()
    step = play.doubt()
    play.wait(59.0)
    play.look(step, ABSENT)
    assert why_not(play, step) == "settling"
    assert play.step(step).look_at == play.at.mono + 0.5
    play.wait(0.5)
    play.look(step, ABSENT)
    assert play.step(step).look_at == pytest.approx(play.at.mono + 0.5)


def test_a_look_that_began_before_settle_was_over_is_not_believed_however_late_it_answers() -> None:
    play = Play()
    step = play.doubt()
    began = play.at.mono + 1.0
    play.wait(5_000.0)
    play.look(step, Look("absent", began=began))
    assert why_not(play, step) == "settling"
    play.look(step, Look("absent", began=play.at.mono - 1.0))
    assert play.status(step) is StepStatus.running


def test_a_look_of_an_earlier_attempt_says_nothing_about_the_next() -> None:
    play = Play()
    step = play.doubt()
    play.wait(60.0)
    old = Look("absent", began=play.at.mono)
    play.look(step, old)
    play.end(step, LOST)
    play.wait(120.0)
    play.look(step, old)
    assert why_not(play, step) == "settling"


def test_absent_is_not_believed_while_the_call_still_runs_here() -> None:
    play = Play()
    step = play.sent()
    play.end(step, Outcome("in_doubt", "timeout", over=False))
    play.wait(5_000.0)
    play.look(step, ABSENT, live=True)
    assert why_not(play, step) == "attempt_not_over"


def test_absent_is_not_believed_before_the_last_byte_of_a_call_nobody_saw_end() -> None:
    play = Play()
    step = play.sent()
    play.do(lambda d: recover_step(d, step, owner_died=False, start=None))
    play.wait(30.0)
    play.look(step, ABSENT)
    assert why_not(play, step) == "attempt_not_over"
    play.wait(59.0)
    play.look(step, ABSENT)
    assert why_not(play, step) == "settling"
    play.wait(1.0)
    play.look(step, ABSENT)
    assert play.status(step) is StepStatus.running


def test_a_death_that_is_seen_late_does_not_put_settle_off() -> None:
    play = Play()
    step = play.sent()
    play.wait(3_600.0)
    play.do(lambda d: recover_step(d, step, owner_died=True, start=None))
    play.look(step, ABSENT)
    assert play.status(step) is StepStatus.running


def test_a_tool_that_starts_programs_settles_from_its_last_byte() -> None:
    play = Play(rules={**RULES, "comment": replace(RULES["comment"], starts_programs=True)})
    step = play.doubt()
    play.wait(89.0)
    play.look(step, ABSENT)
    assert why_not(play, step) == "settling"
    play.wait(1.0)
    play.look(step, ABSENT)
    assert play.status(step) is StepStatus.running


def lose(play: Play, step: str) -> None:
    play.do(lambda d: recover_step(d, step, owner_died=True, start=None))


def begun_again(play: Play, *steps: str) -> list[float]:
    """The worker of steps under way is gone and nothing is found; how many seconds later each begins again."""
    gone = play.at.mono
    for step in steps:
        lose(play, step)
    later = dict[str, float]()
    while len(later) < len(steps):
        looks = {step: play.step(step).look_at or 0.0 for step in steps if step not in later}
        step = min(looks, key=lambda step: looks[step])
        play.wait(max(looks[step] - play.at.mono, 0.0))
        if play.look(step, ABSENT):
            later[step] = play.at.mono - gone
    return [later[step] for step in steps]


def test_what_loses_its_worker_again_begins_behind_its_settle_time_after_a_growing_pause_of_its_own() -> None:
    play = Play(rules={**RULES, "comment": replace(RULES["comment"], timeout_s=600.0)})
    steps = play.calls(call(), call(), call())
    for step in steps:
        play.begin(step)
    settle_s = RULES["comment"].settle_s
    for full in (0.0, 1.0, 2.0, 4.0):
        pauses = [round(later - settle_s, 6) for later in begun_again(play, *steps)]
        assert all(full / 2 <= pause <= full for pause in pauses), (full, pauses)
        assert len(set(pauses)) == (len(steps) if full else 1), "what kills its workers does not take them all again"


def test_what_is_found_after_another_loss_is_concluded_at_once() -> None:
    play = Play()
    step = play.sent()
    begun_again(play, step)
    lose(play, step)
    assert play.step(step).look_at == play.at.mono
    play.look(step, found("c1"))
    assert play.status(step) is StepStatus.succeeded


def test_a_reply_that_was_lost_behind_two_workers_waits_for_its_settle_time_only() -> None:
    play = Play()
    step = play.sent()
    for _ in range(2):
        begun_again(play, step)
    play.end(step, LOST)
    play.wait(RULES["comment"].settle_s)
    assert play.look(step, ABSENT)


@pytest.mark.parametrize("jump", [301.0, -301.0])
def test_absent_is_not_believed_where_the_clocks_moved_apart(jump: float) -> None:
    play = Play()
    step = play.doubt()
    play.wait(100.0)
    play.at = Instant(play.at.mono, play.at.wall + jump)
    play.look(step, ABSENT)
    assert why_not(play, step) == "clocks_drifted"
    assert play.look(step, found("c1")) is False and play.status(step) is StepStatus.succeeded


def test_c010_undetermined_is_never_absent_and_asks_a_person_after_a_while_still_looking() -> None:
    play = Play()
    step = play.doubt()
    play.wait(100.0)
    play.look(step, UNDETERMINED)
    assert why_not(play, step) == "http_403" and not play.waits(ActionKind.resolve)
    assert play.run_status.value == "reconciling"
    play.wait(30.0)
    play.look(step, UNDETERMINED)
    assert play.waits(ActionKind.resolve) and play.run_status.value == "waiting_for_user"
    play.wait(900.0)
    play.look(step, UNDETERMINED)
    assert len(play.events(ev.ActionRequested)) == 1, "one question"
    play.look(step, found("c1"))
    assert play.status(step) is StepStatus.succeeded
    (expired,) = play.events(ev.ActionExpired)
    assert expired.why == "settled"


def test_a_question_about_something_else_does_not_stand_for_what_happened() -> None:
    play = Play()
    play.look(play.doubt(), found("c1", also=("c2",)))
    step = play.doubt()
    play.wait(200.0)
    play.look(step, UNDETERMINED)
    assert play.waits(ActionKind.resolve) and play.waits(ActionKind.duplicate)


def test_looks_back_off_to_fifteen_minutes() -> None:
    play = Play()
    step = play.doubt()
    play.wait(100.0)
    delays = []
    for _ in range(14):
        play.look(step, UNDETERMINED)
        delays.append((play.step(step).look_at or 0.0) - play.at.mono)
        play.wait(delays[-1])
    assert delays == sorted(delays) and delays[0] >= 0.5 and max(delays) <= policy.LOOK_SECONDS_MAX


# Attempts used up


def test_attempts_used_up_without_a_doubt_fails_and_tells_the_model() -> None:
    play = Play(rules={**RULES, "comment": replace(RULES["comment"], attempts_max=1)})
    step = play.doubt()
    play.wait(60.0)
    assert play.look(step, ABSENT) is False
    assert play.status(step) is StepStatus.failed and play.step(step).error_code == "attempts_used_up"
    assert play.step(step).resolution is Resolution.not_applied and play.results(step) == 1


def test_attempts_used_up_with_a_doubt_asks_and_sends_no_more() -> None:
    play = Play(rules={**RULES, "charge": replace(RULES["charge"], attempts_max=2)})
    step = play.doubt("charge")
    play.begin(step)
    play.end(step, LOST)
    play.wait(100.0)
    assert next_step(play, step) == Doubt("ask")
    with pytest.raises(NotAllowed):
        play.do(lambda d: resend(d, step, play.start()))


# Approvals


def test_absent_after_the_approval_has_ended_asks_again() -> None:
    play = Play()
    (step,) = play.calls(call(gate=play.ask(expires_s=100.0)))
    play.decide("act_1", "approve")
    play.begin(step)
    play.end(step, LOST)
    play.wait(101.0)
    assert play.look(step, ABSENT) is False
    assert play.status(step) is StepStatus.pending
    with pytest.raises(NotAllowed) as refused:
        play.begin(step)
    assert refused.value.code == "approval_expired"
    play.do(lambda d: ask_approval(d, step, play.ask()))
    assert play.status(step) is StepStatus.waiting_for_approval and play.run_status is RunStatus.waiting_for_user
    play.decide(play.open_action(ActionKind.approve).id, "approve")
    assert play.begin(step).attempt == 2


def test_an_approval_covers_the_steps_own_retries_until_it_ends() -> None:
    play = Play()
    (step,) = play.calls(call(gate=play.ask(expires_s=100.0)))
    play.decide("act_1", "approve")
    play.begin(step)
    play.end(step, LOST)
    play.wait(60.0)
    assert play.look(step, ABSENT) is True


def test_an_approval_settles_no_doubt() -> None:
    play = Play()
    step = play.doubt()
    with pytest.raises(NotAllowed) as refused:
        play.do(lambda d: ask_approval(d, step, play.ask()))
    assert refused.value.code == "possibly_sent"


# Keys


def test_a_key_is_used_again_at_once_inside_its_lifetime() -> None:
    play = Play()
    step = play.doubt("charge")
    assert next_step(play, step) == Doubt("resend")
    play.do(lambda d: resend(d, step, play.start()))
    assert play.step(step).attempt == 2
    play.end(step, LOST)
    assert next_step(play, step).action == "wait", "with back-off after the first time"


def test_a_key_is_not_used_again_while_the_call_still_runs() -> None:
    play = Play()
    step = play.sent("charge")
    play.end(step, Outcome("in_doubt", "timeout", over=False))
    assert next_step(play, step, live=True).action == "wait"
    assert next_step(play, step) == Doubt("wait", 30.0)
    play.wait(30.1)
    assert next_step(play, step) == Doubt("resend")


@pytest.mark.parametrize(("tool", "action"), [("charge", "ask"), ("label", "resend")])
def test_after_the_lifetime_less_a_margin_a_person_is_asked(tool: str, action: str) -> None:
    play = Play()
    step = play.doubt(tool)
    play.wait(3_600.0 * 0.9 - 30.0)
    assert next_step(play, step).action == action
    with_lookup = {**RULES, "charge": replace(RULES["charge"], has_lookup=True)}
    play.rules = with_lookup
    assert next_step(play, step).action == ("look" if tool == "charge" else "resend")


def test_a_wait_that_the_target_asked_for_is_kept_before_the_key_is_used_again() -> None:
    play = Play()
    step = play.doubt("charge")
    play.do(lambda d: resend(d, step, play.start()))
    play.end(step, Outcome("refused", "http_429", again_s=40.0))
    assert next_step(play, step) == Doubt("wait", 40.0)
    play.wait(40.0)
    assert next_step(play, step) == Doubt("resend")


def test_a_refusal_for_good_ends_the_use_of_the_key() -> None:
    play = Play()
    step = play.doubt("charge")
    play.do(lambda d: resend(d, step, play.start()))
    play.end(step, Outcome("refused", "http_422"))
    assert play.status(step) is StepStatus.outcome_unknown
    assert next_step(play, step) == Doubt("ask")


def test_a_lifetime_counts_from_the_first_send_that_the_target_may_have_seen() -> None:
    """It keeps a key since it saw it first, also where that came to nothing; of what was not sent it knows nothing."""
    play = Play()
    step = play.sent("charge")
    play.end(step, Outcome("not_sent", "not_sent", again_s=0.0))
    play.wait(3_600.0)
    play.begin(step)
    play.end(step, Outcome("refused", "http_429", again_s=3_000.0))
    play.wait(3_000.0)
    play.begin(step)
    play.end(step, LOST)
    assert next_step(play, step) == Doubt("resend")
    play.wait(240.0)
    assert next_step(play, step) == Doubt("ask")


def test_a_key_that_was_sent_before_an_absence_is_no_younger_for_it() -> None:
    """Were the absence wrong, the target would drop the next send by the old key, and take the one after that."""
    play = Play()
    play.rules = {**RULES, "charge": replace(RULES["charge"], has_lookup=True)}
    step = play.doubt("charge")
    play.wait(3_600.0)
    assert play.look(step, ABSENT)
    play.end(step, LOST)
    assert next_step(play, step) == Doubt("look")


def test_a_key_is_not_used_again_after_the_approval_has_ended() -> None:
    play = Play()
    (step,) = play.calls(call("charge", gate=play.ask(expires_s=50.0)))
    play.decide("act_1", "approve")
    play.begin(step)
    play.end(step, LOST)
    play.wait(50.0)
    assert next_step(play, step) == Doubt("ask")


# What neither key nor lookup can tell


def test_c006_opaque_asks_at_once_and_is_never_sent_again_alone() -> None:
    play = Play()
    step = play.doubt("mail")
    assert next_step(play, step) == Doubt("ask")
    questions = play.questions
    play.do(lambda d: ask_what_happened(d, step, questions))
    assert play.run_status is RunStatus.waiting_for_user and play.step(step).look_at is None
    play.wait(100 * 86_400.0)
    assert play.open_action(ActionKind.resolve).expires_wall is None, "doubt does not end by time"
    with pytest.raises(NotAllowed):
        play.begin(step)


def test_a_persons_word_is_believed_after_settle_only() -> None:
    play = Play()
    step = play.doubt("mail")
    questions = play.questions
    play.do(lambda d: ask_what_happened(d, step, questions))
    play.decide(play.open_action(ActionKind.resolve).id, "did_not_happen")
    assert next_step(play, step) == Doubt("wait", 60.0)
    with pytest.raises(NotAllowed) as early:
        play.do(lambda d: believe_person(d, step, play.start()))
    assert early.value.code == "settling"
    play.wait(60.0)
    assert next_step(play, step) == Doubt("believe_person")
    assert play.do(lambda d: believe_person(d, step, play.start())) is True
    assert play.step(step).attempt == 2


# Code that changed


@pytest.mark.parametrize(
    ("then", "now", "counts"),
    [
        (EffectClass.lookup, EffectClass.read, EffectClass.opaque),
        (EffectClass.opaque, EffectClass.lookup, EffectClass.lookup),
        (EffectClass.opaque, EffectClass.idempotent, EffectClass.opaque),
        (EffectClass.read, EffectClass.opaque, EffectClass.opaque),
        (EffectClass.lookup, EffectClass.opaque, EffectClass.opaque),
    ],
)
def test_new_code_is_never_bolder_about_what_old_code_sent(
    then: EffectClass, now: EffectClass, counts: EffectClass
) -> None:
    assert (
        policy.careful_rules(replace(RULES["mail"], effect=now), replace(RULES["mail"], effect=then)).effect is counts
    )


@pytest.mark.parametrize(
    ("tool", "then", "now", "counts"),
    [
        ("charge", {"key_lifetime_s": 60.0}, {"key_lifetime_s": None}, {"key_lifetime_s": 60.0}),
        ("charge", {"key_lifetime_s": None}, {"key_lifetime_s": 60.0}, {"key_lifetime_s": 60.0}),
        ("charge", {"key_lifetime_s": 60.0}, {"key_lifetime_s": 3_600.0}, {"key_lifetime_s": 60.0}),
        ("comment", {"settle_s": 60.0}, {"settle_s": 1.0}, {"settle_s": 60.0}),
        ("comment", {"settle_s": 1.0}, {"settle_s": 60.0}, {"settle_s": 60.0}),
        ("comment", {"starts_programs": True}, {"starts_programs": False}, {"starts_programs": True}),
        ("comment", {"attempts_max": 8}, {"attempts_max": 2}, {"attempts_max": 2}),
    ],
)
def test_new_figures_are_never_bolder_about_what_was_sent_under_the_old_ones(
    tool: str, then: dict[str, object], now: dict[str, object], counts: dict[str, object]
) -> None:
    """A key was sent to a target of which it was said that it soon forgets it."""
    of_then, of_now = (msgspec.convert({**asdict(RULES[tool]), **given}, Rules) for given in (then, now))
    kept = asdict(policy.careful_rules(of_now, of_then))
    assert {name: kept[name] for name in counts} == counts


@pytest.mark.parametrize("then", [EffectClass.lookup, EffectClass.idempotent, EffectClass.opaque])
@pytest.mark.parametrize("now", [EffectClass.lookup, EffectClass.idempotent, EffectClass.opaque])
def test_another_class_shortens_no_settle_time_of_what_was_sent_under_the_old_one(
    then: EffectClass, now: EffectClass
) -> None:
    """A target that takes ten minutes was believed to have nothing after one, since the class had changed too."""
    of_then = replace(RULES["comment"], effect=then, settle_s=600.0, starts_programs=True)
    kept = policy.careful_rules(replace(RULES["comment"], effect=now, settle_s=60.0), of_then)
    assert (kept.settle_s, kept.starts_programs) == (600.0, True)


def test_a_lookup_that_was_added_after_the_crash_is_used() -> None:
    play = Play()
    step = play.doubt("mail")
    play.rules = {**RULES, "mail": replace(RULES["comment"], settle_s=10.0)}
    assert next_step(play, step) == Doubt("look")
    play.laws.rules = play.rules
    play.wait(60.0)
    assert play.look(step, ABSENT) is True


# Evidence from elsewhere


def report(play: Play, step: str, look: Look) -> bool:
    questions = play.questions
    return play.do(lambda d: record_report(d, step, look, questions), step_id=step)


def test_a_report_concludes_what_is_in_doubt_once() -> None:
    play = Play()
    step = play.doubt()
    assert report(play, step, found("c1", source="webhook")) is True
    assert play.status(step) is StepStatus.succeeded
    assert report(play, step, found("c1", source="webhook")) is False


def test_a_report_while_the_call_is_under_way_is_kept_for_its_end() -> None:
    play = Play()
    step = play.sent()
    report(play, step, found("c1", source="webhook"))
    assert play.status(step) is StepStatus.running
    play.end(step, LOST)
    assert play.status(step) is StepStatus.succeeded and play.step(step).external_resource_id == "c1"
    assert not play.events(ev.DuplicateDetected)


def test_a_report_of_another_effect_is_a_duplicate() -> None:
    play = Play()
    step = play.doubt()
    play.look(step, found("c1"))
    report(play, step, found("c2", source="webhook"))
    (duplicate,) = play.events(ev.DuplicateDetected)
    assert set(duplicate.resource_urls) == {"https://x/c1", "https://x/c2"}


def test_a_report_that_says_absent_makes_the_owner_look() -> None:
    play = Play()
    step = play.doubt()
    play.wait(100.0)
    play.look(step, UNDETERMINED)
    assert (play.step(step).look_at or 0.0) > play.at.mono
    report(play, step, Look("absent", source="webhook"))
    assert play.step(step).look_at == play.at.mono and play.status(step) is StepStatus.outcome_unknown


def test_found_beats_a_persons_answer_until_the_next_intent() -> None:
    play = Play()
    step = play.doubt()
    play.wait(200.0)
    play.look(step, UNDETERMINED)
    play.decide(play.open_action(ActionKind.resolve).id, "did_not_happen")
    report(play, step, found("c1", source="webhook"))
    assert play.status(step) is StepStatus.succeeded and play.step(step).attempt == 1


# The sweep


def swept() -> tuple[Play, str]:
    play = Play()
    step = play.doubt()
    play.wait(60.0)
    play.look(step, ABSENT)
    play.end(step, Outcome("applied", look=found("c1", source="worker")))
    return play, step


def test_what_was_concluded_absent_is_looked_up_again_after_a_minute_ten_and_a_day() -> None:
    play, step = swept()
    for delay in (60.0, 600.0, 86_400.0):
        assert play.step(step).look_at == play.at.mono + delay
        play.wait(delay)
        play.look(step, found("c1"))
    assert play.step(step).look_at is None and step not in play.run.steps
    assert not play.events(ev.DuplicateDetected) and play.notes() == 0


def test_a_sweep_that_finds_two_reports_both() -> None:
    play, step = swept()
    play.wait(60.0)
    play.look(step, found("c1", also=("c2",)))
    (duplicate,) = play.events(ev.DuplicateDetected)
    assert set(duplicate.resource_urls) == {"https://x/c1", "https://x/c2"} and play.waits(ActionKind.duplicate)
    play.wait(600.0)
    play.look(step, found("c1", also=("c2",)))
    assert len(play.events(ev.DuplicateDetected)) == 1, "reported once"


def test_a_sweep_that_finds_something_on_a_failed_step_says_so_once() -> None:
    play = Play(rules={**RULES, "comment": replace(RULES["comment"], attempts_max=1)})
    step = play.doubt()
    play.wait(60.0)
    play.look(step, ABSENT)
    for delay in (60.0, 600.0):
        play.wait(delay)
        play.look(step, found("c1"))
    assert play.status(step) is StepStatus.failed
    assert len(play.events(ev.ReceiptRecorded)) == 1 and play.notes() == 1 and play.waits(ActionKind.duplicate)


def test_an_old_look_takes_no_sweeps_place() -> None:
    play, step = swept()
    due = play.step(step).look_at
    play.wait(1.0)
    play.look(step, UNDETERMINED)
    assert play.step(step).look_at == due and play.step(step).sweep == 0


def test_what_was_sent_once_and_answered_is_not_swept() -> None:
    play = Play()
    step = play.sent()
    play.end(step, Outcome("applied", look=found("c1", source="worker")))
    assert play.step(step).look_at is None and not play.events(ev.SweepScheduled)


# After the run's end


@pytest.mark.parametrize("how", ["cancel", "fail"])
def test_after_the_runs_end_doubt_is_settled_by_reading_only(how: str) -> None:
    for answer, status in ((found("c1"), StepStatus.succeeded), (ABSENT, StepStatus.failed)):
        play = Play()
        step = play.doubt()
        play.do((lambda d: cancel_run(d, "ann")) if how == "cancel" else (lambda d: fail_run(d, "operator")))
        ended = play.run_status
        play.wait(60.0)
        assert play.look(step, answer) is False
        assert play.status(step) is status and play.run_status is ended
        assert play.results(step) == 1 and play.notes() == 1
        assert play.step(step).attempt == 1


def test_after_the_runs_end_a_key_is_not_used_again() -> None:
    play = Play()
    step = play.doubt("charge")
    play.do(lambda d: cancel_run(d, "ann"))
    assert next_step(play, step) == Doubt("ask")
    with pytest.raises(NotAllowed):
        play.do(lambda d: resend(d, step, play.start()))
