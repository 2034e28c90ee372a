"""surefoot worker: claim runs and drive them, until told to stop, idle, or in need of a fresh process."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Literal, NoReturn

from surefoot.agent.agent import Agent
from surefoot.app import Surefoot
from surefoot.cli.output import DONE, Output, hand_over
from surefoot.cli.runs import story
from surefoot.cli.session import opened
from surefoot.cli.settings import Settings
from surefoot.cli.userfile import load
from surefoot.core.state import RunStatus
from surefoot.doors import first_of
from surefoot.errors import SurefootError
from surefoot.runtime.children import rests
from surefoot.runtime.worker import Worker
from surefoot.snapshot import public_event
from surefoot.views import EVENTS_PAGE
from surefoot.waiters import takes

TICK_SECONDS = 0.25
"""How often the worker's own story is told and its health looked at."""
GRACE_SECONDS = 10.0
"""How long calls under way may take to finish once the worker stops."""
REPLACE_GRACE_SECONDS = 3.0
"""The same where a call does not end anyway and the process is replaced."""
NEW_OBJECTS_MIN = 10_000
"""How many new objects the garbage collector waits for, at least."""
LIVE_RUNS_MAX = 200
RESTING_RUNS_MAX = 10_000
"""Of so many runs a worker knows up to where it has told them."""

End = Literal["told", "idle", "unhealthy"]


def work(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Work until SIGTERM or SIGINT. Raises InvalidInput, StoreError.

    The process ends by os._exit: a call that does not end must not keep it, and its lock proves the end to others.
    """
    code = load(found.file)
    sf = opened(settings, out, code.agents, code.tools, schedules=code.schedules, worker=True)
    collect_less()
    end = asyncio.run(_work(code.agents, sf, found, out))
    leave(end, out)


def collect_less() -> None:
    """Let the garbage collector look less often, and never again at what is loaded: a seventh of a busy worker's time.

    For processes that are surefoot's own alone; what the user's code has chosen is not lowered.
    """
    if not gc.isenabled():
        return
    gc.freeze()
    first, *others = gc.get_threshold()
    gc.set_threshold(max(first, NEW_OBJECTS_MIN), *others)


def leave(end: End, out: Output) -> NoReturn:
    """End the process, with what ended its work as the document."""
    out.note(f"worker stopped ({end})")
    out.document({"ended": end})
    hand_over()
    os._exit(DONE)


async def _work(agents: tuple[Agent, ...], sf: Surefoot, found: argparse.Namespace, out: Output) -> End:
    told = stop_signals(out)
    async with sf:
        worker = sf.worker
        assert worker is not None, "opened with worker=True"
        names = ", ".join(a.name for a in agents) or "no agent"
        out.note(f"worker {worker.id} (process {os.getpid()}) on {sf.store.path}: {names}")
        told_of = Story(sf, worker, out)
        end = await until_over(sf, worker, told, told_of, until_idle=found.until_idle)
        await worker.stop(REPLACE_GRACE_SECONDS if end == "unhealthy" else GRACE_SECONDS)
        await told_of.tell()
        if end == "unhealthy":
            replace_process()
        if worker.drivers:
            # A call does not end. Closing would wait for it once more; the process's end is what others can prove.
            leave(end, out)
    return end


async def until_over(
    sf: Surefoot,
    worker: Worker,
    told: asyncio.Event,
    told_of: Story,
    *,
    until_idle: bool,
    others: Callable[[], Iterable[Worker | None]] = tuple,
) -> End:
    """Tell what the worker does until it is `told` to stop, idle where that is asked for, or in need of replacement.

    `others` are the workers of this process's other tenants: any of them needs the process replaced as well.
    """
    while not told.is_set():
        if any(one is not None and one.unhealthy is not None for one in (worker, *others())):
            return "unhealthy"
        if until_idle and await _idle(sf, worker):
            return "idle"
        await first_of(sf.doors.clock.sleep(TICK_SECONDS), told.wait())
        await told_of.tell()
    return "told"


async def _idle(sf: Surefoot, worker: Worker) -> bool:
    """True once every run that this worker could take waits for a person or has ended."""
    if worker.drivers:
        return False
    for status in (RunStatus.running, RunStatus.reconciling):
        for row in await sf.store.runs(sf.tenant, status=status.value, agent=None, before=None, limit=LIVE_RUNS_MAX):
            ours = takes(sf.context, sf.agents, row.run)
            if ours and row.blocked_code is None and not await rests(sf.context, row.run):
                return False
    return not worker.drivers


def stop_signals(out: Output) -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second one ends the process at once."""
    told = asyncio.Event()

    def stop(number: int) -> None:
        if told.is_set():
            os._exit(128 + number)
        out.note(f"stopping: calls under way may finish within {GRACE_SECONDS:g} s; once more stops at once")
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    return told


class Story:
    """Tells what happens to the runs that this worker drives, a line for each event of interest since its start."""

    def __init__(self, sf: Surefoot, worker: Worker, out: Output) -> None:
        self._sf = sf
        self._worker = worker
        self._out = out
        self._since = sf.store.now().wall
        self._told: dict[str, int] = {}
        self._rest: dict[str, int] = {}
        """Up to where runs were told that nobody drives now: one that goes on is not told from its beginning."""
        worker.on_drive = self._taken

    def _taken(self, run_id: str) -> None:
        self._told.setdefault(run_id, self._rest.pop(run_id, 0))

    async def tell(self) -> None:
        """What is new since the last time."""
        for run_id, after in list(self._told.items()):
            driver = self._worker.drivers.get(run_id)
            if driver is not None and driver.handle.run.event_sequence <= after:
                continue
            try:
                self._told[run_id] = await self._tell_run(run_id, after)
            except SurefootError as problem:
                self._out.note(f"{run_id}: its events cannot be read ({problem.code})")
            if driver is None:
                self._rest[run_id] = self._told.pop(run_id)
                if len(self._rest) > RESTING_RUNS_MAX:
                    del self._rest[next(iter(self._rest))]

    async def _tell_run(self, run_id: str, after: int) -> int:
        while page := await self._sf.store.events(self._sf.tenant, run_id, after, EVENTS_PAGE):
            after = page[-1].sequence
            new = [public_event(line) for line in page if line.at.wall >= self._since]
            for line in await story(self._sf, new, self._out.language) if new else []:
                self._out.note(f"{run_id}  {line}")
        return after


def replace_process() -> NoReturn:
    """Start this command anew in this process's place: what does not end, ends with the old program.

    Nothing is inherited but the standard streams: the lock of the old worker is free unless a child of it lives.
    """
    for descriptor in _descriptors():
        if descriptor > 2:
            try:
                os.set_inheritable(descriptor, False)
            except OSError:
                continue  # closed since it was listed
    hand_over()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/dev/fd") if name.isdigit()]
