"""GET /metrics: counts of the store and of this process, for Prometheus. docs/operate.md lists them."""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter, Request, Response

from surefoot.server.meters import CountsKept, EvidenceTotals, Meters, Page
from surefoot.server.openapi import described, package_version
from surefoot.server.requests import Reader
from surefoot.server.service import service_of
from surefoot.store.access import Counts

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "surefoot_"

router = APIRouter(tags=["server"])


@router.get(
    "/metrics",
    summary="Metrics",
    **described({200: None}, media={200: {"text/plain": {"schema": {"type": "string"}}}}),
)
async def metrics(request: Request, visit: Reader) -> Response:
    """What there is in the caller's tenant, and what this process did. Takes `read`."""
    service = service_of(request)
    sf = visit.sf
    totals = service.evidence_totals.setdefault(sf.tenant, EvidenceTotals())
    kept = service.counts.setdefault(sf.tenant, CountsKept())
    counts = await kept.read(sf.store, sf.tenant, sf.doors.clock)
    evidence = await totals.read(sf.store, sf.tenant)
    page = Page()
    _of_the_store(page, counts, evidence, sf.doors.clock.now().wall)
    _of_the_process(page, service.meters)
    return Response(sf.redactor.text(page.text()), headers={"Cache-Control": "no-store"}, media_type=MEDIA_TYPE)


def _of_the_store(page: Page, counts: Counts, evidence: Counter[tuple[str, str]], now: float) -> None:
    page.gauge(f"{PREFIX}build_info", "The version that runs.", [({"version": package_version()}, 1)])
    page.gauge(
        f"{PREFIX}runs", "Runs in the store, by status.", [({"status": s}, n) for s, n in sorted(counts.runs.items())]
    )
    blocked = [({"code": code}, count) for code, count in sorted(counts.blocked.items())]
    page.gauge(f"{PREFIX}runs_blocked", "Runs that no worker can take, by code.", blocked)
    page.gauge(f"{PREFIX}runs_leased", "Runs that a worker drives.", [({}, counts.leased)])
    steps = [({"status": status}, count) for status, count in sorted(counts.steps.items())]
    page.gauge(f"{PREFIX}steps_open", "Steps that are open, or will be looked up again, by status.", steps)
    actions = [({"kind": kind}, count) for kind, count in sorted(counts.actions.items())]
    page.gauge(f"{PREFIX}pending_actions", "Questions that wait for a person, by kind.", actions)
    oldest = 0.0 if counts.oldest_action_at is None else max(now - counts.oldest_action_at, 0.0)
    page.gauge(f"{PREFIX}pending_action_oldest_seconds", "How long the oldest of them waits.", [({}, oldest)])
    page.gauge(f"{PREFIX}workers", "Processes that take leases and are not known to be dead.", [({}, counts.workers)])
    looked = [({"verdict": v, "source": s}, count) for (v, s), count in sorted(evidence.items())]
    page.counter(f"{PREFIX}evidence_total", "Evidence that was written, by verdict and source.", looked)


def _of_the_process(page: Page, meters: Meters) -> None:
    texts = {
        "http_requests": "Requests that were answered, by method, route and status.",
        "webhooks": "Evidence that came in, by source and outcome.",
        "announcements": "Attempts to announce a question, by outcome.",
    }
    for name, text in texts.items():
        values = [(dict(key), count) for key, count in sorted(meters.counters.get(name, {}).items())]
        page.counter(f"{PREFIX}{name}_total", text, values)
    page.times(f"{PREFIX}http_request_seconds", "From a request to the beginning of its answer.", meters)
