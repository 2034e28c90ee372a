"""Idle cost: a worker on a store with thousands of runs that wait for a person, beside one on a store with none."""

from __future__ import annotations

import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import Conditions, conditions
from benchmarks.rounds import ROOT, ProgramFailed, environment, fresh_folder
from benchmarks.summary import spread
from benchmarks.tables import Judged, grid, number, with_spread

WAITING, WAITING_QUICK = 10_000, 300
ROUNDS, ROUNDS_QUICK = 5, 1
IDLE_SECONDS, IDLE_SECONDS_QUICK = 10.0, 3.0
CLAIMS, CLAIMS_QUICK = 30, 10
FILL_SECONDS_MAX = 3_600.0
READY_SECONDS_MAX = 60.0
RATIO_MAX = 1.2


@dataclass(frozen=True)
class Idle:
    """One round on one store: CPU while nothing is to do, and from a start by another process to the model call."""

    waiting: int
    cpu_ms_per_second: float
    claim_ms: list[float]


@dataclass(frozen=True)
class Waiting:
    """Interleaved: each round has one Idle of the empty store and one of the full one."""

    on: Conditions
    rounds: list[Idle]


def measure(tell: Callable[[str], None], *, quick: bool, count: int | None) -> Waiting:
    """Fill one store, then look at both in turn. Raises ProgramFailed."""
    on = conditions()
    full, empty = fresh_folder("waiting-full"), fresh_folder("waiting-empty")
    wanted = count or (WAITING_QUICK if quick else WAITING)
    tell(f"{wanted:,} runs are being made that wait for a person")
    _run("fill", full, wanted)
    _run("fill", empty, 0)
    rounds = []
    for turn in range(ROUNDS_QUICK if quick else ROUNDS):
        stores = [(empty, 0), (full, wanted)]
        for folder, waiting in stores if turn % 2 == 0 else reversed(stores):
            rounds.append(_idle(folder, waiting, quick=quick))
            tell(f"waiting: {rounds[-1].waiting:,} runs: {rounds[-1].cpu_ms_per_second:.1f} ms of CPU a second")
    for folder in (full, empty):
        shutil.rmtree(folder)
    return Waiting(on, rounds)


def _words(mode: str, folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.programs.waiting", mode, str(folder), *more]


def _run(mode: str, folder: Path, count: int) -> str:
    done = subprocess.run(
        _words(mode, folder, str(count)),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=FILL_SECONDS_MAX,
    )
    if done.returncode != 0:
        raise ProgramFailed(f"waiting {mode}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def _idle(folder: Path, waiting: int, *, quick: bool) -> Idle:
    out = folder / "told.txt"
    with _worker(folder, out):
        _until(lambda: any(line[0] == "ready" for line in _told(out)))
        time.sleep(IDLE_SECONDS_QUICK if quick else IDLE_SECONDS)
        cpu = [value for what, _, value in _told(out) if what == "cpu"]
        started = _read(_run("start", folder, CLAIMS_QUICK if quick else CLAIMS))
        names = {name: at for what, name, at in started if what == "starting"}
        _until(lambda: names.keys() <= {name for what, name, _ in _told(out) if what == "called"})
        called = {name: at for what, name, at in _told(out) if what == "called"}
    out.unlink()
    # The first line is told while the worker starts.
    per_second = (cpu[-1] - cpu[1]) / (len(cpu) - 2)
    return Idle(waiting, 1e3 * per_second, [1e3 * (called[name] - at) for name, at in names.items()])


@contextmanager
def _worker(folder: Path, out: Path) -> Iterator[None]:
    with out.open("w") as file:
        worker = subprocess.Popen(_words("work", folder), cwd=ROOT, env=environment(), stdout=file)
        try:
            yield
        finally:
            worker.send_signal(signal.SIGKILL)
            worker.wait()


def _told(out: Path) -> list[tuple[str, str, float]]:
    return _read(out.read_text(encoding="utf-8"))


def _read(text: str) -> list[tuple[str, str, float]]:
    whole = text[: text.rfind("\n") + 1]
    return [(what, name, float(value)) for what, name, value in (line.split() for line in whole.splitlines())]


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + READY_SECONDS_MAX
    while not condition():
        if time.monotonic() > end:
            raise ProgramFailed(f"a worker did not do what it should within {READY_SECONDS_MAX:g} s")
        time.sleep(0.02)


def section(waiting: Waiting) -> str:
    """Two lines."""
    counts = sorted({one.waiting for one in waiting.rounds})
    rows = [
        (
            f"{count:,} runs wait for a person",
            with_spread(spread(_cpu(waiting, count))),
            f"{number(statistics.median(_claims(waiting, count)))} ms",
            f"{number(sorted(_claims(waiting, count))[int(0.99 * len(_claims(waiting, count)))])} ms",
        )
        for count in counts
    ]
    text = (
        "A worker with nothing to do, and runs that another process starts meanwhile: from its call of `start` to the "
        "worker's first model call. In turn, on both stores."
    )
    return f"{text}\n\n{grid(('', 'CPU a second, ms', 'claimed after, p50', 'p99'), rows)}"


def _cpu(waiting: Waiting, count: int) -> list[float]:
    return [one.cpu_ms_per_second for one in waiting.rounds if one.waiting == count]


def _claims(waiting: Waiting, count: int) -> list[float]:
    return [claim for one in waiting.rounds if one.waiting == count for claim in one.claim_ms]


def judged(waiting: Waiting) -> list[Judged]:
    """Both as ratios of the full store to the empty one."""
    full = max(one.waiting for one in waiting.rounds)
    cpu = statistics.median(_cpu(waiting, full)) / statistics.median(_cpu(waiting, 0))
    claim = statistics.median(_claims(waiting, full)) / statistics.median(_claims(waiting, 0))
    what = f"{full:,} runs wait for a person, over none"
    return [
        Judged(f"idle CPU, {what}", RATIO_MAX, 1.0, cpu, f"**{cpu:.2f}**", ceiling=True),
        Judged(f"claim latency, {what}", RATIO_MAX, 1.0, claim, f"**{claim:.2f}**", ceiling=True),
    ]
