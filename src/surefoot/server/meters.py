"""What this process counts and times, and the text in which Prometheus reads it. It is lost with the process.

The text format is small and does not change, so it is written here; a reader of others' reads it in the tests.
"""

from __future__ import annotations

import asyncio
import bisect
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surefoot.doors import Clock
from surefoot.store.access import AccessStore, Counts

BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SERIES_MAX = 2_000
"""More combinations of labels than this are not kept: nobody outside may make them grow."""

COUNT_SECONDS_QUICK = 0.25
"""Counting that takes no longer is done for everybody who asks."""
COUNT_REST_FACTOR = 20.0
"""What took longer is told again for so many times as long."""

Labels = tuple[tuple[str, str], ...]


class Meters:
    """Counters by name and labels, and the times of requests."""

    def __init__(self) -> None:
        self.counters: dict[str, dict[Labels, int]] = defaultdict(dict)
        self.times: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}

    def count(self, name: str, **labels: str) -> None:
        """One more."""
        series = self.counters[name]
        key = tuple(sorted(labels.items()))
        if key in series or len(series) < SERIES_MAX:
            series[key] = series.get(key, 0) + 1

    def observe(self, seconds: float, **labels: str) -> None:
        """A request took so long to begin its answer."""
        key = tuple(sorted(labels.items()))
        if key not in self.times:
            if len(self.times) >= SERIES_MAX:
                return
            self.times[key] = [0] * (len(BUCKETS_SECONDS) + 1)
        self.times[key][bisect.bisect_left(BUCKETS_SECONDS, seconds)] += 1
        self.sums[key] = self.sums.get(key, 0.0) + seconds


class EvidenceTotals:
    """Evidence of one tenant by verdict and source: what is new is added, so that no look counts all of it again."""

    def __init__(self) -> None:
        self._place = 0
        self._totals: Counter[tuple[str, str]] = Counter()
        self._lock = asyncio.Lock()

    async def read(self, store: AccessStore, tenant: str) -> Counter[tuple[str, str]]:
        """The totals now. One look at a time: two that began at one place would count what they share twice."""
        async with self._lock:
            place, new = await store.evidence_counts(tenant, self._place)
            if place > self._place:
                self._place = place
                self._totals.update(dict(new))
            return self._totals


class Measured:
    """An ASGI middleware: counts requests by method, route and status, and times the beginning of their answers."""

    def __init__(self, app: ASGIApp, meters: Meters, clock: Clock) -> None:
        self._app = app
        self._meters = meters
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._clock.now().mono

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = _route_of(scope)
                seconds = max(self._clock.now().mono - began, 0.0)
                self._meters.count(
                    "http_requests", method=_method_of(scope), route=route, status=str(message["status"])
                )
                self._meters.observe(seconds, route=route)
            await send(message)

        await self._app(scope, receive, noted)


class CountsKept:
    """The counts of a tenant's store, for all who ask for metrics.

    Counting takes the longer, the more there is. Where it takes long, what was counted is told again for a while, so
    that it never takes more than a small part of the time, however often somebody asks.
    """

    def __init__(self) -> None:
        self._counts: Counts | None = None
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def read(self, store: AccessStore, tenant_id: str, clock: Clock) -> Counts:
        """What there is, or was just before."""
        async with self._lock:
            began = clock.now().mono
            if self._counts is None or began >= self._until:
                self._counts = await store.counts(tenant_id)
                ended = clock.now().mono
                slow = ended - began > COUNT_SECONDS_QUICK
                self._until = ended + (ended - began) * COUNT_REST_FACTOR if slow else ended
            return self._counts


def _route_of(scope: Scope) -> str:
    """The path as it is declared, never as it came: ids would make a series each, and paths may hold secrets."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "unknown"


def _method_of(scope: Scope) -> str:
    method = str(scope["method"])
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"


class Page:
    """A page of metrics in Prometheus' text format."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(self, name: str, text: str, values: Iterable[tuple[Mapping[str, str], float]]) -> None:
        """What is so now."""
        self._family(name, text, "gauge", values)

    def counter(self, name: str, text: str, values: Iterable[tuple[Mapping[str, str], float]]) -> None:
        """What only grows, until the process ends. `name` ends in `_total`."""
        self._family(name, text, "counter", values)

    def _family(self, name: str, text: str, kind: str, values: Iterable[tuple[Mapping[str, str], float]]) -> None:
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        self._lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in values]

    def times(self, name: str, text: str, meters: Meters) -> None:
        """A histogram of the times."""
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
        for key, buckets in sorted(meters.times.items()):
            total = 0
            for edge, count in zip((*map(_number, BUCKETS_SECONDS), "+Inf"), buckets, strict=True):
                total += count
                self._lines.append(f"{name}_bucket{_labels({**dict(key), 'le': edge})} {total}")
            self._lines.append(f"{name}_sum{_labels(dict(key))} {_number(meters.sums[key])}")
            self._lines.append(f"{name}_count{_labels(dict(key))} {total}")

    def text(self) -> str:
        """The page."""
        return "\n".join(self._lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return re.sub(r'[\\"\n]', lambda match: {"\\": "\\\\", '"': '\\"', "\n": "\\n"}[match[0]], value)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
