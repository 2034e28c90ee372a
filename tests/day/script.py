"""What happens in a day, drawn from its seed: runs that sleep, wait, ask and call agents, and what people do to them.

Every wait has an end of its own, so that a day comes to rest whatever is never sent or decided.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from surefoot import Agent, Schedule, ask_person, sleep, wait_for_signal
from surefoot.agent.tools import Approval, Tool
from surefoot.connectors.github import create_issue_comment, read_pull_request
from surefoot.testing.havoc import Plan, draw
from surefoot.testing.limits import Limits
from surefoot.testing.model import ScriptedCall
from surefoot.testing.people import RunPlan, Script, SimulatedModel, Turn
from surefoot.testing.story import NUMBER, REPO, charge, send_mail

UNLIMITED = Limits({})
TICK = "Say that you are there."
TICK_REWORDED = "Say that you are still there."
AGENTS = ("reviewer", "writer", "helper")
"""The first calls the second as a tool, the second the third."""


Ticks = Literal["gone", "moved", "reworded"]
"""What may become of a schedule in another code: it has other due times, or starts its runs with another text."""


class Said(msgspec.Struct, frozen=True):
    """A signal that a program sends to a top-level run at a time, `times` times under one key."""

    text: str
    name: str
    at: float
    times: int


class Day(msgspec.Struct, frozen=True):
    """All of it. Times in seconds from the start; `seconds` is its length."""

    seconds: float
    runs: tuple[RunPlan, ...]
    """The top-level ones; `starts`, `message` and `cancelled` are what people do."""
    all_plans: tuple[RunPlan, ...]
    """With those of the agents that are called, and of schedules."""
    signals: tuple[Said, ...]
    answered: frozenset[str]
    """Names of signals that a program sends as soon as a call waits for them."""
    schedules: tuple[Schedule, ...]
    moved: tuple[Schedule, ...]
    """The same with other due times, for those who have another code."""
    trouble: Plan
    limits: Limits
    """Of its tools, and of the tenant."""
    person_dies: float
    """The share of the person's own commits behind which its process dies."""


def draw_day(seed: int, *, runs: int, seconds: float, limits: Limits = UNLIMITED) -> Day:
    """The day of a seed."""
    dice = random.Random(f"{seed}:day")
    made = _Drawing(dice, seconds)
    plans = tuple(made.top(number) for number in range(runs))
    tick: tuple[Turn, ...] = ((("note", {"repo": REPO, "issue_number": NUMBER, "body": "Here."}),),)
    # The virtual clock begins at 22:13 UTC on 14 November; what is looked at again lasts another day, without ticks.
    if seconds >= 43_200.0:
        schedules = _ticking("0 * 14,15 11 *", "30 */5 15 11 *")
        moved = _ticking("20 * 14,15 11 *", "50 */5 15 11 *")
    else:
        schedules = _ticking("15-20/3 22 14 11 *", "16 23 14 11 *")
        moved = _ticking("16-20/3 22 14 11 *", "17 23 14 11 *")
    return Day(
        seconds=seconds,
        runs=plans,
        all_plans=(*plans, *made.children, RunPlan(TICK, tick), RunPlan(TICK_REWORDED, tick)),
        signals=tuple(made.signals),
        answered=frozenset(made.answered),
        schedules=schedules,
        moved=moved,
        trouble=_trouble(dice, seconds),
        limits=limits,
        person_dies=dice.choice((0.0, 0.1, 0.3)),
    )


def _ticking(tick: str, berlin: str) -> tuple[Schedule, ...]:
    return (
        Schedule("tick", tick, AGENTS[-1], TICK, catch_up="all"),
        Schedule("berlin", berlin, AGENTS[-1], TICK, "Europe/Berlin"),
    )


def _trouble(dice: random.Random, seconds: float) -> Plan:
    """What the simulation draws for a short story, with deaths, stops and jumps spread over the whole day."""
    parts = int(seconds // 3_600)
    base = draw(dice)

    def times(count: int) -> tuple[float, ...]:
        return tuple(round(dice.uniform(0.0, seconds), 3) for _ in range(count))

    return msgspec.structs.replace(
        base,
        kills=tuple(sorted({(dice.randint(5, 150 + 150 * parts), dice.random() < 0.8) for _ in range(2 + 2 * parts)})),
        kill_times=times(dice.randint(0, 1 + parts // 2)),
        stops=tuple((at, round(dice.uniform(0.5, 90.0), 3)) for at in times(dice.randint(0, 1 + parts // 3))),
        terminations=times(dice.randint(0, 1 + parts // 4)),
        boots=times(1 if dice.random() < 0.1 + 0.2 * (parts > 0) else 0),
        wall_jumps=tuple((at, round(dice.uniform(-4_000.0, 4_000.0), 3)) for at in times(dice.choice((0, 0, 0, 1, 2)))),
        commit_fails=base.commit_fails and 0.01,
        model_fails=base.model_fails and 0.05,
    )


class _Drawing:
    def __init__(self, dice: random.Random, seconds: float) -> None:
        self.dice = dice
        self.seconds = seconds
        self.children: list[RunPlan] = []
        self.signals: list[Said] = []
        self.answered: list[str] = []

    def top(self, number: int) -> RunPlan:
        dice = self.dice
        starts = round(dice.uniform(0.0, self.seconds * 0.9), 3) if number else 0.0
        name = f"Plan {number}"
        turns = self._turns(name, 0, starts)

        def later(chance: float) -> float | None:
            return round(starts + dice.expovariate(30.0 / self.seconds), 3) if dice.random() < chance else None

        return RunPlan(name, turns, starts=starts, cancelled=later(0.2), message=later(0.15))

    def _turns(self, name: str, depth: int, starts: float) -> tuple[Turn, ...]:
        count = self.dice.choice((1, 1, 2, 3)) if depth == 0 else self.dice.choice((0, 1, 1, 2))
        return tuple(
            tuple(
                self._call(f"{name}.{turn}.{place}", depth, starts)
                for place in range(self.dice.choice((1, 1, 1, 2, 3)))
            )
            for turn in range(count)
        )

    def _call(self, name: str, depth: int, starts: float) -> ScriptedCall:
        dice = self.dice
        kind = dice.choice(
            ("sleep", "sleep", "signal", "signal", "signal", "agent", "agent", "note", "note", "gated", "charge",
             "mail", "ask", "read")
        )  # fmt: skip
        if kind == "sleep":
            return "sleep", {"seconds": round(dice.expovariate(20.0 / self.seconds), 3)}
        if kind == "signal":
            return self._wait(name, depth, starts)
        if kind == "agent" and depth < 2:
            self.children.append(RunPlan(f"Task {name}", self._turns(f"Task {name}", depth + 1, starts)))
            return AGENTS[depth + 1], {"task": f"Task {name}"}
        if kind == "ask":
            return "ask_person", {"question": f"{name}?", "choices": ["yes", "no"]}
        return _effect(kind, name)

    def _wait(self, name: str, depth: int, starts: float) -> ScriptedCall:
        dice, signal = self.dice, f"signal {name}"
        if depth == 0 and dice.random() < 0.6:
            # Perhaps before the call, perhaps behind the end of its patience, perhaps behind the run's end.
            at = starts + dice.expovariate(dice.choice((15.0, 200.0)) / self.seconds)
            self.signals.append(Said(name.partition(".")[0], signal, round(at, 3), dice.choice((1, 1, 2))))
        elif dice.random() < 0.7:
            self.answered.append(signal)
        return "wait_for_signal", {
            "name": signal,
            "timeout_seconds": round(30 + dice.expovariate(10.0 / self.seconds), 3),
        }


def _effect(kind: str, name: str) -> ScriptedCall:
    comment = {"repo": REPO, "issue_number": NUMBER, "body": f"Remark {name}"}
    calls: dict[str, ScriptedCall] = {
        "note": ("note", comment),
        "gated": ("create_issue_comment", comment),
        "charge": ("charge", {"invoice": name, "amount_cents": 100}),
        "mail": ("send_mail", {"to": "ann@example.org", "text": f"Mail {name}"}),
    }
    return calls.get(kind, ("read_pull_request", {"repo": REPO, "number": NUMBER}))


def common_tools(day: Day) -> tuple[Tool, ...]:
    """The tools that every agent has."""
    gated = create_issue_comment.using(approval=Approval(expires=max(300.0, day.seconds / 20)))
    note = create_issue_comment.using(name="note")
    limited = (day.limits.put(tool) for tool in (read_pull_request, gated, note, charge, send_mail))
    return (*limited, ask_person, sleep, wait_for_signal)


def agents_of(day: Day, dice: random.Random) -> list[Agent]:
    """The agents, as a new process makes them: each has the next one among its tools."""
    return agents_with(day, dice, common_tools(day), dict.fromkeys(AGENTS, "1"), {})


def agents_with(
    day: Day, dice: random.Random, tools: Sequence[Tool], versions: Mapping[str, str], instead: Mapping[str, Tool]
) -> list[Agent]:
    """The same with other tools, and with those agents that have a version: nobody has one that is gone as a tool.

    `instead` are tools under an agent's name that are no agents.
    """
    script = Script(day.all_plans, model_fails=day.trouble.model_fails)
    made: dict[str, Agent] = {}
    below = ""
    for name in reversed(AGENTS):
        if name in versions:
            called: list[Tool | Agent] = [made[below]] if below in made else []
            called = [instead[below]] if below in instead else called
            made[name] = Agent(name, SimulatedModel(script, dice), "Work.", [*tools, *called], version=versions[name])
        below = name
    return list(made.values())[::-1]


def schedules_of(day: Day, changed: Mapping[str, Ticks]) -> tuple[Schedule, ...]:
    """The day's schedules, those that are named as they were changed."""
    moved = {schedule.name: schedule for schedule in day.moved}
    made: list[Schedule] = []
    for schedule in day.schedules:
        match changed.get(schedule.name):
            case None:
                made.append(schedule)
            case "moved":
                made.append(moved[schedule.name])
            case "reworded":
                made.append(msgspec.structs.replace(schedule, input=TICK_REWORDED))
            case "gone":
                pass
    return tuple(made)
