"""Many runs on one store, worker processes that are killed, and the judge at the end: loops of kills and of outages.

Each run writes one comment. What became of them is read from the World's log, as the invariants I1 to I7 have it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

import surefoot
from surefoot import Agent, Surefoot
from surefoot.core.state import StepType
from surefoot.errors import StoreError
from surefoot.testing import checker, process
from surefoot.testing.faults import Delay, Rule
from surefoot.testing.wire import Applied, LogEntry, Received
from tests.processes.story import COMMENTS, DEADLINE_SECONDS, REPO, Worker, WorldProcess
from tests.support import eventually

PULLS = 8
"""Pull requests that the runs share, so that no listing of comments becomes long."""
LEASE_SECONDS = 3.0
KILLERS = 2
SLOW_SECONDS = 0.15
AT_ONCE = 6
"""Runs under way."""
OUTAGES_MIN = 3
REST_SECONDS_MAX = 180.0
"""How long the last runs may take to end once nothing befalls them any more."""

AGENTS = """
from surefoot import Agent
from surefoot.connectors import github
from surefoot.testing.model import FakeModel

comment = github.create_issue_comment.using(settle=0.3, timeout=5.0, attempts=50)


def agent(number):
    call = ("create_issue_comment", {{"repo": "{repo}", "issue_number": number, "body": "Looks good"}})
    return Agent(name=f"on_{{number}}", model=FakeModel([[call], "done"]), instructions="Review.", tools=[comment])


globals().update({{f"on_{{number}}": agent(number) for number in {numbers}}})
"""


class Fleet:
    """Workers that are kept alive and runs that are kept coming: `async with Fleet(…) as fleet`."""

    def __init__(
        self, world: WorldProcess, folder: Path, store: str, *, workers: int = 4, secret: dict[str, str]
    ) -> None:
        self.world = world
        self.store = store
        self.numbers = [world.next_number() for _ in range(PULLS)]
        self.account = f"bot-{self.numbers[0]}"
        self.run_ids: list[str] = []
        self.ended: set[str] = set()
        self.ended_by_themselves: list[str] = []
        """What workers that nobody killed said when they ended."""
        self._folder = folder
        self._file = folder / f"agents_{self.numbers[0]}.py"
        self._file.write_text(AGENTS.format(repo=REPO, numbers=self.numbers))
        agents = [value for value in process.load(self._file).values() if isinstance(value, Agent)]
        source = str(Path(surefoot.__path__[0]).parent)
        own = {"PYTHONPATH": source, "GITHUB_API_URL": world.url, "GITHUB_TOKEN": f"token-{self.numbers[0]}"}
        self._environ = {**os.environ, **own, **secret}
        self.sf = Surefoot(store, agents, log=lambda line: None)
        self._aimed_at: list[Worker] = []
        self._count = itertools.count(1)
        self.workers = [self._worker() for _ in range(workers)]

    async def __aenter__(self) -> Fleet:
        await self.sf.__aenter__()
        # So that much of a run's life is a request under way, and kills fall into it.
        slow = Delay(SLOW_SECONDS)
        self.world.hit(Rule(slow, method="POST", path=COMMENTS, account=self.account, times=None))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
        await self.sf.close()

    # Workers

    def _worker(self) -> Worker:
        number = next(self._count)
        notes = self._folder / f"fleet-{number}"
        words = ["-m", "surefoot.testing.process", str(self._file), "--store", self.store, "--trace", str(notes)]
        return Worker([sys.executable, *words, "--lease", str(LEASE_SECONDS)], self._environ, notes)

    def replace(self, worker: Worker) -> None:
        """Another process in its place."""
        self.workers[self.workers.index(worker)] = self._worker()

    async def kill(self, chance: random.Random) -> str:
        """SIGKILL to one of those that are at work, at a drawn moment; the door that it had passed last."""
        victim = chance.choice([worker for worker in self.workers if worker not in self._aimed_at])
        self._aimed_at.append(victim)
        begun = {"tool:before", "model:before", "lookup:before"}
        await eventually(lambda: begun & set(victim.notes()), "a worker at work", seconds_max=DEADLINE_SECONDS)
        at = time.monotonic() + chance.uniform(0.0, 0.15)
        await eventually(lambda: time.monotonic() >= at, "the drawn moment")
        victim.kill()
        passed = victim.notes()[-1]
        self._aimed_at.remove(victim)
        self.replace(victim)
        return passed

    async def keep_alive(self) -> None:
        """A worker that ended by itself is replaced, as a supervisor does; until cancelled."""
        while True:
            for worker in self.workers:
                if worker.process.poll() is not None:
                    self.ended_by_themselves.append(worker.said)
                    self.replace(worker)
            await self.sf.doors.clock.sleep(0.2)

    # Runs

    async def feed(self, wanted: Callable[[], bool]) -> None:
        """Start runs, so many at once, while `wanted()`."""
        while wanted():
            if len(self.run_ids) - len(self.ended) < AT_ONCE:
                await self._start()
            else:
                await self._look()

    async def _start(self) -> None:
        number = self.numbers[len(self.run_ids) % PULLS]
        key = f"run-{len(self.run_ids)}"
        # The key makes it one run, however often it has to be asked for.
        while True:
            try:
                self.run_ids.append((await self.sf.start(f"on_{number}", "Comment", key=key)).id)
                return
            except StoreError:
                await self.sf.doors.clock.sleep(0.1)

    async def _look(self) -> None:
        await self.sf.doors.clock.sleep(0.05)
        for run_id in [i for i in self.run_ids if i not in self.ended][:AT_ONCE]:
            try:
                row = await self.sf.store.run(self.sf.tenant, run_id)
            except StoreError:
                return
            if row.run.status.value in ("completed", "failed", "cancelled"):
                self.ended.add(run_id)

    async def rest(self) -> None:
        """Wait until every run has ended."""
        end = time.monotonic() + REST_SECONDS_MAX
        while len(self.ended) < len(self.run_ids):
            late = [i for i in self.run_ids if i not in self.ended]
            assert time.monotonic() < end, f"{len(late)} runs do not end, such as {late[:3]}: {self._said()}"
            await self._look()

    def _said(self) -> str:
        return "\n".join(worker.said[-500:] for worker in self.workers)

    # The judge

    def log(self) -> Sequence[LogEntry]:
        """The World's log, as far as it is about this fleet."""
        entries = self.world.entries()
        ours = {e.request for e in entries if isinstance(e, Received) and e.account == self.account}
        return [e for e in entries if e.request in ours]

    async def judge(self) -> Counter[str]:
        """Every run completed with one comment, and I1 to I7 hold; how often what came up."""
        log = self.log()
        made = [entry for entry in log if isinstance(entry, Applied)]
        account_id = 41_000_100 + self.numbers[0] - 1
        reading = checker.Reading(accounts={self.account: str(account_id)}, clock_slack_s=0.05, faults_are_over=True)
        lived = await checker.read(self.sf.store, self.sf.tenant)
        violations = checker.judge(log, lived, reading=reading)
        assert violations == [], violations[:5]
        assert {one.row.run.id for one in lived} == set(self.run_ids), "no run is lost, and none is there twice"
        unlike = [one for one in lived if one.row.run.status.value != "completed"]
        odd = [_story_of(one) for one in unlike if not _given_up(one)]
        assert odd == [], f"{len(odd)} of {len(lived)} runs did not complete: {odd[:3]}"
        assert len(unlike) * 200 <= len(lived), "an ill-fated run is rare"
        wanted = [one for one in lived if one not in unlike or _has_acted(one)]
        assert len(made) == len(wanted), f"{len(made)} comments of {len(wanted)} runs"
        kinds = Counter(type(line.event).__name__ for one in lived for line in one.events)
        doubts = kinds["StepOutcomeUnknown"]
        return Counter(runs=len(lived), comments=len(made), doubts=doubts, given_up=len(unlike))


def _given_up(one: checker.Lived) -> bool:
    """One model call whose worker was killed each time it was tried: the run ends, as one that kills workers would."""
    calls = [row.step for row in one.steps if row.step.type is StepType.model_call]
    used_up = [step for step in calls if len(step.attempts) == step.rules.attempts_max]
    died = [a.code in ("worker_died", "lease_over", "attempts_used_up") for step in used_up for a in step.attempts]
    return one.row.run.error_code == "attempts_used_up" and len(used_up) == 1 and all(died)


def _has_acted(one: checker.Lived) -> bool:
    return any(row.step.external_resource_id is not None for row in one.steps)


def _story_of(one: checker.Lived) -> str:
    run = one.row.run
    told = " ".join(f"{line.at.mono - run.started.mono:.2f}:{line.event}" for line in one.events)
    return f"{run.id} {run.status.value} ({run.error_code}): {told}"


async def kill_many(fleet: Fleet, chance: random.Random, kills: int) -> tuple[Counter[str], Counter[str]]:
    """So many kills under load, to the good end: the doors that the victims had passed last, and what came up."""
    passed: Counter[str] = Counter()
    left = kills

    async def killing() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            passed.update([await fleet.kill(chance)])

    async with asyncio.TaskGroup() as group:
        group.create_task(fleet.feed(lambda: passed.total() < kills))
        # Two at a time: who takes over a dead worker's runs may be killed as well.
        for _ in range(KILLERS):
            group.create_task(killing())
    await fleet.rest()
    return passed, await fleet.judge()


class Outage(Protocol):
    """Something that befalls the fleet's server; it returns once the server is there again."""

    async def __call__(self) -> None:
        """Let it happen."""
        ...


async def endure(fleet: Fleet, runs: int, outage: Outage, pause: Callable[[], float]) -> tuple[int, Counter[str]]:
    """The server goes away again and again, `pause()` seconds apart: how often, and what came up.

    Runs come until there are `runs`, and until the server was away `OUTAGES_MIN` times: a fast machine has done with
    the runs before the first outage.
    """
    count = 0
    keeping = asyncio.ensure_future(fleet.keep_alive())
    feeding = asyncio.ensure_future(fleet.feed(lambda: len(fleet.run_ids) < runs or count < OUTAGES_MIN))
    try:
        while not feeding.done():
            await asyncio.wait([feeding], timeout=pause())
            if not feeding.done():
                await outage()
                count += 1
        await feeding
        await fleet.rest()
    finally:
        feeding.cancel()
        keeping.cancel()
    return count, await fleet.judge()
