"""What is counted, as programs of their own: `python -m tests.counts.programs NAME STORE NUMBERS…`.

Those that are counted print "begin" directly before what is counted and "end" directly behind it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine

from surefoot import Agent, Receipt, Surefoot, effects, tool
from surefoot.agent.model import AssistantMessage, ModelRequest
from surefoot.connectors import github
from surefoot.testing.model import Answer, FakeModel, Step

DEADLINE_SECONDS = 300.0


@tool(effect=effects.read)
async def weather(day: int) -> str:
    """How the weather is on a day."""
    return f"day {day}: dry"


@tool(effect=effects.idempotent(key_lifetime=None))
async def store_forecast(day: int) -> Receipt:
    """Keep a forecast."""
    return Receipt(resource_id=f"forecast-{day}")


def mark(word: str) -> None:
    """A line that stands among the system calls."""
    os.write(1, f"{word}\n".encode())


def forecaster(turns: int) -> Agent:
    """An agent that asks for the weather of so many days, one day a turn."""

    def answer(request: ModelRequest) -> Answer:
        day = sum(isinstance(message, AssistantMessage) for message in request.messages)
        return [("weather", {"day": day})] if day < turns else "dry all along"

    script: list[Step] = [answer] * (turns + 1)
    return Agent("forecaster", FakeModel(script), tools=[weather], turns=turns + 1)


async def turns(url: str, count: int, runs: int = 1) -> None:
    """So many runs at once, each of so many turns."""
    async with Surefoot(url, [forecaster(count)], worker=True) as sf:
        mark("begin")
        started = await asyncio.gather(*(sf.start("forecaster", f"the weather of place {n}") for n in range(runs)))
        ended = await asyncio.gather(*(sf.wait(run.id, timeout=DEADLINE_SECONDS) for run in started))
        mark("end")
        assert [run.status for run in ended] == ["completed"] * runs, ended[0].error_code


async def start(url: str) -> None:
    """A run that is only started: no worker of this process takes it. The first commit on an empty log, which syncs the
    log's own head as well, is not counted."""
    async with Surefoot(url, [forecaster(1)]) as sf:
        await sf.start("forecaster", "the weather of before")
        mark("begin")
        await sf.start("forecaster", "the weather")
        mark("end")


async def perform(url: str, count: int) -> None:
    """Effects outside of any agent, one after the other; the first one, which makes the worker, is not counted."""
    async with Surefoot(url, tools=[store_forecast]) as sf:
        await sf.perform(store_forecast.call(day=0), key="day-0")
        mark("begin")
        for day in range(1, count + 1):
            receipt = await sf.perform(store_forecast.call(day=day), key=f"day-{day}")
            assert receipt.resource_id == f"forecast-{day}"
        mark("end")


async def comments(url: str, number: int, count: int) -> None:
    """A run that publishes so many comments on a pull request, one a turn, without asking."""
    call = "create_issue_comment"
    places = [{"repo": "acme/app", "issue_number": number, "body": f"comment {n}"} for n in range(count)]
    script: list[Step] = [*([(call, place)] for place in places), "done"]
    agent = Agent("commenter", FakeModel(script), tools=[github.create_issue_comment], turns=count + 1)
    async with Surefoot(url, [agent], worker=True) as sf:
        started = await sf.start("commenter", "comment")
        ended = await sf.wait(started.id, timeout=DEADLINE_SECONDS)
        assert ended.status == "completed", ended.error_code


PROGRAMS: dict[str, Callable[..., Coroutine[None, None, None]]] = {
    "turns": turns,
    "start": start,
    "perform": perform,
    "comments": comments,
}

if __name__ == "__main__":
    asyncio.run(PROGRAMS[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:])))
