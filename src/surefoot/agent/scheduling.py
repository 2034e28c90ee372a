"""Start one run for each due time. Any number of workers may do so: the start key of a due time makes one run of it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from surefoot.agent.agent import Agent
from surefoot.agent.schedule import LATE_SECONDS_MAX, Schedule, due_between, due_text, next_due
from surefoot.agent.starting import NewRun
from surefoot.core import policy
from surefoot.core.redact import safe_error
from surefoot.errors import InvalidInput, KeyReused, Unreadable
from surefoot.runtime.background import Background
from surefoot.runtime.context import Context

POLL_SECONDS_MAX = 30.0
"""A jump of the wall clock is noticed within this time."""
CLOCK_SLACK_SECONDS = 60.0
"""How far the wall clocks of workers may differ before one of them counts as having been set back."""


class Make(Protocol):
    """What a run is to be: `Surefoot.new_run`."""

    def __call__(self, agent: str, input: str, /, *, metadata: Mapping[str, object], by: str) -> NewRun:
        """Without a key."""
        ...


Begin = Callable[[NewRun], Awaitable[object]]
"""Begins it: `Surefoot.begin`."""


def agents_of(schedules: Sequence[Schedule]) -> list[Agent]:
    """The agents that schedules bring themselves, each once."""
    return list({id(one.agent): one.agent for one in schedules if isinstance(one.agent, Agent)}.values())


def check_schedules(schedules: Sequence[Schedule], agents: Collection[str]) -> None:
    """Raises InvalidInput for two of one name, or an agent that is not known."""
    names = [schedule.name for schedule in schedules]
    for schedule in schedules:
        if names.count(schedule.name) > 1:
            raise InvalidInput(f"two schedules are called {schedule.name!r}; give one of them another name")
        if schedule.agent_name not in agents:
            known = ", ".join(sorted(agents)) or "none"
            raise InvalidInput(f"schedule {schedule.name!r} is for agent {schedule.agent_name!r}; known: {known}")


class Scheduler(Background):
    """Looks after schedules while a worker lives."""

    def __init__(self, ctx: Context, schedules: Sequence[Schedule], make: Make, begin: Begin) -> None:
        self._ctx = ctx
        self._schedules = schedules
        self._make = make
        self._begin = begin
        self._rest: dict[str, tuple[float, float]] = {}
        """Between these wall times, by schedule, nothing is due: the last look, and the next due time."""

    def begin(self) -> None:
        """From now on."""
        if self._schedules:
            super().begin()

    async def _forever(self) -> None:
        failures = 0
        while True:
            delays, failed = [POLL_SECONDS_MAX], False
            for schedule in self._schedules:
                try:
                    delays.append(await self.look(schedule))
                except Exception as problem:
                    # Whatever it was: schedules that silently start nothing any more would be worse.
                    failed = True
                    told = safe_error(problem, self._ctx.redactor)
                    self._ctx.log(f"schedule {schedule.name}: {told}; looking again")
            failures = failures + 1 if failed else 0
            if failed:
                again_s = policy.backoff(failures, self._ctx.doors.entropy.fraction(), max_s=POLL_SECONDS_MAX)
                delays.append(again_s)
            await self._ctx.doors.clock.sleep(min(delays))

    async def look(self, schedule: Schedule) -> float:
        """Start what is due of one schedule; seconds until its next due time."""
        store, tenant = self._ctx.store, self._ctx.tenant_id
        now = self._ctx.doors.clock.now().wall
        looked, due = self._rest.get(schedule.name, (math.inf, 0.0))
        if looked <= now < due:
            return due - now
        seen = await store.schedule_seen(tenant, schedule.name)
        if seen is None or seen > now + CLOCK_SLACK_SECONDS:
            # New, or the clock was set back: from here on. What was started under a due time stays its only run.
            await store.see_schedule(tenant, schedule.name, now)
        else:
            await self._start_due(schedule, seen, now)
        due = next_due(schedule, now)
        self._rest[schedule.name] = (now, due)
        return due - now

    async def _start_due(self, schedule: Schedule, seen: float, now: float) -> None:
        due = due_between(schedule, seen, now)
        for at in _made_up(schedule, due, now):
            name, due_at = schedule.name, due_text(at)
            key, by = f"schedule:{name}:{due_at}", f"schedule {name}"
            known = {"schedule": name, "due": due_at}
            try:
                new = self._make(schedule.agent_name, schedule.input, metadata=known, by=by)
                await self._begin(msgspec.structs.replace(new, key=key))
            except KeyReused:
                self._ctx.log(f"{key}: a worker with another version of this schedule has started it")
            except Unreadable:
                if await self._ctx.store.run_of_key(self._ctx.tenant_id, key) is None:
                    raise  # it was not started, and is tried again
                self._ctx.log(f"schedule {name}: the run of {due_at} cannot be read; see surefoot doctor")
        if due:
            # Behind the starts: whoever dies in between starts the same runs again, which changes nothing.
            await self._ctx.store.see_schedule(self._ctx.tenant_id, schedule.name, due[-1])


def _made_up(schedule: Schedule, due: Sequence[float], now: float) -> Sequence[float]:
    """Those of the due times that get a run."""
    if schedule.catch_up == "all":
        return due
    in_time = [at for at in due if now - at <= LATE_SECONDS_MAX]
    if schedule.catch_up == "none" or len(in_time) == len(due):
        return in_time
    # Behind a pause the newest stands for all of them.
    return due[-1:]
