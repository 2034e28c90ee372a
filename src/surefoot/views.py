"""What can be read of runs: the methods of `Surefoot` that show them, list them and tell their events."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from surefoot.core.state import RunStatus
from surefoot.errors import InvalidInput
from surefoot.runtime.context import Context
from surefoot.runtime.given import check_after, check_status
from surefoot.snapshot import RunEvent, RunSnapshot, RunSummary, public_event, read_snapshot, run_summary
from surefoot.store.listed import Listed
from surefoot.store.port import MessageRow
from surefoot.waiters import LOOK_AGAIN_SECONDS

EVENTS_PAGE = 500
RUNS_PAGE = 50
RUNS_PAGE_MAX = 1_000_000
UNREADABLE_MAX = 1_000
"""So many runs that cannot be read are passed over for one page: a page costs what it costs in a store of any size."""
RUN_ID = re.compile(r"run_[0-9a-z]{26}")


class Views(ABC):
    """A mixin: each method is a read of what is committed, and changes nothing."""

    @property
    @abstractmethod
    def context(self) -> Context:
        """The runtime's means; raises InvalidInput outside `async with`."""

    async def snapshot(self, run_id: str, language: str = "en") -> RunSnapshot:
        """The run as clients see it. Raises NotFound."""
        return await read_snapshot(self.context, run_id, language)

    async def runs(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        before: str | None = None,
        limit: int = RUNS_PAGE,
        language: str = "en",
    ) -> Listed[RunSummary]:
        """Up to `limit` runs (at most 1,000,000), newest first; the next page is `before` the id of the last one.

        `status` is one of a run, such as "waiting_for_user", and `agent` the name of one. Raises InvalidInput. What
        cannot be read is none of them, and stands in `unreadable` of the list; a page ends at 1,000 of these, and
        `behind` of the list is then what the next one is before.
        """
        check_status(status, RunStatus)
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= RUNS_PAGE_MAX:
            raise InvalidInput(f"limit is a whole number from 1 to {RUNS_PAGE_MAX}")
        if before is not None and (not isinstance(before, str) or RUN_ID.fullmatch(before) is None):
            raise InvalidInput("before is the id of the last run of the page before; leave it out to begin")
        found: Listed[RunSummary] = Listed()
        store, tenant_id, left = self.context.store, self.context.tenant_id, limit
        while left > 0 and len(found.unreadable) < UNREADABLE_MAX:
            page = await store.runs(tenant_id, status=status, agent=agent, before=before, limit=left)
            found.go_on(page.shown(lambda row: run_summary(row, language), lambda row: (row.run.id, row.run.id)))
            left, before = limit - len(found), found.behind
            if before is None:
                break
        return found

    async def events(self, run_id: str, after: int = 0) -> AsyncIterator[RunEvent]:
        """The run's events with a sequence above `after`, in order, each once; ends behind the terminal event.

        What is settled after the end can be read by asking again.
        """
        check_after(after)
        store, tenant_id = self.context.store, self.context.tenant_id
        with contextlib.closing(store.follow(run_id)) as following:
            while True:
                await following.changed(LOOK_AGAIN_SECONDS)
                page = await store.events(tenant_id, run_id, after, EVENTS_PAGE)
                while page:
                    for line in page:
                        after = line.sequence
                        yield public_event(line)
                    page = await store.events(tenant_id, run_id, after, EVENTS_PAGE)
                row = await store.run(tenant_id, run_id)
                if row.run.ended and row.run.event_sequence <= after:
                    return

    async def messages(self, run_id: str) -> list[MessageRow]:
        """The conversation of the run, in order."""
        store, tenant_id = self.context.store, self.context.tenant_id
        row = await store.run(tenant_id, run_id)
        return await store.messages(tenant_id, row.run.conversation_id)
