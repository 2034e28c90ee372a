"""Metrics that Prometheus' own parser reads and that say what is in the store; readiness that tells what is wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from surefoot import Found, Operation, Receipt, Surefoot, effects, tool
from surefoot.server.meters import CountsKept, EvidenceTotals
from surefoot.server.metrics import MEDIA_TYPE
from surefoot.store.access import Counts
from surefoot.testing.clock import ManualClock
from surefoot.testing.world import TOKEN
from tests.identity.rig import SECRET, Rig, rig_of, token_of
from tests.places import Place
from tests.support import eventually

OPERATE = Path(__file__).parents[2] / "docs" / "operate.md"
Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def metrics(rig: Rig) -> Values:
    answer = await rig.ask("GET", "/metrics", token="read")
    assert (answer.status_code, answer.headers["content-type"]) == (200, MEDIA_TYPE)
    found: Values = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.documentation and family.type in ("gauge", "counter", "histogram"), family
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} stands twice"
            found[key] = sample.value
    return found


def value(found: Values, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


async def test_metrics_say_what_is_in_the_store(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch) as rig:
        empty = await metrics(rig)
        assert value(empty, "surefoot_pending_action_oldest_seconds") == 0
        run_id = await rig.in_doubt()
        during = await metrics(rig)
        assert value(during, "surefoot_runs", status="reconciling") == 1
        assert value(during, "surefoot_steps_open", status="outcome_unknown") == 1
        assert (value(during, "surefoot_runs_leased"), value(during, "surefoot_workers")) == (1, 1)
        looks = value(during, "surefoot_evidence_total", verdict="undetermined", source="lookup") or 0
        assert looks >= 1
        assert (await rig.deliver(rig.delivery())).json() == {"outcome": "settled"}
        await rig.sf.wait(run_id, timeout=20)
        after = await metrics(rig)
        assert value(after, "surefoot_runs", status="completed") == 1
        assert value(after, "surefoot_runs", status="reconciling") is None
        assert value(after, "surefoot_evidence_total", verdict="found", source="webhook") == 1
        assert (value(after, "surefoot_evidence_total", verdict="undetermined", source="lookup") or 0) >= looks
        assert value(after, "surefoot_webhooks_total", source="github", outcome="settled") == 1
        route = {"method": "POST", "route": "/v1/webhooks/github", "status": "200"}
        assert value(after, "surefoot_http_requests_total", **route) == 1
        assert value(after, "surefoot_http_request_seconds_bucket", route="/metrics", le="+Inf") == 2
        assert value(after, "surefoot_http_request_seconds_count", route="/metrics") == 2


async def test_questions_are_counted_with_their_age(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch, gated=True) as rig:
        run = await rig.sf.start("reviewer", "Review it")
        await rig.sf.wait(run.id, timeout=20)
        found = await metrics(rig)
        assert value(found, "surefoot_pending_actions", kind="approve") == 1
        oldest = value(found, "surefoot_pending_action_oldest_seconds")
        assert oldest is not None and oldest > 0


async def test_metrics_take_read_and_are_the_tenants(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch) as rig:
        assert (await rig.ask("GET", "/metrics")).status_code == 401
        assert (await rig.ask("GET", "/metrics", token="start")).status_code == 403
        async with Surefoot(rig.sf.url, tenant="another", secret=SECRET) as other:
            counts = await other.store.counts("another")
        await rig.sf.start("reviewer", "Review it")
        assert dict(counts.runs) == {}
        assert sum(v for (name, _), v in (await metrics(rig)).items() if name == "surefoot_runs") == 1


async def test_paths_and_secrets_are_not_in_metrics(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch) as rig:
        for path in (f"/{TOKEN}", f"/v1/runs/{TOKEN}", f"/v1/runs?agent={token_of('read')}", "/v1/runs/a%22%7D%0A"):
            await rig.ask("GET", path, token="read")
        await rig.ask(TOKEN.upper(), "/v1/runs", token="read")
        text = (await rig.ask("GET", "/metrics", token="read")).text
        assert TOKEN not in text and TOKEN.upper() not in text and token_of("read") not in text
        assert 'route="/v1/runs/{run_id}"' in text and 'route="unknown"' in text and 'method="other"' in text


async def test_counting_never_takes_more_than_a_small_part_of_the_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, seconds, counted = ManualClock(), 0.0, 0
    async with Surefoot(place.url) as sf:
        counts = sf.store.counts

        async def slow(tenant_id: str) -> Counts:
            nonlocal counted
            counted += 1
            clock.advance(seconds)
            return await counts(tenant_id)

        monkeypatch.setattr(sf.store, "counts", slow)
        for each_s, fewest, most in ((0.01, 300, 300), (1.0, 14, 15), (10.0, 1, 2)):
            seconds, counted, kept = each_s, 0, CountsKept()
            for _ in range(300):
                assert (await kept.read(sf.store, sf.tenant, clock)).runs == {}
                clock.advance(1.0)
            assert fewest <= counted <= most


@tool(effect=effects.opaque)
async def ring(op: Operation) -> Receipt:
    """Ring a bell."""
    return Receipt(resource_id="1")


async def test_evidence_is_counted_once_whoever_asks_at_the_same_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Surefoot(place.url, log=lambda line: None) as sf:
        await sf.perform(ring.call(), key="a")
        await sf.report("ring:a", Found(Receipt(resource_id="2")))
        totals, go_on, count, asked = EvidenceTotals(), asyncio.Event(), sf.store.evidence_counts, 0

        async def late(tenant_id: str, after: int) -> tuple[int, Mapping[tuple[str, str], int]]:
            nonlocal asked
            found = await count(tenant_id, after)
            asked += 1
            await go_on.wait()
            return found

        monkeypatch.setattr(sf.store, "evidence_counts", late)
        first = asyncio.ensure_future(totals.read(sf.store, sf.tenant))
        await eventually(lambda: asked == 1)
        await sf.report("ring:a", Found(Receipt(resource_id="3")))
        second = asyncio.ensure_future(totals.read(sf.store, sf.tenant))
        await sf.store.changed(sf.store.change_count(), 0.2)  # time enough for a look that does not wait for the first
        go_on.set()
        await asyncio.gather(first, second)
        assert await totals.read(sf.store, sf.tenant) == {("found", "report"): 2}


async def test_readiness_reads_blocked_runs_only(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch) as rig:
        monkeypatch.setattr(rig.sf.store, "counts", None)
        assert (await rig.http.get("/readyz")).status_code == 200


async def test_every_metric_is_in_the_documentation(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch) as rig:
        text = (await rig.ask("GET", "/metrics", token="read")).text
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert len(names) > 10
    listed = set(re.findall(r"^\| `(surefoot_\w+)`", OPERATE.read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == names


async def test_readiness_tells_of_a_store_that_cannot_be_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch) as rig:
        ready = await rig.ask("GET", "/readyz")
        assert (ready.status_code, ready.json()["ready"], ready.json()["store"]) == (200, True, None)
        with place.locked():
            locked = await rig.ask("GET", "/readyz")
        assert (locked.status_code, locked.json()["ready"], locked.json()["store"]) == (503, False, "store_unavailable")
        assert (await rig.ask("GET", "/healthz")).status_code == 200
        assert (await rig.ask("GET", "/readyz")).status_code == 200
