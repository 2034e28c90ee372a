"""What a store full of runs that wait for a person costs those that do not wait.

python -m benchmarks.programs.waiting fill URL COUNT      so many runs that ask a person: one, and copies of its rows
python -m benchmarks.programs.waiting work URL            a worker: tells its CPU, and when it calls a model
python -m benchmarks.programs.waiting start URL COUNT     a program without a worker: tells when it started runs
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from benchmarks.programs.copies import copy_runs
from surefoot import Agent, Surefoot, ask_person
from surefoot.agent.model import CallPart, ModelRequest, ModelResponse, UserMessage

PAUSE_SECONDS = 0.15
"""Between two starts, so that the worker is idle again."""
TOLD_SECONDS = 1.0


class Asks:
    """A model that asks a person."""

    name = "asks"

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The question."""
        return ModelResponse("", (CallPart("call_1", "ask_person", json.dumps({"question": "Shall we?"})),))


class Tells:
    """A model that tells when it was called, and that the run is done."""

    name = "tells"

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """At once."""
        first = request.messages[0]
        assert isinstance(first, UserMessage)
        tell("called", first.text)
        return ModelResponse("done")


WAITER = Agent("waiter", Asks(), tools=[ask_person])
QUICK = Agent("quick", Tells())


def tell(what: str, name: str, value: float | None = None) -> None:
    """A line for the caller: a word, a name and a number, the time where none is given."""
    sys.stdout.write(f"{what} {name} {time.time() if value is None else value}\n")
    sys.stdout.flush()


async def fill(url: str, count: int) -> None:
    """One run that waits for a person from now on; none where none is asked for."""
    async with Surefoot(url, [WAITER], worker=True, log=lambda line: None) as sf:
        if count:
            run = await sf.start(WAITER, "waits")
            asked = await sf.wait(run.id)
            assert asked.status == "waiting_for_user", asked.status


async def work(url: str) -> None:
    """Until it is killed."""
    async with Surefoot(url, [WAITER, QUICK], worker=True) as sf:
        assert sf.worker is not None
        tell("ready", "worker")
        while True:
            tell("cpu", "worker", time.process_time())
            await asyncio.sleep(TOLD_SECONDS)


async def start(url: str, count: int) -> None:
    """Runs one after the other, with a pause between."""
    async with Surefoot(url, [WAITER, QUICK]) as sf:
        for number in range(count):
            await asyncio.sleep(PAUSE_SECONDS)
            tell("starting", f"run-{number}")
            await sf.start(QUICK, f"run-{number}")


if __name__ == "__main__":
    url = sys.argv[2]
    match sys.argv[1]:
        case "fill":
            asyncio.run(fill(url, int(sys.argv[3])))
            copy_runs(url, max(0, int(sys.argv[3]) - 1))
        case "work":
            asyncio.run(work(url))
        case _:
            asyncio.run(start(url, int(sys.argv[3])))
