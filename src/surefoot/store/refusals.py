"""Why a write was refused, from what the database says of the rows that its guard looked at: for every store."""

from __future__ import annotations

from collections.abc import Mapping

from surefoot.core.ids import run_of_step
from surefoot.core.state import TERMINAL
from surefoot.errors import Conflict, KeyHeld, KeyReused, LeaseLost, NotAllowed, NotFound, RunEnded, SurefootError
from surefoot.store.port import Append, Create

Row = Mapping[str, object]


def lost_guard(append: Append, facts: Row | None, mono: float) -> SurefootError:
    """Which part of an append's guard did not hold. A lost lease comes first: deciding again would not help.

    `facts` are the run's version, status, lease_token and lease_until, `mono` the store's clock when they were read.
    """
    run = append.after
    if facts is None:
        return NotFound(f"no run {run.id}")
    if append.token is not None and facts["lease_token"] != append.token:
        return LeaseLost(f"{run.id}: another worker has the lease; keep what happened as evidence")
    if append.needs_lease and not _later(facts["lease_until"], mono):
        return LeaseLost(f"{run.id}: the lease is over; keep what happened as evidence")
    if facts["version"] != append.before.version:
        return Conflict(
            f"{run.id} is at version {facts['version']}, not {append.before.version}: reload and decide again"
        )
    if append.needs_lease and facts["status"] in TERMINAL:
        return RunEnded(f"{run.id} is {facts['status']}: nothing more is sent for it")
    if append.wall_before is None:
        # What was in the way has gone since: another look at the run settles it.
        return Conflict(f"{run.id} has changed meanwhile: reload and decide again")
    return NotAllowed(f"{run.id}: the approval has expired: ask again", code="approval_expired")


def made_first(create: Create, row: Row | None) -> str | None:
    """The run that was made first under the start key. Raises KeyReused where another request made it."""
    if row is None:
        return None
    if row["start_hash"] != create.start_hash:
        raise KeyReused(
            f"start key {create.start_key!r} was used for another request, which made {row['id']}: use a new key",
            details={"run_id": row["id"]},
        )
    return str(row["id"])


def check_conversation(create: Create, facts: Row | None) -> None:
    """Raises Conflict, NotFound or NotAllowed(code="conversation_busy") where a new run cannot be in its conversation.

    `facts` name the run under way in it, if there is one.
    """
    conversation_id = create.after.conversation_id
    if create.new_conversation:
        if facts is not None:
            raise Conflict(f"conversation {conversation_id} exists already: mint another id")
    elif facts is None:
        raise NotFound(f"no conversation {conversation_id}")
    elif facts["run_id"] is not None:
        raise NotAllowed(
            f"conversation {conversation_id} has {facts['run_id']} under way: send it a message, or wait",
            code="conversation_busy",
            details={"run_id": facts["run_id"]},
        )


def check_parent(create: Create, facts: Row | None) -> None:
    """Raises RunEnded or LeaseLost where nothing begins to work for that run any more, or not at this worker's word.

    `facts` are those of the run that it is to work for, as `lost_guard` has them.
    """
    parent = run_of_step(create.after.parent_step_id or "")
    if facts is None or facts["status"] in TERMINAL:
        raise RunEnded(f"{parent} has ended: nothing is started for it any more")
    if create.parent_token is not None and create.parent_token != facts["lease_token"]:
        raise LeaseLost(f"{parent}: another worker has the lease, and starts what is to work for it")


def run_exists(run_id: str) -> Conflict:
    """The id was minted twice."""
    return Conflict(f"run {run_id} exists already: mint another id")


def key_held(operation_key: object) -> KeyHeld:
    """A business key is another step's."""
    return KeyHeld(f"another step holds the key {operation_key!r}: reload and answer from it")


def message_placed(message_id: object) -> Conflict:
    """A message that was to be placed does not wait."""
    return Conflict(f"message {message_id} does not wait in this conversation: reload and decide again")


def _later(end: object, now: float) -> bool:
    return isinstance(end, float) and end > now
