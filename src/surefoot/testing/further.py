"""What a story may have beside everything that befalls each: drawn from its seed, or asked for by name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from surefoot.testing import faults as f
from surefoot.testing.havoc import TROUBLE_SECONDS, WRITES, Plan

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
