"""Pruning, the integrity of the file, and what another boot of the machine means."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from msgspec.structs import replace

from surefoot.core import codec
from surefoot.core.state import Attempt, Instant
from surefoot.errors import StoreError, Unreadable
from surefoot.store.port import ANOTHER_BOOT_MONO
from surefoot.store.records import read_attempts
from surefoot.store.sqlite.file import SqliteFile
from surefoot.store.sqlite.writer import Transaction

RUNS_A_TRANSACTION = 50
_OF_A_RUN = {
    "operation_keys": "prune_keys",
    "steps": "prune_steps",
    "actions": "prune_actions",
    "evidence": "prune_evidence",
    "checkpoints": "prune_checkpoints",
    "runs": "prune_run",
}
_AFTER_RUNS = {
    "messages": "prune_messages",
    "conversations": "prune_conversations",
    "blobs": "prune_run_blobs",
    "marks": "prune_marks",
    "announcements": "prune_announcements",
    "sessions": "prune_sessions",
}


def another_boot(file: SqliteFile, boot_id: str, now: Instant) -> bool:
    """Inside a transaction: if the machine was booted since, give every time of the old boot a meaning in this one.

    All leases are over. What was waited for is due now, and settle starts anew: an attempt that may have acted counts
    as ended now. Starts of attempts become ANOTHER_BOOT_MONO, so that a finite key lifetime counts as over; their wall
    times stay. Returns whether there was an older boot.
    """
    known = file.value("meta_get", {"key": "boot_id"})
    if known == boot_id:
        return False
    file.run("meta_put", {"key": "boot_id", "value": boot_id, "wall": now.wall})
    if known is None:
        return False
    file.run("boot_leases")
    file.run("boot_runs", {"now": now.mono})
    file.run("boot_run_starts", {"now": now.mono, "wall": now.wall})
    for row in file.rough("boot_tried", {}):
        # What cannot be read stays as it is: nothing is executed on it.
        with contextlib.suppress(Unreadable):
            attempts = [_since_boot(attempt, now.mono) for attempt in read_attempts(row)]
            names = {name: row[name] for name in ("tenant_id", "id", "run_id", "sequence")}
            file.run("boot_attempts", {**names, "attempts": codec.encode_value(attempts)})
    file.run("boot_steps", {"now": now.mono})
    file.run("boot_looks", {"now": now.mono})
    file.run("boot_throttles", {"now": now.mono})
    file.run("boot_throttle_shares")
    file.run("boot_workers", {"boot_id": boot_id})
    return True


def _since_boot(attempt: Attempt, now: float) -> Attempt:
    ended = None if attempt.ended is None else min(attempt.ended, now)
    return replace(
        attempt,
        started=Instant(ANOTHER_BOOT_MONO, attempt.started.wall),
        first_byte_before=min(attempt.first_byte_before, now),
        last_byte_before=now if attempt.possibly_sent else min(attempt.last_byte_before, now),
        ended=now if attempt.possibly_sent else ended,
    )


def integrity(file: SqliteFile) -> list[str]:
    """What SQLite finds damaged, and rows that lack the rows they belong to."""
    findings: list[str] = []
    for name in ("quick_check", "orphans"):
        try:
            findings += [str(next(iter(row.values()))) for row in file.all(name)]
        except StoreError as error:
            findings.append(str(error))
    return [finding for finding in findings if finding != "ok"]


def prune_some(tx: Transaction, tenant_id: str, ended_before: float) -> dict[str, int]:
    """Remove up to RUNS_A_TRANSACTION whole runs; counts by record. `runs` is 0 once none is left."""
    params = {"tenant_id": tenant_id, "ended_before": ended_before, "limit": RUNS_A_TRANSACTION}
    counts = dict.fromkeys(("events", *_OF_A_RUN), 0)
    for row in tx.file.all("prunable_runs", params):
        one = {"tenant_id": tenant_id, "run_id": row["id"]}
        counts["events"] += sum(int(str(gone["events"])) for gone in tx.file.all("prune_events", one))
        for record, query in _OF_A_RUN.items():
            counts[record] += tx.file.run(query, one)
    return counts


def prune_rest(tx: Transaction, tenant_id: str, ended_before: float, blobs_before: float) -> dict[str, int]:
    """Remove what no run is left for, and old requests; counts by record."""
    params = {"tenant_id": tenant_id, "ended_before": ended_before, "blobs_before": blobs_before}
    counts = {record: tx.file.run(query, params) for record, query in _AFTER_RUNS.items()}
    counts["blobs"] += tx.file.run("prune_request_blobs", params)
    return counts


def added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The sum by record."""
    total: dict[str, int] = {}
    for part in counts:
        for record, count in part.items():
            total[record] = total.get(record, 0) + count
    return total
