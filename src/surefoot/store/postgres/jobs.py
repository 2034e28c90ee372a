"""What is written on behalf of a run: appends and new runs, with their guards and what a lost guard means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from surefoot.core.ids import run_of_step
from surefoot.core.state import Instant, Run
from surefoot.errors import Conflict, SurefootError
from surefoot.store.packing import for_text
from surefoot.store.port import Append, Create
from surefoot.store.postgres.failures import Spoiled, invalid
from surefoot.store.postgres.link import Link
from surefoot.store.postgres.writer import Decision, Server
from surefoot.store.refusals import (
    check_conversation,
    check_parent,
    key_held,
    lost_guard,
    made_first,
    message_placed,
    run_exists,
)
from surefoot.store.rows import (
    Values,
    Written,
    append_rows,
    counters,
    create_rows,
    decided_on,
    run_values,
    state_values,
)

_SERVERS = Instant(0.0, 0.0)
"""Stands where the statement itself takes the server's time."""
_DROP, _PUT = "blob_drop_transient", "blob_put"


class AppendJob(Decision[None]):
    """One append. Its rows are made when it is queued, its guard is checked in the statement."""

    def __init__(self, append: Append, touched: Callable[[Run], None]) -> None:
        super().__init__()
        run = append.after
        self._append = append
        self._touched = touched
        written = append_rows(append, for_text)
        self.run_id = run.id
        self.keys = frozenset((run.id, run.conversation_id))
        self.rows = _parts(written)
        self.guarded = (
            *counters(append), *decided_on(append), *state_values(run), written.result, int(append.release),
            int(append.needs_lease), append.wall_before,
        )  # fmt: skip

    def value(self) -> None:
        """Whoever follows the run looks at it."""
        self._touched(self._append.after)

    async def lost(self, link: Link, server: Server) -> None:
        """A guard that did not hold says which part of it."""
        run = self._append.after
        found = await server.ask(link, "guard_facts", {"tenant_id": run.tenant_id, "run_id": run.id})
        mono = found[0]["mono"] if found else 0.0
        assert isinstance(mono, float), "as the query says"
        raise lost_guard(self._append, found[0] if found else None, mono)

    async def refused(self, link: Link, server: Server, error: Spoiled) -> SurefootError:
        """A unique key, a row that has to be changed and was not, or a value that the database cannot take."""
        return _refusal(error, self.rows)


class CreateJob(Decision[str]):
    """One new run; the result is the id of the run under the start key, which may be an older one."""

    creates = True

    def __init__(self, create: Create, owner: str | None) -> None:
        super().__init__()
        run = create.after
        self._create = create
        written = create_rows(create, for_text)
        self.run_id = run.id
        self.keys = frozenset((run.id, run.conversation_id))
        self.rows = _parts(written)
        born = run_values(create, owner, _SERVERS, written.result)
        self.guarded = (*born, int(create.new_conversation), create.parent_token)

    def value(self) -> str:
        """Nobody follows it yet."""
        return self._create.after.id

    async def lost(self, link: Link, server: Server) -> str:
        """Another run came first, or what it needs is not there."""
        create, run = self._create, self._create.after
        if create.start_key is not None:
            by_key = {"tenant_id": run.tenant_id, "start_key": create.start_key}
            rows = await server.ask(link, "run_by_start_key", by_key)
            first = made_first(create, rows[0] if rows else None)
            if first is not None:
                return first
        conversation = {"tenant_id": run.tenant_id, "conversation_id": run.conversation_id}
        facts = await server.ask(link, "conversation_facts", conversation)
        check_conversation(create, facts[0] if facts else None)
        if run.parent_step_id is not None:
            parent = {"tenant_id": run.tenant_id, "run_id": run_of_step(run.parent_step_id)}
            rows = await server.ask(link, "guard_facts", parent)
            check_parent(create, rows[0] if rows else None)
        raise run_exists(run.id)

    async def refused(self, link: Link, server: Server, error: Spoiled) -> SurefootError:
        """A unique key, or a value that the database cannot take."""
        return _refusal(error, self.rows)


def _parts(written: Written) -> Mapping[str, Sequence[Values]]:
    """The rows of a decision by part of the statement; what the guard writes itself is not among them."""
    parts: dict[str, Sequence[Values]] = dict(written.rows)
    if _DROP in parts:
        kept = " ".join(str(row[1]) for row in parts.get(_PUT, ()))
        parts[_DROP] = [(*row, kept) for row in parts[_DROP]]
    if written.keys:
        parts["operation_key_claim"] = written.keys
    if written.places:
        parts["message_place"] = written.places
    return parts


def _refusal(error: Spoiled, rows: Mapping[str, Sequence[Values]]) -> SurefootError:
    if error.unchanged:
        if "operation_key_claim" in rows and "message_place" not in rows:
            return key_held(rows["operation_key_claim"][0][1])
        if "operation_key_claim" not in rows and "message_place" in rows:
            return message_placed(rows["message_place"][0][6])
        return Conflict("a key is held or a message was placed already: reload and decide again")
    if error.unique:
        return Conflict(f"somebody wrote the same first ({error}): reload and decide again")
    return invalid(error)
