"""Idle cost: a worker, and the first pages of the API, on a store with runs that wait for a person.

The worker is compared with one on a store where nobody waits; the pages with those of a store where a few do, so that
both pages are full.
"""

from __future__ import annotations

import http.client
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import Conditions, conditions
from benchmarks.postgres import Databases, version_of
from benchmarks.rounds import ROOT, STORES, ProgramFailed, environment, fresh_folder
from benchmarks.summary import spread
from benchmarks.tables import Judged, grid, number, with_spread

WAITING, WAITING_QUICK = 100_000, 2_000
FEW = 200
"""More than a page has."""
ROUNDS, ROUNDS_QUICK = 5, 1
IDLE_SECONDS, IDLE_SECONDS_QUICK = 10.0, 3.0
CLAIMS, CLAIMS_QUICK = 30, 10
ASKED, ASKED_QUICK = 100, 20
"""Requests for each page."""
PAGES = {
    "inbox": "/v1/pending-actions?status=waiting",
    "questions": "/v1/pending-actions",
    "runs": "/v1/runs",
    "runs that wait": "/v1/runs?status=waiting_for_user",
}
FILL_SECONDS_MAX = 3_600.0
READY_SECONDS_MAX = 120.0
RATIO_MAX = 1.2
AGENTS = "from benchmarks.programs.waiting import QUICK, WAITER\n"


@dataclass(frozen=True)
class Idle:
    """One round on one store: CPU while nothing is to do, and from a start by another process to the model call."""

    waiting: int
    cpu_ms_per_second: float
    claim_ms: list[float]
    store: str = "sqlite"


@dataclass(frozen=True)
class Paged:
    """One round on one store: how long each page took, by its name."""

    store: str
    waiting: int
    page_ms: dict[str, list[float]]


@dataclass(frozen=True)
class Waiting:
    """Interleaved: each round has one Idle of each empty store and of each full one, and one Paged likewise."""

    on: Conditions
    rounds: list[Idle]
    pages: list[Paged] = field(default_factory=list)


@dataclass(frozen=True)
class _Place:
    """A store that is made once."""

    store: str
    waiting: int
    url: str
    folder: Path


def measure(databases: Databases | None, tell: Callable[[str], None], *, quick: bool, count: int | None) -> Waiting:
    """Fill the stores, then look at them in turn. Raises ProgramFailed."""
    on = conditions(version_of(databases))
    many = count or (WAITING_QUICK if quick else WAITING)
    places = []
    for store in STORES if databases is not None else ("sqlite",):
        for waiting in (0, FEW, many):
            tell(f"{STORES[store]}: {waiting:,} runs are being made that wait for a person")
            places.append(_filled(store, waiting, databases))
    found = Waiting(on, [], [])
    for turn in range(ROUNDS_QUICK if quick else ROUNDS):
        for place in places if turn % 2 == 0 else places[::-1]:
            _look(place, found, tell, quick=quick)
    for place in places:
        shutil.rmtree(place.folder)
    return found


def _filled(store: str, waiting: int, databases: Databases | None) -> _Place:
    folder = fresh_folder(f"waiting-{store}-{waiting}")
    url = f"sqlite:///{(folder / 'app.db').resolve()}"
    if store == "postgres":
        assert databases is not None
        url = databases.fresh()
    place = _Place(store, waiting, url, folder)
    _run("fill", place, waiting)
    return place


def _look(place: _Place, found: Waiting, tell: Callable[[str], None], *, quick: bool) -> None:
    what = f"{STORES[place.store]}, {place.waiting:,} runs wait"
    if place.waiting != FEW:
        idle = _idle(place, quick=quick)
        found.rounds.append(idle)
        tell(f"{what}: {idle.cpu_ms_per_second:.1f} ms of CPU a second, claimed after {_p50(idle.claim_ms):.0f} ms")
    if place.waiting:
        paged = Paged(place.store, place.waiting, _paged(place, ASKED_QUICK if quick else ASKED))
        found.pages.append(paged)
        tell(f"{what}: " + ", ".join(f"{name} {_p50(times):.1f} ms" for name, times in paged.page_ms.items()))


def _p50(values: Sequence[float]) -> float:
    return statistics.median(values)


def _words(mode: str, place: _Place, *more: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.programs.waiting", mode, place.url, *more]


def _run(mode: str, place: _Place, count: int) -> str:
    done = subprocess.run(
        _words(mode, place, str(count)),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=FILL_SECONDS_MAX,
    )
    if done.returncode != 0:
        raise ProgramFailed(f"waiting {mode}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def _idle(place: _Place, *, quick: bool) -> Idle:
    out = place.folder / "told.txt"
    with _process(_words("work", place), out):
        _until(lambda: any(line[0] == "ready" for line in _told(out)))
        time.sleep(IDLE_SECONDS_QUICK if quick else IDLE_SECONDS)
        cpu = [value for what, _, value in _told(out) if what == "cpu"]
        started = _read(_run("start", place, CLAIMS_QUICK if quick else CLAIMS))
        names = {name: at for what, name, at in started if what == "starting"}
        _until(lambda: names.keys() <= {name for what, name, _ in _told(out) if what == "called"})
        called = {name: at for what, name, at in _told(out) if what == "called"}
    out.unlink()
    # The first line is told while the worker starts.
    per_second = (cpu[-1] - cpu[1]) / (len(cpu) - 2)
    return Idle(place.waiting, 1e3 * per_second, [1e3 * (called[name] - at) for name, at in names.items()], place.store)


def _paged(place: _Place, times: int) -> dict[str, list[float]]:
    """From a server of its own, in turn, over one connection."""
    (place.folder / "agents.py").write_text(AGENTS)
    log = place.folder / "served.txt"
    words = [sys.executable, "-m", "surefoot", "serve", str(place.folder / "agents.py"), "--port", "0"]
    with _process([*words, "--store", place.url], log):
        _until(lambda: "serving http" in log.read_text())
        address = log.read_text().split("serving http://", 1)[1].split()[0]
        connection = http.client.HTTPConnection(address, timeout=READY_SECONDS_MAX)
        _until(lambda: _connects(connection))
        found: dict[str, list[float]] = {name: [] for name in PAGES}
        for turn in range(times + 1):
            for name, path in PAGES.items():
                began = time.perf_counter()
                connection.request("GET", path)
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != 200:
                    raise ProgramFailed(f"{path}: {answer.status} {body[:500]!r}")
                # The first of each is not counted: the server warms up.
                if turn:
                    found[name].append(1e3 * (time.perf_counter() - began))
        connection.close()
    log.unlink()
    return found


def _connects(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.connect()
    except ConnectionRefusedError:
        return False
    return True


@contextmanager
def _process(words: list[str], out: Path) -> Iterator[None]:
    with out.open("w") as file:
        process = subprocess.Popen(words, cwd=ROOT, env=environment(), stdout=file, stderr=file)
        try:
            yield
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _told(out: Path) -> list[tuple[str, str, float]]:
    return _read(out.read_text(encoding="utf-8"))


def _read(text: str) -> list[tuple[str, str, float]]:
    whole = text[: text.rfind("\n") + 1]
    told = [line.split() for line in whole.splitlines() if line.startswith(("ready", "cpu", "called", "starting"))]
    return [(what, name, float(value)) for what, name, value in told]


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + READY_SECONDS_MAX
    while not condition():
        if time.monotonic() > end:
            raise ProgramFailed(f"a process did not do what it should within {READY_SECONDS_MAX:g} s")
        time.sleep(0.02)


def section(waiting: Waiting) -> str:
    """Two tables."""
    text = (
        "A worker with nothing to do, and runs that another process starts meanwhile: from its call of `start` to the "
        "worker's first model call. In turn, on all stores. The runs that wait are one, and copies of its rows."
    )
    parts = [text, grid(("", "CPU a second, ms", "claimed after, p50", "p99"), _idle_rows(waiting))]
    if waiting.pages:
        names = list(PAGES)
        rows = [
            (_who(store, count), *(f"{number(_p50(_pages(waiting, store, count, name)))} ms" for name in names))
            for store, count in _cells(waiting.pages)
        ]
        parts += [
            "The first page of the API, from `surefoot serve` with its worker, over one connection (medians): "
            + ", ".join(f"{name} `GET {path}`" for name, path in PAGES.items())
            + ".",
            grid(("", *names), rows),
        ]
    return "\n\n".join(parts)


def _who(store: str, count: int) -> str:
    return f"{STORES[store]}, {count:,} runs wait for a person"


def _cells(found: Sequence[Idle] | Sequence[Paged]) -> list[tuple[str, int]]:
    return [
        (store, count) for store in STORES for count in sorted({one.waiting for one in found if one.store == store})
    ]


def _idle_rows(waiting: Waiting) -> list[tuple[str, str, str, str]]:
    rows = []
    for store, count in _cells(waiting.rounds):
        claims = sorted(_claims(waiting, store, count))
        p99 = f"{number(claims[int(0.99 * len(claims))])} ms"
        cpu = with_spread(spread(_cpu(waiting, store, count)))
        rows.append((_who(store, count), cpu, f"{number(_p50(claims))} ms", p99))
    return rows


def _cpu(waiting: Waiting, store: str, count: int) -> list[float]:
    return [one.cpu_ms_per_second for one in waiting.rounds if (one.store, one.waiting) == (store, count)]


def _claims(waiting: Waiting, store: str, count: int) -> list[float]:
    return [ms for one in waiting.rounds if (one.store, one.waiting) == (store, count) for ms in one.claim_ms]


def _pages(waiting: Waiting, store: str, count: int, name: str) -> list[float]:
    return [ms for one in waiting.pages if (one.store, one.waiting) == (store, count) for ms in one.page_ms[name]]


def judged(waiting: Waiting) -> list[Judged]:
    """Ratios of the full store to the empty one; of pages, to the store where a few wait."""
    found = []
    for store in dict.fromkeys(one.store for one in waiting.rounds):
        full = max(one.waiting for one in waiting.rounds if one.store == store)
        what = f"{full:,} runs wait for a person, over none"
        cpu = _p50(_cpu(waiting, store, full)) / _p50(_cpu(waiting, store, 0))
        claim = _p50(_claims(waiting, store, full)) / _p50(_claims(waiting, store, 0))
        found += [
            _bar(f"{STORES[store]}: idle CPU, {what}", cpu),
            _bar(f"{STORES[store]}: claim latency, {what}", claim),
        ]
    for store in dict.fromkeys(one.store for one in waiting.pages):
        few, full = (count for where, count in _cells(waiting.pages) if where == store)
        for name in PAGES:
            got = _p50(_pages(waiting, store, full, name)) / _p50(_pages(waiting, store, few, name))
            found.append(_bar(f"{STORES[store]}: page of {name}, {full:,} runs wait, over {few:,}", got))
    return found


def _bar(what: str, got: float) -> Judged:
    return Judged(what, RATIO_MAX, 1.0, got, f"**{got:.2f}**", ceiling=True)
