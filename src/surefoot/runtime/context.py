"""What every part of the runtime is handed: store, doors, tools, keyring and secrets of one process."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from surefoot.core import policy
from surefoot.core.marker import Keyring
from surefoot.core.redact import Redactor
from surefoot.core.state import Attempt, AttemptEnd, Rules, Run, Step
from surefoot.doors import Doors
from surefoot.effects import Operation, SecretSource, Signer
from surefoot.errors import NotAllowed
from surefoot.runtime.patience import Patience
from surefoot.runtime.registry import Registry
from surefoot.runtime.tracing import NoTracing, Tracing
from surefoot.store.port import Store

LOOK_TIMEOUT_SECONDS = 60.0
NO_TRACING = NoTracing()


def to_stderr(line: str) -> None:
    """The log of a program that has none of its own."""
    if sys.stderr is not None:  # else it would be printed on stdout
        print(line, file=sys.stderr)


StartChild = Callable[[Run, Step, Mapping[str, object], int | None], Awaitable[Run]]


async def no_child(run: Run, step: Step, arguments: Mapping[str, object], token: int | None) -> Run:
    """Here no agents are known."""
    raise NotAllowed("no agent works on calls here", code="unknown_agent")


async def undo_nothing(action_id: str) -> bool:
    """Here nothing is known that undoes effects: another process does it."""
    return False


class Context(msgspec.Struct, frozen=True):
    """One process's means. `log` takes a line for people; texts in it are redacted by the caller."""

    tenant_id: str
    store: Store
    doors: Doors
    registry: Registry
    signer: Signer
    keyring: Keyring
    secrets: SecretSource
    redactor: Redactor
    lease_s: float = policy.LEASE_SECONDS_DEFAULT
    log: Callable[[str], None] = print
    tracing: Tracing = NO_TRACING
    start_child: StartChild = no_child
    """Starts the run that works on a call, once, while the calling run's lease has that token; later it answers with
    the same run.
    """
    undo: Callable[[str], Awaitable[bool]] = undo_nothing
    """Begins what undoes the effects that this question is about, where somebody has decided so; each once. True where
    somebody has given up finding out whether they are undone.
    """
    patience: Patience = msgspec.field(default_factory=Patience)
    """How long this process has been asking for what it does not get."""

    @property
    def key_id(self) -> str:
        """The id of the key that signs markers."""
        return self.keyring.key_id

    def reading(self, run_id: str, tool_name: str) -> Operation:
        """An operation for looking only, of a call that is not written down yet."""
        now = self.doors.clock.now()
        end = now.mono + LOOK_TIMEOUT_SECONDS
        return Operation(
            key="",
            tool=tool_name,
            run_id=run_id,
            step_id="",
            call_id="",
            attempt=0,
            first_sent_at=None,
            search_from=now.wall,
            tenant_id=self.tenant_id,
            first_byte_before=end,
            last_byte_before=end,
            effect="read",
            looking=True,
            earlier_may_be_sent=False,
            door=self.doors.http,
            signer=self.signer,
            secrets=self.secrets,
        )

    def operation(self, run_id: str, step: Step, attempt: Attempt | None, rules: Rules | None = None) -> Operation:
        """The operation of a step as its tool sees it; without an attempt it is for looking only.

        `rules` are what holds for the step now, where something is to be sent.
        """
        first_sent_at: float | None = None
        earlier_may_be_sent = False
        for one in step.attempts:
            wall = one.started.wall
            first_sent_at = wall if first_sent_at is None else min(first_sent_at, wall)
            earlier = attempt is None or one.number < attempt.number
            if earlier and one.end not in (AttemptEnd.not_sent, AttemptEnd.refused):
                # One that was concluded absent counts too: it may have arrived since, and then a 409 is its echo.
                earlier_may_be_sent = True
        if attempt is None:
            first_byte = last_byte = self.doors.clock.now().mono + LOOK_TIMEOUT_SECONDS
        else:
            # What judges them at the socket is this process's clock, not the store's.
            first_byte = self.store.local(attempt.first_byte_before)
            last_byte = self.store.local(attempt.last_byte_before)
            timeout_s = (rules or step.rules).timeout_s
            if timeout_s < policy.ATTEMPT_SECONDS_MIN:
                last_byte = min(last_byte, self.doors.clock.now().mono + timeout_s)
        return Operation(
            key=step.operation_key,
            tool=step.tool_name or "",
            run_id=run_id,
            step_id=step.id,
            call_id=step.call_id or "",
            attempt=step.attempt if attempt is None else attempt.number,
            first_sent_at=first_sent_at,
            search_from=policy.search_from(first_sent_at, self.store.now()),
            tenant_id=self.tenant_id,
            first_byte_before=first_byte,
            last_byte_before=last_byte,
            effect=(rules or step.rules).effect.value,
            looking=attempt is None,
            earlier_may_be_sent=earlier_may_be_sent,
            door=self.doors.http,
            signer=self.signer,
            secrets=self.secrets,
        )
