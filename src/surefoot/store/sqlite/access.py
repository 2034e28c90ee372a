"""Credentials, announcements, marks and counts on SQLite, in the order of `store/access.py`. It decides nothing."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import msgspec

from surefoot.core import codec
from surefoot.core.ids import RANDOM_BYTES, mint
from surefoot.core.throttle import take_tokens
from surefoot.store import records
from surefoot.store.access import Counts, Credential, Share, Span, Statistics, Wish
from surefoot.store.listed import Listed, listed
from surefoot.store.looked import Looked
from surefoot.store.sqlite.file import Row
from surefoot.store.sqlite.reads import SqliteReads
from surefoot.store.sqlite.writer import Transaction

T = TypeVar("T")

ID_SECONDS_EARLY = 60.0
"""By how much an id may be older than its row."""


class SqliteAccess(SqliteReads):
    """What the service reads and writes beside runs. The errors are those of the port."""

    _looked: Looked

    @abstractmethod
    async def _call(self, function: Callable[[Transaction], T], run_id: str | None = None) -> T: ...

    async def put_credential(self, credential: Credential) -> None:
        """Keep a new one. Raises Conflict for an id that exists."""
        permissions = codec.encode_value(credential.permissions)
        params = {**msgspec.structs.asdict(credential), "permissions": permissions}

        def write(tx: Transaction) -> None:
            # What the unique key refuses, the writer turns into a Conflict.
            tx.file.run("credential_put", params)

        await self._call(write)

    async def credential(self, tenant_id: str, credential_id: str) -> Credential | None:
        """One credential, whether or not it can still be used."""
        of = {"tenant_id": tenant_id, "id": credential_id}
        return await self._read(
            lambda: next(map(records.read_credential, self._file.rough("credential_get", of)), None)
        )

    async def credentials(self, tenant_id: str, kind: str) -> Listed[Credential]:
        """All of a kind, oldest first."""
        of = {"tenant_id": tenant_id, "kind": kind}
        return await self._read(lambda: listed(self._file.rough("credentials_list", of), records.read_credential))

    async def token_tenants(self) -> list[str]:
        """The tenants that have a token which was not revoked."""
        return await self._rows("token_tenants", {}, lambda row: str(row["tenant_id"]))

    async def revoke_credential(self, tenant_id: str, credential_id: str) -> bool:
        """End it, and the sessions that began with it. False where there was nothing to end."""

        def write(tx: Transaction) -> bool:
            params = {"tenant_id": tenant_id, "id": credential_id, "wall": tx.clock.now().wall}
            return tx.file.run("credential_revoke", params) > 0

        return await self._call(write)

    async def take_announcements(
        self, tenant_id: str, hook: str, again_s: float, limit: int, attempts_max: int
    ) -> list[tuple[str, int]]:
        """The waiting actions that `hook` is to be told of now. No commit is made where there is none."""
        key, now = (tenant_id, hook), self._clock.now()
        after = self._looked.begin(key, now.mono)
        params = {"tenant_id": tenant_id, "hook": hook, "limit": limit, "attempts_max": attempts_max, "after": after}

        def look() -> tuple[bool, int]:
            newest = self._file.value("newest_action", {})
            due = self._file.all("announcements_due", {**params, "wall": now.wall, "limit": 1})
            return bool(due), newest if isinstance(newest, int) else 0

        found, newest = await self._read(look)
        if not found:
            self._looked.nothing(key, now.mono, after, newest)
            return []

        def write(tx: Transaction) -> list[tuple[str, int]]:
            wall = tx.clock.now().wall
            tx.file.run("announcements_over", {**params, "wall": wall})
            due = [_due(row) for row in tx.file.all("announcements_due", {**params, "wall": wall})]
            for action_id, _ in due:
                taken = {"tenant_id": tenant_id, "action_id": action_id, "hook": hook, "next_at": wall + again_s}
                tx.file.run("announcement_take", {**taken, "wall": wall})
            return due

        return await self._call(write)

    async def announced(self, tenant_id: str, action_id: str, hook: str, outcome: str, again_s: float | None) -> None:
        """How an announcement went: again after `again_s`, or never with None."""

        def write(tx: Transaction) -> None:
            wall = tx.clock.now().wall
            named = {"tenant_id": tenant_id, "action_id": action_id, "hook": hook, "outcome": outcome, "wall": wall}
            tx.file.run("announcement_done", {**named, "next_at": None if again_s is None else wall + again_s})

        await self._call(write)

    async def next_announcement(self, tenant_id: str, hook: str, attempts_max: int) -> float | None:
        """wall: when `take_announcements` has something next; None: never."""
        after, wall = self._looked.behind((tenant_id, hook)), self._clock.now().wall
        params = {"tenant_id": tenant_id, "hook": hook, "wall": wall, "attempts_max": attempts_max, "after": after}
        found = await self._patiently(lambda: self._file.value("announcements_next", params))
        return float(found) if isinstance(found, float | int) else None

    async def mark(self, tenant_id: str, kind: str, name: str, value: str) -> str | None:
        """Keep a small fact under its name; what was there before."""
        params = {"tenant_id": tenant_id, "kind": kind, "name": name, "value": value}

        def write(tx: Transaction) -> str | None:
            before = tx.file.value("mark_get", {"tenant_id": tenant_id, "kind": kind, "name": name})
            tx.file.run("mark_put", {**params, "wall": tx.clock.now().wall})
            return None if before is None else str(before)

        return await self._call(write)

    async def marked(self, tenant_id: str, kind: str, name: str) -> str | None:
        """What is kept under that name."""
        params = {"tenant_id": tenant_id, "kind": kind, "name": name}
        found = await self._patiently(lambda: self._file.value("mark_get", params))
        return None if found is None else str(found)

    async def marks(self, tenant_id: str, kind: str, limit: int, after: str = "") -> list[str]:
        """The names of a kind in their order."""
        params = {"tenant_id": tenant_id, "kind": kind, "limit": limit, "after": after}
        return [str(row["name"]) for row in await self._patiently(lambda: self._file.all("marks_of", params))]

    async def unmark(self, tenant_id: str, kind: str, name: str) -> None:
        """Keep it no longer."""
        params = {"tenant_id": tenant_id, "kind": kind, "name": name}

        def write(tx: Transaction) -> None:
            tx.file.run("mark_drop", params)

        await self._call(write)

    async def counts(self, tenant_id: str) -> Counts:
        """How much there is, from one state of the file."""
        params = {"tenant_id": tenant_id}

        def by_name(query: str) -> dict[str, int]:
            return {_word(row["name"]): _number(row["count"]) for row in self._file.rough(query, params)}

        def read() -> Counts:
            oldest = self._file.value("oldest_action", params)
            return Counts(
                runs=by_name("count_runs_open") | by_name("count_runs_over"),
                blocked=by_name("count_runs_blocked"),
                steps=by_name("count_steps"),
                actions=by_name("count_actions"),
                oldest_action_at=oldest if isinstance(oldest, float) else None,
                leased=_number(self._file.value("count_runs_leased", params)),
                workers=_number(self._file.value("count_workers")),
            )

        return await self._read(read)

    async def blocked(self, tenant_id: str) -> Mapping[str, int]:
        """Runs that no worker can take, by why."""
        rows = await self._read(lambda: self._file.rough("count_runs_blocked", {"tenant_id": tenant_id}))
        return {_word(row["name"]): _number(row["count"]) for row in rows}

    async def blocked_runs(self, tenant_id: str, code: str, after: str, limit: int) -> list[str]:
        """Those of one reason by id, from behind the id `after` on."""
        params = {"tenant_id": tenant_id, "code": code, "after": after, "limit": limit}
        rows = await self._read(lambda: self._file.all("runs_blocked", params))
        return [str(row["id"]) for row in rows]

    async def unknown_at(self, tenant_id: str, target: str, limit: int) -> list[str]:
        """Steps whose outcome is unknown and whose target has this name, in whatever case, by id."""
        params = {"tenant_id": tenant_id, "target": target, "limit": limit}
        rows = await self._read(lambda: self._file.all("steps_unknown_at", params))
        return [str(row["id"]) for row in rows]

    async def unlooked_calls(self, tenant_id: str, tools: Collection[str], after: str, limit: int) -> list[str]:
        """Calls of these tools whose outcome is unknown and that nobody looks up, less those that were given up."""
        params = {"tenant_id": tenant_id, "tools": codec.encode_value(sorted(tools)), "after": after, "limit": limit}
        rows = await self._read(lambda: self._file.all("steps_unlooked", params))
        return [str(row["id"]) for row in rows]

    async def untold_calls(self, tenant_id: str, ahead_s: float, limit: int) -> list[str]:
        """Calls that wait for a run which has ended, and whose next look at it is still to come."""
        now = self._clock.now().mono
        params = {"tenant_id": tenant_id, "now": now, "until": now + ahead_s, "limit": limit}
        rows = await self._read(lambda: self._file.all("calls_untold", params))
        return [str(row["id"]) for row in rows]

    async def evidence_counts(self, tenant_id: str, after: int) -> tuple[int, Mapping[tuple[str, str], int]]:
        """Evidence written behind the place `after` by (verdict, source), and the place of the newest."""
        params = {"tenant_id": tenant_id, "after": after}
        rows = await self._patiently(lambda: self._file.rough("count_evidence", params))
        newest = max((_number(row["newest"]) for row in rows), default=after)
        return newest, {(_word(row["verdict"]), _word(row["source"])): _number(row["count"]) for row in rows}

    async def statistics(self, tenant_id: str, span: Span) -> Statistics:
        """What happened since `span.since`, from one state of the file."""
        # An id begins with the time at which it was made, a moment before its row: so the id's index finds the row.
        early = max(span.since - ID_SECONDS_EARLY, 0.0)
        params: dict[str, object] = {"tenant_id": tenant_id, **msgspec.structs.asdict(span)}
        of_runs = {**params, "from_id": mint("run", early, bytes(RANDOM_BYTES))}
        of_actions = {**params, "from_id": mint("act", early, bytes(RANDOM_BYTES))}

        def read() -> Statistics:
            runs: dict[int, dict[str, int]] = {}
            for row in self._file.rough("statistics_runs", of_runs):
                runs.setdefault(_number(row["bucket"]), {})[_word(row["status"])] = _number(row["count"])
            times = [row["seconds"] for row in self._file.all("statistics_approvals", of_actions)]
            verdicts = self._file.rough("statistics_lookups", of_runs)
            return Statistics(
                runs,
                [time for time in times if isinstance(time, float)],
                {_word(row["verdict"]): _number(row["count"]) for row in verdicts},
            )

        return await self._read(read)

    async def check_writable(self) -> None:
        """Commit something of no consequence. Raises StoreUnavailable."""
        await self._call(_check)

    async def confirm(self) -> bool:
        """False: a commit is on the disk before anybody can read it."""
        return False

    async def fence(self, tenant_id: str, run_id: str) -> None:
        """Behind a commit of its own: what this process writes to the run has its turn before, and others hold the lock
        while they write.
        """
        await self._call(_check, run_id)

    async def share(self, tenant_id: str, wish: Wish) -> Share:
        """Calls at once and tokens of a throttle, as far as there are any."""

        def write(tx: Transaction) -> Share:
            now, of = tx.clock.now(), {"tenant_id": tenant_id, "name": wish.name}
            tx.file.run("throttle_put", {**of, "now": now.mono, "wall": now.wall})
            facts = tx.file.one("throttle_facts", {**of, "worker_id": wish.worker_id, "now": now.mono})
            assert facts is not None, "throttle_put has made sure of it"
            free = math.inf if wish.throttle.at_once is None else wish.throttle.at_once - _number(facts["taken"])
            slots, until = max(min(wish.slots, free), 0), now.mono + wish.lease_s
            share = {**of, "worker_id": wish.worker_id, "slots": int(slots), "until": until, "wall": now.wall}
            tx.file.run("throttle_share_put", share)
            tx.file.run("throttle_shares_over", {**of, "now": now.mono})
            tokens, next_at = take_tokens(wish.throttle, _seconds(facts["next_at"]), now.mono, wish.tokens)
            if tokens.count:
                tx.file.run("throttle_next", {**of, "next_at": next_at, "wall": now.wall})
            return Share(int(slots), until, tokens)

        return await self._call(write)


def _check(tx: Transaction) -> None:
    wall = tx.clock.now().wall
    tx.file.run("meta_put", {"key": "checked_at", "value": f"{wall:.3f}", "wall": wall})


def _word(value: object) -> str:
    """What rows are counted by; the odd one keeps no other from being counted."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _due(row: Row) -> tuple[str, int]:
    return str(row["id"]), _number(row["attempt"])


def _number(value: object) -> int:
    assert isinstance(value, int), "a count is an integer"
    return value


def _seconds(value: object) -> float:
    assert isinstance(value, float), "the table is STRICT"
    return value
