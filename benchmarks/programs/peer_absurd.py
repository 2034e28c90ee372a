"""absurd on PostgreSQL: tasks of no-op steps, by its async client and one async worker. It commits a
step's result, and no intent.

Its worker finishes the batch that it has claimed before it claims again, as it does by itself. It polls every 5 ms
instead of every 250, so that what is measured is not its waiting.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Protocol

import absurdctl
import psycopg
from absurd_sdk import AsyncAbsurd

from benchmarks.programs.lanes import PAYLOAD, Cell, Sample, Ticks, measured, tell

POLL_SECONDS = 0.005
QUEUE = "default"
_TICKS: dict[str, Ticks] = {}
_DONE: dict[str, asyncio.Event] = {}


def install(url: str) -> None:
    """Its schema, as its own command puts it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)


class Context(Protocol):
    """What is used of absurd's."""

    async def step(self, name: str, work: Callable[[], Awaitable[str]]) -> str:
        """One step."""
        ...


async def measure(cell: Cell) -> Sample:
    """Tasks are spawned here, and worked on by a thread with a loop and a connection of its own."""
    loop = asyncio.get_running_loop()
    client = AsyncAbsurd(cell.place)
    await client.create_queue(QUEUE)

    async def notes(params: dict[str, str], context: Context) -> None:
        name = params["run"]
        for number in range(cell.steps):

            async def note(number: int = number) -> str:
                _TICKS[name].tick(name)
                return f"{PAYLOAD}{number}"

            await context.step(f"note-{number}", note)
        loop.call_soon_threadsafe(_DONE[name].set)

    client.register_task(name="notes")(notes)

    async def work() -> None:
        worker = AsyncAbsurd(cell.place)
        worker.register_task(name="notes")(notes)
        await worker.start_worker(concurrency=max(64, cell.at_once), poll_interval=POLL_SECONDS)

    threading.Thread(target=lambda: asyncio.run(work()), daemon=True).start()

    async def run(name: str, ticks: Ticks) -> None:
        _TICKS[name], _DONE[name] = ticks, asyncio.Event()
        await client.spawn("notes", {"run": name})
        await _DONE[name].wait()

    return await measured(cell, run, steps_of_run=cell.steps)


if __name__ == "__main__":
    asked = Cell.of_arguments(sys.argv[1:])
    install(asked.place)
    tell(asyncio.run(measure(asked)))
    # Its worker polls for ever; what is measured is measured.
    os._exit(0)
