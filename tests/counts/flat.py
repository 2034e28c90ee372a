"""One long run, as a program of its own: what a step costs early and late, as JSON on stdout.

python -m tests.counts.flat STORE PATH TURNS
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Callable
from typing import TypedDict
from unittest import mock

from surefoot import Agent, Surefoot
from surefoot.agent.model import CallPart, ModelRequest, ModelResponse
from surefoot.doors import Doors, SystemEntropy
from surefoot.http import SystemHttp
from surefoot.testing.clock import ManualClock
from tests.counts.programs import weather


class Sample(TypedDict):
    """After so many steps: SQL statements executed until now, and bytes of the database."""

    steps: int
    statements: int
    bytes: int


class Counter:
    """Counts the statements of every connection that is opened while it is in force."""

    def __init__(self) -> None:
        self.statements = 0
        self._connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect(self, *args: object, **kwargs: object) -> sqlite3.Connection:
        """sqlite3.connect, with a count behind it."""
        connection = self._connect(*args, **kwargs)
        connection.set_trace_callback(self._count)
        return connection

    def _count(self, statement: str) -> None:
        self.statements += 1


class Forecaster:
    """A model that asks for the weather day by day, and takes a sample each time.

    No FakeModel: that one checks the whole history at every call.
    """

    name = "forecaster"

    def __init__(self, turns: int, sample: Callable[[int], Sample]) -> None:
        self.samples: list[Sample] = []
        self._turns = turns
        self._sample = sample

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The next day; a text after the last one."""
        day = len(self.samples)
        self.samples.append(self._sample(2 * day))
        call = CallPart(f"call-{day}", "weather", json.dumps({"day": day}))
        return ModelResponse("", (call,)) if day < self._turns else ModelResponse("dry all along")


async def run(url: str, path: str, turns: int) -> list[Sample]:
    """A run of so many turns; a sample at each model call (two steps to a turn).

    The clock stands still, so that nothing is counted that happens by time: polls, renewals, a slow machine.
    """
    counter = Counter()
    own = sqlite3.connect(path)

    def sample(steps: int) -> Sample:
        pages, page_bytes = (own.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return Sample(steps=steps, statements=counter.statements, bytes=int(pages) * int(page_bytes))

    model = Forecaster(turns, sample)
    agent = Agent("forecaster", model, tools=[weather], turns=turns + 1)
    clock = ManualClock()
    doors = Doors(clock=clock, entropy=SystemEntropy(), http=SystemHttp(clock))
    with mock.patch("sqlite3.connect", counter.connect):
        async with Surefoot(url, [agent], worker=True, doors=doors) as sf:
            started = await sf.start("forecaster", "the weather")
            ended = await sf.wait(started.id)
            assert ended.status == "completed", ended.error_code
    own.close()
    return model.samples


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
