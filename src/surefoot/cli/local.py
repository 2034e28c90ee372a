"""The store itself as the desk of a command."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType

import msgspec

from surefoot.agent.agent import Agent
from surefoot.app import Surefoot
from surefoot.cli.desk import Blocked, Cancelled, Decide, Desk, Listener
from surefoot.cli.output import Output
from surefoot.cli.session import entered, opened, person, place
from surefoot.cli.settings import Settings
from surefoot.cli.userfile import UserCode
from surefoot.errors import Unreadable
from surefoot.snapshot import (
    ActionView,
    MessageView,
    RunSnapshot,
    RunSummary,
    action_view,
    at_rest,
    message_view,
    public_event,
    read_calls,
)
from surefoot.store.listed import Listed
from surefoot.views import EVENTS_PAGE

LOOK_AGAIN_SECONDS = 5.0
"""Who follows a run looks at it again after this: that no worker takes it is written nowhere."""


def desk(
    found: argparse.Namespace, settings: Settings, out: Output, code: UserCode | None = None, *, worker: bool = False
) -> AbstractAsyncContextManager[Desk]:
    """Where this command finds its runs. With `worker` and the store, they are worked on here meanwhile."""
    if settings.url is not None:
        from surefoot.cli.remote import Remote

        out.looked_in = f"at {settings.url}: check the id and --url"
        return Remote(settings.url, settings.token, out.language, out.note)
    agents: tuple[Agent, ...] = () if code is None else (code.agent,)
    sf = opened(settings, out, agents, () if code is None else code.tools, worker=worker)
    reads = f"{found.command}" in READS
    return Local(sf, out.language, found, (settings, out) if reads else None)


READS = ("runs list", "runs show", "actions list", "actions show")
"""Commands that write nothing."""


class Local:
    """The store itself."""

    def __init__(
        self,
        sf: Surefoot,
        language: str,
        found: argparse.Namespace,
        reads: tuple[Settings, Output] | None = None,
    ) -> None:
        self._reads = reads
        self._sf = sf
        self._language = language
        self._found = found

    async def __aenter__(self) -> Local:
        """Open the store. Raises StoreError."""
        if self._reads is None:
            await self._sf.__aenter__()
        else:
            self._sf = await entered(self._sf, *self._reads)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self._sf.close()

    @property
    def _by(self) -> str:
        return person(self._found)

    async def start(
        self,
        agent: str,
        text: str,
        *,
        key: str | None,
        conversation: str | None,
        metadata: Mapping[str, object] | None,
        priority: int = 0,
    ) -> RunSnapshot:
        """Start a run."""
        return await self._sf.start(
            agent,
            text,
            key=key,
            conversation_id=conversation,
            metadata=metadata,
            priority=priority,
            by=self._by,
        )

    async def runs(self, status: str | None, agent: str | None, before: str | None, limit: int) -> Listed[RunSummary]:
        """Runs, newest first."""
        return await self._sf.runs(status=status, agent=agent, before=before, limit=limit, language=self._language)

    async def run(self, run_id: str) -> RunSnapshot:
        """One run."""
        return await self._sf.snapshot(run_id, self._language)

    async def messages(self, run_id: str) -> list[MessageView]:
        """Its conversation."""
        return [message_view(row) for row in await self._sf.messages(run_id)]

    async def follow(self, run_id: str, after: int, tell: Listener, blocked: Blocked) -> RunSnapshot:
        """Tell its events until it ends or a person is asked, and where it stands still; the snapshot then."""
        sf = self._sf
        while True:
            seen = sf.store.change_count()
            run = await self.run(run_id)
            while page := await sf.store.events(sf.tenant, run_id, after, EVENTS_PAGE):
                after = page[-1].sequence
                steps = await sf.store.steps(sf.tenant, run_id)
                tell([public_event(line) for line in page], {row.step.id: row.step.tool_name for row in steps})
            if at_rest(run) and run.last_event_sequence <= after:
                return await self.run(run_id)
            blocked.see(run)
            await sf.store.changed(seen, LOOK_AGAIN_SECONDS)

    async def message(self, run_id: str, text: str, key: str | None) -> RunSnapshot:
        """A message of the user."""
        await self._sf.message(run_id, text, key=key, by=self._by)
        return await self.run(run_id)

    async def signal(self, run_id: str, name: str, value: object, key: str | None) -> bool:
        """A signal; whether it was new."""
        return await self._sf.signal(run_id, name, value, key=key, by=self._by)

    async def retry(self, run_id: str) -> RunSnapshot:
        """Take it up in a new run."""
        return await self.run((await self._sf.retry(run_id, by=self._by)).id)

    async def cancel(self, run_id: str) -> Cancelled:
        """Stop it."""
        sent = await self._sf.cancel(run_id, by=self._by)
        run = await self.run(run_id)
        return Cancelled(run.id, run.status, await read_calls(self._sf.context, sent, self._language))

    async def actions(self, status: str | None, run_id: str | None) -> Listed[ActionView]:
        """Questions, oldest first."""
        if run_id is not None:
            with contextlib.suppress(Unreadable):
                await self._sf.store.run(self._sf.tenant, run_id)  # an unknown run is refused, not empty
        rows = await self._sf.actions(status=status, run_id=run_id)
        return rows.shown(lambda row: action_view(row, self._language), lambda row: (row.action.id, row.run_id))

    async def action(self, action_id: str) -> ActionView:
        """One question."""
        return action_view(await self._sf.store.action(self._sf.tenant, action_id), self._language)

    async def decide(self, action_id: str, decision: Decide, key: str | None) -> ActionView:
        """Decide about it."""
        named = msgspec.structs.asdict(decision)
        row = await self._sf.decide(action_id, **named, by=self._by, key=key, source=place())
        return action_view(row, self._language)
