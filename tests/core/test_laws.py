"""The laws hold whatever a worker, a person, the world, a crash, a cancel and the clock do, in any order.

One machine plays them all on one run. What the tables or the commands refuse is checked to change nothing (Play.do);
what is appended is checked event by event (laws.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from surefoot.core.attempts import Outcome, ask_about_model, record_outcome, recover_step
from surefoot.core.decide import (
    Refusal,
    Start,
    add_message,
    ask_approval,
    cancel_run,
    complete_run,
    defer,
    fail_run,
    record_model_answer,
    start_model_call,
    start_step,
)
from surefoot.core.draft import Draft
from surefoot.core.people import CHOICES, Decision, decide_action, expire_due
from surefoot.core.policy import settle_left
from surefoot.core.reconcile import (
    Look,
    ask_what_happened,
    believe_person,
    next_for_doubt,
    record_look,
    record_report,
    resend,
    wait_for_doubt,
)
from surefoot.core.state import Action, Instant, Limits, Step, StepStatus, StepType
from surefoot.errors import SurefootError
from tests.core.play import RULES, Play, call

End = Literal["applied", "refused", "not_sent", "in_doubt"]
ENDS: st.SearchStrategy[End] = st.sampled_from(["applied", "refused", "not_sent", "in_doubt", "in_doubt"])
AGAIN = st.sampled_from([None, 0.0, 7.0])
PICK = st.integers(0, 40)
RESOURCES = st.sampled_from(["c1", "c1", "c2", None])
CODES = st.sampled_from(["reset", "http_422", "http_429"])
VERDICTS = st.sampled_from(["found", "absent", "absent", "undetermined"])
WAITS = st.sampled_from([0.5, 5.0, 31.0, 31.0, 61.0, 95.0, 95.0, 250.0, 4_000.0, 90_000.0])
JUMPS = st.sampled_from([0.0] * 20 + [400.0, -400.0])

CALLS = st.lists(
    st.tuples(st.sampled_from(["comment", *sorted(RULES)]), st.integers(0, 2), st.integers(0, 8)),
    min_size=1,
    max_size=3,
)


class Everybody(RuleBasedStateMachine):
    """Everybody who may touch a run, at random."""

    def __init__(self) -> None:
        super().__init__()
        self.play = Play(limits=Limits(turns_max=12))

    def try_to(self, command: Callable[[Draft], object], *, step_id: str | None = None) -> None:
        """A legal command is appended, an illegal one refused; both are checked."""
        try:
            self.play.do(command, step_id=step_id)
        except SurefootError as refusal:
            assert refusal.code != "error" and str(refusal)

    def pick(self, number: int, *statuses: StepStatus, kind: StepType | None = None) -> Step:
        steps = [
            s
            for s in self.play.full.steps.values()
            if (not statuses or s.status in statuses) and (kind is None or s.type is kind)
        ]
        return steps[number % len(steps)]

    def has(self, *statuses: StepStatus, kind: StepType | None = None) -> bool:
        return any(
            (not statuses or s.status in statuses) and (kind is None or s.type is kind)
            for s in self.play.full.steps.values()
        )

    # The worker

    @initialize(calls=CALLS)
    def first_turn(self, calls: list[tuple[str, int, int]]) -> None:
        self.a_turn(calls)

    @precondition(lambda self: not self.play.run.ended and not self.play.run.batch_open)
    @rule(calls=CALLS)
    def a_turn(self, calls: list[tuple[str, int, int]]) -> None:
        def command(d: Draft) -> None:
            step = start_model_call(d, self.play.start(), "h")
            proposed = [
                call(
                    tool,
                    gate=self.play.ask(expires_s=200.0) if gated == 0 else None,
                    refusal=Refusal("too_long", "Too long.") if chance == 0 else None,
                )
                for tool, gated, chance in calls
            ]
            record_model_answer(d, step.id, step.attempt, b'{"content":"answer"}', proposed)

        self.try_to(command)

    @rule()
    def model_call(self) -> None:
        self.try_to(lambda d: start_model_call(d, self.play.start(), "h"))

    @precondition(lambda self: self.has(kind=StepType.model_call))
    @rule(number=PICK, attempt=st.integers(1, 3), tool=st.sampled_from(sorted(RULES)))
    def model_answer(self, number: int, attempt: int, tool: str) -> None:
        step = self.pick(number, kind=StepType.model_call)
        self.try_to(lambda d: record_model_answer(d, step.id, attempt, b"{}", [call(tool)]), step_id=step.id)

    @precondition(lambda self: self.has(kind=StepType.model_call))
    @rule(number=PICK)
    def model_question(self, number: int) -> None:
        step = self.pick(number, kind=StepType.model_call)
        questions = self.play.questions
        self.try_to(lambda d: ask_about_model(d, step.id, step.attempt, "http_401", questions), step_id=step.id)

    @precondition(lambda self: self.has(StepStatus.pending))
    @rule(number=PICK, window=st.sampled_from([1.0, 20.0, 500.0]))
    def begin(self, number: int, window: float) -> None:
        step = self.pick(number, StepStatus.pending)
        self.try_to(lambda d: start_step(d, step.id, self.play.start(window)))

    @precondition(lambda self: self.has(StepStatus.running))
    @rule(number=PICK, end=ENDS, code=CODES, again=AGAIN, over=st.booleans(), resource=RESOURCES)
    def end(self, number: int, end: End, code: str, again: float | None, over: bool, resource: str | None) -> None:
        step = self.pick(number, StepStatus.running)
        self.record(step, step.attempt, end, code, again, over, resource)

    @precondition(lambda self: any(s.attempts for s in self.play.full.steps.values()))
    @rule(number=PICK, back=st.integers(0, 2), end=ENDS, again=AGAIN, resource=RESOURCES)
    def late_end(self, number: int, back: int, end: End, again: float | None, resource: str | None) -> None:
        steps = [s for s in self.play.full.steps.values() if s.attempts]
        step = steps[number % len(steps)]
        self.record(step, max(step.attempt - back, 1), end, "late", again, True, resource)

    @precondition(lambda self: self.has(StepStatus.pending, kind=StepType.tool_call))
    @rule(number=PICK, over=st.booleans())
    def lost_reply(self, number: int, over: bool) -> None:
        step = self.pick(number, StepStatus.pending, kind=StepType.tool_call)
        self.play.wait(max(0.0, step.not_before - self.play.at.mono))
        self.try_to(lambda d: start_step(d, step.id, self.play.start()))
        self.record(step, step.attempt + 1, "in_doubt", "reset", None, over, None)

    def record(
        self, step: Step, attempt: int, end: End, code: str, again: float | None, over: bool, resource: str | None
    ) -> None:
        look = Look("found", source="worker", resource_id=resource, url=resource) if end == "applied" else None
        outcome = Outcome(end, code, look=look, again_s=again, over=over)
        questions = self.play.questions
        self.try_to(lambda d: record_outcome(d, step.id, attempt, outcome, questions), step_id=step.id)

    @rule(died=st.booleans(), go_on=st.booleans())
    def crash(self, died: bool, go_on: bool) -> None:
        self.play.token += 1
        start = self.play.start() if go_on else None
        for key in list(self.play.run.steps):
            self.recover(key, died, start)

    def recover(self, step_id: str, died: bool, start: Start | None) -> None:
        self.try_to(lambda d: recover_step(d, step_id, owner_died=died, start=start))

    @precondition(lambda self: self.has(StepStatus.outcome_unknown))
    @rule(number=PICK, live=st.booleans())
    def settle(self, number: int, live: bool) -> None:
        """What the worker does about a doubt, when its time has come."""
        step = self.pick(number, StepStatus.outcome_unknown)
        questions = self.play.questions

        def command(d: Draft) -> None:
            doubt = next_for_doubt(d, d.step(step.id), live=live)
            if doubt.action == "resend":
                resend(d, step.id, self.play.start())
            elif doubt.action == "believe_person":
                believe_person(d, step.id, self.play.start())
            elif doubt.action == "ask":
                ask_what_happened(d, step.id, questions)
            elif doubt.action == "wait":
                assert doubt.delay_s > 0
                wait_for_doubt(d, step.id, doubt.delay_s)

        if step.in_doubt:
            self.try_to(command)

    @precondition(lambda self: self.has())
    @rule(
        number=PICK, verdict=VERDICTS, ago=st.sampled_from([0.0, 20.0, 300.0]), live=st.booleans(), go_on=st.booleans()
    )
    def look(self, number: int, verdict: str, ago: float, live: bool, go_on: bool) -> None:
        doubtful = [s for s in self.play.full.steps.values() if s.in_doubt and s.rules.has_lookup]
        step = doubtful[number % len(doubtful)] if doubtful else self.pick(number)
        if step.rules.has_lookup:
            self.answer(step, verdict, ago, live, go_on)

    @precondition(lambda self: any(s.look_at is not None and s.rules.has_lookup for s in self.play.full.steps.values()))
    @rule(number=PICK, verdict=VERDICTS, resource=RESOURCES)
    def look_when_due(self, number: int, verdict: str, resource: str | None) -> None:
        """As a worker does: at its time, and after all attempts have settled."""
        steps = [s for s in self.play.full.steps.values() if s.look_at is not None and s.rules.has_lookup]
        steps = [s for s in steps if s.in_doubt] or steps
        step = steps[number % len(steps)]
        due = max(step.look_at or 0.0, self.play.at.mono + settle_left(step, step.rules, self.play.at))
        self.play.wait(max(0.0, due - self.play.at.mono) + 0.1)
        self.answer(step, verdict, 0.0, False, True, resource)

    def answer(
        self, step: Step, verdict: str, ago: float, live: bool, go_on: bool, resource: str | None = "c1"
    ) -> None:
        began = self.play.at.mono - ago
        also = (("c3", None),) if verdict == "found" and ago == 20.0 else ()
        look = Look(verdict, resource_id=resource if verdict == "found" else None, also=also, began=began)  # type: ignore[arg-type]  # one of its words
        start = self.play.start() if go_on else None
        questions = self.play.questions
        self.try_to(
            lambda d: record_look(d, step.id, look, live=live, start=start, questions=questions, jitter=0.3),
            step_id=step.id,
        )

    @precondition(lambda self: self.has())
    @rule(number=PICK, what=st.integers(0, 4), delay=WAITS)
    def meddle(self, number: int, what: int, delay: float) -> None:
        """Commands at steps that they may not be meant for: mostly refused."""
        step, questions = self.pick(number), self.play.questions
        commands: list[Callable[[Draft], object]] = [
            lambda d: start_step(d, step.id, self.play.start()),
            lambda d: ask_what_happened(d, step.id, questions),
            lambda d: defer(d, step.id, delay, "busy"),
            lambda d: ask_approval(d, step.id, self.play.ask(expires_s=500.0)),
            lambda d: resend(d, step.id, self.play.start()),
        ]
        self.try_to(commands[what], step_id=step.id)

    # Others

    @precondition(lambda self: self.play.full.actions)
    @rule(number=PICK, word=st.sampled_from([0, 0, 1, 2]), any_action=st.integers(0, 3))
    def decide(self, number: int, word: int, any_action: int) -> None:
        actions: list[Action] = [
            a for a in self.play.full.actions.values() if any_action == 0 or a in self.play.full.waiting_actions
        ]
        if not actions:
            return
        action = actions[number % len(actions)]
        words = CHOICES[action.kind]
        said = Decision(words[word % len(words)], "ann", external_resource_id="c1" if word == 0 else None)
        questions = self.play.questions
        self.try_to(lambda d: decide_action(d, action.id, said, questions), step_id=action.step_id)

    @rule()
    def expire(self) -> None:
        questions = self.play.questions
        self.try_to(lambda d: expire_due(d, questions))

    @precondition(lambda self: self.has(kind=StepType.tool_call))
    @rule(number=PICK, verdict=VERDICTS, resource=RESOURCES)
    def report(self, number: int, verdict: str, resource: str | None) -> None:
        step = self.pick(number, kind=StepType.tool_call)
        look = Look(verdict, source="webhook", resource_id=resource if verdict == "found" else None)  # type: ignore[arg-type]  # one of its words
        questions = self.play.questions
        self.try_to(lambda d: record_report(d, step.id, look, questions), step_id=step.id)

    @rule()
    def message(self) -> None:
        number = len(self.play.recorded)
        self.try_to(lambda d: add_message(d, f"msg_{number}", "user", b'{"content":"more"}'))

    @rule(how=st.integers(0, 30))
    def stop(self, how: int) -> None:
        stops: list[Callable[[Draft], object]] = [
            lambda d: cancel_run(d, "ann"),
            lambda d: fail_run(d, "operator"),
            lambda d: complete_run(d, b"{}"),
        ]
        if how < len(stops):
            self.try_to(stops[how])

    @rule(seconds=WAITS, jump=JUMPS)
    def time_passes(self, seconds: float, jump: float) -> None:
        at = self.play.at
        self.play.at = Instant(at.mono + seconds, at.wall + seconds + jump)

    # What holds

    @invariant()
    def the_events_make_the_run(self) -> None:
        self.play.check_replay()


TestEverybody = Everybody.TestCase
TestEverybody.settings = settings(max_examples=250, stateful_step_count=60, deadline=None)
