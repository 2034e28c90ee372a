"""What holds at the end of a day beside the invariants of every story: signals, agents as tools, times, cancels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from surefoot.agent.schedule import due_between, due_text
from surefoot.core import events as ev
from surefoot.core.state import RunStatus, Step, StepStatus, WaitsFor
from surefoot.testing.checker import Lived
from surefoot.testing.clock import MONO_AT_START
from tests.day.person import Person
from tests.day.script import Day

COMMITS_AN_HOUR_MAX = 40
"""Of one run, whatever it waits for."""
COMMITS_AN_ATTEMPT_MAX = 12
"""On top of that: the looks for a call in doubt follow one another quickly until its settle time is over."""
CLAIMS_A_COMMIT_MAX = 2
CLAIMS_MORE_MAX = 20
"""Of a run that stands still while workers come and go."""
ENDS = {"run_failed": RunStatus.failed, "run_cancelled": RunStatus.cancelled}


class Store:
    """All runs of the day, by id and by the step that waits for them."""

    def __init__(self, lived: Sequence[Lived]) -> None:
        self.lived = lived
        self.by_id = {one.row.run.id: one for one in lived}
        self.below: dict[str, list[Lived]] = {}
        for one in lived:
            if one.row.run.parent_step_id is not None:
                self.below.setdefault(one.row.run.parent_step_id, []).append(one)

    def tree(self, one: Lived) -> Iterator[Lived]:
        """The run and all that work for it."""
        yield one
        for step in steps_of(one):
            for child in self.below.get(step.id, ()):
                yield from self.tree(child)


def judge_day(day: Day, lived: Sequence[Lived], person: Person, *, moves: bool = False) -> list[str]:
    """Everything that is wrong. `moves`: schedules had other due times for a while."""
    store = Store(lived)
    found = [text for one in lived for text in _signals_are_taken_once(one)]
    found += _what_was_acknowledged_is_there(store, person)
    found += _one_run_for_one_call(store)
    found += _a_cancel_stops_all(store, person, one_boot=not day.trouble.boots)
    found += _due_times_have_one_run(day, lived, moves=moves)
    found += [text for one in lived for text in _nothing_spins(one)]
    found += [text for one in lived for text in _calls_have_results(one)]
    if not day.trouble.boots:
        found += [text for one in lived for text in _sleeps_are_slept(one)]
    return found


def steps_of(one: Lived) -> list[Step]:
    return [row.step for row in one.steps]


def _signals_are_taken_once(one: Lived) -> Iterator[str]:
    run_id, steps = one.row.run.id, {step.id: step for step in steps_of(one)}
    sent = {line.sequence: line.event for line in one.events if isinstance(line.event, ev.SignalReceived)}
    taken = [line.event for line in one.events if isinstance(line.event, ev.SignalTaken)]
    for key, count in Counter(event.key for event in sent.values() if event.key is not None).items():
        if count > 1:
            yield f"D1: run {run_id} has {count} signals under the key {key}"
    for number, count in Counter(event.signal for event in taken).items():
        if count > 1 or number not in sent:
            yield f"D1: run {run_id}: signal {number} was taken {count} times, sent were {sorted(sent)}"
    for event in taken:
        step = steps[event.step_id]
        if step.status is not StepStatus.succeeded or sent[event.signal].name != step.target:
            yield f"D1: {step.id} waits for {step.target}, is {step.status} and took {sent[event.signal].name}"
    takers = {event.step_id for event in taken}
    for step in steps.values():
        if step.rules.waits_for is WaitsFor.signal and step.status is StepStatus.succeeded and step.id not in takers:
            yield f"D1: {step.id} succeeded without a signal"


def _what_was_acknowledged_is_there(store: Store, person: Person) -> Iterator[str]:
    for run_id, key in person.received:
        events = [line.event for line in store.by_id[run_id].events]
        if sum(isinstance(event, ev.SignalReceived) and event.key == key for event in events) != 1:
            yield f"D2: the signal {key} to run {run_id} was acknowledged, and is not there"


def _one_run_for_one_call(store: Store) -> Iterator[str]:
    for step_id, children in store.below.items():
        if len(children) > 1:
            yield f"D3: {len(children)} runs work on {step_id}"
    for one in store.lived:
        for step in steps_of(one):
            if step.rules.waits_for is WaitsFor.run and not step.attempts:
                yield from _end_is_the_runs(step, store.below.get(step.id, []))
            elif step.rules.waits_for is not None and step.attempts:
                yield f"D3: {step.id} waits, and was sent"


def _end_is_the_runs(step: Step, children: Sequence[Lived]) -> Iterator[str]:
    status = children[0].row.run.status if children else None
    wanted = RunStatus.completed if step.status is StepStatus.succeeded else ENDS.get(step.error_code or "")
    if wanted is not None and status is not wanted:
        yield f"D3: {step.id} is {step.status} ({step.error_code}), and the run that worked on it is {status}"


def _a_cancel_stops_all(store: Store, person: Person, *, one_boot: bool) -> Iterator[str]:
    for one in store.lived:
        if one.row.run.status is RunStatus.cancelled:
            yield from (
                f"D4: run {below.row.run.id} goes on, and {one.row.run.id} is cancelled"
                for below in store.tree(one)
                if not below.row.run.ended
            )
    for run_id, at in person.cancelled.items() if one_boot else ():
        for below in store.tree(store.by_id[run_id]):
            for line in below.events:
                if isinstance(line.event, ev.StepStarted) and line.at.mono > MONO_AT_START + at:
                    yield f"D4: {line.event.step_id} began after the cancel of {run_id} was acknowledged"


def _due_times_have_one_run(day: Day, lived: Sequence[Lived], *, moves: bool) -> Iterator[str]:
    for schedule, moved in zip(day.schedules, day.moved, strict=True):
        due = sorted(str(meta["due"]) for meta in map(_metadata, lived) if meta.get("schedule") == schedule.name)
        if len(set(due)) != len(due):
            yield f"D5: {schedule.name} has two runs for one due time: {due}"
        if not due:
            continue
        first, last = (_wall(text) for text in (due[0], due[-1]))
        expected = [due_text(at) for at in due_between(schedule, first - 1.0, last)]
        others = [due_text(at) for at in due_between(moved, first - 1.0, last)] if moves else []
        if not set(due) <= {*expected, *others}:
            yield f"D5: {schedule.name} has runs for {sorted(set(due) - {*expected, *others})}, which are not due"
        elif schedule.catch_up == "all" and not day.trouble.wall_jumps:
            # A worker whose code has other due times has looked after the schedule up to the one that it started.
            missing = [at for at in expected if at not in due and min(d for d in due if d > at) not in others]
            if missing:
                yield f"D5: {schedule.name} has no run for {missing}"


def _nothing_spins(one: Lived) -> Iterator[str]:
    """Whatever a run waits for, it does so by few commits; and nobody takes it again and again to do nothing."""
    at = {line.version: int(line.at.wall // 3_600.0) for line in one.events}
    commits = max(Counter(at.values()).values(), default=0)
    attempts = sum(step.attempt for step in steps_of(one))
    if commits > COMMITS_AN_HOUR_MAX + COMMITS_AN_ATTEMPT_MAX * attempts:
        yield f"D8: run {one.row.run.id} had {commits} commits in an hour"
    if one.row.lease_token > CLAIMS_A_COMMIT_MAX * len(at) + CLAIMS_MORE_MAX:
        yield f"D8: run {one.row.run.id} was taken {one.row.lease_token} times for {len(at)} commits"


def _calls_have_results(one: Lived) -> Iterator[str]:
    """Once a run has ended, each of its calls has its one result in the conversation."""
    said = Counter(m.call_id for m in one.messages if m.role == "tool_result" and m.run_id == one.row.run.id)
    for step in steps_of(one) if one.row.run.ended else ():
        if step.call_id is not None and step.position is not None and said[step.call_id] != 1:
            yield f"D10: {step.id} is {step.status}, and its call has {said[step.call_id]} results"


def _metadata(one: Lived) -> Mapping[str, object]:
    return msgspec.json.decode(one.row.metadata, type=dict[str, object])


def _wall(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _sleeps_are_slept(one: Lived) -> Iterator[str]:
    until: dict[str, float] = {}
    slept = {step.id for step in steps_of(one) if step.tool_name == "sleep"}
    for line in one.events:
        match line.event:
            case ev.StepDeferred(step_id=step_id, delay_s=delay) if step_id in slept:
                until.setdefault(step_id, line.at.mono + delay)
            case ev.StepStarted(step_id=step_id) if line.at.mono < until.get(step_id, 0.0) - 0.001:
                yield f"D6: {step_id} was to sleep until {until[step_id]}, and woke at {line.at.mono}"
            case _:
                pass
