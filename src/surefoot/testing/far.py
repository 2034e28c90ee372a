"""A store that is far away, as a server is: what is asked of it arrives later, and its answers come later still.

A file answers before anything else of its process can go on. Here others go on between a question and its arrival, and
between a commit and the answer to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from surefoot.app import Surefoot
from surefoot.errors import SurefootError
from surefoot.store.port import Store
from surefoot.testing.machine import Process

P = ParamSpec("P")
T = TypeVar("T")
Delay = Callable[[], Awaitable[None]]
_WAITS = frozenset({"changed", "foreign_changed", "close"})
"""These last by themselves."""
ASKS = tuple(
    sorted(
        name
        for kind in Store.__mro__
        for name, function in vars(kind).items()
        if inspect.iscoroutinefunction(function) and name not in _WAITS
    )
)
"""The methods of a store that ask it for something."""
TURNS_MAX = 6
NEAR_SHARE = 0.5
SHORT_SECONDS_MAX = 0.05
LONG_SHARE = 0.25
LONG_SECONDS_MAX = 1.0
WORDS = 30
PAUSE_SECONDS_MAX = 0.8


FAR_SHARE = 0.4


class Distance:
    """Whether the stores of a story are far away, as its seed has it."""

    def __init__(self, seed: int) -> None:
        self.far = random.Random(f"{seed}:far").random() < FAR_SHARE
        self.over = False
        """The story is over: who judges it reads near by."""
        self._seed = seed
        self._stores = 0

    def put(self, store: Store) -> None:
        """Put a process's store where the story has it."""
        if self.far and not self.over:
            self._stores += 1
            far_away(store, random.Random(f"{self._seed}:far:{self._stores}"))


def far_away(store: Store, dice: random.Random) -> None:
    """Put this one store far away: each question and each answer takes a time drawn from `dice`."""

    async def delay() -> None:
        chance = dice.random()
        if chance < NEAR_SHARE:
            for _ in range(int(dice.random() * TURNS_MAX)):
                await asyncio.sleep(0)
        else:
            longest = LONG_SECONDS_MAX if chance > 1.0 - LONG_SHARE else SHORT_SECONDS_MAX
            await asyncio.sleep(dice.random() * longest)

    for name in ASKS:
        # The store is an instance of the caller's: only this one object is changed.
        vars(store)[name] = _delayed(getattr(store, name), delay)


async def chatter(sf: Surefoot, process: Process, dice: random.Random) -> None:
    """Somebody who says something to runs under way, again and again: their workers look at them at odd moments."""
    for _ in range(WORDS):
        await process.doors.clock.sleep(dice.random() * PAUSE_SECONDS_MAX)
        rows = await sf.store.runs(sf.tenant, status="running", agent=None, before=None, limit=10)
        if rows:
            with contextlib.suppress(SurefootError):
                await sf.message(dice.choice(rows).run.id, "Please be brief.")


def _delayed(ask: Callable[P, Awaitable[T]], delay: Delay) -> Callable[P, Awaitable[T]]:
    async def delayed(*args: P.args, **kwargs: P.kwargs) -> T:
        await delay()
        try:
            return await ask(*args, **kwargs)
        finally:
            await delay()

    return delayed
