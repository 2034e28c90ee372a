"""A process that uses a store, told what to do line by line: `python -m tests.store.process PATH`."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable

from surefoot.core import events as ev
from surefoot.doors import SystemClock
from surefoot.store.sqlite import SqliteStore
from tests.store.build import TENANT, Story, new_run

AGENTS = {"reviewer": "1"}


class Commands:
    """What the process can be told; each answers with one line."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.store = SqliteStore(path, SystemClock())
        self.plain: sqlite3.Connection | None = None

    async def open(self) -> str:
        await self.store.open()
        return "open"

    async def open_other(self, path: str) -> str:
        store = SqliteStore(path, SystemClock())
        await store.open()
        await store.create(new_run(store, os.getpid()))
        await store.close()
        return "opened"

    async def create(self, number: str, owner: str = "", lease: str = "30") -> str:
        await self.store.create(new_run(self.store, int(number), owner=owner or None, lease_s=float(lease)))
        return "created"

    async def claim(self, worker: str, lease: str = "30") -> str:
        claimed = await self.store.claim(TENANT, worker, AGENTS, float(lease), 10)
        return " ".join(f"{one.run_id}:{one.token}:{one.owner_died}" for one in claimed) or "none"

    async def fork(self) -> str:
        """A child that lives until it is killed; it keeps what the worker's process had open."""
        child = os.fork()
        if child == 0:
            os.close(0)
            os.close(1)
            reader, _ = os.pipe()
            os.read(reader, 1)
            os._exit(0)
        return str(child)

    async def lock(self) -> str:
        self.plain = sqlite3.connect(self.path, isolation_level=None)
        self.plain.execute("BEGIN IMMEDIATE")
        return "locked"

    async def unlock(self) -> str:
        assert self.plain is not None
        self.plain.execute("COMMIT")
        return "unlocked"

    async def steps(self, number: str, count: str) -> str:
        """Two commits for each step, as a run of turns makes them."""
        story = Story(self.store, await self.store.load(TENANT, f"run_{int(number):026d}"))
        for _ in range(int(count)):
            sequence = story.run.step_count + 1
            await story.begin_step(sequence)
            await story.end_step(sequence)
        return "done"

    async def cancel(self, number: str) -> str:
        story = Story(self.store, await self.store.load(TENANT, f"run_{int(number):026d}"))
        await story.append(ev.RunCancelled("ann"))
        return "cancelled"

    async def close(self) -> str:
        await self.store.close()
        return "closed"


async def main(path: str) -> None:
    """Read lines until there are no more."""
    commands = Commands(path)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        name, *arguments = line.rstrip("\n").split("\t")
        command: Callable[..., Awaitable[str]] = getattr(commands, name)
        try:
            answer = await command(*arguments)
        except Exception as error:
            answer = f"error {type(error).__name__}: {error}"
        print(answer, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
