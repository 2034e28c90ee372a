"""The crash-point proof of a scenario as a report, tool by tool: what `surefoot test` shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from surefoot.errors import InvalidInput
from surefoot.testing.crash import Aftermath, Counts, CrashPoint, Scenario, attempt, check_once, record

UNWELL = "with each request of a lookup answered 503 from then on"


class Failure(msgspec.Struct, frozen=True):
    """What does not hold. `place` and `passage` are those of the crash, None where the story fails without one."""

    place: int | None
    passage: str | None
    what: str


class ToolProof(msgspec.Struct, frozen=True):
    """A tool that the story called, and its effect class (`read`, `idempotent`, `lookup`, `opaque`)."""

    tool: str
    effect: str


class Proof(msgspec.Struct, frozen=True):
    """A scenario, crashed at each of its points. It holds where nothing failed."""

    scenario: str
    tools: list[ToolProof]
    points: int
    asked: int
    """Plays that end with a question to a person, which is what an opaque call in doubt has to come to."""
    failures: list[Failure]


def prove(name: str, scenario: Scenario, progress: Callable[[int, int], None]) -> Proof:
    """Play `scenario` without a crash, then at each point; with lookups, once more while they get no answer.

    `progress` is told how many points are played, and how many there are. Raises InvalidInput (`nothing_to_prove`) for
    a scenario that could not fail: no tools, or no `check` and a target that does not count.
    """
    agents = scenario.agents()
    classes = {tool.name: tool.effect.name for agent in agents for tool in agent.tools.values()}
    if not classes:
        raise InvalidInput(f"{name}: its agents have no tools", code="nothing_to_prove")
    if scenario.check is None and not isinstance(scenario.target(), Counts):
        raise InvalidInput(
            f"{name}: nothing tells what happened in its target; give the double `effects(operation_key)`, or the "
            "Scenario a `check`",
            code="nothing_to_prove",
        )
    judge = _Judge(scenario, classes)
    judged = msgspec.structs.replace(scenario, check=judge)
    try:
        points = record(judged)
    except AssertionError as broken:
        return Proof(name, judge.tools(), 0, 0, [Failure(None, None, str(broken) or "it does not hold")])
    failures = []
    for number, point in enumerate(points, 1):
        failures += _at(judged, judge, point)
        progress(number, len(points))
    return Proof(name, judge.tools(), len(points), judge.asked, failures)


def _at(scenario: Scenario, judge: _Judge, point: CrashPoint) -> list[Failure]:
    """What does not hold after a crash at `point`; the unwell target is tried where the well one held."""
    for unwell in (False, True) if judge.looks else (False,):
        judge.unwell = unwell
        broken = attempt(scenario, (point,), unwell=unwell)
        if broken is not None:
            return [Failure(point.place, str(point), f"{broken[1]}, {UNWELL}" if unwell else broken[1])]
    return []


class _Judge:
    """The scenario's own check, or `check_once` and the question that a call in doubt may end with."""

    def __init__(self, scenario: Scenario, classes: Mapping[str, str]) -> None:
        self._check = scenario.check
        self._classes = classes
        self._called: dict[str, None] = {}
        self.asked = 0
        self.unwell = False
        """Lookups get no answer: what is in doubt has to come to a question, of whatever class it is."""
        self.looks = "lookup" in classes.values()

    def __call__(self, end: Aftermath) -> None:
        """Raises AssertionError."""
        self._called |= dict.fromkeys(step.tool_name for step in end.snapshot.steps if step.tool_name is not None)
        if self._check is not None and not self.unwell:
            self._check(end)
        elif self._ends_with_a_question(end):
            self.asked += not self.unwell
        else:
            (self._check or check_once)(end)

    def tools(self) -> list[ToolProof]:
        """Those that were called, in order of their first call."""
        return [ToolProof(name, self._classes.get(name, "unknown")) for name in self._called]

    def _ends_with_a_question(self, end: Aftermath) -> bool:
        """A person is asked what became of calls, none of which acted more than once; of opaque ones if all is well."""
        asked = [action for action in end.snapshot.pending_actions if action.status == "waiting"]
        if not asked or any(action.kind != "resolve" for action in asked):
            return False
        if not self.unwell and {self._classes.get(action.tool_name or "") for action in asked} != {"opaque"}:
            return False
        for step in end.snapshot.steps:
            if isinstance(end.target, Counts) and step.operation_key is not None:
                made = end.target.effects(step.operation_key)
                assert len(made) <= 1, f"{step.tool_name} had {len(made)} effects under its key"
        return True
