"""A decision in the making: commands emit events on it, each sees what the ones before meant. Pure.

Several commands on one Draft are one append. A command that raises spoils the Draft, which is then thrown away.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from surefoot.core import events as ev
from surefoot.core.evolve import evolve
from surefoot.core.payloads import Payload, TransientDrop
from surefoot.core.policy import careful_rules
from surefoot.core.state import (
    ActionKind,
    ActionStatus,
    Attempt,
    EffectClass,
    Instant,
    Rules,
    Run,
    RunStatus,
    Step,
    StepStatus,
    StepType,
)
from surefoot.errors import NotFound, RunEnded

NOTE_PREFIX = "msg_note_"
"""How the id of a note begins; every other queued message is the user's."""


class Draft:
    """What will be appended. `payloads` are passed on unread; `rules` are those of the code of now, by tool name."""

    def __init__(
        self, run: Run, at: Instant, *, rules: Mapping[str, Rules] | None = None, token: int | None = None
    ) -> None:
        self.before = run
        self.run = run
        self.at = at
        self.token = token
        self.events: list[ev.AnyEvent] = []
        self.payloads: list[Payload] = []
        self.needs_lease = False
        self.wall_before: float | None = None
        self._rules = rules or {}

    def emit(self, event: ev.AnyEvent) -> None:
        """Add an event; raises NotAllowed if the tables refuse it."""
        self.run = evolve(self.run, event, self.at)
        self.events.append(event)
        if isinstance(event, ev.StepStarted):
            self.needs_lease = True

    def carry(self, *payloads: Payload) -> None:
        """Add payloads to the append."""
        self.payloads.extend(payloads)

    def step(self, step_id: str) -> Step:
        """The step as it stands now. Raises NotFound."""
        step = self.run.steps.get(step_id)
        if step is None:
            raise NotFound(f"no step {step_id} in run {self.run.id}")
        return step

    def rules(self, step: Step) -> Rules:
        """What holds for the step: the code of now where it is not bolder about what older code has sent."""
        return careful_rules(self._rules.get(step.tool_name or "", step.rules), step.rules)

    def other_rules(self, step: Step) -> Rules | None:
        """What holds for the step where that is not what it keeps. What it waits for stays as it was, and that there is
        code which can look for it.
        """
        rules, kept = self.rules(step), step.rules
        if rules != kept:
            rules = replace(rules, waits_for=kept.waits_for, has_lookup=rules.has_lookup or kept.has_lookup)
        return None if rules == kept else rules

    def doubts(self, step: Step) -> tuple[Attempt, ...]:
        """The attempts of a call that may have acted.

        One that waits to be tried again, and was declared a read, was one when it was tried: it ends without a
        question, whatever the code of now declares.
        """
        if step.type is not StepType.tool_call or self.rules(step).effect is EffectClass.read:
            return ()
        waits = step.status in (StepStatus.pending, StepStatus.waiting_for_approval)
        return () if waits and step.rules.effect is EffectClass.read else step.doubtful_attempts

    def require_open(self) -> None:
        """Raises RunEnded if the run is terminal."""
        if self.run.ended:
            raise RunEnded(f"run {self.run.id} is {self.run.status.value}; start a new run in its conversation")

    def message_id(self) -> str:
        """A message id of this run that was not used yet."""
        return f"msg_{self.run.id.removeprefix('run_')}_{self.run.event_sequence + 1:06d}"

    def settle_status(self) -> None:
        """Emit run_status_changed where the derived status differs."""
        derived = derive_status(self.run)
        if derived is not self.run.status:
            self.emit(ev.RunStatusChanged(self.run.status, derived))

    def finish(self) -> Run:
        """The run after the append: queued messages placed where that is legal, the status derived, version + 1.

        A Draft without events is no append: the run is returned as it was.
        """
        if not self.events:
            return self.before
        self.place_queued()
        if not self.run.ended:
            self.settle_status()
        elif not self.before.ended and self.run.turns:
            # Only an answer of a model leaves something that is kept until then.
            self.carry(TransientDrop())
        self.run = replace(self.run, version=self.before.version + 1)
        return self.run

    def place_queued(self) -> None:
        """Give waiting messages their place, as soon as every call has its result.

        After the run's end the conversation may belong to another run already, which places what is left.
        """
        if self.run.batch_open or self.before.ended:
            return
        for message_id in self.run.queued:
            role = "note" if message_id.startswith(NOTE_PREFIX) else "user"
            self.emit(ev.MessageAppended(message_id, role, self.run.next_position))


def derive_status(run: Run) -> RunStatus:
    """The status that follows from steps and actions (see design: terminal; waiting_for_user; reconciling; running)."""
    if run.ended:
        return run.status
    doubtful = [s for s in run.steps.values() if s.status is StepStatus.outcome_unknown and s.in_doubt]
    if run.actions and run.waiting_actions and run.batch_open:
        ready = any(step.status in (StepStatus.running, StepStatus.pending) for step in run.steps.values())
        asked = {a.step_id for a in run.waiting_actions if a.kind is ActionKind.resolve}
        if not ready and all(step.id in asked for step in doubtful):
            return RunStatus.waiting_for_user
    return RunStatus.reconciling if doubtful else RunStatus.running


def approved_until(run: Run, step: Step) -> float | None:
    """The wall time at which the step's approval ends; None where it has none or it does not end."""
    action = run.actions.get(step.action_id or "")
    if action is None or action.kind is not ActionKind.approve or action.status is not ActionStatus.approved:
        return None
    return action.expires_wall
