"""GET /v1/statistics: what the page draws. Runs by state over time, how long approvals take, what lookups answered."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response

from surefoot.server.openapi import described
from surefoot.server.requests import Reader
from surefoot.server.wire import reply
from surefoot.snapshot import iso
from surefoot.store.access import Span

router = APIRouter(tags=["server"])

HOURS_DEFAULT = 24
HOURS_MAX = 24 * 31
BUCKETS = 24
ROWS_MAX = 5_000
"""Of each kind: what is older is not counted, so that a look costs the same in a store of any size."""
APPROVAL_SECONDS = (60.0, 600.0, 3_600.0, 86_400.0)
"""The ends of the groups of times to approval; the last group has none."""


class RunsBegun(msgspec.Struct, frozen=True):
    """Runs that began in one piece of the time, by the status that they have now."""

    at: str
    counts: dict[str, int]


class ApprovalTimes(msgspec.Struct, frozen=True):
    """How many approvals were decided within so many seconds of being asked for."""

    up_to_seconds: float | None
    """None: longer than the group before."""
    count: int


class Statistics(msgspec.Struct, frozen=True):
    """What happened since a time, at most 5,000 of each kind, the newest."""

    since: str
    until: str
    bucket_seconds: float
    runs: list[RunsBegun]
    """Every piece of the time, in order, also those without a run."""
    approvals: list[ApprovalTimes]
    approval_median_seconds: float | None
    """Half of them were decided within this; null where none was."""
    lookups: dict[str, int]
    """Answers of lookups by verdict: found, absent, undetermined; of runs that began since then."""


Hours = Annotated[int, Query(ge=1, le=HOURS_MAX, description="How far to look back.")]


@router.get("/v1/statistics", summary="Statistics", **described({200: Statistics}, 422))
async def statistics(visit: Reader, hours: Hours = HOURS_DEFAULT) -> Response:
    """Runs by state over time, time to approval, and outcomes of lookups. Takes `read`."""
    until = visit.sf.doors.clock.now().wall
    bucket_s = hours * 3_600.0 / BUCKETS
    span = Span(until - hours * 3_600.0, bucket_s, ROWS_MAX)
    found = await visit.sf.store.statistics(visit.sf.tenant, span)
    runs = [RunsBegun(iso(span.since + n * bucket_s) or "", dict(found.runs.get(n, {}))) for n in range(BUCKETS)]
    times = sorted(found.approval_seconds)
    return reply(
        Statistics(
            iso(span.since) or "",
            iso(until) or "",
            bucket_s,
            runs,
            _groups(times),
            times[len(times) // 2] if times else None,
            dict(found.lookups),
        )
    )


def _groups(times: list[float]) -> list[ApprovalTimes]:
    ends = (*APPROVAL_SECONDS, float("inf"))
    starts = (-1.0, *APPROVAL_SECONDS)
    return [
        ApprovalTimes(None if end == float("inf") else end, sum(start < time <= end for time in times))
        for start, end in zip(starts, ends, strict=True)
    ]
