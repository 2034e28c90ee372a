"""What a story may have beside everything that befalls each: drawn from its seed, or asked for by name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from surefoot.app import Surefoot
from surefoot.testing import faults as f
from surefoot.testing.havoc import TROUBLE_SECONDS, WRITES, Plan
from surefoot.testing.limits import Limits, draw_limits
from surefoot.testing.machine import Machine, Process
from surefoot.testing.reports import Reports, Tell, report
from surefoot.testing.retries import Retries
from surefoot.testing.stage import Stage, Supervisor
from surefoot.testing.unclear import CARRIER, UnclearStores
from surefoot.testing.world import World

Further = Literal["unclear", "reports", "retries", "limits", "stops"]
"""Stores whose commits are late or unclear; evidence from outside; runs that are taken up again; limits of tools and of
the tenant; and more workers that are stopped in the middle of something, past their leases."""
FURTHER: tuple[Further, ...] = get_args(Further)
FURTHER_SHARE = 0.12
LIMITS_SHARE = 0.04
"""They make a story three times as long."""


def draw_further(seed: int, asked: Sequence[Further] | None) -> frozenset[Further]:
    """What the story of a seed has; what was asked for, where something was."""
    if asked is not None:
        return frozenset(asked)
    dice = random.Random(f"{seed}:further")
    return frozenset(kind for kind in FURTHER if dice.random() < (LIMITS_SHARE if kind == "limits" else FURTHER_SHARE))


def more_stops(plan: Plan, dice: random.Random) -> Plan:
    """The plan with workers that are stopped more often, mostly for longer than a lease lasts."""
    at = tuple((dice.randint(5, 250), round(dice.uniform(15.0, 120.0), 3)) for _ in range(dice.randint(2, 5)))
    times = tuple(
        (round(dice.uniform(0.0, TROUBLE_SECONDS * 0.6), 3), round(dice.uniform(2.0, 60.0), 3))
        for _ in range(dice.randint(1, 3))
    )
    writes = tuple((dice.randint(1, 6), round(dice.uniform(5.0, 45.0), 3)) for _ in range(dice.choice((0, 0, 1, 2))))
    return msgspec.structs.replace(
        plan,
        stops_at=(*plan.stops_at, *at),
        stops=(*plan.stops, *times),
        stops_before_write=(*plan.stops_before_write, *writes),
    )


def more_doubt(plan: Plan, dice: random.Random) -> Plan:
    """The plan with more calls that act, or act later, and get no answer: others know of them before anybody looks."""
    faults: tuple[f.AnyFault, ...] = (
        f.LostReply("reset"),
        f.LostReply("hang"),
        f.StatusAfter(502),
        f.EmptyBody(),
        f.Late(round(dice.uniform(1.0, 40.0), 3), "reset"),
        f.LostRequest("reset"),
    )
    rules = tuple(
        f.Rule(dice.choice(faults), "POST", path, nth=dice.randint(1, 2), times=dice.randint(1, 2))
        for path in dict.fromkeys(WRITES)
        if dice.random() < 0.7
    )
    return msgspec.structs.replace(plan, rules=(*plan.rules, *rules))


class Beside:
    """What befalls one story beside what befalls each: its programs, and what its judge has to know of them."""

    def __init__(
        self,
        kinds: frozenset[Further],
        machine: Machine,
        world: World,
        seed: int,
        seconds: float,
        retries: Retries,
        tell: Tell = report,
    ) -> None:
        self.kinds = kinds
        self.limits = draw_limits(random.Random(f"{seed}:limits")) if "limits" in kinds else Limits({})
        self.unclear = UnclearStores(machine, seed, seconds)
        self.reports = Reports(machine, world, seed, tell)
        self.retries = retries
        self._machine = machine

    def opened(self, sf: Surefoot, process: Process) -> bool:
        """A process's store is open. False: it is one of these programs, on whose answers nobody acts."""
        if process.name.startswith(CARRIER):
            return False
        if "unclear" in self.kinds:
            self.unclear.put(sf.store, process)
        return True

    def begin(self, stage: Stage) -> list[Supervisor]:
        """Start its programs, the finite ones first."""
        programs: list[Supervisor] = []
        if "retries" in self.kinds:
            programs.append(Supervisor(self._machine, "retrier", stage.person(self.retries.live), finite=True))
        if "unclear" in self.kinds:
            programs.append(self.unclear.begin(stage))
        if "reports" in self.kinds:
            self.reports.begin()
            programs.append(Supervisor(self._machine, "informer", stage.person(self.reports.live)))
        return programs

    @property
    def left(self) -> bool:
        """Whether something is still to come that nobody sees in the store."""
        takes_up = "retries" in self.kinds and bool(self.retries.left)
        return takes_up or self.unclear.on_its_way or self.reports.left
