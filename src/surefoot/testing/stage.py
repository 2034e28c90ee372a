"""Where stories are played: a folder in memory, an environment, and programs of workers and people on a machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from surefoot.agent.agent import Agent
from surefoot.agent.tools import Tool
from surefoot.app import Surefoot
from surefoot.connectors import github_api
from surefoot.core.policy import LEASE_SECONDS_DEFAULT
from surefoot.errors import InvalidInput, StoreError
from surefoot.snapshot import RunSnapshot
from surefoot.store.sqlite import SqliteStore
from surefoot.testing.machine import Machine, Main, Process
from surefoot.testing.world import TOKEN

SECRET = "a-keyring-of-the-simulation-32-bytes"
VARIABLES: Mapping[str, str | None] = {
    "GITHUB_TOKEN": TOKEN,
    "GITHUB_API_URL": None,
    "SUREFOOT_GITHUB_ACCOUNT": None,
    "SUREFOOT_SECRET": None,
}
MEMORY = "/dev/shm"
TO_BE_REPLACED = "to be replaced"


class Cast(msgspec.Struct, frozen=True):
    """What a new process of the story knows: its agents and tools, made anew for each, as an import makes them."""

    agents: Callable[[], Sequence[Agent]]
    tools: Callable[[], Sequence[Tool]] = tuple
    lease_seconds: float = LEASE_SECONDS_DEFAULT


class Stage:
    """One story's place: a store that no earlier story has used. `with` removes it and restores the environment."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self._folder = Path(tempfile.mkdtemp(prefix="surefoot-", dir=MEMORY if os.path.isdir(MEMORY) else None))
        self.path = self._folder / "story.db"
        self.url = f"sqlite:///{self.path}"
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> Self:
        self._before = {name: os.environ.get(name) for name in VARIABLES}
        _set(VARIABLES)
        new_process()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set(self._before)
        shutil.rmtree(self._folder, ignore_errors=True)

    def surefoot(self, process: Process, *, worker: bool, log: Callable[[str], None] | None = None) -> Surefoot:
        """surefoot in `process`; when the process dies, its lock is free and its transaction rolled back."""
        cast = self.cast
        sf = Surefoot(
            self.url,
            cast.agents(),
            tools=cast.tools(),
            worker=worker,
            doors=process.doors,
            secret=SECRET,
            lease_seconds=cast.lease_seconds,
            log=log if log is not None else process.say,
        )
        process.on_death.append(lambda: _abandon(sf))
        return sf

    def worker(self) -> Main:
        """The program of a worker. It ends by itself where it asks to be replaced, or its store cannot be opened."""

        async def work(process: Process) -> None:
            new_process()
            over = asyncio.Event()

            def log(line: str) -> None:
                process.say(line)
                if TO_BE_REPLACED in line:
                    over.set()

            sf = self.surefoot(process, worker=True, log=log)
            # Not closed: where it ends by itself it ends as a program does that is shot by its supervisor.
            await sf.__aenter__()
            await over.wait()

        return work

    def person(self, act: Callable[[Surefoot, Process], Awaitable[None]]) -> Main:
        """The program of a person: a process without a worker, as the command line is one."""

        async def main(process: Process) -> None:
            async with self.surefoot(process, worker=False) as sf:
                await act(sf, process)

        return main


class Supervisor:
    """Keeps one worker alive: another one starts `restart_seconds` after it has ended, however it ended."""

    def __init__(self, machine: Machine, stage: Stage, name: str, *, restart_seconds: float = 1.0) -> None:
        self.machine = machine
        self.stage = stage
        self.name = name
        self.restart_seconds = restart_seconds
        self.failures: list[BaseException] = []
        """What ended a worker that nobody killed, other than its store."""
        self._count = 0
        self.process = self._begin()

    def _begin(self) -> Process:
        self._count += 1
        process = self.machine.start(f"{self.name}.{self._count}", self.stage.worker())
        process.on_end.append(lambda: self._ended(process))
        self.process = process
        return process

    def _ended(self, process: Process) -> None:
        if isinstance(process.failure, Exception) and not isinstance(process.failure, StoreError):
            self.failures.append(process.failure)
        self.failures += [error for error in process.loop.errors if isinstance(error, Exception)]
        self.machine.say(f"{process.name} is gone")
        if not self.machine.closing:
            self.machine.after(self.restart_seconds, lambda: (self._begin(), None)[1])


async def run_to_end(
    sf: Surefoot, agent: str, text: str, decide: Callable[[Surefoot, RunSnapshot], Awaitable[bool]]
) -> RunSnapshot:
    """Start a run and see it through: `decide` is asked at each rest and says whether it did anything."""
    run = await sf.start(agent, text)
    while True:
        snapshot = await sf.wait(run.id)
        if snapshot.status in ("completed", "failed", "cancelled") or not await decide(sf, snapshot):
            return snapshot


async def approve_all(sf: Surefoot, snapshot: RunSnapshot) -> bool:
    """The person who approves whatever waits; False where nothing does."""
    waiting = [a for a in snapshot.pending_actions if a.status == "waiting" and a.kind in ("approve", "ask")]
    for action in waiting:
        await sf.approve(action.id, by="ann", input_hash=action.input_hash)
    return bool(waiting)


def new_process() -> None:
    """What a module remembers is gone in a new process."""
    github_api._accounts.clear()


@contextmanager
def stage(cast: Cast) -> Iterator[Stage]:
    """A Stage for a `with` block."""
    with Stage(cast) as made:
        yield made


def _abandon(sf: Surefoot) -> None:
    try:
        store = sf.store
    except InvalidInput:
        return
    assert isinstance(store, SqliteStore), "stories are played on SQLite"
    store.abandon()


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
