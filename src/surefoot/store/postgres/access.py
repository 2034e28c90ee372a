"""Credentials, announcements, marks and counts on PostgreSQL, in the order of `store/access.py`. It decides nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

import msgspec

from surefoot.core import codec
from surefoot.core.ids import RANDOM_BYTES, mint
from surefoot.core.throttle import take_tokens
from surefoot.errors import Conflict
from surefoot.store import records
from surefoot.store.access import Counts, Credential, Share, Span, Statistics, Wish
from surefoot.store.listed import Listed, listed
from surefoot.store.looked import Looked
from surefoot.store.postgres.failures import Spoiled
from surefoot.store.postgres.link import Link, Row
from surefoot.store.postgres.reads import PostgresReads
from surefoot.store.postgres.writer import Server

T = TypeVar("T")

CHECKED_ROWS = 256
"""Rows that commits of no consequence are made to."""
ID_SECONDS_EARLY = 60.0
"""By how much an id may be older than its row."""


class PostgresAccess(PostgresReads):
    """What the service reads and writes beside runs. The errors are those of the port."""

    _looked: Looked

    @abstractmethod
    async def _call(self, function: Callable[[Server, Link], Awaitable[T]], *, tells: bool = True) -> T: ...

    @abstractmethod
    async def _commit(self, query: str, params: Mapping[str, object]) -> list[Row]: ...

    async def put_credential(self, credential: Credential) -> None:
        """Keep a new one. Raises Conflict for an id that exists."""
        permissions = codec.encode_value(credential.permissions)
        params = {**msgspec.structs.asdict(credential), "permissions": permissions}
        await self._commit("credential_put", params)

    async def credential(self, tenant_id: str, credential_id: str) -> Credential | None:
        """One credential, whether or not it can still be used."""
        found = await self._all("credential_get", {"tenant_id": tenant_id, "id": credential_id})
        return records.read_credential(found[0]) if found else None

    async def credentials(self, tenant_id: str, kind: str) -> Listed[Credential]:
        """All of a kind, oldest first."""
        rows = await self._all("credentials_list", {"tenant_id": tenant_id, "kind": kind})
        return listed(rows, records.read_credential)

    async def token_tenants(self) -> list[str]:
        """The tenants that have a token which was not revoked."""
        return [str(row["tenant_id"]) for row in await self._all("token_tenants", {})]

    async def revoke_credential(self, tenant_id: str, credential_id: str) -> bool:
        """End it, and the sessions that began with it. False where there was nothing to end."""
        of = {"tenant_id": tenant_id, "id": credential_id}
        if await self._commit("credential_revoke", of):
            return True
        await self.confirm()
        return bool(await self._commit("credential_revoke", of))

    async def take_announcements(
        self, tenant_id: str, hook: str, again_s: float, limit: int, attempts_max: int
    ) -> list[tuple[str, int]]:
        """The waiting actions that `hook` is to be told of now. No commit is made where there is none."""
        key, now = (tenant_id, hook), self._server.clock.now().mono
        after = self._looked.begin(key, now)
        params = {"tenant_id": tenant_id, "hook": hook, "attempts_max": attempts_max, "after": after}
        (facts,) = await self._all("announcements_due", params)
        if not facts["found"]:
            self._looked.nothing(key, now, after, _number(facts["newest"]))
            return []
        rows = await self._commit("announcements_take", {**params, "limit": limit, "again_s": again_s})
        return [(str(row["id"]), _number(row["attempt"])) for row in rows]

    async def announced(self, tenant_id: str, action_id: str, hook: str, outcome: str, again_s: float | None) -> None:
        """How an announcement went: again after `again_s`, or never with None."""
        named = {"tenant_id": tenant_id, "action_id": action_id, "hook": hook, "outcome": outcome}
        await self._commit("announcement_done", {**named, "again_s": again_s})

    async def next_announcement(self, tenant_id: str, hook: str, attempts_max: int) -> float | None:
        """wall: when `take_announcements` has something next; None: never."""
        after = self._looked.behind((tenant_id, hook))
        params = {"tenant_id": tenant_id, "hook": hook, "attempts_max": attempts_max, "after": after}
        found = await self._value("announcements_next", params)
        return found if isinstance(found, float) else None

    async def mark(self, tenant_id: str, kind: str, name: str, value: str) -> str | None:
        """Keep a small fact under its name; what was there before."""
        params = {"tenant_id": tenant_id, "kind": kind, "name": name, "value": value}
        (row,) = await self._commit("mark_put", params)
        before = row["value"]
        if before is None and not row["fresh"]:
            # Somebody else put it first, between this statement's beginning and its turn.
            (row,) = await self._commit("mark_put", params)
            before = row["value"]
        return None if before is None else str(before)

    async def marked(self, tenant_id: str, kind: str, name: str) -> str | None:
        """What is kept under that name."""
        found = await self._value("mark_get", {"tenant_id": tenant_id, "kind": kind, "name": name})
        return None if found is None else str(found)

    async def marks(self, tenant_id: str, kind: str, limit: int, after: str = "") -> list[str]:
        """The names of a kind in their order."""
        params = {"tenant_id": tenant_id, "kind": kind, "limit": limit, "after": after}
        return [str(row["name"]) for row in await self._all("marks_of", params)]

    async def unmark(self, tenant_id: str, kind: str, name: str) -> None:
        """Keep it no longer."""
        await self._commit("mark_drop", {"tenant_id": tenant_id, "kind": kind, "name": name})

    async def counts(self, tenant_id: str) -> Counts:
        """How much there is, from one state of the database."""
        found: dict[str, dict[str, float]] = {}
        oldest: float | None = None
        for row in await self._all("counts", {"tenant_id": tenant_id}):
            number = row["number"]
            if row["what"] == "oldest":
                oldest = number if isinstance(number, float) else None
            elif isinstance(number, float):
                found.setdefault(str(row["what"]), {})[str(row["name"])] = number
        whole = {what: {name: int(number) for name, number in by.items()} for what, by in found.items()}
        return Counts(
            runs=whole.get("runs", {}),
            blocked=whole.get("blocked", {}),
            steps=whole.get("steps", {}),
            actions=whole.get("actions", {}),
            oldest_action_at=oldest,
            leased=whole["leased"][""],
            workers=whole["workers"][""],
        )

    async def blocked(self, tenant_id: str) -> Mapping[str, int]:
        """Runs that no worker can take, by why."""
        rows = await self._all("count_runs_blocked", {"tenant_id": tenant_id})
        return {str(row["name"]): _number(row["count"]) for row in rows}

    async def blocked_runs(self, tenant_id: str, code: str, after: str, limit: int) -> list[str]:
        """Those of one reason by id, from behind the id `after` on."""
        params = {"tenant_id": tenant_id, "code": code, "after": after, "limit": limit}
        return [str(row["id"]) for row in await self._all("runs_blocked", params)]

    async def unknown_at(self, tenant_id: str, target: str, limit: int) -> list[str]:
        """Steps whose outcome is unknown and whose target has this name, in whatever case, by id."""
        params = {"tenant_id": tenant_id, "target": target, "limit": limit}
        return [str(row["id"]) for row in await self._all("steps_unknown_at", params)]

    async def unlooked_calls(self, tenant_id: str, tools: Collection[str], after: str, limit: int) -> list[str]:
        """Calls of these tools whose outcome is unknown and that nobody looks up, less those that were given up."""
        params = {"tenant_id": tenant_id, "tools": sorted(tools), "after": after, "limit": limit}
        return [str(row["id"]) for row in await self._all("steps_unlooked", params)]

    async def untold_calls(self, tenant_id: str, ahead_s: float, limit: int) -> list[str]:
        """Calls that wait for a run which has ended, and whose next look at it is still to come."""
        params = {"tenant_id": tenant_id, "ahead_s": ahead_s, "limit": limit}
        return [str(row["id"]) for row in await self._all("calls_untold", params)]

    async def evidence_counts(self, tenant_id: str, after: int) -> tuple[int, Mapping[tuple[str, str], int]]:
        """Evidence written behind the place `after` by (verdict, source), and the place of the newest."""
        rows = await self._all("count_evidence", {"tenant_id": tenant_id, "after": after})
        newest = max((_number(row["newest"]) for row in rows), default=after)
        return newest, {(str(row["verdict"]), str(row["source"])): _number(row["count"]) for row in rows}

    async def statistics(self, tenant_id: str, span: Span) -> Statistics:
        """What happened since `span.since`, from one state of the database."""
        # An id begins with the time at which it was made, a moment before its row: so the id's index finds the row.
        early = max(span.since - ID_SECONDS_EARLY, 0.0)
        params: dict[str, object] = {"tenant_id": tenant_id, **msgspec.structs.asdict(span)}
        params["from_run"] = mint("run", early, bytes(RANDOM_BYTES))
        params["from_action"] = mint("act", early, bytes(RANDOM_BYTES))
        runs: dict[int, dict[str, int]] = {}
        times: list[float] = []
        verdicts: dict[str, int] = {}
        for row in await self._all("statistics", params):
            number, name = row["number"], str(row["name"])
            assert isinstance(number, float), "as the query says"
            match row["what"]:
                case "run":
                    runs.setdefault(_number(row["bucket"]), {})[name] = int(number)
                case "approval":
                    times.append(number)
                case _:
                    verdicts[name] = int(number)
        return Statistics(runs, times, verdicts)

    async def check_writable(self) -> None:
        """Commit something of no consequence. Raises StoreUnavailable."""

        async def write(server: Server, link: Link) -> None:
            # Of one row, each commit would wait for the one before, which may wait for a standby.
            key = f"checked_{link.probe.pid % CHECKED_ROWS}"
            await commit(server, link, "meta_put", {"key": key, "value": f"{server.clock.now().wall:.3f}"})

        await self._call(write)

    async def confirm(self) -> bool:
        """True, behind a commit of its own.

        What can be read may stand on a primary alone whose wait for its standby was given up, and be gone when that one
        takes over. Once a later commit is acknowledged, the standby has both.
        """
        await self.check_writable()
        return True

    async def fence(self, tenant_id: str, run_id: str) -> None:
        """Wait for the run's row, and commit. A statement whose connection broke goes on with the server."""
        await self._commit("run_fence", {"tenant_id": tenant_id, "run_id": run_id})

    async def share(self, tenant_id: str, wish: Wish) -> Share:
        """Calls at once and tokens of a throttle, as far as there are any."""
        of = {"tenant_id": tenant_id, "name": wish.name, "worker_id": wish.worker_id}
        while True:
            found = await self._all("throttle_facts", of)
            if not found:
                await self._commit("throttle_put", {"tenant_id": tenant_id, "name": wish.name})
                continue
            facts = found[0]
            slots = wish.slots
            if wish.throttle.at_once is not None:
                slots = max(min(slots, wish.throttle.at_once - _number(facts["taken"])), 0)
            next_at, mono = _seconds(facts["next_at"]), _seconds(facts["mono"])
            tokens, next_at = take_tokens(wish.throttle, next_at, mono, wish.tokens)
            taking = {**of, "turn": facts["turn"], "next_at": next_at, "slots": slots, "lease_s": wish.lease_s}
            if taken := await self._commit("throttle_take", taking):
                return Share(slots, _seconds(taken[0]["held_until"]), tokens)


async def commit(server: Server, link: Link, query: str, params: Mapping[str, object]) -> list[Row]:
    """One statement as one commit. Raises Conflict where a unique key refuses it."""
    try:
        return await server.commit(link, query, params)
    except Spoiled as spoiled:
        if spoiled.unique:
            raise Conflict(f"somebody wrote the same first ({spoiled}): reload and decide again") from spoiled
        raise


def _number(value: object) -> int:
    assert isinstance(value, int), "a count is an integer"
    return value


def _seconds(value: object) -> float:
    assert isinstance(value, float), "a time is a float"
    return value
