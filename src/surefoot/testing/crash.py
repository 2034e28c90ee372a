"""Crash points: every passage of a door in a story, and the same story crashed at each of them.

A passage is one call of the doors' hook: a commit, a step of an HTTP exchange, the begin or end of a model call, a tool
call or a lookup. Between two passages nothing reaches the outside, so that a crash anywhere else leaves what a crash at
a passage leaves; pauses and random numbers are therefore no points of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from surefoot.agent.agent import Agent
from surefoot.app import Surefoot
from surefoot.core.evolve import Recorded
from surefoot.core.policy import LEASE_SECONDS_DEFAULT
from surefoot.snapshot import RunSnapshot
from surefoot.store.port import MessageRow
from surefoot.testing.machine import Machine, Process, Target, When
from surefoot.testing.stage import Cast, Stage, Supervisor, approve_all, run_to_end
from surefoot.testing.wire import Outcome, WireRequest, json_reply
from surefoot.testing.world import World

POINTS = frozenset({"commit", "http.connect", "http.send", "http.reply", "model", "tool", "lookup"})
STORY_SECONDS_MAX = 7 * 86_400.0


class CrashPoint(msgspec.Struct, frozen=True):
    """One passage of the worker in a story, by its place in the order of all of them (from 1)."""

    place: int
    name: str
    when: When
    nth: int
    """Of the passages of this name and time."""

    def __str__(self) -> str:
        return f"{self.name} {self.nth} {self.when}"


@runtime_checkable
class Counts(Protocol):
    """A double that tells what was made under an operation key, deleted since or not. A World does."""

    def effects(self, operation_key: str, /) -> Sequence[object]:
        """One item for each effect."""
        ...


class Aftermath(msgspec.Struct, frozen=True):
    """How a story ended."""

    snapshot: RunSnapshot
    events: Sequence[Recorded]
    messages: Sequence[MessageRow]
    target: Target
    crashed_at: tuple[CrashPoint, ...]
    elapsed_seconds: float


class Scenario(msgspec.Struct, frozen=True):
    """A story to be crashed: one run of an agent, a person who decides, and what has to hold at the end.

    `agents` is called in each new process, as an import would make them; the first one is run with `input`. `target` is
    a new double for each story: a `World`, or one of your own. `decide` is asked at each rest of the run and says
    whether it did anything; by default it approves. `check` raises AssertionError where something is wrong; without it
    `check_once` holds.
    """

    agents: Callable[[], Sequence[Agent]]
    target: Callable[[], Target]
    input: str = "Go"
    decide: Callable[[Surefoot, RunSnapshot], Awaitable[bool]] = approve_all
    check: Callable[[Aftermath], None] | None = None
    lease_seconds: float = LEASE_SECONDS_DEFAULT
    proven: bool = True
    """False: something of the killed worker still holds its lock, so that its lease has to run out."""
    store: Callable[[], str] | None = None
    """Gives the URL of a store that no earlier story has used, for each story; None: a SQLite file in memory."""


class CrashReport(msgspec.Struct, frozen=True):
    """All points of a scenario, and what went wrong at which of them."""

    points: tuple[CrashPoint, ...]
    failures: tuple[tuple[tuple[CrashPoint, ...], str], ...] = ()

    def __str__(self) -> str:
        lines = [f"{len(self.points)} crash points, {len(self.failures)} failed"]
        for points, text in self.failures:
            lines.append(f"  crashed at {' and '.join(f'#{p.place} {p}' for p in points)}: {text}")
        return "\n".join(lines)


def crash_points(scenario: Scenario) -> CrashReport:
    """Play the scenario once without a crash, then once for each passage of its worker, crashed exactly there.

    Raises AssertionError, naming each point, if the uncrashed story or any of the others does not hold.
    """
    points = record(scenario)
    report = CrashReport(points, tuple(f for p in points if (f := attempt(scenario, (p,))) is not None))
    if report.failures:
        raise AssertionError(str(report))
    return report


def record(scenario: Scenario, *, after: tuple[CrashPoint, ...] = ()) -> tuple[CrashPoint, ...]:
    """The points of the story, in order; of what follows the crashes `after`, where there are some.

    Raises AssertionError where the story does not hold.
    """
    return _Story(scenario, after).play()


def attempt(
    scenario: Scenario, at: tuple[CrashPoint, ...], *, unwell: bool = False
) -> tuple[tuple[CrashPoint, ...], str] | None:
    """Play the story with a crash at each of `at`, one after another; None where all holds, else what does not.

    The second point is counted from the first crash on, in whoever takes over. `unwell`: after the last crash every
    request of a lookup is answered 503, which says nothing about the effect.
    """
    try:
        _Story(scenario, at, unwell).play()
    except AssertionError as broken:
        return at, str(broken) or type(broken).__name__
    return None


class _Story:
    """One play of a scenario."""

    def __init__(self, scenario: Scenario, at: tuple[CrashPoint, ...], unwell: bool = False) -> None:
        self._scenario = scenario
        self._unwell = unwell
        self._target = scenario.target()
        self._at = at
        self._left = [point.place for point in at]
        self._seen: list[tuple[str, When]] = []
        self._end: tuple[RunSnapshot, Sequence[Recorded], Sequence[MessageRow]] | None = None

    def play(self) -> tuple[CrashPoint, ...]:
        scenario = self._scenario
        machine = Machine(self._target, in_turn=True)
        machine.observe = self._observe
        store = None if scenario.store is None else scenario.store()
        with Stage(Cast(scenario.agents, lease_seconds=scenario.lease_seconds), store) as stage:
            try:
                supervisor = Supervisor(machine, "worker", stage.worker())
                person = machine.start("person", stage.person(self._person))
                machine.run_until(lambda: person.ended, seconds=STORY_SECONDS_MAX)
            finally:
                machine.bury_all()
        for failure in [person.failure, *supervisor.failures]:
            if failure is not None:
                raise AssertionError(f"{type(failure).__name__}: {failure}") from failure
        self._judge(machine)
        return _numbered(self._seen)

    def _observe(self, process: Process, name: str, when: When) -> None:
        if name not in POINTS or not process.name.startswith("worker"):
            return
        self._seen.append((name, when))
        if self._unwell and not self._left and name in ("lookup", "tool"):
            looks = name == "lookup" and when == "before"
            process.machine.target = _Unwell(self._target) if looks else self._target
        if self._left and len(self._seen) == self._left[0]:
            self._left.pop(0)
            self._seen.clear()
            process.kill_here(proven=self._scenario.proven)

    async def _person(self, sf: Surefoot, process: Process) -> None:
        scenario = self._scenario
        name = next(iter(sf.agents))
        snapshot = await run_to_end(sf, name, scenario.input, scenario.decide)
        events = await sf.store.events(sf.tenant, snapshot.id, 0, 100_000)
        self._end = (snapshot, events, await sf.messages(snapshot.id))

    def _judge(self, machine: Machine) -> None:
        assert self._end is not None, "the person has seen the end"
        if self._left:
            raise AssertionError(f"the story was over before place {self._left[0]}: it is not the same twice")
        snapshot, events, messages = self._end
        end = Aftermath(snapshot, events, messages, self._target, self._at, machine.clock.elapsed)
        (self._scenario.check or check_once)(end)


class _Unwell:
    """A target that answers 503: no request does anything."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def handle(self, request: WireRequest, now: float) -> Outcome:
        """The request is turned away."""
        return Outcome(0, json_reply(503, {"message": "unavailable"}), now)

    def due(self, now: float) -> None:
        """As the target."""
        self._target.due(now)

    def next_due(self) -> float | None:
        """As the target."""
        return self._target.next_due()


def _numbered(seen: Sequence[tuple[str, When]]) -> tuple[CrashPoint, ...]:
    counts: dict[tuple[str, When], int] = {}
    points = []
    for place, (name, when) in enumerate(seen, 1):
        counts[name, when] = counts.get((name, when), 0) + 1
        points.append(CrashPoint(place, name, when, counts[name, when]))
    return tuple(points)


def check_once(end: Aftermath) -> None:
    """The run completed, each call has one result, and each call that changed something did so exactly once."""
    snapshot = end.snapshot
    assert snapshot.status == "completed", f"the run is {snapshot.status} ({snapshot.error_code})"
    results = [row.call_id for row in end.messages if row.role == "tool_result"]
    assert len(results) == len(set(results)), f"a call has two results: {results}"
    for step in snapshot.steps:
        assert step.status == "succeeded", f"step {step.sequence} ({step.tool_name}) is {step.status}"
        if isinstance(end.target, Counts) and step.external_resource_id is not None:
            made = end.target.effects(step.operation_key or "")
            assert len(made) == 1, f"{step.tool_name} had {len(made)} effects under its key"
        if isinstance(end.target, World) and step.external_resource_id is not None:
            made_id = str(end.target.effects(step.operation_key or "")[0].resource_id)
            assert step.external_resource_id == made_id, f"{step.tool_name} has another id than what was made"
