"""Load, decide, append: the only caller of `Store.append`. One handle is one run as somebody believes it to be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TypeVar

from surefoot.core.decide import take_notes
from surefoot.core.draft import Draft
from surefoot.core.events import MessageQueued
from surefoot.core.evolve import forget_closed
from surefoot.core.state import Rules, Run, wake_times
from surefoot.errors import (
    AlreadyDecided,
    CommitUnknown,
    Conflict,
    KeyHeld,
    NotAllowed,
    RunEnded,
    StoreError,
    StoreUnavailable,
    SurefootError,
)
from surefoot.store.port import Append, Store

T = TypeVar("T")
HANDOVERS_MAX = 10
"""Of notes to one run that somebody else writes to."""
CONFLICTS_MAX = 1_000
"""Re-decisions of one command; more means a bug, not contention."""


class Handle:
    """A run under decision. With a token it writes as the lease's owner, without one as anybody.

    `run` is the run after the last append that this handle made or saw. Commands of one handle are decided one after
    another.
    """

    def __init__(self, store: Store, run: Run, rules: Mapping[str, Rules], token: int | None = None) -> None:
        self.store = store
        self.run = run
        self.token = token
        self.released = False
        """The lease was given back with an append."""
        self.on_append: Callable[[Append], None] | None = None
        """Called with each append that was committed, before anything follows from it; must not raise."""
        self.cut_off = False
        """The wait for an append was cancelled, or in vain: it may be written all the same, and `run` not show it."""
        self.alone: Callable[[], bool] = bool
        """Whether no other run is driven in this process."""
        self._rules = rules
        self._lock = asyncio.Lock()
        self._keep: str | None = None
        self._appends = 0

    async def reload(self, step_id: str | None = None) -> Run:
        """Read the run again; `step_id` names a closed step that the next command needs.

        It waits for a decision that is being written: read between its commit and the answer to it, the run would show
        intents of ours as nobody's, and they would be begun a second time.
        """
        async with self._lock:
            return await self._read(step_id)

    @property
    def quiet(self) -> bool:
        """Whether the run, as it was read or written last, has ended and leaves no worker anything to do."""
        return self.run.ended and wake_times(self.run) == (None, None)

    async def see_cut_off(self) -> None:
        """Read the run behind the append that was `cut_off`. Raises StoreError: it may still be on its way."""
        async with self._lock:
            await self.store.fence(self.run.tenant_id, self.run.id)
            await self._read(self._keep)
            self.cut_off = False

    async def _read(self, step_id: str | None) -> Run:
        self._keep = step_id
        self.run = await self.store.load(self.run.tenant_id, self.run.id, step_id)
        return self.run

    async def decide(
        self, command: Callable[[Draft], T], *, release: Callable[[Run], bool] | None = None, step_id: str | None = None
    ) -> T:
        """Run `command` on a Draft and append what it decided; on a version conflict reload and decide again, and
        so where an approval has ended on the way.

        `command` may be called several times and must have no effect of its own. `release` says of the run after the
        append whether the lease ends with it. A command that emits nothing writes nothing. Cancelling the wait does not
        undo a commit that is under way.

        Raises what the command raises, KeyHeld (the same command would meet it again), LeaseLost, StoreUnavailable
        (nothing was written) and CommitUnknown (still not known after reading back: nothing may be sent on it).
        """
        async with self._lock:
            if step_id is not None and step_id not in self.run.steps:
                await self._read(step_id)
            for _ in range(CONFLICTS_MAX):
                draft = Draft(self.run, self.store.now(), rules=self._rules, token=self.token)
                result = command(draft)
                if not draft.events:
                    return result
                try:
                    await self._append(draft, release)
                except Conflict as conflict:
                    await self._read(step_id or self._keep)
                    if isinstance(conflict, KeyHeld):
                        raise
                except NotAllowed as late:
                    if late.code != "approval_expired":
                        raise
                    # It ended while this was on its way: what else was decided is decided again without it.
                    await self._read(step_id or self._keep)
                except (asyncio.CancelledError, CommitUnknown):
                    self.cut_off = True
                    raise
                else:
                    if draft.before.ended:
                        await self._hand_over(draft)
                    return result
            raise Conflict(f"run {self.run.id}: {CONFLICTS_MAX} conflicts in a row; look at what keeps writing to it")

    async def _hand_over(self, draft: Draft) -> None:
        """A note of a run that has ended is for the run that is under way in its conversation by now. Where that cannot
        be done at once, it waits for the next one.
        """
        if not any(isinstance(event, MessageQueued) for event in draft.events):
            return
        run, store = self.run, self.store
        with contextlib.suppress(SurefootError):
            _, under_way = await store.conversation(run.tenant_id, run.conversation_id)
            for _ in range(HANDOVERS_MAX if under_way is not None else 0):
                # The run before its notes: one that gets its place behind this is a conflict, and not queued again.
                other = Draft(await store.load(run.tenant_id, under_way or ""), store.now())
                queued = await store.queued(run.tenant_id, run.conversation_id)
                take_notes(other, [row.id for row in queued if row.role == "note"])
                if not other.events:
                    return
                with contextlib.suppress(Conflict):
                    after = other.finish()
                    events, payloads = tuple(other.events), tuple(other.payloads)
                    return await store.append(Append(other.before, after, events, other.at, payloads))

    async def tell(self, command: Callable[[Draft], T], *, step_id: str | None = None) -> T:
        """`decide` for somebody outside, who relies on the answer: what it says is there to stay.

        An answer that comes from what was read, since it was decided before, is given after `Store.confirm`.
        """
        appends = self._appends
        try:
            result = await self.decide(command, step_id=step_id)
        except (AlreadyDecided, RunEnded):
            if not await self.store.confirm():
                raise
        else:
            if self._appends > appends or not await self.store.confirm():
                return result
        await self.reload(step_id)
        return await self.decide(command, step_id=step_id)

    async def _append(self, draft: Draft, release: Callable[[Run], bool] | None) -> None:
        after = draft.finish()
        append = Append(
            before=draft.before,
            after=after,
            events=tuple(draft.events),
            at=draft.at,
            payloads=tuple(draft.payloads),
            token=self.token,
            needs_lease=draft.needs_lease,
            wall_before=draft.wall_before,
            release=release(after) if release is not None else False,
            alone=self.alone(),
        )
        try:
            await self.store.append(append)
        except CommitUnknown as unknown:
            if not await self._was_committed(append, unknown):
                raise StoreUnavailable(f"run {after.id}: the commit did not happen") from None
            if append.needs_lease:
                # Committed, but not acknowledged in time: an intent without an acknowledged commit sends nothing.
                self._committed(append)
                raise
        self._committed(append)
        self.released = self.released or append.release

    def _committed(self, append: Append) -> None:
        self._appends += 1
        self.run = forget_closed(append.after)
        if self.on_append is not None:
            self.on_append(append)

    async def _was_committed(self, append: Append, unknown: CommitUnknown) -> bool:
        """Read back after a commit whose reply was lost. Raises `unknown` where that cannot be done now.

        A commit of its own comes first, behind what may still be on its way to the run. And what is read may stand on a
        primary alone whose wait for its standby was given up, and be gone when that one takes over. Once a later commit
        is acknowledged, the standby has both.
        """
        run = append.after
        try:
            await self.store.fence(run.tenant_id, run.id)
            lines = await self.store.events(run.tenant_id, run.id, append.before.event_sequence, len(append.events))
        except StoreError:
            raise unknown from None
        return tuple(line.event for line in lines) == append.events
