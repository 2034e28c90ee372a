"""What is written on behalf of a run: appends and new runs, with their guards and what a lost guard means."""

from __future__ import annotations

from collections.abc import Callable

from surefoot.core.ids import run_of_step
from surefoot.core.state import TERMINAL, Instant, Run
from surefoot.errors import Conflict, KeyReused, LeaseLost, NotAllowed, NotFound, RunEnded, SurefootError
from surefoot.store.port import Append, Create
from surefoot.store.rows import Written, append_rows, create_rows, guard_values, run_values
from surefoot.store.sqlite.file import SqliteFile
from surefoot.store.sqlite.writer import Job, Transaction, Undo


class AppendJob(Job[None]):
    """One append. Its rows are made when it is queued, its guard is checked in the transaction."""

    def __init__(self, append: Append, touched: Callable[[Run], None]) -> None:
        super().__init__()
        self.run_id = append.after.id
        self._touched = touched
        self._append = append
        self._written = append_rows(append)

    def write(self, tx: Transaction) -> None:
        """Guard first; a guard that does not hold says which part of it."""
        now = tx.clock.now()
        if tx.file.run("append_guard", guard_values(self._append, now)) != 1:
            raise lost_guard(tx.file, self._append, now)
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
        self._written = create_rows(create)

    def write(self, tx: Transaction) -> str:
        """Look first: this transaction is the only writer, so what is looked at stays."""
        create = self._create
        made_first = self._made_first(tx.file)
        if made_first is not None:
            return made_first
        self._check_conversation(tx.file)
        self._check_parent(tx.file)
        if tx.file.value("run_exists", {"tenant_id": create.after.tenant_id, "run_id": create.after.id}):
            raise Conflict(f"run {create.after.id} exists already: mint another id")
        now = tx.clock.now()
        tx.file.run("run_insert", run_values(create, self._owner, now))
        if self._owner is not None:
            self._record_owner(tx)
        _write_guarded(tx, self._written)
        return create.after.id

    def _made_first(self, file: SqliteFile) -> str | None:
        create = self._create
        if create.start_key is None:
            return None
        row = file.one("run_by_start_key", {"tenant_id": create.after.tenant_id, "start_key": create.start_key})
        if row is None:
            return None
        if row["start_hash"] != create.start_hash:
            raise KeyReused(
                f"start key {create.start_key!r} was used for another request, which made {row['id']}: use a new key",
                details={"run_id": row["id"]},
            )
        return str(row["id"])

    def _check_conversation(self, file: SqliteFile) -> None:
        run = self._create.after
        facts = file.one("conversation_facts", {"tenant_id": run.tenant_id, "conversation_id": run.conversation_id})
        if self._create.new_conversation:
            if facts is not None:
                raise Conflict(f"conversation {run.conversation_id} exists already: mint another id")
        elif facts is None:
            raise NotFound(f"no conversation {run.conversation_id}")
        elif facts["run_id"] is not None:
            raise NotAllowed(
                f"conversation {run.conversation_id} has {facts['run_id']} under way: send it a message, or wait",
                code="conversation_busy",
                details={"run_id": facts["run_id"]},
            )

    def _check_parent(self, file: SqliteFile) -> None:
        """Nothing begins to work for a run that has ended."""
        run = self._create.after
        if run.parent_step_id is None:
            return
        parent = run_of_step(run.parent_step_id)
        if not file.value("run_is_open", {"tenant_id": run.tenant_id, "run_id": parent}):
            raise RunEnded(f"{parent} has ended: nothing is started for it any more")


def lost_guard(file: SqliteFile, append: Append, now: Instant) -> SurefootError:
    """Which part of the guard did not hold. A lost lease comes first: deciding again would not help."""
    run = append.after
    facts = file.one("guard_facts", {"tenant_id": run.tenant_id, "run_id": run.id})
    if facts is None:
        return NotFound(f"no run {run.id}")
    if append.token is not None and facts["lease_token"] != append.token:
        return LeaseLost(f"{run.id}: another worker has the lease; keep what happened as evidence")
    if append.needs_lease and not _later(facts["lease_until"], now.mono):
        return LeaseLost(f"{run.id}: the lease is over; keep what happened as evidence")
    if facts["version"] != append.before.version:
        return Conflict(
            f"{run.id} is at version {facts['version']}, not {append.before.version}: reload and decide again"
        )
    if append.needs_lease and facts["status"] in TERMINAL:
        return RunEnded(f"{run.id} is {facts['status']}: nothing more is sent for it")
    return NotAllowed(f"{run.id}: the approval has expired: ask again", code="approval_expired")


def _write_guarded(tx: Transaction, written: Written) -> None:
    for key in written.keys:
        if tx.file.run("operation_key_claim", key) != 1:
            raise Undo(Conflict(f"another step holds the key {key[1]!r}: reload and answer from it"))
    for place in written.places:
        if tx.file.run("message_place", place) != 1:
            raise Undo(Conflict(f"message {place[6]} does not wait in this conversation: reload and decide again"))
    tx.later(written.rows)


def _later(end: object, now: float) -> bool:
    return isinstance(end, float) and end > now
