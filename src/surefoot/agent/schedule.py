"""A schedule: when runs of an agent are due, by a cron expression in a time zone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import groupby, takewhile
from typing import Literal

import msgspec

from surefoot.agent.agent import Agent

CatchUp = Literal["latest", "all", "none"]
CATCH_UP_MAX = 100
"""How many missed due times are made up at most, the newest of them."""
LATE_SECONDS_MAX = 120.0
"""A due time that is noticed later than this was missed."""
FIELDS = 5
_WINDOWS_SECONDS = (86_400.0, 60 * 86_400.0, 3_660 * 86_400.0, math.inf)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class Schedule(msgspec.Struct, frozen=True):
    """One run of `agent` with `input` for each due time of `cron`, however many workers there are.

    `cron` has five fields (minute, hour, day of month, month, day of week) and holds in `timezone`: a time that does
    not exist on the day that clocks go forward is due at once after the gap, one that comes twice is due once. After a
    pause of all workers `catch_up` makes up the newest missed due time ("latest"), the newest 100 ("all") or "none".

    Raises ValueError, saying which of them cannot be used.
    """

    name: str
    cron: str
    agent: str | Agent
    input: str
    timezone: str = "UTC"
    catch_up: CatchUp = "latest"

    def __post_init__(self) -> None:
        """Check what only goes wrong at the due time otherwise."""
        where = f"schedule {self.name!r}"
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(f"{where}: a name has letters, digits, '_', '.' and '-', at most 64 of them")
        if not self.input.strip():
            raise ValueError(f"{where}: input is what the agent is asked, and not empty")
        if self.catch_up not in ("latest", "all", "none"):
            raise ValueError(f'{where}: catch_up is "latest", "all" or "none"')
        try:
            next_due(self, 0.0)
        except KeyError:
            text = f'there is no time zone {self.timezone!r} here; write one such as "Europe/Berlin", or install tzdata'
            raise ValueError(f"{where}: {text}") from None
        except Exception as problem:
            raise ValueError(f'{where}: cron={self.cron!r}: {problem}; one is "30 7 * * MON-FRI"') from None

    @property
    def agent_name(self) -> str:
        """The name of its agent."""
        return self.agent if isinstance(self.agent, str) else self.agent.name


def next_due(schedule: Schedule, after: float) -> float:
    """The first due time after a wall time, in seconds since 1970. Raises ValueError for an expression that is none."""
    return next(_after(schedule, after))


def due_between(schedule: Schedule, after: float, until: float) -> list[float]:
    """The due times above `after` and up to `until`, in order; the newest CATCH_UP_MAX of them."""
    found: list[float] = []
    for window_s in _WINDOWS_SECONDS:
        # The end of a long pause first: years of minutes need not be counted.
        begin = max(after, until - window_s)
        found = list(takewhile(lambda at: at <= until, _after(schedule, begin)))
        if begin == after or len(found) >= CATCH_UP_MAX:
            break
    return found[-CATCH_UP_MAX:]


def due_text(at: float) -> str:
    """A due time as it stands in keys: the same text for the same instant, in whatever zone it was computed."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _after(schedule: Schedule, start: float) -> Iterator[float]:
    """The due times above `start`. Always forward: backwards, cronsim counts half-hour changes of clocks otherwise."""
    # Loaded with the first schedule, not with the package.
    from zoneinfo import ZoneInfo

    from cronsim import CronSim

    if len(schedule.cron.split()) != FIELDS:
        raise ValueError(f"it has {len(schedule.cron.split())} fields, not {FIELDS}")
    zone: tzinfo = UTC if schedule.timezone == "UTC" else ZoneInfo(schedule.timezone)
    times = CronSim(schedule.cron, datetime.fromtimestamp(math.floor(start), UTC).astimezone(zone))
    # In an hour that comes twice cronsim begins with the first one, which is over the second time.
    return (at for at, _ in groupby(moment.timestamp() for moment in times) if at > start)
