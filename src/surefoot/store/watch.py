"""Waiting for commits: this process's own at once, those of others by polling."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from surefoot.core.state import Run
from surefoot.doors import Clock
from surefoot.errors import StoreError

POLL_SECONDS = 0.05
"""Others are noticed within 100 ms: one pause, one look."""
Waiters = dict[asyncio.Future[None], None]


class Follower:
    """Knows whether one run may have changed since it was last asked."""

    def __init__(self, watch: Watch, run_id: str, when: Callable[[Run], bool] | None, seen: bool) -> None:
        self._watch = watch
        self._run_id = run_id
        self._when = when
        self._changed = not seen
        self._run: Run | None = None
        self._waiter: asyncio.Future[None] | None = None

    def note(self, run: Run | None = None) -> None:
        """The run may have changed; `run` is what this process has committed."""
        if run is not None and self._when is not None and not self._when(run):
            return
        self._changed = True
        self._run = run
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def changed(self, timeout_s: float) -> Run | None:
        """Wait until the run may have changed since the last call, or the time is over.

        The run as this process committed it, or None where it has to be read.
        """
        if not self._changed and timeout_s > 0:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(timeout_s, self.note)
            self._watch.poll()
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        run, self._run, self._changed = self._run, None, False
        return run

    def close(self) -> None:
        """Nobody follows any more."""
        self._watch.unfollow(self._run_id, self)


class Watch:
    """Two counters that grow with commits: `count` with all, `foreign` with those of others.

    `look` says whether another connection has committed since it was last asked.
    """

    def __init__(self, clock: Clock, look: Callable[[], bool]) -> None:
        self.count = 0
        self.foreign = 0
        self._clock = clock
        self._look = look
        # Dictionaries keep the order of arrival: who waits longest is told first, and stories can be repeated.
        self._waiters: Waiters = {}
        self._foreign_waiters: Waiters = {}
        self._followers: dict[str, dict[Follower, None]] = {}
        self._poller: asyncio.Task[None] | None = None

    def follow(self, run_id: str, when: Callable[[Run], bool] | None, seen: bool) -> Follower:
        """Know when a run may have changed."""
        follower = Follower(self, run_id, when, seen)
        self._followers.setdefault(run_id, {})[follower] = None
        return follower

    def unfollow(self, run_id: str, follower: Follower) -> None:
        """The end of `follow`."""
        followers = self._followers.get(run_id, {})
        followers.pop(follower, None)
        if not followers:
            self._followers.pop(run_id, None)

    def touched(self, run: Run) -> None:
        """This process has committed a decision about a run."""
        for follower in self._followers.get(run.id, ()):
            follower.note(run)

    def poll(self) -> None:
        """Look for commits of others as long as somebody waits."""
        if self._poller is None or self._poller.done():
            self._poller = asyncio.get_running_loop().create_task(self._poll())

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for others, or follows a run."""
        return bool(self._waiters or self._foreign_waiters or self._followers)

    def bump(self) -> None:
        """This process has committed."""
        self.count += 1
        _wake(self._waiters)

    def bump_foreign(self, run_ids: Sequence[str] | None = None) -> None:
        """Something of another process was noticed: commits to these runs, or to any."""
        self.foreign += 1
        _wake(self._foreign_waiters)
        if run_ids is None:
            self._note_all()
        else:
            for run_id in run_ids:
                for follower in self._followers.get(run_id, ()):
                    follower.note()
        self.bump()

    def _note_all(self) -> None:
        for followers in self._followers.values():
            for follower in followers:
                follower.note()

    async def changed(self, since: int, timeout_s: float) -> int:
        """Wait until `count` is above `since` or the time is over."""
        self._look_now()
        if self.count <= since:
            await self._wait(self._waiters, timeout_s)
        return self.count

    async def foreign_changed(self, since: int, timeout_s: float) -> int:
        """Wait until `foreign` is above `since` or the time is over."""
        self._look_now()
        if self.foreign <= since:
            await self._wait(self._foreign_waiters, timeout_s)
        return self.foreign

    async def _wait(self, waiters: Waiters, timeout_s: float) -> None:
        if timeout_s <= 0:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        waiters[waiter] = None
        self.poll()
        timer = loop.create_task(self._sleep(timeout_s))
        try:
            await asyncio.wait({waiter, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiters.pop(waiter, None)
            timer.cancel()

    def stop(self) -> None:
        """Nobody waits any longer."""
        if self._poller is not None:
            self._poller.cancel()
        _wake(self._waiters | self._foreign_waiters)
        self._note_all()

    async def _poll(self) -> None:
        while self.wanted:
            try:
                await self._clock.sleep(POLL_SECONDS)
            except Exception:
                # A fault of the clock door: whoever waits comes round again.
                _wake(self._waiters | self._foreign_waiters)
                return
            self._look_now()

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(Exception):
            await self._clock.sleep(seconds)

    def _look_now(self) -> None:
        # What is wrong with the store is told by the next read or append, not by a wait.
        with contextlib.suppress(StoreError):
            if self._look():
                self.bump_foreign()


def _wake(waiters: Waiters) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
