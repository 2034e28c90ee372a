"""Doubles and tools for proving that calls are neither repeated nor lost.

Nothing is loaded before it is asked for: the pytest plugin comes with every test run of whoever has surefoot.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surefoot.testing.clock import ManualClock as ManualClock
    from surefoot.testing.crash import CrashReport as CrashReport, Scenario as Scenario, crash_points as crash_points
    from surefoot.testing.model import FakeModel as FakeModel
    from surefoot.testing.simulation import Simulated as Simulated, simulate as simulate
    from surefoot.testing.world import World as World

_HOMES = {
    "CrashReport": "crash",
    "FakeModel": "model",
    "ManualClock": "clock",
    "Scenario": "crash",
    "Simulated": "simulation",
    "World": "world",
    "crash_points": "crash",
    "simulate": "simulation",
}

__all__ = [
    "CrashReport",
    "FakeModel",
    "ManualClock",
    "Scenario",
    "Simulated",
    "World",
    "crash_points",
    "simulate",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
