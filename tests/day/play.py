"""`play_day(seed)`: the real runtime with its workers for a day, in one process and on a virtual clock.

Play one by hand: `python -m tests.day.play --seed 7 --runs 200 --seconds 86400 --trace`, with `--deploys` where each
process has another code.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from surefoot import Surefoot
from surefoot.core import events as ev
from surefoot.core.state import WaitsFor
from surefoot.testing.checker import Commit, Lived, read, stamp_commits
from surefoot.testing.far import Distance
from surefoot.testing.further import FURTHER, Beside, Further, draw_further, more_doubt, more_stops
from surefoot.testing.havoc import Havoc
from surefoot.testing.judge import Outside, judge
from surefoot.testing.limits import draw_limits
from surefoot.testing.machine import Machine, Observer, Process, Stalled, When
from surefoot.testing.retries import Retries
from surefoot.testing.simulation import event_hash
from surefoot.testing.stage import Cast, Stage, Supervisor
from surefoot.testing.story import world_with_pull
from tests.day.code import VERSIONS, Code, agents_of_code, draw_code, schedules_of_code, smaller_code, whole_code
from tests.day.deployed import Deployed, judge_deploys, seen_of_deploys
from tests.day.laws import judge_day
from tests.day.person import Person
from tests.day.script import UNLIMITED, Day, agents_of, draw_day
from tests.sim.deliveries import deliver

SMALL_RUNS = 3
SMALL_SECONDS = 400.0
DAY_RUNS = 200
DAY_SECONDS = 86_400.0
AFTERWARDS_SECONDS_MAX = 9 * 86_400.0
"""What was left open by the trouble is looked up again for a day, and a question waits for a week."""
DEPLOYED_SHARE = 0.7
"""Of the workers, at one deploy."""


class Played(msgspec.Struct, frozen=True):
    """What became of a day."""

    seed: int
    event_hash: str
    violations: tuple[str, ...]
    statuses: tuple[str, ...]
    """Of the runs that were not cancelled."""
    seen: Counter[str]
    """How often what the day is about came up, so that nothing is judged in vain."""


def play_day(
    seed: int,
    *,
    runs: int = SMALL_RUNS,
    seconds: float = SMALL_SECONDS,
    workers: int = 2,
    afterwards: float = AFTERWARDS_SECONDS_MAX,
    trace: Callable[[str], None] | None = None,
    store: str | None = None,
    deploys: bool = False,
    further: Sequence[Further] | None = None,
) -> Played:
    """The day of `seed`, which comes to rest `afterwards` seconds behind its end; the same seed gives the same day.

    With `deploys` each process has another code until the end of the day; then all that there ever was starts again,
    which takes two workers at least, and beside them a further one that has not all of it. `further` as of `simulate`.
    """
    kinds = draw_further(seed, further)
    limits = draw_limits(random.Random(f"{seed}:limits")) if "limits" in kinds else UNLIMITED
    day = draw_day(seed, runs=runs, seconds=seconds, limits=limits)
    if "stops" in kinds:
        day = msgspec.structs.replace(day, trouble=more_stops(day.trouble, random.Random(f"{seed}:stops")))
    if "reports" in kinds:
        day = msgspec.structs.replace(day, trouble=more_doubt(day.trouble, random.Random(f"{seed}:doubt")))
    story = _Story(seed, day, workers, afterwards, trace, kinds, deploys=deploys)
    with _Stage(story, store) as stage:
        return story.play(stage)


class _Story:
    def __init__(
        self,
        seed: int,
        day: Day,
        workers: int,
        afterwards: float,
        trace: Callable[[str], None] | None,
        kinds: frozenset[Further],
        *,
        deploys: bool,
    ) -> None:
        self.seed = seed
        self.end = day.seconds + afterwards
        self.day = day
        self.world = world_with_pull()
        self.machine = Machine(self.world, seed=seed)
        self.machine.trace = trace
        self.machine.log_length = lambda: len(self.world.log)
        self.person = Person(day, self.machine, self.world)
        self.codes: dict[str, Code] = {}
        """What each process knows, by its name; none where all have the same."""
        self._deploys = deploys
        self._workers = workers
        self._models = 0
        self._commits: list[list[Commit]] = []
        self._violations: list[str] = []
        self._distance = Distance(seed)
        texts = [plan.text for plan in day.runs]
        self._retries = Retries(self.machine, seed, texts, self.person.run_ids, day.seconds)
        self._beside = Beside(kinds, self.machine, self.world, seed, day.seconds, self._retries, deliver)

    def model_dice(self) -> random.Random:
        """Chance of a new process's models."""
        self._models += 1
        return random.Random(f"{self.seed}:model:{self._models}")

    def cast(self, process: Process) -> Cast:
        """What a process that starts now knows."""
        day = self.day
        if not self._deploys:
            return Cast(lambda: agents_of(day, self.model_dice()), schedules=day.schedules, throttle=day.limits.tenant)
        code = self.codes[process.name] = self._code(process.name)
        process.say(f"has the code {code}")
        return Cast(
            lambda: agents_of_code(day, self.model_dice(), code),
            schedules=schedules_of_code(day, code),
            throttle=day.limits.tenant,
        )

    def _code(self, process_name: str) -> Code:
        """Another one for each; behind the day's end the workers share all that there ever was, but for the last."""
        program, _, count = process_name.partition(".")
        dice = random.Random(f"{self.seed}:code:{process_name}")
        if count and not ("worker" in program and self.machine.clock.elapsed >= self.day.seconds):
            return draw_code(self.day, dice)
        number = int(program.rpartition("-")[2]) if count else 1
        version = VERSIONS[(number - 1) % len(VERSIONS)]
        return smaller_code(self.day, version, dice) if number > self._workers else whole_code(self.day, version)

    def play(self, stage: Stage) -> Played:
        stage.on_open = self._opened
        self.machine.say(f"seed {self.seed}: {self.day}")
        programs: list[Supervisor] = []
        lived: list[Lived] = []
        try:
            programs = self._start(stage)
            self._run(next(program for program in programs if program.name == "person"))
            lived = self._read(stage)
        finally:
            self.machine.bury_all()
        self._violations += [f"{p.name} ended by {failure!r}" for p in programs for failure in p.failures]
        self._violations += judge(lived, self._outside())
        self._violations += self._retries.violations
        self._violations += judge_day(self.day, lived, self.person, moves=self._deploys)
        seen = _seen(lived, self.person)
        if self._deploys:
            deployed = Deployed(lived, self._outside(), self.codes)
            self._violations += judge_deploys(deployed)
            seen += seen_of_deploys(deployed)
        statuses = tuple(status for one in lived if (status := one.row.run.status.value) != "cancelled")
        hashed = event_hash(lived, self.world)
        return Played(self.seed, hashed, tuple(self._violations), statuses, seen)

    def _opened(self, sf: Surefoot, process: Process) -> None:
        if not self._beside.opened(sf, process):
            return
        self._distance.put(sf.store)
        self._commits.append(stamp_commits(sf.store, self.world.log))

    def _start(self, stage: Stage) -> list[Supervisor]:
        machine, trouble = self.machine, self.day.trouble
        workers = [
            Supervisor(machine, f"worker-{n + 1}", stage.worker(), restart_seconds=trouble.restart_seconds)
            for n in range(self._workers + self._deploys)
        ]
        person = Supervisor(machine, "person", stage.person(self.person.live), finite=True)
        havoc = Havoc(trouble, machine, self.world, workers, trouble_seconds=self.day.seconds)
        havoc.begin()
        machine.observe = self._killing(machine.observe, person, havoc)
        if self._deploys:
            self._plan_deploys(workers)
        further = self._beside.begin(stage)
        self.person.waits = lambda: self._beside.left
        return [*workers, person, *further]

    def _plan_deploys(self, workers: Sequence[Supervisor]) -> None:
        """Workers are told to stop now and then, and all of them at the day's end."""
        dice, seconds = random.Random(f"{self.seed}:deploys"), self.day.seconds

        def deploy(which: Sequence[Supervisor]) -> None:
            for worker in which:
                if worker.process.alive and not worker.process.frozen:
                    worker.process.say("is told to stop, for another code")
                    worker.process.terminate()

        for _ in range(dice.randint(3, 8) + int(seconds // 3_600)):
            some = [worker for worker in workers if dice.random() < DEPLOYED_SHARE]
            self.machine.after(dice.uniform(0.0, seconds), partial(deploy, some))
        self.machine.after(seconds, partial(deploy, workers))

    def _killing(self, observe: Observer, person: Supervisor, havoc: Havoc) -> Observer:
        """What befalls workers, and the person's process behind some of its own commits."""
        dice = random.Random(f"{self.seed}:person")

        def killing(process: Process, name: str, when: When) -> None:
            acts = process is person.process and name == "commit" and when == "after" and not havoc.over
            if acts and dice.random() < self.day.person_dies:
                process.say("is killed")
                process.kill_here()
            observe(process, name, when)

        return killing

    def _run(self, person: Supervisor) -> None:
        try:
            self.machine.run_until(lambda: person.finished, seconds=self.end)
        except Stalled as stalled:
            self._violations.append(f"I7: {stalled}")

    def _read(self, stage: Stage) -> list[Lived]:
        found: list[Lived] = []
        self._distance.over = True
        self._beside.unclear.stop()

        async def look(sf: Surefoot, process: Process) -> None:
            found.extend(await read(sf.store, sf.tenant))

        process = self.machine.start("judge", stage.person(look))
        self.machine.run_until(lambda: process.ended, seconds=10.0)
        if process.failure is not None:
            self._violations.append(f"the store cannot be read: {process.failure!r}")
        return found

    def _outside(self) -> Outside:
        return Outside(
            log=self.world.log,
            commits=[commit for commits in self._commits for commit in commits],
            sent=self.machine.sent,
            died=self.machine.died,
            went_on=self.machine.stopped,
            one_boot=not self.day.trouble.boots,
            over=self.machine.clock.elapsed,
            waited=self._beside.unclear.waited,
            reported=self._beside.reports.acknowledged,
            limits=self.day.limits,
            stops=self.machine.stops,
            doors_hold=not (self.day.trouble.commit_fails or self.day.trouble.door_fails),
        )


class _Stage(Stage):
    """A stage on which each process knows what the story gives it."""

    def __init__(self, story: _Story, store: str | None) -> None:
        super().__init__(Cast(list), store)
        self._story = story

    def surefoot(self, process: Process, *, worker: bool, log: Callable[[str], None] | None = None) -> Surefoot:
        """surefoot in `process`."""
        self.cast = self._story.cast(process)
        return super().surefoot(process, worker=worker, log=log)


def _seen(lived: Sequence[Lived], person: Person) -> Counter[str]:
    seen: Counter[str] = Counter(cancels=len(person.cancelled), refused_signals=person.refused)
    for one in lived:
        seen["runs"] += 1
        seen["children"] += one.row.run.parent_step_id is not None
        seen["ticks"] += one.row.created_by.startswith("schedule ")
        waited = {line.event.step_id for line in one.events if isinstance(line.event, ev.StepWaitingForApproval)}
        for line in one.events:
            if isinstance(line.event, ev.SignalTaken):
                seen["signals_waited_for" if line.event.step_id in waited else "signals_that_came_first"] += 1
        for row in one.steps:
            seen["sleeps"] += row.step.tool_name == "sleep" and row.step.attempt > 0
            seen["late_signals"] += row.step.rules.waits_for is WaitsFor.signal and row.step.error_code == "expired"
            seen["effects"] += row.step.external_resource_id is not None
    return seen


def main(arguments: Sequence[str] | None = None) -> int:
    """Play days from the command line; 0 if all hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.day.play", description="Play simulated days.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--runs", type=int, default=SMALL_RUNS)
    parser.add_argument("--seconds", type=float, default=SMALL_SECONDS)
    parser.add_argument("--deploys", action="store_true", help="each process has another code")
    parser.add_argument("--with", dest="further", help=f"some of {','.join(FURTHER)}, instead of what is drawn")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    options = parser.parse_args(arguments)
    failed, total = 0, Counter[str]()
    for seed in range(options.seed, options.seed + options.count):
        trace = print if options.trace else None
        size = {"runs": options.runs, "seconds": options.seconds}
        named = (options.further or "").split(",")
        further = None if options.further is None else [kind for kind in FURTHER if kind in named]
        played = play_day(seed, **size, trace=trace, deploys=options.deploys, further=further)
        total += played.seen
        total.update(played.statuses)
        failed += bool(played.violations)
        for violation in played.violations:
            print(f"seed {seed}: {violation}")
    print(f"{options.count} seeds, {failed} failed; {dict(total)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
