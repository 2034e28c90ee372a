"""Several worker processes on one store, for the question what a second and a fourth one are worth.

    python -m benchmarks.programs.working fill URL RUNS STEPS                       runs that wait for a worker
    python -m benchmarks.programs.working work URL RUNS STEPS                       a worker that takes so many at once

A worker says "ready", waits for a line, works, and is ended by who started it.
"""

from __future__ import annotations

import asyncio
import sys

from benchmarks.programs import ours
from benchmarks.programs.lanes import Ticks
from benchmarks.programs.ours import Scripted, note
from surefoot import Agent, Surefoot

FILLED_AT_ONCE = 64


class _Anywhere(dict[str, Ticks]):
    """Runs are made by another process, so nobody has named them here."""

    def __missing__(self, run: str) -> Ticks:
        self[run] = Ticks()
        return self[run]


def agent(steps: int) -> Agent:
    """The same in all processes."""
    return Agent("notes", Scripted(steps // 2), "Take notes.", [note], turns=steps // 2 + 1)


async def fill(url: str, runs: int, steps: int) -> None:
    """Runs that a worker may take at once."""
    made = agent(steps)
    async with Surefoot(url, [made]) as sf:
        numbers = iter(range(runs))

        async def lane() -> None:
            for number in numbers:
                await sf.start(made, f"run-{number}")

        await asyncio.gather(*(lane() for _ in range(FILLED_AT_ONCE)))


async def work(url: str, capacity: int, steps: int) -> None:
    """Until it is killed."""
    made = agent(steps)
    # All is loaded before the clock starts.
    async with Surefoot(url, [made]):
        pass
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    async with Surefoot(url, [made], worker=True, capacity=capacity, log=lambda line: None):
        while True:
            await asyncio.sleep(3600)


if __name__ == "__main__":
    mode, url, count, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if mode == "fill":
        asyncio.run(fill(url, count, steps))
        sys.stdout.write("filled\n")
    else:
        ours._TICKS = _Anywhere()
        asyncio.run(work(url, count, steps))
