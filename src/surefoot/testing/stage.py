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
from typing import Protocol, Self, TypedDict, Unpack, runtime_checkable

import msgspec

from surefoot.agent.agent import Agent
from surefoot.agent.schedule import Schedule
from surefoot.agent.tools import DECLARED, Tool
from surefoot.app import Surefoot
from surefoot.connectors import github_api, github_app
from surefoot.core.policy import LEASE_SECONDS_DEFAULT
from surefoot.core.throttle import Throttle
from surefoot.doors import Doors
from surefoot.errors import InvalidInput, StoreError
from surefoot.runtime.questions import MODEL_CHOICES
from surefoot.runtime.worker import Worker
from surefoot.snapshot import RunSnapshot
from surefoot.testing.machine import Machine, Main, Process
from surefoot.testing.world import TOKEN

SECRET = "a-keyring-of-the-simulation-32-bytes"
VARIABLES: Mapping[str, str | None] = {
    "GITHUB_TOKEN": TOKEN,
    "GITHUB_API_URL": None,
    "SUREFOOT_GITHUB_ACCOUNT": None,
    "GITHUB_APP_ID": None,
    "SUREFOOT_SECRET": None,
}
MEMORY = "/dev/shm"
TO_BE_REPLACED = "to be replaced"


class Cast(msgspec.Struct, frozen=True):
    """What a new process of the story knows: its agents and tools, made anew for each, as an import makes them."""

    agents: Callable[[], Sequence[Agent]]
    tools: Callable[[], Sequence[Tool]] = tuple
    schedules: Sequence[Schedule] = ()
    lease_seconds: float = LEASE_SECONDS_DEFAULT
    throttle: Throttle | None = None


class _Watched(Surefoot):
    """A Surefoot that tells when its store is open."""

    def __init__(
        self, on_open: Callable[[Surefoot], None], store: str, agents: Sequence[Agent], **options: Unpack[_Options]
    ) -> None:
        super().__init__(store, agents, **options)
        self._on_open: Callable[[Surefoot], None] | None = on_open

    async def __aenter__(self) -> Surefoot:
        await super().__aenter__()
        self._tell_open()
        return self

    async def _working(self) -> Worker:
        self._tell_open()
        return await super()._working()

    def _tell_open(self) -> None:
        told, self._on_open = self._on_open, None
        if told is not None:
            told(self)


class _Options(TypedDict):
    tools: Sequence[Tool]
    schedules: Sequence[Schedule]
    throttle: Throttle | None
    worker: bool
    doors: Doors
    secret: str
    lease_seconds: float
    log: Callable[[str], None]


class Stage:
    """One story's place: a store that no earlier story has used, by default a SQLite file in memory.

    `with` removes the file and restores the environment; a store that was given by its URL is left alone.
    """

    def __init__(self, cast: Cast, store: str | None = None) -> None:
        self.cast = cast
        self._folder = Path(tempfile.mkdtemp(prefix="surefoot-", dir=MEMORY if os.path.isdir(MEMORY) else None))
        self.path = self._folder / "story.db"
        """The file, where the store is one of this stage's own."""
        self.url = f"sqlite:///{self.path}" if store is None else store
        self.on_open: Callable[[Surefoot, Process], None] = lambda sf, process: None
        """Called with each process and its surefoot once its store is open, before it works."""
        self._before: dict[str, str | None] = {}
        self._declared: dict[tuple[str, str], Tool] = {}

    def __enter__(self) -> Self:
        self._before = {name: os.environ.get(name) for name in VARIABLES}
        _set(VARIABLES)
        # What the host's modules have declared is no part of a story: a name that it shares would not be clear there.
        self._declared = dict(DECLARED)
        DECLARED.clear()
        new_process()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set(self._before)
        DECLARED.clear()
        DECLARED.update(self._declared)
        shutil.rmtree(self._folder, ignore_errors=True)

    def surefoot(self, process: Process, *, worker: bool, log: Callable[[str], None] | None = None) -> Surefoot:
        """surefoot in `process`; when the process dies, its lock is free and its transaction rolled back."""
        cast = self.cast
        sf = _Watched(
            lambda sf: self.on_open(sf, process),
            self.url,
            cast.agents(),
            tools=cast.tools(),
            schedules=cast.schedules,
            throttle=cast.throttle,
            worker=worker,
            doors=process.doors,
            secret=SECRET,
            lease_seconds=cast.lease_seconds,
            log=log if log is not None else process.say,
        )
        process.on_death.append(lambda: abandon(sf))
        return sf

    def worker(self) -> Main:
        """The program of a worker: it works until it is told to stop or asks to be replaced, then closes in order."""

        async def work(process: Process) -> None:
            new_process()
            over = asyncio.Event()

            def log(line: str) -> None:
                process.say(line)
                if TO_BE_REPLACED in line:
                    over.set()

            sf = self.surefoot(process, worker=True, log=log)
            process.terminate = lambda: process.loop.call_soon(over.set)
            async with sf:
                await over.wait()

        return work

    def person(self, act: Callable[[Surefoot, Process], Awaitable[None]]) -> Main:
        """The program of a person: a process without a worker, as the command line is one."""

        async def main(process: Process) -> None:
            async with self.surefoot(process, worker=False) as sf:
                await act(sf, process)

        return main


class Supervisor:
    """Keeps one program alive: it is started again `restart_seconds` after it has ended, however it ended.

    `finite` programs are left alone once their main has returned.
    """

    def __init__(
        self, machine: Machine, name: str, main: Main, *, restart_seconds: float = 1.0, finite: bool = False
    ) -> None:
        self.machine = machine
        self.name = name
        self.restart_seconds = restart_seconds
        self.finished = False
        self.failures: list[BaseException] = []
        """What ended the program that nobody killed, other than its store."""
        self._main = main
        self.finite = finite
        self._count = 0
        self.process = self._begin()

    def _begin(self) -> Process:
        self._count += 1
        process = self.machine.start(f"{self.name}.{self._count}", self._main)
        process.on_end.append(lambda: self._ended(process))
        self.process = process
        return process

    def _ended(self, process: Process) -> None:
        machine, failure = self.machine, process.failure
        if isinstance(failure, Exception) and not isinstance(failure, StoreError | OSError):
            self.failures.append(failure)
        self.failures += [error for error in process.loop.errors if isinstance(error, Exception)]
        process.say(f"is gone{'' if failure is None else f' ({failure!r})'}")
        self.finished = self.finite and process.ended and failure is None
        if not (self.finished or machine.closing):
            machine.after(self.restart_seconds, lambda: (self._begin(), None)[1])


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
        if action.kind == "ask":
            await sf.answer(action.id, MODEL_CHOICES[0], by="ann")
        else:
            await sf.approve(action.id, by="ann", input_hash=action.input_hash)
    return bool(waiting)


def new_process() -> None:
    """What a module remembers is gone in a new process."""
    github_api._accounts.clear()
    github_app._tokens.clear()


@contextmanager
def stage(cast: Cast) -> Iterator[Stage]:
    """A Stage for a `with` block."""
    with Stage(cast) as made:
        yield made


@runtime_checkable
class Mortal(Protocol):
    """A store that knows what the death of its process does to it. Both of ours do."""

    def abandon(self) -> None:
        """Nothing queued is written, what is open is rolled back, the locks are free."""
        ...


def abandon(sf: Surefoot) -> None:
    """The process of `sf` is dead: its store does what the operating system and the server would do."""
    try:
        store = sf.store
    except InvalidInput:
        return
    assert isinstance(store, Mortal), f"{type(store).__name__} cannot be abandoned"
    store.abandon()


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
