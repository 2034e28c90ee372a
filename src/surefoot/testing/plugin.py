"""The pytest plugin: doubles and the crash-point proof as fixtures. `pip install surefoot` brings it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import surefoot.testing as kit

if TYPE_CHECKING:
    from surefoot.testing import CrashReport, ManualClock, Scenario, World


@pytest.fixture
def surefoot_world() -> World:
    """A World without repositories: GitHub with faults and a log of its own."""
    return kit.World()


@pytest.fixture
def surefoot_clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return kit.ManualClock()


@pytest.fixture
def surefoot_crash_points() -> Callable[[Scenario], CrashReport]:
    """`crash_points`: a Scenario crashed at each of its door passages; fails naming those that do not hold."""
    return kit.crash_points
