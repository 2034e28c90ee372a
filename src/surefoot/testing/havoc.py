"""What befalls a simulated story, drawn from its seed: faults of the target, the network, the disk and the machine."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import msgspec

from surefoot.testing import faults as f
from surefoot.testing.machine import Machine, Process, When
from surefoot.testing.stage import Supervisor
from surefoot.testing.story import NUMBER, REPO
from surefoot.testing.virtual import RandomNetwork, Trip
from surefoot.testing.wire import Applied, LogEntry, WireRequest
from surefoot.testing.world import BOT, World

TROUBLE_SECONDS = 150.0
"""Afterwards nothing new befalls anybody, and what is broken is mended."""
_ISSUE = f"/repos/{REPO}/issues/{NUMBER}"
_COMMENTS = f"{_ISSUE}/comments"
WRITES = (_COMMENTS, _COMMENTS, _COMMENTS, "/billing/charges", "/mail/messages")
_READS = (_COMMENTS, _COMMENTS, _ISSUE, f"/repos/{REPO}", "/user", f"/repos/{REPO}/pulls/{NUMBER}")
HookFaults = frozenset({"http.connect", "http.send", "http.reply", "model", "tool", "lookup"})


class Plan(msgspec.Struct, frozen=True):
    """What befalls a story; times in seconds from its start. Plain data, to be printed with a failing seed."""

    rules: tuple[f.Rule, ...] = ()
    kills: tuple[tuple[int, bool], ...] = ()
    """At which passages of workers one dies, and whether its death is proven."""
    kill_times: tuple[float, ...] = ()
    stops: tuple[tuple[float, float], ...] = ()
    """When a worker is stopped, and for how long."""
    stops_at: tuple[tuple[int, float], ...] = ()
    """At which passages of workers one is stopped, and for how long: mostly past its lease."""
    stops_before_write: tuple[tuple[int, float], ...] = ()
    """At which write a worker is stopped between its last check and the write, and for how long."""
    long_trips: tuple[tuple[int, float], ...] = ()
    """Which write is late in the network, and how long."""
    terminations: tuple[float, ...] = ()
    boots: tuple[float, ...] = ()
    wall_jumps: tuple[tuple[float, float], ...] = ()
    commit_fails: float = 0.0
    """Share of commits that are refused, and as many whose answer is lost."""
    door_fails: float = 0.0
    connects_lost: float = 0.0
    model_fails: float = 0.0
    copycat: bool = False
    """A stranger copies every comment of ours, marker included, as soon as it stands there."""
    restart_seconds: float = 1.0


def draw(dice: random.Random) -> Plan:
    """A plan: of each kind of trouble mostly none, sometimes one, rarely more."""

    def some(chance: float, most: int) -> range:
        return range(dice.randint(1, most) if dice.random() < chance else 0)

    def at() -> float:
        return round(dice.uniform(0.0, 12.0) if dice.random() < 0.7 else dice.uniform(0.0, TROUBLE_SECONDS), 3)

    return Plan(
        rules=(*(_rule(dice) for _ in some(0.75, 4)), *(_lost_from_sight(dice) if dice.random() < 0.15 else ())),
        kills=tuple(sorted((dice.randint(5, 160), dice.random() < 0.8) for _ in some(0.6, 3))),
        kill_times=tuple(at() for _ in some(0.2, 2)),
        stops=tuple((at(), round(dice.uniform(0.5, 90.0), 3)) for _ in some(0.3, 2)),
        stops_at=tuple((dice.randint(5, 120), _stop_seconds(dice)) for _ in some(0.35, 2)),
        stops_before_write=tuple((dice.randint(1, 4), round(dice.uniform(1.0, 120.0), 3)) for _ in some(0.1, 1)),
        long_trips=tuple((dice.randint(1, 5), round(dice.uniform(1.0, 200.0), 3)) for _ in some(0.15, 2)),
        terminations=tuple(at() for _ in some(0.15, 1)),
        boots=tuple(at() for _ in some(0.05, 1)),
        wall_jumps=tuple((at(), round(dice.uniform(-4_000.0, 4_000.0), 3)) for _ in some(0.15, 2)),
        commit_fails=0.02 if dice.random() < 0.3 else 0.0,
        door_fails=0.01 if dice.random() < 0.2 else 0.0,
        connects_lost=dice.uniform(0.0, 0.2) if dice.random() < 0.2 else 0.0,
        model_fails=0.2 if dice.random() < 0.3 else 0.0,
        copycat=dice.random() < 0.15,
        restart_seconds=round(dice.uniform(0.1, 20.0), 3),
    )


def _stop_seconds(dice: random.Random) -> float:
    """Long enough for others to act meanwhile; or past the lease."""
    return round(dice.uniform(2.5, 9.0) if dice.random() < 0.4 else dice.uniform(20.0, 100.0), 3)


def _lost_from_sight(dice: random.Random) -> tuple[f.Rule, ...]:
    """The answer to a comment is lost, and for a while nobody can look for it."""
    lost = f.Rule(f.LostReply(dice.choice(("reset", "fin", "hang"))), "POST", _COMMENTS, nth=dice.randint(1, 2))
    seconds = round(dice.uniform(20.0, 140.0), 3)
    status = dice.choice((403, 404, 500, 503))
    return lost, f.Rule(f.StatusBefore(status), "GET", dice.choice(_READS[:4]), times=None, lasting=seconds)


def _rule(dice: random.Random) -> f.Rule:
    writes = dice.random() < 0.65
    fault = _write_fault(dice) if writes else _read_fault(dice)
    # Whoever writes at every look would keep a listing growing faster than it is read.
    lasts = dice.random() < 0.25 and not isinstance(fault, f.Change)
    return f.Rule(
        fault,
        method="POST" if writes else "GET",
        path=dice.choice(WRITES if writes else _READS),
        nth=dice.randint(1, 3),
        times=None if lasts else dice.randint(1, 2),
        lasting=round(dice.uniform(5.0, 100.0), 3) if lasts else None,
    )


def _write_fault(dice: random.Random) -> f.AnyFault:
    drop: f.Drop = dice.choice(("reset", "fin", "hang"))
    status = dice.choice((500, 502, 503))
    made: tuple[Callable[[], f.AnyFault], ...] = (
        lambda: f.LostRequest(drop),
        lambda: f.LostReply(drop),
        lambda: f.StatusBefore(status),
        lambda: f.StatusAfter(status),
        lambda: f.StatusBefore(429, {"retry-after": str(dice.randint(1, 40))}),
        lambda: f.StatusBefore(403, {"retry-after": str(dice.randint(1, 40))}),
        lambda: f.Hang(dice.choice((None, 5.0, 40.0)), applied=dice.random() < 0.5),
        lambda: f.ResetMidBody(dice.randint(0, 40), dice.choice(("reset", "fin"))),
        lambda: f.Delay(round(dice.uniform(0.1, 30.0), 3)),
        lambda: f.Late(round(dice.uniform(0.1, 50.0), 3), dice.choice(("reset", "fin", "hang", 504))),
        lambda: f.Late(round(dice.uniform(50.0, 150.0), 3), dice.choice(("reset", "hang", 504))),
        lambda: f.BadJson(),
        lambda: f.EmptyBody(),
    )
    return dice.choice(made)()


def _read_fault(dice: random.Random) -> f.AnyFault:
    made: tuple[Callable[[], f.AnyFault], ...] = (
        lambda: f.LostReply(dice.choice(("reset", "fin", "hang"))),
        lambda: f.StatusBefore(dice.choice((500, 502, 503))),
        lambda: f.StatusBefore(403),
        lambda: f.StatusBefore(404),
        lambda: f.StatusBefore(429, {"retry-after": str(dice.randint(1, 40))}),
        lambda: f.Hang(dice.choice((None, 5.0))),
        lambda: f.ResetMidBody(dice.randint(0, 40)),
        lambda: f.Delay(round(dice.uniform(0.1, 30.0), 3)),
        lambda: f.BadJson(),
        lambda: f.EmptyBody(),
        lambda: f.StaleListing(round(dice.uniform(0.1, 30.0), 3)),
        lambda: f.StaleCount(round(dice.uniform(0.1, 30.0), 3)),
        lambda: f.OrderChanged(dice.randint(1, 60)),
        lambda: f.OrderChanged(newest_first=True),
        lambda: f.Change("add_comments", {"repo": REPO, "number": NUMBER, "count": dice.randint(1, 120)}),
    )
    return dice.choice(made)()


class Havoc:
    """Carries a plan out on a machine, for `trouble_seconds` from the start."""

    def __init__(
        self,
        plan: Plan,
        machine: Machine,
        world: World,
        workers: list[Supervisor],
        *,
        trouble_seconds: float = TROUBLE_SECONDS,
    ) -> None:
        self._trouble_seconds = trouble_seconds
        self._plan = plan
        self._machine = machine
        self._world = world
        self._workers = workers
        self._dice = random.Random(f"{machine.seed}:havoc")
        self._kills = list(plan.kills)
        self._stops = sorted(plan.stops_at)
        self._passages = 0
        self.over = False

    def begin(self) -> None:
        """Arm everything."""
        plan, machine = self._plan, self._machine
        for rule in plan.rules:
            self._world.faults.add(rule)
        for at in plan.kill_times:
            machine.after(at, self._kill_one)
        for at, seconds in plan.stops:
            machine.after(at, partial(self._stop_one, seconds))
        for at in plan.terminations:
            machine.after(at, self._terminate_one)
        for at in plan.boots:
            machine.after(at, self._reboot)
        for at, seconds in plan.wall_jumps:
            machine.after(at, partial(self._jump, seconds))
        if plan.copycat:
            self._world.on_log = self._copy
        machine.after(self._trouble_seconds, self.end)
        machine.observe = self._observe
        machine.network = _PlannedNetwork(plan, self._dice)

    def end(self) -> None:
        """Nothing more befalls anybody."""
        self.over = True
        self._world.faults.clear()
        self._machine.network = RandomNetwork(self._dice)
        for process in self._machine.processes:
            process.thaw()
        self._machine.say("--- the trouble is over")

    def _observe(self, process: Process, name: str, when: When) -> None:
        if self.over:
            return
        if "worker" in process.name and name in HookFaults | {"commit"}:
            self._passages += 1
            if self._stops and self._passages >= self._stops[0][0]:
                process.say(f"is stopped at {name} {when} for {self._stops[0][1]} s")
                process.freeze(self._stops.pop(0)[1])
            if self._kills and self._passages >= self._kills[0][0]:
                _, proven = self._kills.pop(0)
                process.say(f"is killed at {name} {when}{'' if proven else ', which nobody can prove'}")
                process.kill_here(proven=proven)
        share = self._plan.commit_fails if name == "commit" else self._plan.door_fails
        if share and name in HookFaults | {"commit"} and self._dice.random() < share:
            process.say(f"a fault at {name} {when}")
            raise OSError(f"simulated fault at {name} {when}")

    def _copy(self, entry: LogEntry) -> None:
        if isinstance(entry, Applied) and entry.kind == "comment" and entry.account == BOT.login:
            self._machine.after(0.0, lambda: (self._world.add_comment(REPO, NUMBER, entry.text), None)[1])

    def _living(self) -> Process | None:
        alive = [s.process for s in self._workers if s.process.alive and not s.process.frozen]
        return self._dice.choice(alive) if alive else None

    def _kill_one(self) -> None:
        process = self._living()
        if process is not None:
            process.say("is killed")
            process.kill()

    def _stop_one(self, seconds: float) -> None:
        process = self._living()
        if process is not None:
            process.say(f"is stopped for {seconds} s")
            process.freeze(seconds)

    def _terminate_one(self) -> None:
        process = self._living()
        if process is not None:
            process.say("is told to stop")
            process.terminate()

    def _reboot(self) -> None:
        self._machine.say("--- the machine is started again")
        for process in self._machine.processes:
            process.kill()
        self._machine.clock.reboot()

    def _jump(self, seconds: float) -> None:
        self._machine.say(f"--- the wall clock jumps by {seconds} s")
        self._machine.clock.jump_wall(seconds)


class _PlannedNetwork(RandomNetwork):
    def __init__(self, plan: Plan, dice: random.Random) -> None:
        super().__init__(dice, lost=plan.connects_lost)
        self._stops = dict(plan.stops_before_write)
        self._late = dict(plan.long_trips)
        self._writes = 0

    def trip(self, request: WireRequest, process_name: str) -> Trip:
        trip = super().trip(request, process_name)
        if request.method == "GET":
            return trip
        self._writes += 1
        late = self._late.get(self._writes, 0.0)
        return msgspec.structs.replace(trip, stopped=self._stops.get(self._writes, 0.0), there=trip.there + late)
