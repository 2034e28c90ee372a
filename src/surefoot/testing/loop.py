"""An event loop of one simulated process: it never waits, it is stepped, and its time is a ManualClock's."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context as Variables
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, Unpack

from surefoot.testing.clock import ManualClock

if TYPE_CHECKING:
    # Everything that has to do with sockets, signals and programs stays what the base makes of it: not implemented. A
    # type checker would call such a class abstract.
    from asyncio import SelectorEventLoop as _Base
else:
    from asyncio import AbstractEventLoop as _Base

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
THREAD_WAIT_SECONDS = 0.005


class VirtualLoop(_Base):
    """asyncio's loop without a selector. Whoever owns it calls `step` while something is ready, then moves the clock.

    `asyncio.sleep`, `asyncio.timeout` and `call_later` of the code under test take no time of the wall. Functions in an
    executor run at once, in place. A loop that is not stepped any more is a process that was stopped or killed.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.errors: list[BaseException] = []
        """What callbacks raised: nobody else would hear of it."""
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._tie = 0
        self._closed = False
        self._running = False
        self._from_threads: deque[asyncio.Handle] = deque()
        self._told = threading.Event()

    # Stepping

    @property
    def is_ready(self) -> bool:
        """Whether something can run now."""
        if self._from_threads:
            self._take_from_threads()
        return bool(self._ready) or self._timer_due()

    @property
    def ready_count(self) -> int:
        """How many callbacks can run now."""
        return len(self._ready)

    def next_timer(self) -> float | None:
        """When the next timer is due, on `time()`; None if there is none."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def step(self, count: int = 1) -> None:
        """Run up to `count` callbacks that are ready."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while count > 0:
                if self._timers:
                    self._take_due()
                if not self._ready:
                    break
                handle = self._ready.popleft()
                if not handle.cancelled():
                    count -= 1
                    handle._run()
        finally:
            self._running = False
            asyncio._set_running_loop(outer)

    def wait_for_threads(self) -> bool:
        """Give threads of calls a few real milliseconds; False where none is alive, so that time may jump."""
        if not any(thread.name == "surefoot-call" for thread in threading.enumerate()):
            return False
        self._told.wait(THREAD_WAIT_SECONDS)
        self._told.clear()
        return True

    def _timer_due(self) -> bool:
        at = self.next_timer()
        return at is not None and at <= self.clock.elapsed

    def _take_due(self) -> None:
        now = self.clock.elapsed
        while self._timers and self._timers[0][0] <= now:
            self._ready.append(heapq.heappop(self._timers)[2])

    def _take_from_threads(self) -> None:
        while self._from_threads:
            self._ready.append(self._from_threads.popleft())

    # What asyncio asks of a loop

    def time(self) -> float:
        """Seconds since the clock was made."""
        return self.clock.elapsed

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Variables | None = None
    ) -> asyncio.Handle:
        """Run `callback` at the next step."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Variables | None = None
    ) -> asyncio.Handle:
        """The same from a thread. Raises RuntimeError on a closed loop."""
        if self._closed:
            raise RuntimeError("the loop is closed")
        handle = asyncio.Handle(callback, args, self, context)
        self._from_threads.append(handle)
        self._told.set()
        return handle

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Variables | None = None
    ) -> asyncio.TimerHandle:
        """Run `callback` after `delay` seconds."""
        return self.call_at(self.clock.elapsed + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Variables | None = None
    ) -> asyncio.TimerHandle:
        """Run `callback` at `when`."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._tie += 1
        heapq.heappush(self._timers, (when, self._tie, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio tells of a cancelled timer; it is dropped when its turn comes."""

    def create_future(self) -> asyncio.Future[object]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[asyncio.Future[object] | None, None, T] | Coroutine[object, object, T],
        *,
        name: object = None,
        context: Variables | None = None,
    ) -> asyncio.Task[T]:
        """A task of this loop."""
        return asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)

    def run_in_executor(self, executor: object, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        """Call `func` in place: a thread would make the order of things a matter of chance."""
        future: asyncio.Future[T] = asyncio.Future(loop=self)
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """Keep what a callback raised; tasks whose errors nobody asked for are not news here."""
        error = context.get("exception")
        if isinstance(error, BaseException) and "handle" in context:
            self.errors.append(error)

    def get_debug(self) -> bool:
        """Never: asyncio's checks measure real time."""
        return False

    def is_running(self) -> bool:
        """True inside `step`."""
        return self._running

    def is_closed(self) -> bool:
        """True after `close`."""
        return self._closed

    def close(self) -> None:
        """Forget everything that would still run."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()
