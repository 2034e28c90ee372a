"""`simulate(seed)`: the real runtime on virtual doors, everything that can befall it drawn from one seed.

Play one by hand: `python -m surefoot.testing.simulate --seed 7 --trace`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from surefoot.agent.agent import Agent
from surefoot.app import Surefoot
from surefoot.store.port import Append
from surefoot.testing.checker import Commit, Lived, read, stamp_commits
from surefoot.testing.far import Distance, chatter
from surefoot.testing.further import Beside, Further, draw_further, more_doubt, more_stops
from surefoot.testing.havoc import TROUBLE_SECONDS, Havoc, Plan, draw
from surefoot.testing.judge import Outside, judge
from surefoot.testing.limits import more_runs
from surefoot.testing.machine import Machine, Process, Stalled
from surefoot.testing.people import Person, Script, draw_script, perform_all, simulated_agents
from surefoot.testing.reports import Tell, report
from surefoot.testing.retries import Retries, more_cancelled
from surefoot.testing.stage import Cast, Stage, Supervisor
from surefoot.testing.story import world_with_pull
from surefoot.testing.wire import encode_entries
from surefoot.testing.world import World

STORY_SECONDS_MAX = 4 * 86_400.0
TURNS_MAX = 30_000
"""For each worker. A story takes one or two thousand, and one whose model is silent for ten minutes three times twenty;
one that does not come to rest goes on for ever.

What waits at a limit asks a server four times a second, and each question takes several turns there.
"""


class Simulated(msgspec.Struct, frozen=True):
    """What became of one seed. `event_hash` covers every event of every run and the World's whole log."""

    seed: int
    event_hash: str
    statuses: tuple[str, ...]
    """Of the runs that nobody cancelled."""
    violations: tuple[str, ...]
    elapsed_seconds: float
    """Virtual time."""

    @property
    def completed(self) -> int:
        """Runs that reached their result."""
        return sum(status == "completed" for status in self.statuses)


class SimulationFailed(AssertionError):
    """A seed in which something does not hold. The text has the seed, how to play it again, and what does not hold."""

    def __init__(
        self, result: Simulated, workers: int, *, deploys: bool = False, further: Sequence[Further] | None = None
    ) -> None:
        story = f"--seed {result.seed} --workers {workers}{' --deploys' if deploys else ''}"
        story += "" if further is None else f" --with {','.join(further)}"
        again = f"python -m surefoot.testing.simulate {story} --trace"
        super().__init__("\n".join([f"seed {result.seed} fails; play it again: {again}", *result.violations]))
        self.result = result


def simulate(
    seed: int,
    *,
    workers: int = 2,
    trace: Callable[[str], None] | None = None,
    store: str | None = None,
    deploys: bool = False,
    further: Sequence[Further] | None = None,
) -> Simulated:
    """Play the story of `seed`; the same seed gives the same story. `trace` takes lines of what happens, in order.

    `store` is the URL of a store that no earlier story has used; by default it is a SQLite file in memory. With
    `deploys` the tools of each process are those of a code drawn: calls go on under another than they were made by.
    `further` names what befalls this story beside what befalls each; by default some of it, drawn from the seed.

    Raises SimulationFailed where an invariant is broken, a run does not come to rest, or a process ends by an error.
    """
    result = play(seed, workers=workers, trace=trace, store=store, deploys=deploys, further=further)
    if result.violations:
        raise SimulationFailed(result, workers, deploys=deploys, further=further)
    return result


def play(
    seed: int,
    *,
    workers: int = 2,
    trace: Callable[[str], None] | None = None,
    store: str | None = None,
    deploys: bool = False,
    further: Sequence[Further] | None = None,
    tell: Tell = report,
) -> Simulated:
    """The same, with the violations in the answer. `tell` is how somebody outside says what a call made."""
    kinds = draw_further(seed, further)
    plan = draw(random.Random(f"{seed}:plan"))
    script = draw_script(random.Random(f"{seed}:script"), model_fails=plan.model_fails)
    if "stops" in kinds:
        plan = more_stops(plan, random.Random(f"{seed}:stops"))
    if "reports" in kinds:
        plan = more_doubt(plan, random.Random(f"{seed}:doubt"))
    if "limits" in kinds:
        script = more_runs(script, random.Random(f"{seed}:more"))
    if "retries" in kinds:
        script = more_cancelled(script, random.Random(f"{seed}:cancels"))
    story = _Story(seed, plan, script, workers, trace, kinds, tell)
    story.deploys = deploys

    def agents() -> list[Agent]:
        return simulated_agents(script, story.model_dice(), story.code_dice(), story.beside.limits.put)

    with Stage(Cast(agents, throttle=story.beside.limits.tenant), store) as stage:
        return story.play(stage)


class _Story:
    def __init__(
        self,
        seed: int,
        plan: Plan,
        script: Script,
        workers: int,
        trace: Callable[[str], None] | None,
        kinds: frozenset[Further],
        tell: Tell,
    ) -> None:
        self.seed = seed
        self.kinds = kinds
        self.deploys = False
        self.plan = plan
        self.script = script
        self.world: World = world_with_pull()
        self.machine = Machine(self.world, seed=seed)
        self.machine.trace = trace
        self.machine.log_length = lambda: len(self.world.log)
        self.person = Person(script, self.machine, self.world)
        self.violations: list[str] = []
        self._workers = workers
        self._models = 0
        self._codes = 0
        self._commits: list[list[Commit]] = []
        self._distance = Distance(seed)
        texts = [run.text for run in script.runs]
        self._retries = Retries(self.machine, seed, texts, self.person.run_ids, TROUBLE_SECONDS)
        self.beside = Beside(kinds, self.machine, self.world, seed, TROUBLE_SECONDS, self._retries, tell)

    def model_dice(self) -> random.Random:
        """Chance of a new process's model."""
        self._models += 1
        return random.Random(f"{self.seed}:model:{self._models}")

    def code_dice(self) -> random.Random | None:
        """Chance of a new process's code, while there is trouble and where each has its own."""
        self._codes += 1
        over = self.machine.clock.elapsed >= TROUBLE_SECONDS
        return None if over or not self.deploys else random.Random(f"{self.seed}:code:{self._codes}")

    def play(self, stage: Stage) -> Simulated:
        machine, plan = self.machine, self.plan
        machine.say(f"seed {self.seed}: {sorted(self.kinds)} {plan}\n{self.script}\n{self.beside.limits}")
        stage.on_open = self._stamp
        lived: list[Lived] | None = None
        try:
            programs = self._start(stage)
            self._run()
            lived = self._read(stage)
        finally:
            machine.bury_all()
        for program in programs:
            self.violations += [f"{program.name} ended by {failure!r}" for failure in program.failures]
        if lived is None:
            return self._result("", ())
        self.violations += self.person.violations + self._retries.violations
        self.violations += judge(lived, self._outside())
        if self.violations:
            self.violations += [f"run {one.row.run.id} is {one.row.run.status.value}" for one in lived]
        runs = [one.row.run for one in lived]
        statuses = tuple(
            run.status.value for run in runs if run.id not in self.person.cancelled | self._retries.cancelled
        )
        return self._result(event_hash(lived, self.world), statuses)

    def _stamp(self, sf: Surefoot, process: Process) -> None:
        if not self.beside.opened(sf, process):
            return
        self._distance.put(sf.store)
        refuse_stale_tokens(sf, self.violations)
        self._commits.append(stamp_commits(sf.store, self.world.log))

    def _outside(self) -> Outside:
        return Outside(
            log=self.world.log,
            commits=[commit for commits in self._commits for commit in commits],
            sent=self.machine.sent,
            died=self.machine.died,
            went_on=self.machine.stopped,
            over=self.machine.clock.elapsed,
            one_boot=not self.plan.boots,
            doors_hold=self.plan.door_fails == 0.0,
            waited=self.beside.unclear.waited,
            reported=self.beside.reports.acknowledged,
            limits=self.beside.limits,
            stops=self.machine.stops,
        )

    def _start(self, stage: Stage) -> list[Supervisor]:
        machine, seconds = self.machine, self.plan.restart_seconds
        workers = [
            Supervisor(machine, f"worker-{n + 1}", stage.worker(), restart_seconds=seconds)
            for n in range(self._workers)
        ]
        finite = [Supervisor(machine, "person", stage.person(self.person.live), finite=True)]
        if self.script.performs:
            waits = not self.kinds.isdisjoint(("unclear", "limits"))

            async def perform(sf: Surefoot, process: Process) -> None:
                await perform_all(sf, process, self.script, self.beside.limits.put, waits=waits)

            finite.append(Supervisor(machine, "script", stage.person(perform), finite=True))
        if self._distance.far:

            async def chat(sf: Surefoot, process: Process) -> None:
                await chatter(sf, process, random.Random(f"{self.seed}:chatter"))

            finite.append(Supervisor(machine, "chatter", stage.person(chat), finite=True))
        Havoc(self.plan, machine, self.world, workers).begin()
        if self.deploys:
            # What came later than anybody can wait for is found by who can look for it.
            machine.after(TROUBLE_SECONDS, partial(_replace, workers))
        further = self.beside.begin(stage)
        self.person.waits = lambda: self.beside.left
        self._finite = [*finite, *(program for program in further if program.finite)]
        return [*workers, *finite, *further]

    def _run(self) -> None:
        try:
            self.machine.run_until(
                lambda: all(p.finished for p in self._finite),
                seconds=STORY_SECONDS_MAX,
                turns_max=TURNS_MAX * max(self._workers, 1) * (1 + 3 * ("limits" in self.kinds)),
            )
        except Stalled as stalled:
            left = ", ".join(p.name for p in self._finite if not p.finished)
            self.violations.append(f"I7: {stalled}; not finished: {left}")

    def _read(self, stage: Stage) -> list[Lived] | None:
        self._distance.over = True
        self.beside.unclear.stop()
        found: list[list[Lived]] = []

        async def look(sf: Surefoot, process: Process) -> None:
            found.append(await read(sf.store, sf.tenant))

        process = self.machine.start("judge", stage.person(look))
        self.machine.run_until(lambda: process.ended, seconds=10.0)
        if process.failure is not None:
            self.violations.append(f"the store cannot be read: {process.failure!r}")
        return found[0] if found else None

    def _result(self, hashed: str, statuses: tuple[str, ...]) -> Simulated:
        return Simulated(self.seed, hashed, statuses, tuple(self.violations), self.machine.clock.elapsed)


def _replace(workers: Sequence[Supervisor]) -> None:
    for worker in workers:
        if worker.process.alive:
            worker.process.say("is told to stop, for the whole code")
            worker.process.terminate()


def refuse_stale_tokens(sf: Surefoot, violations: list[str]) -> None:
    """Note each append that was written under a lease token which was an old one already when it was asked for."""
    store = sf.store
    append = store.append

    async def watched(what: Append) -> None:
        run = what.after
        newest = None if what.token is None else (await store.run(run.tenant_id, run.id)).lease_token
        await append(what)
        if what.token != newest:
            kinds = ", ".join(sorted({type(event).__name__ for event in what.events}))
            violations.append(f"I6: run {run.id}: {kinds} written under token {what.token}, an old one")

    vars(store)["append"] = watched


def event_hash(runs: Sequence[Lived], world: World) -> str:
    """SHA-256 over all events of all runs and the World's log."""
    hashed = hashlib.sha256()
    for lived in runs:
        hashed.update(msgspec.json.encode(lived.events))
    hashed.update(encode_entries(world.log))
    return hashed.hexdigest()
