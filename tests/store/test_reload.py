"""The law of loading: after any legal append, `load` gives what the run in memory holds, less what is closed.

Random events are drawn and `evolve` is the judge of what is legal, so that the tables' every pair comes up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import get_args

from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from surefoot.core import events as ev
from surefoot.core.evolve import Recorded, begin, evolve, forget_closed, replay
from surefoot.core.payloads import MessageBody, Payload
from surefoot.core.state import (
    ActionKind,
    ActionStatus,
    AttemptEnd,
    EffectClass,
    Limits,
    Resolution,
    Rules,
    Run,
    RunStatus,
    StepStatus,
    StepType,
    last_committed_sequence,
    wake_times,
)
from surefoot.core.transitions import STEP
from surefoot.doors import SystemClock
from surefoot.errors import NotAllowed
from surefoot.store.port import Append
from surefoot.store.sqlite import SqliteStore
from tests.store.build import TENANT, new_run

APPENDS = 12
EVENTS_MAX = 6
TRIES = 12


class Dice:
    """Draws events for a run; most of them are legal."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.payloads: list[Payload] = []

    def word(self) -> str | None:
        return self.random.choice([None, "a", "ü" * 30, "x\x00y"])

    def seconds(self) -> float:
        return self.random.choice([0.0, 0.1, 1 / 3, 86_400.0, 1e15])

    def event(self, run: Run) -> ev.AnyEvent:
        others: list[Callable[[Run], ev.AnyEvent]] = [
            self.created, self.action_event, self.message, self.signal, self.run_event,
        ]  # fmt: skip
        makers = [*others, *(self.step_event for _ in range(6))]
        return self.random.choice(makers)(run)

    def created(self, run: Run) -> ev.AnyEvent:
        number = run.step_count + 1
        pick = self.random.choice
        return ev.StepCreated(
            step_id=f"step_{run.id.removeprefix('run_')}_{number:05d}",
            sequence=number,
            step_type=pick(list(StepType)),
            rules=Rules(pick(list(EffectClass)), self.seconds(), pick([None, 3_600.0]), pick([True, False])),
            tool_name=self.word(),
            tool_version=self.word(),
            call_id=f"call_{run.id}_{number}",
            position=pick([None, run.next_position]),
            operation_key=f"{run.id}:{number}",
            input_hash="hash",
            input_ref=self.word(),
            identity_hash=self.word(),
            target=self.word(),
            credential=self.word(),
            owner_step_id=self.word(),
        )

    def step_event(self, run: Run) -> ev.AnyEvent:
        if not run.steps:
            return self.created(run)
        pick = self.random.choice
        step = pick(list(run.steps.values()))
        sid, attempt, end = step.id, step.attempt, pick([None, *AttemptEnd])
        number = pick([None, attempt]) if attempt else None
        every: list[ev.AnyEvent] = [
            ev.StepWaitingForApproval(sid, pick([*run.actions, "act_none"])),
            ev.StepReleased(sid, "act_none"),
            ev.StepStarted(sid, attempt + 1, 1, self.seconds(), self.seconds(), self.word(), self.word()),
            ev.StepDeferred(sid, self.seconds(), self.word(), number, end),
            ev.StepOutcomeUnknown(sid, attempt, "reset", pick([True, False])),
            ev.StepSucceeded(sid, number, self.word(), self.word(), pick([None, *Resolution])),
            ev.StepFailed(sid, "code", number, end, pick([None, *Resolution])),
            ev.StepGivenUp(sid),
            ev.AttemptEnded(sid, attempt, pick(list(AttemptEnd)), self.word()),
            ev.LookupAnswered(sid, "absent", None, pick([True, False]), pick([None, 1 / 3])),
            ev.EvidenceRecorded(sid, pick(["person", "lookup"]), pick(["absent", "found"]), number, self.word()),
            ev.ReceiptRecorded(sid, self.word(), self.word()),
            ev.DuplicateDetected(sid, ("c1", "c2")),
            ev.SweepScheduled(sid, pick([None, 1]), pick([None, 60.0])),
        ]
        return pick(every)

    def action_event(self, run: Run) -> ev.AnyEvent:
        pick = self.random.choice
        waiting = [action.id for action in run.waiting_actions]
        step = pick([*run.steps, "step_none"])
        if not waiting or self.random.random() < 0.5:
            number = f"act_{run.id}_{run.event_sequence}"
            return ev.ActionRequested(number, step, pick(list(ActionKind)), "hash", self.word(), pick([None, 60.0]))
        if self.random.random() < 0.3:
            return ev.ActionExpired(pick(waiting), step, "superseded")
        status = pick([ActionStatus.approved, ActionStatus.rejected])
        return ev.ActionDecided(pick(waiting), step, status, "approve", "ann", self.word())

    def message(self, run: Run) -> ev.AnyEvent:
        pick = self.random.choice
        if run.queued and self.random.random() < 0.5:
            return ev.MessageAppended(pick(run.queued), "user", run.next_position)
        message = f"msg_{run.id}_{run.event_sequence}"
        self.payloads.append(MessageBody(message, b'"x"'))
        open_calls = [s for s in run.steps.values() if s.position is not None and not s.answered]
        if open_calls and self.random.random() < 0.5:
            step = pick(open_calls)
            return ev.MessageAppended(message, "tool_result", step.position or 0, step.id, step.call_id)
        if self.random.random() < 0.5:
            return ev.MessageQueued(message, "user")
        return ev.MessageAppended(message, "user", run.next_position)

    def signal(self, run: Run) -> ev.AnyEvent:
        pick = self.random.choice
        if run.signals.unread and run.steps and self.random.random() < 0.5:
            return ev.SignalTaken(pick(run.signals.unread).number, pick(list(run.steps)))
        return ev.SignalReceived(self.word() or "s", "ref", "ann", key=self.word())

    def run_event(self, run: Run) -> ev.AnyEvent:
        if self.random.random() < 0.9:
            return ev.RunStatusChanged(run.status, self.random.choice(list(RunStatus)))
        ends: list[ev.AnyEvent] = [ev.RunCompleted(), ev.RunFailed("code"), ev.RunCancelled("ann", ("step_x",))]
        return self.random.choice(ends)


def draw_append(dice: Dice, run: Run, store: SqliteStore) -> Append | None:
    """Some legal events on `run`; None if none was drawn."""
    at = store.now()
    after, events, payloads = run, [], []
    for _ in range(TRIES):
        dice.payloads = []
        event = dice.event(after)
        try:
            after = evolve(after, event, at)
        except NotAllowed:
            continue
        events.append(event)
        payloads += dice.payloads
        if len(events) == EVENTS_MAX:
            break
    if not events:
        return None
    return Append(run, replace(after, version=run.version + 1), tuple(events), at, tuple(payloads))


async def live_a_life(
    store: SqliteStore, number: int, random: Random
) -> set[tuple[StepStatus | None, type[ev.AnyEvent]]]:
    dice = Dice(random)
    create = new_run(store, number)
    run = replace(create.after, limits=Limits(random.choice([1, 100]), random.choice([None, 0.5])))
    started = replace(create.events[0], limits=run.limits)
    run = await store.create(replace(create, after=run, events=(started, *create.events[1:])))
    for _ in range(APPENDS):
        append = draw_append(dice, run, store)
        if append is None:
            continue
        await store.append(append)
        run = forget_closed(append.after)
        assert await store.load(TENANT, run.id) == run
        row = await store.run(TENANT, run.id)
        assert row.last_committed_sequence == last_committed_sequence(append.after)
        assert row.ready_at == wake_times(append.after)[0]
    recorded = await store.events(TENANT, run.id, 0, 1_000)
    whole = replay(recorded)
    assert {row.step.id: row.step for row in await store.steps(TENANT, run.id)} == whole.steps
    assert [row.action for row in await store.actions(TENANT, run_id=run.id)] == list(whole.actions.values())
    return _pairs(recorded)


def _pairs(recorded: list[Recorded]) -> set[tuple[StepStatus | None, type[ev.AnyEvent]]]:
    """The status that each step had, with the event that came to it."""
    assert isinstance(recorded[0].event, ev.RunStarted)
    run = begin(recorded[0].event, recorded[0].at)
    pairs: set[tuple[StepStatus | None, type[ev.AnyEvent]]] = {(None, ev.RunStarted)}
    for line in recorded[1:]:
        step = run.steps.get(getattr(line.event, "step_id", None) or "")
        pairs.add((step.status if step is not None else None, type(line.event)))
        run = evolve(run, line.event, line.at)
    return pairs


def test_a_run_is_loaded_as_it_was_appended(folder: Path) -> None:
    pairs: set[tuple[StepStatus | None, type[ev.AnyEvent]]] = set()
    numbers = iter(range(1, 1_000_000))
    with asyncio.Runner() as runner:
        store = SqliteStore(str(folder / "store.db"), SystemClock())
        runner.run(store.open())

        @settings(max_examples=150)
        @given(st.randoms(use_true_random=True))
        def law(random: Random) -> None:
            pairs.update(runner.run(live_a_life(store, next(numbers), random)))

        law()
        assert runner.run(store.integrity()) == []
        runner.run(store.close())
    assert set(STEP) <= pairs, "every row of the table came up"
    assert set(get_args(ev.AnyEvent)) <= {kind for _, kind in pairs}, "and every event"
