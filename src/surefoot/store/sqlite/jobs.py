"""What is written on behalf of a run: appends and new runs, with their guards and what a lost guard means."""

from __future__ import annotations

from collections.abc import Callable

from surefoot.core.ids import run_of_step
from surefoot.core.state import Run
from surefoot.store.packing import for_blob
from surefoot.store.port import Append, Create
from surefoot.store.refusals import (
    check_conversation,
    check_parent,
    key_held,
    lost_guard,
    made_first,
    message_placed,
)
from surefoot.store.rows import (
    Written,
    append_rows,
    changed_state,
    counters,
    create_rows,
    guard_values,
    run_values,
)
from surefoot.store.sqlite.file import SqliteFile
from surefoot.store.sqlite.writer import Job, Transaction, Undo


class AppendJob(Job[None]):
    """One append. Its rows are made when it is queued, its guard is checked in the transaction."""

    def __init__(self, append: Append, touched: Callable[[Run], None]) -> None:
        super().__init__()
        self.run_id = append.after.id
        self._touched = touched
        self._append = append
        self._written = append_rows(append, for_blob)

    def write(self, tx: Transaction) -> None:
        """Guard first; a guard that does not hold says which part of it."""
        append, now = self._append, tx.clock.now()
        state = changed_state(append, self._written.result)
        query = "append_guard_state" if state else "append_guard"
        if tx.file.run(query, (*counters(append), *state, *guard_values(append, now))) != 1:
            run = append.after
            facts = tx.file.one("guard_facts", {"tenant_id": run.tenant_id, "run_id": run.id})
            raise lost_guard(append, facts, now.mono)
        _write_guarded(tx, self._written)

    def committed(self) -> None:
        """Whoever follows the run looks at it."""
        self._touched(self._append.after)


class CreateJob(Job[str]):
    """One new run; the result is the id of the run under the start key, which may be an older one."""

    def __init__(self, create: Create, owner: str | None, record_owner: Callable[[Transaction], None]) -> None:
        super().__init__()
        self.run_id = create.after.id
        self._create = create
        self._owner = owner
        self._record_owner = record_owner
        self._written = create_rows(create, for_blob)

    def write(self, tx: Transaction) -> str:
        """Look first: this transaction is the only writer, so what is looked at stays.

        That ids are new is left to the unique keys, which replay the batch one by one where they are not.
        """
        create = self._create
        made_first = self._made_first(tx.file)
        if made_first is not None:
            return made_first
        if not create.new_conversation:
            self._check_conversation(tx.file)
        self._check_parent(tx.file)
        now = tx.clock.now()
        tx.file.run("run_insert", run_values(create, self._owner, now, self._written.result))
        if self._owner is not None:
            self._record_owner(tx)
        _write_guarded(tx, self._written)
        return create.after.id

    def _made_first(self, file: SqliteFile) -> str | None:
        create = self._create
        if create.start_key is None:
            return None
        params = {"tenant_id": create.after.tenant_id, "start_key": create.start_key}
        return made_first(create, file.one("run_by_start_key", params))

    def _check_conversation(self, file: SqliteFile) -> None:
        run = self._create.after
        facts = file.one("conversation_facts", {"tenant_id": run.tenant_id, "conversation_id": run.conversation_id})
        check_conversation(self._create, facts)

    def _check_parent(self, file: SqliteFile) -> None:
        """Nothing begins to work for a run that has ended, or by the word of a worker that has lost it."""
        run = self._create.after
        if run.parent_step_id is not None:
            parent = {"tenant_id": run.tenant_id, "run_id": run_of_step(run.parent_step_id)}
            check_parent(self._create, file.one("guard_facts", parent))


def _write_guarded(tx: Transaction, written: Written) -> None:
    for key in written.keys:
        if tx.file.run("operation_key_claim", key) != 1:
            raise Undo(key_held(key[1]))
    for place in written.places:
        if tx.file.run("message_place", place) != 1:
            raise Undo(message_placed(place[6]))
    tx.later(written.rows)
