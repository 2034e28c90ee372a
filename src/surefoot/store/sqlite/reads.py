"""The reading half of the SQLite store, in the port's order. Each method reads one state of the file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TypeVar

from surefoot.core.evolve import Recorded
from surefoot.core.state import Run, Step
from surefoot.doors import Clock
from surefoot.errors import NotFound, Unreadable
from surefoot.store import records
from surefoot.store.listed import Listed, listed
from surefoot.store.port import ActionRow, EvidenceRow, KeyOwner, MessageRow, RunRow, ShownRun, StepRow
from surefoot.store.sqlite.file import Busy, Row, SqliteFile
from surefoot.store.sqlite.writer import BUSY_SECONDS_MAX, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN, locked

T = TypeVar("T")


class SqliteReads:
    """What is read of runs and conversations. The errors are those of the port."""

    _file: SqliteFile
    _clock: Clock
    path: str

    async def schedule_seen(self, tenant_id: str, name: str) -> float | None:
        """Up to which wall time the due times of a schedule were dealt with; None for one that nobody has seen."""
        params = {"tenant_id": tenant_id, "name": name}
        found = await self._patiently(lambda: self._file.value("schedule_seen", params))
        assert found is None or isinstance(found, float), "the table is STRICT"
        return found

    async def load(self, tenant_id: str, run_id: str, step_id: str | None = None) -> Run:
        """The run with its live steps and actions, and with the step named. Raises NotFound."""
        return await self._read(lambda: self._load(self._run_row(tenant_id, run_id), step_id))

    async def load_all(self, tenant_id: str, run_ids: Sequence[str]) -> Listed[Run]:
        """The runs with these ids that are there, oldest first, as `load` gives them."""

        def read() -> Listed[Run]:
            named = [{"tenant_id": tenant_id, "run_id": run_id} for run_id in sorted(set(run_ids))]
            rows = [row for params in named if (row := self._file.one("run_get", params)) is not None]
            return listed(rows, lambda row: self._load(row, None))

        return await self._read(read)

    async def run(self, tenant_id: str, run_id: str) -> RunRow:
        """One run. Raises NotFound."""
        return await self._read(lambda: self._read_run(self._run_row(tenant_id, run_id)))

    async def shown(self, tenant_id: str, run_id: str) -> ShownRun:
        """A run with all its steps, evidence and actions, in order. Raises NotFound."""
        params = {"tenant_id": tenant_id, "run_id": run_id, "status": None, "after": None, "limit": -1}
        parts = ("steps_all", "evidence_of_run", "actions_of_run")

        def read() -> ShownRun:
            row = self._run_row(tenant_id, run_id)
            return records.read_shown(row, *(self._file.each(part, params) for part in parts))

        return await self._read(read)

    async def run_of_key(self, tenant_id: str, start_key: str) -> str | None:
        """The id of the run that was made under a start key."""
        params = {"tenant_id": tenant_id, "start_key": start_key}
        found = await self._read(lambda: self._file.one("run_by_start_key", params))
        return None if found is None else str(found["id"])

    async def runs(
        self, tenant_id: str, *, status: str | None, agent: str | None, before: str | None, limit: int
    ) -> Listed[RunRow]:
        """Newest first, ids lower than `before`."""
        params = {"tenant_id": tenant_id, "status": status, "agent": agent, "before": before, "limit": limit + 1}
        query = records.runs_query(status)
        return await self._read(lambda: listed(self._file.rough(query, params), self._read_run, limit))

    async def children(self, tenant_id: str, run_id: str) -> Listed[Run]:
        """The runs that work on calls of this one, oldest first."""
        params = {"tenant_id": tenant_id, "run_id": run_id}

        def read() -> Listed[Run]:
            return listed(self._file.rough("runs_of_parent", params), lambda row: self._load(row, None))

        return await self._read(read)

    async def steps(self, tenant_id: str, run_id: str) -> list[StepRow]:
        """All steps of a run, in order, with their attempts."""
        params = {"tenant_id": tenant_id, "run_id": run_id}

        def read() -> list[StepRow]:
            return [records.read_step_row(row) for row in self._file.each("steps_all", params)]

        return await self._read(read)

    async def step(self, tenant_id: str, step_id: str) -> StepRow:
        """One step. Raises NotFound."""
        found = await self._step_row("step_get", {"tenant_id": tenant_id, **records.step_named(step_id)})
        if found is None:
            raise NotFound(f"no step {step_id}")
        return found

    async def step_by_key(self, tenant_id: str, operation_key: str) -> StepRow | None:
        """The step that owns an operation key."""
        named = records.step_named(operation_key.rpartition(":")[2])
        params = {"tenant_id": tenant_id, "operation_key": operation_key, **named}
        return await self._step_row("step_by_operation_key", params)

    async def evidence(self, tenant_id: str, run_id: str) -> list[EvidenceRow]:
        """All evidence of a run, oldest first."""
        params = {"tenant_id": tenant_id, "run_id": run_id}
        return await self._rows("evidence_of_run", params, records.read_evidence)

    async def action(self, tenant_id: str, action_id: str) -> ActionRow:
        """One action. Raises NotFound."""
        params = {"tenant_id": tenant_id, "action_id": action_id}
        found = await self._rows("action_get", params, records.read_action_row)
        if not found:
            raise NotFound(f"no action {action_id}")
        return found[0]

    async def actions(
        self,
        tenant_id: str,
        *,
        status: str | None = None,
        run_id: str | None = None,
        below: bool = False,
        after: str | None = None,
        limit: int = 1000,
    ) -> Listed[ActionRow]:
        """Actions, oldest first; with `below` also those of the runs that work for `run_id`, and for them."""
        params = {"tenant_id": tenant_id, "status": status, "run_id": run_id, "after": after, "limit": limit + 1}
        query = records.actions_query(status, run_id, below=below)
        return await self._patiently(lambda: listed(self._file.rough(query, params), records.read_action_row, limit))

    async def events(self, tenant_id: str, run_id: str, after: int, limit: int) -> list[Recorded]:
        """Events with a sequence above `after`, in order. Raises NotFound."""
        params = {"tenant_id": tenant_id, "run_id": run_id, "after": after, "limit": limit}

        def read() -> list[Recorded]:
            if not self._file.value("run_exists", params):
                raise NotFound(f"no run {run_id}")
            return records.read_events(self._file.all("events_after", params), after, limit)

        return await self._read(read)

    async def messages(
        self, tenant_id: str, conversation_id: str, after: int = -1, limit: int | None = None
    ) -> list[MessageRow]:
        """Placed messages with a position above `after`, in order."""
        taken = -1 if limit is None else limit
        params = {"tenant_id": tenant_id, "conversation_id": conversation_id, "after": after, "limit": taken}
        return await self._rows("messages_placed", params, records.read_message)

    async def queued(self, tenant_id: str, conversation_id: str) -> list[MessageRow]:
        """Messages that wait for a place, in the order of their arrival."""
        params = {"tenant_id": tenant_id, "conversation_id": conversation_id}
        return await self._rows("messages_queued", params, records.read_message)

    async def conversation(self, tenant_id: str, conversation_id: str) -> tuple[int, str | None]:
        """The next free position, and the run under way if there is one. Raises NotFound."""
        params = {"tenant_id": tenant_id, "conversation_id": conversation_id}
        facts = await self._read(lambda: self._file.one("conversation_facts", params))
        if facts is None:
            raise NotFound(f"no conversation {conversation_id}")
        position, run_id = facts["next_position"], facts["run_id"]
        assert isinstance(position, int), "the table is STRICT"
        return position, run_id if isinstance(run_id, str) else None

    async def blob(self, tenant_id: str, ref: str) -> bytes:
        """The bytes. Raises Unreadable if they are missing or do not fit their hash."""
        data = await self._read(lambda: self._file.value("blob_get", {"tenant_id": tenant_id, "ref": ref}))
        if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != ref:
            raise Unreadable(
                f"blob {ref} is {'missing' if data is None else 'damaged'}: nothing is sent; run `surefoot doctor`"
            )
        return data

    async def key_owner(self, tenant_id: str, operation_key: str) -> KeyOwner | None:
        """Who holds a business key."""
        params = {"tenant_id": tenant_id, "operation_key": operation_key}
        found = await self._rows("key_owner", params, records.read_key_owner)
        return found[0] if found else None

    async def same_action(self, tenant_id: str, conversation_id: str, identity_hash: str) -> StepRow | None:
        """The newest step of the conversation with this identity that succeeded or may have acted."""
        params = {"tenant_id": tenant_id, "conversation_id": conversation_id, "identity_hash": identity_hash}
        return await self._step_row("step_same_action", params)

    async def acted(self, tenant_id: str, conversation_id: str) -> list[StepRow]:
        """The calls of a conversation that change something outside, refused proposals aside, oldest first."""
        params = {"tenant_id": tenant_id, "conversation_id": conversation_id}

        def read() -> list[StepRow]:
            rows = self._file.all("steps_acted", params)
            return [records.read_step_row(row) for row in rows]

        return await self._read(read)

    # How it is done

    async def _read(self, function: Callable[[], T]) -> T:
        def snapshot() -> T:
            with self._file.reading():
                return function()

        return await self._patiently(snapshot)

    async def _patiently(self, function: Callable[[], T]) -> T:
        since, pause = self._clock.now().mono, PAUSE_SECONDS_MIN
        while True:
            try:
                return function()
            except Busy as busy:
                if self._clock.now().mono - since >= BUSY_SECONDS_MAX:
                    raise locked(self.path, busy) from busy
            await self._clock.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    async def _rows(self, query: str, params: Mapping[str, object], read: Callable[[Row], T]) -> list[T]:
        # One statement sees one state of the file by itself.
        return await self._patiently(lambda: [read(row) for row in self._file.all(query, params)])

    async def _step_row(self, query: str, params: Mapping[str, object]) -> StepRow | None:
        def read() -> StepRow | None:
            row = self._file.one(query, params)
            return None if row is None else records.read_step_row(row)

        return await self._read(read)

    def _run_row(self, tenant_id: str, run_id: str) -> Row:
        row = self._file.one("run_get", {"tenant_id": tenant_id, "run_id": run_id})
        if row is None:
            raise NotFound(f"no run {run_id}")
        return row

    def _read_run(self, row: Row) -> RunRow:
        return records.read_run_row(row, self._load(row, None))

    def _load(self, row: Row, step_id: str | None) -> Run:
        params = {"tenant_id": row["tenant_id"], "run_id": row["id"], "step_id": step_id}
        steps = self._kept_steps(params)
        asked = self._file.all("actions_waiting", params)
        for action_id in {step.action_id for step in steps if step.action_id is not None}:
            asked += self._file.all("action_approved", {**params, "action_id": action_id})
        if step_id is not None and all(step.id != step_id for step in steps):
            steps.append(self._closed_step(str(row["tenant_id"]), str(row["id"]), step_id))
        if step_id is not None:
            # Whoever decides about the step has to see what was decided already.
            asked += self._file.all("actions_of_step", params)
        steps.sort(key=lambda step: step.sequence)
        # A question may come by two ways; the order is that of asking.
        by_arrival = dict(sorted(((records.arrival(line), line) for line in asked), key=itemgetter(0)))
        return records.read_run(row, steps, [records.read_action(line) for line in by_arrival.values()])

    def _kept_steps(self, params: Mapping[str, object]) -> list[Step]:
        """What `forget_closed` keeps: the live steps, and closed ones about which a person is asked."""
        lines = self._file.all("steps_live", params) + self._file.all("steps_asked", params)
        return [records.read_step(line) for line in lines]

    def _closed_step(self, tenant_id: str, run_id: str, step_id: str) -> Step:
        line = self._file.one("step_get", {"tenant_id": tenant_id, **records.step_named(step_id)})
        if line is None or line["run_id"] != run_id:
            raise NotFound(f"no step {step_id} in {run_id}")
        return records.read_step(line)
