"""What must hold after every event and every append, whatever was decided. Keeps books of its own."""

from __future__ import annotations

from collections.abc import Mapping

from surefoot.core import events as ev
from surefoot.core.draft import derive_status
from surefoot.core.state import (
    STEP_ENDS,
    ActionKind,
    ActionStatus,
    AttemptEnd,
    EffectClass,
    Instant,
    Rules,
    Run,
    RunStatus,
    Step,
    StepStatus,
    StepType,
    last_committed_sequence,
    wake_times,
)

ENDS = (ev.RunCompleted, ev.RunFailed, ev.RunCancelled)
CERTAIN = (AttemptEnd.refused, AttemptEnd.not_sent)


class Sent:
    """One attempt, in the law's own books."""

    def __init__(self, at: Instant, timeout_s: float) -> None:
        self.at = at
        self.last_byte = at.mono + timeout_s
        self.ended: float | None = None
        self.cleared = False


class Laws:
    """Checks one run's events as they come."""

    def __init__(self, rules: Mapping[str, Rules]) -> None:
        self.rules = rules
        self.ends = 0
        self.committed = 0
        self.places: dict[int, str] = {}
        self.results: dict[str, int] = {}
        self.sent: dict[str, dict[int, Sent]] = {}
        self.person_said: set[str] = set()
        self.known: set[str] = set()

    def begun(self, run: Run) -> None:
        self.committed = last_committed_sequence(run)

    def effectful(self, step: Step) -> bool:
        return step.type is StepType.tool_call and step.rules.effect is not EffectClass.read

    def step_by_step(self, before: Run, event: ev.AnyEvent, after: Run, at: Instant, bodies: set[str]) -> None:
        assert after.event_sequence == before.event_sequence + 1
        if before.ended:
            assert after.status is before.status and not isinstance(event, ENDS)
        self.ends += isinstance(event, ENDS)
        assert self.ends <= 1
        for key, step in before.steps.items():
            if step.status in STEP_ENDS:
                assert after.steps[key].status is step.status, "a step's end is final"
        match event:
            case ev.StepStarted():
                self._started(before, event, at)
            case ev.RunCancelled():
                # The calls were told first; nothing of it makes a call less sent.
                sent = [
                    s for s in before.steps.values() if self.effectful(s) and s.doubtful_attempts and s.open_in_loop
                ]
                assert event.may_have_been_sent == tuple(s.id for s in sorted(sent, key=lambda s: s.sequence))
            case ev.StepFailed():
                failed = after.steps[event.step_id]
                assert not self.effectful(failed) or not failed.doubtful_attempts, "doubt is never failed"
            case ev.LookupAnswered(verdict="absent", concluded=True):
                self._absent(before, event, at)
            case ev.ActionDecided(decision="did_not_happen"):
                self.person_said.add(event.step_id)
            case ev.MessageQueued():
                assert event.message_id in bodies
                self.known.add(event.message_id)
            case ev.MessageAppended():
                self._placed(before, event, bodies)
            case _:
                pass
        self._note_ends(event, at)

    def _started(self, before: Run, event: ev.StepStarted, at: Instant) -> None:
        assert not before.ended, "nothing is sent for a terminal run"
        step = before.steps[event.step_id]
        if step.action_id is not None and before.actions[step.action_id].kind is ActionKind.approve:
            action = before.actions[step.action_id]
            assert action.status is ActionStatus.approved and action.input_hash == step.input_hash
            assert action.expires_wall is None or at.wall < action.expires_wall
        mine = self.sent.setdefault(step.id, {})
        assert event.attempt == len(mine) + 1
        if self.effectful(step):
            open_ones = [s for s in mine.values() if not s.cleared]
            if open_ones:
                assert step.rules.effect is EffectClass.idempotent, "sent again with an attempt that may have acted"
                life = step.rules.key_lifetime_s
                first = min(s.at.mono for s in open_ones)
                assert life is None or at.mono + event.timeout_s < first + life
                assert all(s.ended is not None or at.mono > s.last_byte for s in open_ones), "one is still under way"
        mine[event.attempt] = Sent(at, event.timeout_s)
        self.person_said.discard(step.id)

    def _absent(self, before: Run, event: ev.LookupAnswered, at: Instant) -> None:
        step = before.steps[event.step_id]
        if event.reason == "person":
            assert step.id in self.person_said
        for sent in self.sent.get(step.id, {}).values():
            if not sent.cleared:
                since = sent.last_byte if sent.ended is None else min(sent.ended, sent.last_byte)
                assert at.mono >= since + step.rules.settle_s, "absent was believed before its time"
                sent.cleared = True

    def _note_ends(self, event: ev.AnyEvent, at: Instant) -> None:
        match event:
            case ev.AttemptEnded() | ev.StepDeferred() | ev.StepFailed():
                number, end = event.attempt, event.end
            case ev.StepOutcomeUnknown():
                number, end = (event.attempt if event.ended else None), AttemptEnd.in_doubt
            case _:
                return
        sent = self.sent.get(event.step_id, {}).get(number or 0)
        if sent is None or end is None:
            return
        sent.ended = at.mono if sent.ended is None else sent.ended
        sent.cleared = (sent.cleared or end in CERTAIN) and end is not AttemptEnd.applied

    def _placed(self, before: Run, event: ev.MessageAppended, bodies: set[str]) -> None:
        assert event.message_id in bodies | self.known, "a message has a body"
        assert event.position not in self.places
        self.places[event.position] = event.role
        if event.role == "tool_result":
            step = before.steps[event.step_id or ""]
            assert event.position == step.position and event.call_id == step.call_id
            self.results[step.id] = self.results.get(step.id, 0) + 1
            assert self.results[step.id] == 1, "one result for one call"
        else:
            reserved = [s.position for s in before.steps.values() if s.position is not None]
            assert event.position > max([-1, *self.places.keys() - {event.position}, *reserved])
            assert not before.batch_open, "no message between a call and its result"

    def after_append(self, run: Run, at: Instant) -> None:
        committed = last_committed_sequence(run)
        assert committed >= self.committed, "last_committed_sequence never falls"
        self.committed = committed
        if not run.ended:
            assert run.status is derive_status(run)
        for step in run.steps.values():
            self._cared_for(run, step)
        asked = any(a.status is ActionStatus.waiting for a in run.actions.values())
        if not run.ended:
            assert asked or wake_times(run) != (None, None), "nobody would ever move this run again"
        if run.kind == "agent" and (run.ended or not run.batch_open):
            for step in run.steps.values():
                if step.type is not StepType.model_call:
                    assert self.results.get(step.id, 0) == 1, "every call has its result"
        if run.status is RunStatus.completed:
            assert not run.batch_open

    def _cared_for(self, run: Run, step: Step) -> None:
        """What may have been sent is looked after, or a person is asked, or it was given up knowingly."""
        if step.in_doubt:
            asked = any(
                a.step_id == step.id and a.kind is ActionKind.resolve and a.status is ActionStatus.waiting
                for a in run.actions.values()
            )
            assert asked or step.look_at is not None
            assert step.doubtful_attempts
        if run.ended:
            assert step.status not in (StepStatus.pending, StepStatus.waiting_for_approval)
