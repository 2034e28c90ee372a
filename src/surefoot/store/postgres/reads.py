"""The reading half of the PostgreSQL store, in the port's order. Each method reads one state of the database: it is one
statement, which brings rows of several tables as JSON where it has to.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import TypeVar

import msgspec

from surefoot.core.evolve import Recorded
from surefoot.core.ids import sequence_of_step
from surefoot.core.state import Action, Run, Step
from surefoot.errors import NotFound, Unreadable
from surefoot.store import records
from surefoot.store.listed import Listed, listed
from surefoot.store.port import ActionRow, EvidenceRow, KeyOwner, MessageRow, RunRow, ShownRun, StepRow
from surefoot.store.postgres.link import Link, Row
from surefoot.store.postgres.links import Links
from surefoot.store.postgres.writer import Server

T = TypeVar("T")


class Loaded:
    """The rows that a statement brought, by what they are and whose."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.runs: list[Row] = []
        self._steps: defaultdict[object, list[Row]] = defaultdict(list)
        self._actions: defaultdict[object, dict[str, Row]] = defaultdict(dict)
        self._evidence: list[Row] = []
        for row in rows:
            self._add(str(row["record"]), msgspec.json.decode(str(row["data"]), type=dict[str, object]))

    def _add(self, record: str, row: Row) -> None:
        match record:
            case "run":
                self.runs.append(row)
            case "step":
                self._steps[row["run_id"]].append(row)
            case "evidence":
                self._evidence.append(row)
            case _:
                # A question may come by two ways.
                self._actions[row["run_id"]][str(row["id"])] = row

    def steps(self, read: Callable[[Row], T]) -> list[T]:
        """All steps, in the order of their sequences."""
        steps = sorted(chain.from_iterable(self._steps.values()), key=itemgetter("run_id", "sequence"))
        return [read(row) for row in steps]

    def run(self, row: Row) -> Run:
        """One of the runs with what belongs to it; raises Unreadable for a damaged row of its own only."""
        mine, asked = self._of(row)
        steps: list[Step] = [records.read_step(step) for step in mine]
        actions: list[Action] = [records.read_action(action) for action in asked]
        return records.read_run(row, steps, actions)

    def shown(self, row: Row) -> ShownRun:
        """The only run there is, with everything."""
        steps, asked = self._of(row)
        evidence = sorted(self._evidence, key=itemgetter("arrival"))
        return records.read_shown(row, steps, evidence, asked)

    def has_step(self, step_id: str) -> bool:
        """Whether that step is among them."""
        return any(step["id"] == step_id for step in chain.from_iterable(self._steps.values()))

    def _of(self, row: Row) -> tuple[list[Row], list[Row]]:
        """A run's steps and actions, in order."""
        steps = sorted(self._steps[row["id"]], key=itemgetter("sequence"))
        return steps, sorted(self._actions[row["id"]].values(), key=itemgetter("arrival", "id"))


class PostgresReads:
    """What is read of runs and conversations. The errors are those of the port."""

    path: str
    _links: Links
    _server: Server

    async def schedule_seen(self, tenant_id: str, name: str) -> float | None:
        """Up to which wall time the due times of a schedule were dealt with; None for one that nobody has seen."""
        found = await self._value("schedule_seen", {"tenant_id": tenant_id, "name": name})
        assert found is None or isinstance(found, float), "the column is a number"
        return found

    async def load(self, tenant_id: str, run_id: str, step_id: str | None = None) -> Run:
        """The run with its live steps and actions, and with the step named. Raises NotFound."""
        loaded = await self._load("run_get", {"tenant_id": tenant_id, "run_id": run_id}, step_id)
        if not loaded.runs:
            raise NotFound(f"no run {run_id}")
        if step_id is not None and not loaded.has_step(step_id):
            raise NotFound(f"no step {step_id} in {run_id}")
        return loaded.run(loaded.runs[0])

    async def load_all(self, tenant_id: str, run_ids: Sequence[str]) -> Listed[Run]:
        """The runs with these ids that are there, oldest first, as `load` gives them."""
        loaded = await self._load("runs_of_ids", {"tenant_id": tenant_id, "run_ids": list(run_ids)})
        return listed(sorted(loaded.runs, key=itemgetter("id")), loaded.run)

    async def run(self, tenant_id: str, run_id: str) -> RunRow:
        """One run. Raises NotFound."""
        loaded = await self._load("run_get", {"tenant_id": tenant_id, "run_id": run_id})
        if not loaded.runs:
            raise NotFound(f"no run {run_id}")
        return records.read_run_row(loaded.runs[0], loaded.run(loaded.runs[0]))

    async def shown(self, tenant_id: str, run_id: str) -> ShownRun:
        """A run with all its steps, evidence and actions, in order. Raises NotFound."""
        loaded = Loaded(await self._all("run_shown", {"tenant_id": tenant_id, "run_id": run_id}))
        if not loaded.runs:
            raise NotFound(f"no run {run_id}")
        return loaded.shown(loaded.runs[0])

    async def run_of_key(self, tenant_id: str, start_key: str) -> str | None:
        """The id of the run that was made under a start key."""
        found = await self._all("run_by_start_key", {"tenant_id": tenant_id, "start_key": start_key})
        return str(found[0]["id"]) if found else None

    async def runs(
        self, tenant_id: str, *, status: str | None, agent: str | None, before: str | None, limit: int
    ) -> Listed[RunRow]:
        """Newest first, ids lower than `before`."""
        params = {"tenant_id": tenant_id, "status": status, "agent": agent, "before": before, "limit": limit + 1}
        loaded = await self._load(records.runs_query(status), params)
        newest_first = sorted(loaded.runs, key=itemgetter("id"), reverse=True)
        return listed(newest_first, lambda row: records.read_run_row(row, loaded.run(row)), limit)

    async def children(self, tenant_id: str, run_id: str) -> Listed[Run]:
        """The runs that work on calls of this one, oldest first."""
        loaded = await self._load("runs_of_parent", {"tenant_id": tenant_id, "run_id": run_id})
        return listed(sorted(loaded.runs, key=itemgetter("id")), loaded.run)

    async def steps(self, tenant_id: str, run_id: str) -> list[StepRow]:
        """All steps of a run, in order, with their attempts."""
        return await self._steps("steps_all", {"tenant_id": tenant_id, "run_id": run_id})

    async def step(self, tenant_id: str, step_id: str) -> StepRow:
        """One step. Raises NotFound."""
        found = await self._steps("step_get", {"tenant_id": tenant_id, **records.step_named(step_id)})
        if not found:
            raise NotFound(f"no step {step_id}")
        return found[0]

    async def step_by_key(self, tenant_id: str, operation_key: str) -> StepRow | None:
        """The step that owns an operation key."""
        named = records.step_named(operation_key.rpartition(":")[2])
        params = {"tenant_id": tenant_id, "operation_key": operation_key, **named}
        found = await self._steps("step_by_operation_key", params)
        return found[0] if found else None

    async def evidence(self, tenant_id: str, run_id: str) -> list[EvidenceRow]:
        """All evidence of a run, oldest first."""
        rows = await self._all("evidence_of_run", {"tenant_id": tenant_id, "run_id": run_id})
        return [records.read_evidence(row) for row in rows]

    async def action(self, tenant_id: str, action_id: str) -> ActionRow:
        """One action. Raises NotFound."""
        found = await self._all("action_get", {"tenant_id": tenant_id, "action_id": action_id})
        if not found:
            raise NotFound(f"no action {action_id}")
        return records.read_action_row(found[0])

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
        return listed(await self._all(query, params), records.read_action_row, limit)

    async def events(self, tenant_id: str, run_id: str, after: int, limit: int) -> list[Recorded]:
        """Events with a sequence above `after`, in order. Raises NotFound."""
        params = {"tenant_id": tenant_id, "run_id": run_id, "after": after, "limit": limit}
        rows = await self._all("events_after", params)
        if not rows:
            raise NotFound(f"no run {run_id}")
        return records.read_events([row for row in rows if row["sequence"] is not None], after, limit)

    async def messages(
        self, tenant_id: str, conversation_id: str, after: int = -1, limit: int | None = None
    ) -> list[MessageRow]:
        """Placed messages with a position above `after`, in order."""
        params = {"tenant_id": tenant_id, "conversation_id": conversation_id, "after": after, "limit": limit}
        return [records.read_message(row) for row in await self._all("messages_placed", params)]

    async def queued(self, tenant_id: str, conversation_id: str) -> list[MessageRow]:
        """Messages that wait for a place, in the order of their arrival."""
        params = {"tenant_id": tenant_id, "conversation_id": conversation_id}
        return [records.read_message(row) for row in await self._all("messages_queued", params)]

    async def conversation(self, tenant_id: str, conversation_id: str) -> tuple[int, str | None]:
        """The next free position, and the run under way if there is one. Raises NotFound."""
        params = {"tenant_id": tenant_id, "conversation_id": conversation_id}
        found = await self._all("conversation_facts", params)
        if not found:
            raise NotFound(f"no conversation {conversation_id}")
        position, run_id = found[0]["next_position"], found[0]["run_id"]
        assert isinstance(position, int), "the column is a whole number"
        return position, run_id if isinstance(run_id, str) else None

    async def blob(self, tenant_id: str, ref: str) -> bytes:
        """The bytes. Raises Unreadable if they are missing or do not fit their hash."""
        data = await self._value("blob_get", {"tenant_id": tenant_id, "ref": ref})
        if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != ref:
            raise Unreadable(
                f"blob {ref} is {'missing' if data is None else 'damaged'}: nothing is sent; run `surefoot doctor`"
            )
        return data

    async def key_owner(self, tenant_id: str, operation_key: str) -> KeyOwner | None:
        """Who holds a business key."""
        found = await self._all("key_owner", {"tenant_id": tenant_id, "operation_key": operation_key})
        return records.read_key_owner(found[0]) if found else None

    async def same_action(self, tenant_id: str, conversation_id: str, identity_hash: str) -> StepRow | None:
        """The newest step of the conversation with this identity that succeeded or may have acted."""
        params = {"tenant_id": tenant_id, "conversation_id": conversation_id, "identity_hash": identity_hash}
        found = await self._steps("step_same_action", params)
        return found[0] if found else None

    async def acted(self, tenant_id: str, conversation_id: str) -> list[StepRow]:
        """The calls of a conversation that change something outside, refused proposals aside, oldest first."""
        found = await self._steps("steps_acted", {"tenant_id": tenant_id, "conversation_id": conversation_id})
        return sorted(found, key=lambda row: row.step.id)

    async def versions(self, tenant_id: str, run_ids: Sequence[str]) -> Mapping[str, int]:
        """The versions of these runs, as they stand now."""
        rows = await self._all("run_versions", {"tenant_id": tenant_id, "run_ids": list(run_ids)})
        return {str(row["id"]): version for row in rows if isinstance(version := row["version"], int)}

    async def run_ids(self, tenant_id: str) -> Sequence[str]:
        """All runs, oldest first."""
        return [str(row["id"]) for row in await self._all("run_ids", {"tenant_id": tenant_id})]

    # How it is done

    async def _all(self, query: str, params: Mapping[str, object], chosen: str = "") -> list[Row]:
        async def read(link: Link) -> list[Row]:
            return await self._server.ask(link, query, params, chosen)

        return [dict(row.items()) for row in await self._links.reading(read)]

    async def _value(self, query: str, params: Mapping[str, object]) -> object:
        rows = await self._all(query, params)
        return next(iter(rows[0].values())) if rows else None

    async def _load(self, chosen: str, params: Mapping[str, object], step_id: str | None = None) -> Loaded:
        sequence = None if step_id is None else sequence_of_step(step_id)
        return Loaded(await self._all("load_runs", {**params, "step_id": step_id, "sequence": sequence}, chosen))

    async def _steps(self, chosen: str, params: Mapping[str, object]) -> list[StepRow]:
        return Loaded(await self._all("load_steps", params, chosen)).steps(records.read_step_row)
