"""The day's laws find what they are there for: each bug is planted by hand, and some seed shows it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import msgspec
import pytest

from surefoot.agent import children as starting
from surefoot.agent.schedule import Schedule
from surefoot.agent.scheduling import Begin, Make, Scheduler
from surefoot.agent.starting import NewRun
from surefoot.runtime import children, ready
from surefoot.runtime.context import Context
from surefoot.runtime.held import Held
from tests.day.play import play_day

SEEDS = range(20)
DEPLOYS = range(60)
"""Each process has another code: what a bug needs to show itself comes together more rarely."""
AFTERWARDS_SECONDS = 900.0
"""Not to its rest, which some of the bugs keep it from: whether a law finds the bug is seen before."""
Patch = pytest.MonkeyPatch


def a_look_may_start_another_run(patch: Patch) -> None:
    """Every other look at the run that works on a call takes another key."""
    looks = itertools.count()

    def new_run(**fields: object) -> NewRun:
        key = f"{fields['key']}:{next(looks) % 2}"
        return NewRun(**{**fields, "key": key})  # type: ignore[arg-type]  # the caller's own fields

    patch.setattr(starting, "NewRun", new_run)


def keys_of_signals_are_forgotten(patch: Patch) -> None:
    """The same signal under the same key is another one."""
    patch.setattr("surefoot.core.waiting.known_mark", lambda signals, key: None)


def a_cancel_stops_at_the_run(patch: Patch) -> None:
    """Neither the cancel nor a worker later stops the runs that work for it."""

    async def nothing(*given: object) -> tuple[str, ...]:
        return ()

    patch.setattr(children, "cancel_children", nothing)


def each_worker_starts_what_is_due(patch: Patch) -> None:
    """A due time has no key by which it would be one run."""

    class Keyless(Scheduler):
        def __init__(self, ctx: Context, schedules: Sequence[Schedule], make: Make, begin: Begin) -> None:
            super().__init__(ctx, schedules, make, lambda new: begin(msgspec.structs.replace(new, key=None)))

    patch.setattr("surefoot.app.Scheduler", Keyless)


def an_approval_counts_for_every_version(patch: Patch) -> None:
    """A tool that has changed since a person approved its call is sent, or sent again, without being asked about."""

    async def nothing(*given: object) -> None:
        return None

    patch.setattr(ready, "_changed", nothing)
    patch.setattr(Held, "difference", nothing)
    patch.setattr(Held, "is_as_meant", lambda held, step, tool: True)


@pytest.mark.sqlite_only("the bugs are planted above the store: one of the two tells as much")
@pytest.mark.parametrize(
    ("plant", "law", "seeds"),
    [
        (keys_of_signals_are_forgotten, "D1", SEEDS),
        (a_look_may_start_another_run, "D3", SEEDS),
        (a_cancel_stops_at_the_run, "D4", SEEDS),
        (each_worker_starts_what_is_due, "D5", SEEDS),
        (an_approval_counts_for_every_version, "D7", DEPLOYS),
    ],
)
def test_it_is_found(plant: Callable[[Patch], None], law: str, seeds: range, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    days = (play_day(seed, afterwards=AFTERWARDS_SECONDS, deploys=seeds is DEPLOYS, further=()) for seed in seeds)
    if not any(one.startswith(law) for day in days for one in day.violations):
        pytest.fail(f"{law} found nothing in {len(seeds)} seeds")
