"""A simulated machine: processes on loops of their own, one clock, a target outside, and what befalls them.

Everything runs in one thread and in virtual time. The machine chooses who goes next (by chance from a seed, or in
turn), and moves the clock when nobody can. A killed process is simply not stepped any more, as after SIGKILL: none of
its `finally` blocks runs while the story goes on. A stopped one is stepped again later, when the clock has moved.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Literal, Protocol

from surefoot.core.state import Instant
from surefoot.doors import Doors
from surefoot.testing.clock import ManualClock
from surefoot.testing.loop import VirtualLoop
from surefoot.testing.virtual import Network, Sent, VirtualHttp
from surefoot.testing.wire import Outcome, Reply, WireRequest

When = Literal["before", "after"]
POLL_SECONDS = 0.05
IDLE_SECONDS = 1.0
QUIET_SECONDS = 2.0
QUIET_SHARE = 0.25
QUIET_SLEEP_SECONDS_MAX = 3_600.0
STEPS_AT_ONE_TIME_MAX = 20_000
TURNS_MAX = 1_000_000
BURST_MAX = 6
LAST_STEPS_MAX = 200


class Killed(BaseException):
    """This process is dead. No `except Exception` holds it back."""


class Exited(Exception):
    """Raise in a process's main to end it as a program that crashed by itself."""


class Stalled(AssertionError):
    """Nothing will ever happen again, or too much happens without any time passing."""


class Target(Protocol):
    """What stands outside: a `World`, or a double of one's own. Times are seconds since 1970."""

    def handle(self, request: WireRequest, now: float) -> Outcome | Reply:
        """A request arrived at `now`. A Reply goes back at once; an Outcome may be late, cut off, or never come."""
        ...

    def due(self, now: float) -> None:
        """Let everything happen that was to happen until `now`."""
        ...

    def next_due(self) -> float | None:
        """When something happens next by itself."""
        ...


Main = Callable[["Process"], Coroutine[object, object, None]]
Observer = Callable[["Process", str, When], None]


def unobserved(process: Process, name: str, when: When) -> None:
    """Nothing befalls anybody."""


class Process:
    """One process: its loop, its doors, and whether it lives. `main` is what it does."""

    def __init__(self, machine: Machine, name: str, main: Main) -> None:
        self.machine = machine
        self.name = name
        self.loop = VirtualLoop(machine.clock)
        self.doors = Doors(
            clock=_ProcessClock(self),
            entropy=_SeededEntropy(random.Random(f"{machine.seed}:{name}")),
            http=VirtualHttp(self),
            hook=self._passage,
        )
        self.dead = False
        self.ended = False
        """`main` has returned, or raised `failure`."""
        self.failure: BaseException | None = None
        self.on_death: list[Callable[[], None]] = []
        """What the operating system does when the process is gone: closes files, frees locks."""
        self.on_end: list[Callable[[], None]] = []
        """Who has to know that it does nothing more."""
        self._leaves_lock = True
        self.terminate: Callable[[], object] = self.kill
        """SIGTERM: what the program does when it is asked to stop."""
        self.frozen_until: float | None = None
        """`clock.elapsed` at which it goes on; infinite for one that never does."""
        self._task = self.loop.create_task(main(self))
        self._task.add_done_callback(self._main_ended)

    @property
    def alive(self) -> bool:
        """Neither killed nor ended."""
        return not (self.dead or self.ended)

    @property
    def frozen(self) -> bool:
        """Stopped just now."""
        return self.frozen_until is not None and self.frozen_until > self.machine.clock.elapsed

    def freeze(self, seconds: float = float("inf")) -> None:
        """Stop it, as SIGSTOP does: nothing of it runs for `seconds`, its lock stays held, its bytes stay sent."""
        self.frozen_until = self.machine.clock.elapsed + seconds
        self.machine.stops.append((self.name, self.machine.clock.elapsed))
        self.machine.stopped[self.name] = self.frozen_until

    def thaw(self) -> None:
        """Let it go on."""
        if self.frozen:
            self.machine.stopped[self.name] = self.machine.clock.elapsed
        self.frozen_until = None

    def kill(self, *, proven: bool = True) -> None:
        """SIGKILL: from here on no door of it opens, and nothing of it is cleaned up.

        Its lock is free, so that its death is proven; else something of it still holds the lock, and only the end of
        its leases lets others take over.
        """
        self.dead = True
        self._leaves_lock = proven

    def kill_here(self, *, proven: bool = True) -> None:
        """The same from inside one of its own passages, which does not return."""
        self.kill(proven=proven)
        raise Killed(self.name)

    def release(self) -> None:
        """What the operating system does, once."""
        actions, self.on_death = self.on_death, []
        for action in actions:
            action()

    def say(self, text: str) -> None:
        """A line of the trace."""
        self.machine.say(f"{self.name}: {text}")

    def check_alive(self) -> None:
        """Raise Killed in what still runs of a dead process."""
        if self.dead:
            raise Killed(self.name)

    def _passage(self, name: str, when: When) -> None:
        self.check_alive()
        if name == "commit" and when == "after":
            self.machine.stir()
        self.machine.observe(self, name, when)

    def _main_ended(self, task: asyncio.Task[None]) -> None:
        self.ended = True
        if not task.cancelled():
            self.failure = task.exception()


class Machine:
    """Runs processes until a condition holds. One seed gives one story.

    `in_turn` steps processes one after another instead of by chance, for stories that have to be the same again after a
    change of something else.
    """

    def __init__(
        self,
        target: Target,
        *,
        seed: int | str = 0,
        clock: ManualClock | None = None,
        network: Network | None = None,
        in_turn: bool = False,
    ) -> None:
        self.target = target
        self.seed = seed
        self.clock = clock if clock is not None else ManualClock()
        self.dice = random.Random(f"{seed}:machine")
        self.network = network if network is not None else Network()
        self.processes: list[Process] = []
        self.observe: Observer = unobserved
        self.trace: Callable[[str], None] | None = None
        self.died: dict[str, float] = {}
        """When processes ended before the story did, by name."""
        self.stopped: dict[str, float] = {}
        """When processes that were stopped went on for the last time, by name."""
        self.stops: list[tuple[str, float]] = []
        """Each stop of a process: its name, and when."""
        self.log_length: Callable[[], int] = lambda: 0
        """How many entries the target's log has."""
        self.sent: list[Sent] = []
        """Every request that left a process, in order."""
        self.under_way = 0
        """Requests that have left and have not arrived."""
        self.closing = False
        """The story is over: nothing is started any more."""
        self._in_turn = in_turn
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._tie = 0
        self._stirred = 0.0
        self._parked: list[tuple[asyncio.Future[None], VirtualLoop, float]] = []
        self._buried: list[Process] = []

    # Processes

    def start(self, name: str, main: Main) -> Process:
        """A new process; it first runs at the machine's next turn."""
        process = Process(self, name, main)
        self.processes.append(process)
        self.stir()
        return process

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something in `seconds`, whoever lives then."""
        self._tie += 1
        heapq.heappush(self._later, (self.clock.elapsed + seconds, self._tie, action))

    def say(self, text: str) -> None:
        """A line of the trace."""
        if self.trace is not None:
            self.trace(f"{self.clock.elapsed:12.3f}  {text}")

    # Running

    def run_until(
        self, done: Callable[[], bool], *, seconds: float = 10 * 86_400.0, turns_max: int = TURNS_MAX
    ) -> None:
        """Step and move the clock until `done()`.

        Raises Stalled after `seconds` of virtual time, after `turns_max` turns of processes, or where nothing can move.
        """
        end = self.clock.elapsed + seconds
        steps, turns, threads = 0, 0, threading.active_count()
        while not done():
            ready = [p for p in self.processes if p.loop.is_ready and not p.frozen]
            if ready:
                steps, turns = steps + 1, turns + 1
                if steps > STEPS_AT_ONE_TIME_MAX:
                    raise Stalled(f"{steps} steps without any time passing; one of {[p.name for p in ready]} spins")
                if turns > turns_max:
                    raise Stalled(f"it is not over after {turns} turns, at {self.clock.elapsed:.0f} s of virtual time")
                self._step(ready)
                continue
            # A store on PostgreSQL has a thread of its own, which is there also while no process lives.
            more = threading.active_count() > threads
            if more and self.processes and self.processes[0].loop.wait_for_threads():
                continue
            steps = 0
            self._jump(end)

    def _step(self, ready: list[Process]) -> None:
        process = ready[0] if len(ready) == 1 else self._choose(ready)
        process.loop.step(1 if self._in_turn else 1 + int(self.dice.random() * BURST_MAX))
        if process.dead or process.ended:
            self._bury(process)

    def _choose(self, ready: list[Process]) -> Process:
        return ready[0] if self._in_turn else ready[int(self.dice.random() * len(ready))]

    def _jump(self, end: float) -> None:
        """Nothing can run now: go to the next time at which something happens."""
        now = self.clock.elapsed
        at = min(self._times(), default=None)
        if at is None:
            raise Stalled("nothing will ever happen again")
        if at > end:
            raise Stalled(f"it was not over in time: {self.clock.elapsed:.0f} s of virtual time have passed")
        self.clock.advance(max(at - now, 0.0))
        self.target.due(self.clock.true_wall)
        while self._later and self._later[0][0] <= self.clock.elapsed:
            heapq.heappop(self._later)[2]()
        for process in [p for p in self.processes if p.dead]:
            self._bury(process)

    def _times(self) -> list[float]:
        times = []
        for process in self.processes:
            if process.frozen:
                times.append(process.frozen_until or 0.0)
            elif (timer := process.loop.next_timer()) is not None:
                times.append(timer)
        if self._later:
            times.append(self._later[0][0])
        due = self.target.next_due()
        if due is not None:
            times.append(self.clock.elapsed + max(due - self.clock.true_wall, 0.0))
        return [at for at in times if at != float("inf")]

    # Idle time

    @property
    def quiet_seconds(self) -> float:
        """Since when nothing was written, sent or started."""
        return self.clock.elapsed - self._stirred

    def stir(self) -> None:
        """Something happened: who was sleeping longer than it asked for wakes as if it had asked now."""
        self._stirred = self.clock.elapsed
        parked, self._parked = self._parked, []
        for future, loop, seconds in parked:
            if not future.done():
                loop.call_later(seconds, _wake, future)

    def park(self, future: asyncio.Future[None], loop: VirtualLoop, seconds: float) -> None:
        """`future` sleeps longer than `seconds` while nothing happens."""
        self._parked.append((future, loop, seconds))

    # Ends

    def bury_all(self) -> None:
        """End everything quietly: no door opens any more, and the remains of all tasks are cleared away."""
        self.closing = True
        for process in list(self.processes):
            process.dead = True
            self._bury(process)
        for process in self._buried:
            process.release()
            _clear_away(process)
        self._buried.clear()

    def _bury(self, process: Process) -> None:
        if process in self.processes:
            if not self.closing:
                self.died[process.name] = self.clock.elapsed
            self.processes.remove(process)
            self._buried.append(process)
        if process.ended and not process.dead:
            # A program that ends takes with it what it left running.
            process.dead = True
        if process._leaves_lock:
            process.release()
        ends, process.on_end = process.on_end, []
        for action in ends:
            action()


class _ProcessClock:
    """The clock door of one process.

    Processes that only poll would make whole days of waiting cost as much as they do in life. So while nothing happens
    anywhere (no commit, no request, no start) a pause lasts at least a quarter of the quiet time so far; it ends in its
    own time from the next thing that happens. That is a slow process, which is legal.
    """

    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self) -> Instant:
        return self._process.machine.clock.now()

    def boot_id(self) -> str:
        return self._process.machine.clock.boot_id()

    async def sleep(self, seconds: float) -> None:
        process, machine = self._process, self._process.machine
        process.check_alive()
        longer = max(seconds, IDLE_SECONDS if seconds <= POLL_SECONDS else 0.0)
        if machine.quiet_seconds > QUIET_SECONDS:
            longer = max(longer, min(machine.quiet_seconds * QUIET_SHARE, QUIET_SLEEP_SECONDS_MAX))
        if longer <= seconds:
            await asyncio.sleep(seconds)
            return
        future: asyncio.Future[None] = asyncio.Future(loop=process.loop)
        timer = process.loop.call_later(longer, _wake, future)
        machine.park(future, process.loop, max(seconds, 0.0))
        try:
            await future
        finally:
            timer.cancel()


class _SeededEntropy:
    """The door of randomness of one process."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def token(self, count: int) -> bytes:
        return self._dice.randbytes(count)

    def fraction(self) -> float:
        return self._dice.random()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _clear_away(process: Process) -> None:
    """Cancel what is left and let it end: every door of the process is shut."""
    # What was to begin begins first, and ends at its first door: Python complains of coroutines that never began.
    process.loop.step(process.loop.ready_count)
    for _ in range(10):
        tasks = [task for task in asyncio.all_tasks(process.loop) if not task.done()]
        if not tasks:
            break
        for task in tasks:
            task.cancel()
        process.loop.step(LAST_STEPS_MAX)
    process.loop.close()
