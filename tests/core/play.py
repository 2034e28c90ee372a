"""A run without a store: decides, keeps every event, and after each append checks the laws of laws.py."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from surefoot.core import events as ev
from surefoot.core.attempts import Outcome, record_outcome
from surefoot.core.decide import (
    ProposedCall,
    Refusal,
    Start,
    record_model_answer,
    start_model_call,
    start_run,
    start_step,
)
from surefoot.core.draft import Draft
from surefoot.core.duplicates import Questions
from surefoot.core.evolve import Recorded, begin, evolve, forget_closed, replay
from surefoot.core.payloads import Ask, MessageBody
from surefoot.core.people import Decision, decide_action
from surefoot.core.reconcile import Look, record_look
from surefoot.core.state import (
    Action,
    ActionKind,
    ActionStatus,
    EffectClass,
    Instant,
    Limits,
    Rules,
    Run,
    RunStatus,
    Step,
    StepStatus,
)
from surefoot.errors import SurefootError
from tests.core.laws import Laws

T = TypeVar("T")

WALL = 1_700_000_000.0
RULES: Mapping[str, Rules] = {
    "comment": Rules(effect=EffectClass.lookup, settle_s=60.0, has_lookup=True, timeout_s=30.0),
    "charge": Rules(effect=EffectClass.idempotent, key_lifetime_s=3_600.0, timeout_s=30.0),
    "label": Rules(effect=EffectClass.idempotent, has_lookup=True, timeout_s=30.0, attempts_max=3),
    "mail": Rules(effect=EffectClass.opaque, settle_s=60.0, timeout_s=30.0),
    "fetch": Rules(effect=EffectClass.read, timeout_s=30.0, attempts_max=3),
}


def call(tool: str = "comment", *, gate: Ask | None = None, refusal: Refusal | None = None) -> ProposedCall:
    return ProposedCall(
        tool_name=tool,
        tool_version="1",
        rules=RULES[tool],
        input_ref="ref",
        input_hash="hash",
        data=b"{}",
        safe_input=b"{}",
        refusal=refusal,
        gate=gate,
    )


def found(resource: str | None = "c1", *, source: str = "lookup", also: tuple[str, ...] = ()) -> Look:
    links = tuple((name, f"https://x/{name}") for name in also)
    url = None if resource is None else f"https://x/{resource}"
    return Look("found", source=source, resource_id=resource, url=url, also=links, body=b'{"content":"made"}')


ABSENT = Look("absent")
UNDETERMINED = Look("undetermined", reason="http_403")


class Play:
    """One run. `at` is the clock; `run` what a worker has in memory; `full` the run with everything it ever had."""

    def __init__(
        self, *, kind: str = "agent", limits: Limits | None = None, rules: Mapping[str, Rules] = RULES
    ) -> None:
        self.at = Instant(1_000.0, WALL)
        self.rules = rules
        self.token = 1
        self.asked = 0
        event = ev.RunStarted("run_1", "t", "conv_1", "a", "1", kind, 0, "ann", limits=limits or Limits())
        self.full = begin(event, self.at)
        self.run = self.full
        self.recorded = [Recorded("run_1", 1, 1, self.at, event)]
        self.laws = Laws(rules)
        self.laws.begun(self.full)
        self.do(lambda d: start_run(d, b'{"content":"go"}' if d.run.talks else None))

    # Time

    def wait(self, seconds: float) -> None:
        self.at = Instant(self.at.mono + seconds, self.at.wall + seconds)

    # Deciding

    def loaded(self, step_id: str | None) -> Run:
        """What the store's load gives: the live steps, and the one that is named with all its questions."""
        if step_id is None or step_id not in self.full.steps:
            return self.run
        steps = {k: s for k, s in self.full.steps.items() if k in self.run.steps or k == step_id}
        actions = {k: a for k, a in self.full.actions.items() if k in self.run.actions or a.step_id == step_id}
        return replace(self.run, steps=steps, actions=actions)

    def draft(self, step_id: str | None = None) -> Draft:
        return Draft(self.loaded(step_id), self.at, rules=self.rules, token=self.token)

    def do(self, command: Callable[[Draft], T], *, step_id: str | None = None) -> T:
        """Decide and append. A refusal is checked to have changed nothing, and raised."""
        draft = self.draft(step_id)
        before = copy.deepcopy(draft.before)
        try:
            result = command(draft)
        except SurefootError:
            assert draft.before == before and self.run == self.loaded(None)
            raise
        assert draft.before == before
        self._append(draft)
        return result

    def _append(self, draft: Draft) -> None:
        after = draft.finish()
        if not draft.events:
            assert after is draft.before
            return
        assert after.version == draft.before.version + 1
        bodies = {p.message_id for p in draft.payloads if isinstance(p, MessageBody) and p.body}
        for event in draft.events:
            now = evolve(self.full, event, self.at)
            self.laws.step_by_step(self.full, event, now, self.at, bodies)
            self.full = now
            self.recorded.append(Recorded("run_1", now.event_sequence, after.version, self.at, event))
        self.full = replace(self.full, version=after.version)
        self.run = forget_closed(after)
        assert self.run == forget_closed(self.full), (
            "what a worker remembers is what the events make, less what is closed"
        )
        started = any(isinstance(event, ev.StepStarted) for event in draft.events)
        assert draft.needs_lease is started
        self.laws.after_append(self.full, self.at)

    def check_replay(self) -> None:
        assert replay(self.recorded) == self.full

    # Questions

    def ask(self, *, expires_s: float | None = None) -> Ask:
        self.asked += 1
        return Ask(f"act_{self.asked}", b"{}", b"{}", expires_s=expires_s)

    @property
    def questions(self) -> Questions:
        return {kind: self.ask(expires_s=86_400.0) for kind in ActionKind}

    # Shorthands

    def start(self, window: float = 20.0) -> Start:
        return Start(self.token, window, account="bot", key_id="k")

    def calls(self, *calls: ProposedCall) -> list[str]:
        """A turn of the model that proposes these calls; the ids of their steps."""
        step = self.do(lambda d: start_model_call(d, self.start(), "h"))
        return self.do(lambda d: record_model_answer(d, step.id, step.attempt, b'{"content":"answer"}', calls))

    def begin(self, step_id: str) -> Step:
        return self.do(lambda d: start_step(d, step_id, self.start()))

    def sent(self, tool: str = "comment") -> str:
        """One call of `tool`, under way."""
        (step_id,) = self.calls(call(tool))
        self.begin(step_id)
        return step_id

    def end(self, step_id: str, outcome: Outcome, *, attempt: int | None = None) -> None:
        questions = self.questions
        number = attempt or self.step(step_id).attempt
        self.do(lambda d: record_outcome(d, step_id, number, outcome, questions), step_id=step_id)

    def doubt(self, tool: str = "comment") -> str:
        """One call of `tool` whose reply was lost."""
        step_id = self.sent(tool)
        self.end(step_id, Outcome("in_doubt", "reset"))
        return step_id

    def look(self, step_id: str, look: Look, *, live: bool = False, start: bool = True) -> bool:
        questions = self.questions
        given = self.start() if start else None
        return self.do(
            lambda d: record_look(d, step_id, look, live=live, start=given, questions=questions, jitter=0.0),
            step_id=step_id,
        )

    def decide(self, action_id: str, decision: str, **more: str) -> None:
        questions = self.questions
        said = Decision(decision, "ann", external_resource_id=more.get("resource"), key=more.get("key"))
        step_id = self.full.actions[action_id].step_id if action_id in self.full.actions else None
        self.do(lambda d: decide_action(d, action_id, said, questions), step_id=step_id)

    # Asking

    def step(self, step_id: str) -> Step:
        return self.full.steps[step_id]

    def status(self, step_id: str) -> StepStatus:
        return self.step(step_id).status

    @property
    def run_status(self) -> RunStatus:
        return self.full.status

    def open_action(self, kind: ActionKind) -> Action:
        (action,) = [a for a in self.full.actions.values() if a.kind is kind and a.status is ActionStatus.waiting]
        return action

    def waits(self, kind: ActionKind) -> bool:
        return any(a.kind is kind and a.status is ActionStatus.waiting for a in self.full.actions.values())

    def events(self, kind: type[T]) -> list[T]:
        return [line.event for line in self.recorded if isinstance(line.event, kind)]

    def results(self, step_id: str) -> int:
        return sum(1 for m in self.events(ev.MessageAppended) if m.role == "tool_result" and m.step_id == step_id)

    def notes(self) -> int:
        placed = [m.message_id for m in self.events(ev.MessageAppended) if m.role == "note"]
        queued = [m.message_id for m in self.events(ev.MessageQueued) if m.role == "note"]
        return len({*placed, *queued})
