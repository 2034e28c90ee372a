"""Where a command finds its runs and questions: the store itself, or a server. Both give the same documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from surefoot.snapshot import ActionView, MessageView, RunEvent, RunSnapshot, RunSummary, StepView, at_rest
from surefoot.store.listed import Listed
from surefoot.waiters import blocked_text


class Cancelled(msgspec.Struct, frozen=True):
    """The acknowledgement of a cancel: nothing more is sent; these calls may have been."""

    run_id: str
    status: str
    may_have_been_sent: list[StepView]


class Decide(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person's decision about one action."""

    decision: str
    reason: str | None = None
    external_resource_id: str | None = None
    url: str | None = None
    value: object = None
    input_hash: str | None = None


Listener = Callable[[Sequence[RunEvent], Mapping[str, str | None]], None]
"""Told of new events of a run, with the tool of each of its steps."""


class Blocked:
    """Tells once, for each reason, why a run that is followed stands still."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._code: str | None = None

    def see(self, run: RunSnapshot) -> None:
        """The run as it is now."""
        code = None if at_rest(run) else run.error_code
        if code not in (None, self._code):
            self._tell(f"{run.id}  {blocked_text(code)}. This goes on watching")
        self._code = code


class Desk(Protocol):
    """What commands do to runs and questions. Errors are those of `Surefoot`, and StoreUnavailable out of reach."""

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
        ...

    async def runs(self, status: str | None, agent: str | None, before: str | None, limit: int) -> Listed[RunSummary]:
        """Runs, newest first."""
        ...

    async def run(self, run_id: str) -> RunSnapshot:
        """One run."""
        ...

    async def messages(self, run_id: str) -> list[MessageView]:
        """Its conversation."""
        ...

    async def follow(self, run_id: str, after: int, tell: Listener, blocked: Blocked) -> RunSnapshot:
        """Tell its events until it ends or a person is asked, and where it stands still; the snapshot then."""
        ...

    async def message(self, run_id: str, text: str, key: str | None) -> RunSnapshot:
        """A message of the user; the same one under the same key is one."""
        ...

    async def signal(self, run_id: str, name: str, value: object, key: str | None) -> bool:
        """A signal; whether it was new."""
        ...

    async def retry(self, run_id: str) -> RunSnapshot:
        """Take it up in a new run."""
        ...

    async def cancel(self, run_id: str) -> Cancelled:
        """Stop it."""
        ...

    async def actions(self, status: str | None, run_id: str | None) -> Listed[ActionView]:
        """Questions, oldest first."""
        ...

    async def action(self, action_id: str) -> ActionView:
        """One question."""
        ...

    async def decide(self, action_id: str, decision: Decide, key: str | None) -> ActionView:
        """Decide about it."""
        ...
