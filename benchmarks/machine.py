"""What the figures were measured on. No name of a machine and no path: nothing but what moves them."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.rounds import BUILD, ROOT

BUSY_LOAD = 0.5


@dataclass(frozen=True)
class Conditions:
    """When and on what. `load` is the machine's load average of one minute, before the first figure."""

    day: str
    commit: str
    processor: str
    cores: int
    memory_gib: float
    system: str
    filesystem: str
    python: str
    sqlite: str
    load: float
    postgres: str = ""


def conditions(postgres: str = "") -> Conditions:
    """Of now; the version of PostgreSQL where it is measured."""
    return Conditions(
        day=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=_commit(),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        filesystem=_filesystem(),
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        load=round(os.getloadavg()[0], 2),
        postgres=postgres,
    )


def was_busy(on: Conditions) -> bool:
    """Whether times that were taken then say little."""
    return on.load >= BUSY_LOAD


def described(on: Conditions) -> str:
    """One sentence for README.md, and a second one where the machine had other work to do."""
    busy = " **The machine was busy with other work: orders of magnitude, no more.**" if was_busy(on) else ""
    server = f", PostgreSQL {on.postgres}" if on.postgres else ""
    return (
        f"{on.day}, commit {on.commit}: {on.cores} cores ({on.processor}), {on.memory_gib:g} GiB, {on.system}, "
        f"{on.filesystem}, Python {on.python}, SQLite {on.sqlite}{server}; load {on.load:g} at the start.{busy}"
    )


def _commit() -> str:
    words = ["git", "log", "-1", "--format=%h", "--", "src"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _filesystem() -> str:
    """Of the folder that the databases are in: the longest mount point above it."""
    BUILD.mkdir(parents=True, exist_ok=True)
    best = ("", "unknown file system")
    for line in _lines("/proc/mounts"):
        _device, point, kind, *_rest = line.split()
        if BUILD.resolve().is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
