"""Limits of tools and of the tenant in a simulated story, and whether they hold over all workers."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from surefoot.agent.tools import Tool
from surefoot.core.throttle import TENANT, Throttle
from surefoot.testing.checker import Book, key_of_request
from surefoot.testing.model import ScriptedCall
from surefoot.testing.people import RunPlan, Script
from surefoot.testing.story import NUMBER, REPO
from surefoot.testing.virtual import Sent
from surefoot.testing.wire import Received

LIMITED = ("create_issue_comment", "note", "charge", "send_mail")
SHARED = "together"
MORE_RUNS = 2


class Limits(msgspec.Struct, frozen=True):
    """By the tool's name; that of the tenant under TENANT."""

    throttles: Mapping[str, Throttle]

    @property
    def tenant(self) -> Throttle | None:
        """What every call passes."""
        return self.throttles.get(TENANT)

    def put(self, tool: Tool) -> Tool:
        """The tool with its limit."""
        throttle = self.throttles.get(tool.name)
        return tool if throttle is None else tool.using(throttle=throttle)

    def groups(self) -> Mapping[str, tuple[Throttle, frozenset[str]]]:
        """What bounds which tools together, by the limit's name."""
        found: dict[str, tuple[Throttle, frozenset[str]]] = {}
        for name, throttle in self.throttles.items():
            names = frozenset(LIMITED) if name == TENANT else frozenset({name})
            group = throttle.name or name
            found[group] = (throttle, names | found.get(group, (throttle, frozenset()))[1])
        return found


def draw_limits(dice: random.Random) -> Limits:
    """Limits that are felt."""
    together = _draw(dice, SHARED)
    throttles = {name: _draw(dice, None) for name in LIMITED if dice.random() < 0.5}
    if dice.random() < 0.4:
        throttles |= {"note": together, "create_issue_comment": together}
    if dice.random() < 0.5 or not throttles:
        throttles[TENANT] = _draw(dice, None)
    return Limits(throttles)


def _draw(dice: random.Random, name: str | None) -> Throttle:
    at_once = dice.choice((1, 1, 2)) if dice.random() < 0.7 else None
    rated = at_once is None or dice.random() < 0.4
    per = dice.choice((2.0, 5.0, 15.0))
    return Throttle(rate=1.0 if rated else None, per=per, burst=dice.choice((1, 1, 2)), at_once=at_once, name=name)


def more_runs(script: Script, dice: random.Random) -> Script:
    """The same, with more runs that want the same things at one time."""
    first, more = len(script.runs), list[RunPlan]()
    for number in range(first, first + MORE_RUNS):
        turns = tuple(
            tuple(_call(dice, f"{number}.{turn}.{place}") for place in range(dice.choice((1, 2, 3))))
            for turn in range(2)
        )
        more.append(RunPlan(f"Plan {number}", turns, starts=round(dice.uniform(0.0, 4.0), 3)))
    return msgspec.structs.replace(script, runs=(*script.runs, *more))


def _call(dice: random.Random, name: str) -> ScriptedCall:
    calls: tuple[ScriptedCall, ...] = (
        ("note", {"repo": REPO, "issue_number": NUMBER, "body": f"Remark {name}"}),
        ("charge", {"invoice": name, "amount_cents": 100}),
        ("send_mail", {"to": "ann@example.org", "text": f"Mail {name}"}),
    )
    return dice.choice(calls)


class Watched(msgspec.Struct, frozen=True):
    """What a judge of limits has to know beside the runs."""

    sent: Sequence[Sent]
    died: Mapping[str, float]
    """When each process ended."""
    stops: Sequence[tuple[str, float]]
    """Each stop of a process: its name, and when."""
    one_boot: bool
    """False: times since boot were counted anew, and what was begun before is not known to a limit."""


class _Call(msgspec.Struct, frozen=True):
    begin: float
    end: float
    request: int


def judge_limits(limits: Limits, book: Book, watched: Watched) -> Iterator[str]:
    """What is broken. Attempts begin with their intents; they are under way from the last check of their times on,
    until nobody waits for their answer.

    A process that is stopped does nothing for so long that what it held may be another's.
    """
    for name, (throttle, tools) in limits.groups().items():
        yield from _at_once(name, throttle, _calls(tools, book, watched))
        if watched.one_boot:
            yield from _rate(name, throttle, sorted(_begins(tools, book)))


def _calls(tools: Collection[str], book: Book, watched: Watched) -> list[_Call]:
    posts = {e.request: e for e in book.log if isinstance(e, Received) and e.method == "POST"}
    found: list[_Call] = []
    for one in watched.sent:
        post = posts.get(one.request)
        owner = None if post is None else book.owners.get(key_of_request(post) or "")
        if owner is None or owner.step.tool_name not in tools:
            continue
        ends = [at for at in (one.over, watched.died.get(one.process)) if at is not None]
        ends += [at for name, at in watched.stops if name == one.process and at >= one.checked]
        found.append(_Call(one.checked, min(ends, default=math.inf), one.request))
    return found


def _at_once(name: str, throttle: Throttle, calls: Sequence[_Call]) -> Iterator[str]:
    if throttle.at_once is None:
        return
    for call in calls:
        beside = [other for other in calls if other.begin <= call.begin < other.end]
        if len(beside) > throttle.at_once:
            requests = ", ".join(str(other.request) for other in beside)
            yield f"{name}: requests {requests} were under way at once, at most {throttle.at_once} may be"


def _begins(tools: Collection[str], book: Book) -> Iterator[float]:
    for owner in book.owners.values():
        if owner.step.tool_name in tools:
            yield from (line.at.mono for line in owner.intents())


def _rate(name: str, throttle: Throttle, begins: Sequence[float]) -> Iterator[str]:
    spacing = throttle.spacing_s
    if spacing is None:
        return
    for number, first in enumerate(begins):
        for count, last in enumerate(begins[number:], 1):
            most = throttle.burst + 1 + (last - first) / spacing
            if count > most + 1e-6:
                yield f"{name}: {count} attempts began within {last - first:.3f} s, at most {most:.2f} may"
                return
