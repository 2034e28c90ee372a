"""A store whose commits are late or unclear: an answer comes late or never, and what was asked for is there or is not.

What was asked for may arrive when whoever asked has given it up, is stopped or is dead: the server goes on with a
statement whose connection broke, and a network may hold one back for longer. So an append that nobody waits for is
carried by a program of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Literal, ParamSpec, TypeVar

import msgspec

from surefoot.app import Surefoot
from surefoot.core.ids import RunId
from surefoot.errors import CommitUnknown, StoreUnavailable, SurefootError
from surefoot.store.port import Append, Store
from surefoot.testing.far import ASKS
from surefoot.testing.machine import Machine, Process
from surefoot.testing.stage import Stage, Supervisor

P = ParamSpec("P")
T = TypeVar("T")
Ending = Literal["late", "late_answer", "lost", "answer_lost", "on_its_way"]

CARRIER = "carrier"
WRITES = frozenset({
    "append", "create", "claim", "claim_one", "renew", "release", "block", "unblock", "see_schedule", "register_worker",
    "mark", "unmark", "share", "check_writable",
})  # fmt: skip
_JUDGED = frozenset({"confirm", "fence"})
"""These say what became of something: they have their own ways to fail."""
READ_SHARE = 0.3
"""Of the share of commits: so often a read is late or gets no answer."""
FENCE_SECONDS_MAX = 10.0
"""So long somebody waits for the lock of a row."""
ENDINGS: tuple[Ending, ...] = ("late", "late_answer", "lost", "answer_lost", "on_its_way", "on_its_way")


class _Pending(msgspec.Struct, eq=False):
    """An append that its writer has given up, and that is written when it is `due`, if its guards hold then."""

    append: Append
    due: float
    holds_lock: bool
    """The server has it, and whoever asks for the run's row waits behind it; else it is still in the network."""


class UnclearStores:
    """The stores of one story, while `clock.elapsed` is below `until`."""

    def __init__(self, machine: Machine, seed: int, until: float) -> None:
        self.waited: dict[str, list[tuple[float, float]]] = {}
        """When a process waited for longer than its store needed, by its name: from, until."""
        self._machine = machine
        self._seed = seed
        self._until = until
        self._share = random.Random(f"{seed}:unclear").uniform(0.03, 0.12)
        self._stores = 0
        self._pending: list[_Pending] = []
        self._told = asyncio.Event()
        self._stopped = False

    def begin(self, stage: Stage) -> Supervisor:
        """Start the program that carries what is on its way."""
        return Supervisor(self._machine, CARRIER, stage.person(self._carry))

    def stop(self) -> None:
        """The story is over: who judges it gets its answers."""
        self._stopped = True

    @property
    def on_its_way(self) -> bool:
        """Whether something will still arrive."""
        return bool(self._pending)

    def put(self, store: Store, process: Process) -> None:
        """From now on what this process asks of its store may be late, unclear or lost."""
        if process.name.startswith(CARRIER):
            return
        self._stores += 1
        _Line(self, store, process, random.Random(f"{self._seed}:unclear:{self._stores}")).lay()

    async def _carry(self, sf: Surefoot, process: Process) -> None:
        # With the machine everything has gone down that was under way to it.
        self._pending.clear()
        self._told = asyncio.Event()
        while True:
            due = min((one.due for one in self._pending), default=None)
            left = None if due is None else due - self._machine.clock.elapsed
            if left is None or left > 0:
                try:
                    async with asyncio.timeout(left):
                        await self._told.wait()
                except TimeoutError:
                    pass
                self._told.clear()
                continue
            await self._arrive(sf, next(one for one in self._pending if one.due == due), process)

    async def _arrive(self, sf: Surefoot, one: _Pending, process: Process) -> None:
        kinds = ", ".join(type(event).__name__ for event in one.append.events)
        try:
            await sf.store.append(one.append)
            process.say(f"{one.append.after.id}: {kinds} arrives after all")
        except (SurefootError, OSError) as refusal:
            process.say(f"{one.append.after.id}: {kinds} arrives too late ({refusal!r})")
        finally:
            if one in self._pending:
                self._pending.remove(one)

    # What a process's line to its store asks

    def now(self) -> float:
        """`clock.elapsed`."""
        return self._machine.clock.elapsed

    def befalls(self, dice: random.Random, factor: float) -> bool:
        """Whether something befalls the next question."""
        return dice.random() < self._share * factor and self.now() < self._until and not self._stopped

    def send(self, append: Append, seconds: float, *, holds_lock: bool) -> None:
        """Let an append arrive in so many seconds."""
        self._pending.append(_Pending(append, self.now() + seconds, holds_lock))
        self._told.set()

    def locked(self, run_id: RunId) -> bool:
        """Whether the server works on an append to the run."""
        return any(one.holds_lock and one.append.after.id == run_id for one in self._pending)


class _Line:
    """What stands between one process and its store."""

    def __init__(self, stores: UnclearStores, store: Store, process: Process, dice: random.Random) -> None:
        self._stores = stores
        self._store = store
        self._process = process
        self._dice = dice
        self._left: list[asyncio.Future[None]] = []
        """What nobody waits for."""

    def lay(self) -> None:
        """The store is an instance of the caller's: only this one object is changed."""
        store, changed = self._store, vars(self._store)
        near = {name: getattr(store, name) for name in ASKS}
        for name in ASKS:
            if name in WRITES:
                changed[name] = self._written(name, near[name])
            elif name not in _JUDGED:
                changed[name] = self._read(name, near[name])
        changed["confirm"] = self._confirm(near["check_writable"])
        changed["fence"] = self._fence(near["fence"])

    def _seconds(self) -> float:
        """How long somebody waits for an answer: mostly not for long, and at most until the line counts as broken."""
        chance, dice = self._dice.random(), self._dice
        return dice.uniform(0.2, 3.0) if chance < 0.5 else dice.uniform(3.0, 20.0 if chance < 0.85 else 45.0)

    async def _wait(self, seconds: float) -> None:
        began = self._stores.now()
        self._stores.waited.setdefault(self._process.name, []).append((began, began + seconds))
        await asyncio.sleep(seconds)

    def _written(self, name: str, ask: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        async def written(*args: P.args, **kwargs: P.kwargs) -> T:
            if not self._stores.befalls(self._dice, 1.0):
                return await ask(*args, **kwargs)
            ending, seconds = self._dice.choice(ENDINGS), self._seconds()
            self._process.say(f"{name} is {ending} for {seconds:.1f} s")
            if ending == "on_its_way":
                first = args[0] if args else None
                # Two arguments of one question are no reason for two dice: a story is drawn in one order.
                later, holds_lock = self._dice.uniform(0.0, 20.0), self._dice.random() < 0.7
                if isinstance(first, Append):
                    self._stores.send(first, seconds + later, holds_lock=holds_lock)
                else:
                    self._left.append(_task(self._after(seconds + later, lambda: ask(*args, **kwargs))))
                ending = "lost"
            # Whoever stops waiting does not call back what is on its way.
            return await asyncio.shield(_task(self._ended(name, ending, seconds, lambda: ask(*args, **kwargs))))

        return written

    async def _ended(self, name: str, ending: Ending, seconds: float, ask: Callable[[], Awaitable[T]]) -> T:
        if ending == "late":
            await self._wait(seconds)
            return await ask()
        if ending == "late_answer":
            try:
                return await ask()
            finally:
                await self._wait(seconds)
        if ending == "answer_lost":
            with contextlib.suppress(SurefootError):
                await ask()
        await self._wait(seconds)
        raise CommitUnknown(f"simulated: no answer to {name}. Whether it was written is not known")

    async def _after(self, seconds: float, ask: Callable[[], Awaitable[object]]) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(SurefootError):
            await ask()

    def _read(self, name: str, ask: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        async def read(*args: P.args, **kwargs: P.kwargs) -> T:
            if not self._stores.befalls(self._dice, READ_SHARE):
                return await ask(*args, **kwargs)
            seconds, answered = self._seconds(), self._dice.random() < 0.6
            self._process.say(f"{name} is {'late' if answered else 'not answered'} for {seconds:.1f} s")
            await self._wait(seconds)
            if not answered:
                raise StoreUnavailable(f"simulated: no answer to {name}. Nothing was written")
            return await ask(*args, **kwargs)

        return read

    def _confirm(self, commit: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[bool]]:
        async def confirm() -> bool:
            await self._judge("confirm")
            await commit()
            return True

        return confirm

    def _fence(self, ask: Callable[[str, str], Awaitable[None]]) -> Callable[[str, str], Awaitable[None]]:
        async def fence(tenant_id: str, run_id: str) -> None:
            await self._judge("fence")
            end = self._stores.now() + FENCE_SECONDS_MAX
            while self._stores.locked(RunId(run_id)):
                if self._stores.now() >= end:
                    raise StoreUnavailable("simulated: somebody holds the lock of the run's row. Nothing was written")
                await self._wait(0.5)
            await ask(tenant_id, run_id)

        return fence

    async def _judge(self, name: str) -> None:
        if self._stores.befalls(self._dice, 3.0):
            seconds, answered = self._seconds(), self._dice.random() < 0.6
            self._process.say(f"{name} is {'late' if answered else 'not answered'} for {seconds:.1f} s")
            await self._wait(seconds)
            if not answered:
                raise StoreUnavailable(f"simulated: no answer to {name}. Nothing was written")


def _task(work: Awaitable[T]) -> asyncio.Future[T]:
    return asyncio.ensure_future(work)
