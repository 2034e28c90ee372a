"""The peers' virtual environments, made under build/ from the exact versions in peers-NAME.txt.

A peer that cannot be installed is told of by name and reason: a row that is missing without a word would look like a
choice.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.rounds import BUILD, Program

HERE = Path(__file__).parent
PEERS = {"dbos": "DBOS", "langgraph": "LangGraph"}
VARIANTS = {
    "dbos": {
        "dbos": "its default (rollback journal), async",
        "dbos-wal": "file in WAL, async",
        "dbos-wal-threads": "file in WAL, threads",
    },
    "langgraph": {"langgraph": "durability sync, async", "langgraph-threads": "durability sync, threads"},
}


@dataclass
class Peers:
    """The Pythons of the peers that are there, and why the others are not."""

    pythons: dict[str, Path] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def programs(self) -> list[Program]:
        """The rows of the speed table."""
        return [
            Program(f"{PEERS[name]} {version(name)}, {text}", f"peer_{name}", what, python)
            for name, python in self.pythons.items()
            for what, text in VARIANTS[name].items()
        ]


def version(name: str) -> str:
    """The version that is pinned."""
    lines = (HERE / f"peers-{name}.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{name}==")).partition("==")[2]


def ready_peers(tell: Callable[[str], None]) -> Peers:
    """Make what is not there yet. A peer whose installation fails is among the missing."""
    peers = Peers()
    for name in PEERS:
        failure = _make(name, tell)
        if failure is None:
            peers.pythons[name] = _python(name)
        else:
            peers.missing[name] = failure
            tell(f"{PEERS[name]} is MISSING from what follows: {failure}")
    return peers


def _python(name: str) -> Path:
    return BUILD / "venvs" / name / "bin" / "python"


def _make(name: str, tell: Callable[[str], None]) -> str | None:
    pins = HERE / f"peers-{name}.txt"
    folder = BUILD / "venvs" / name
    stamp = folder / "installed.txt"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == pins.read_text(encoding="utf-8"):
        return None
    tell(f"installing {PEERS[name]} {version(name)} into a virtual environment of its own")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no virtual environment could be made with {sys.executable} ({error})"
    pip = [str(_python(name)), "-m", "pip", "--disable-pip-version-check", "install", "-q", "-r", str(pins)]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return f"it could not be installed: {lines[-1] if lines else done.stderr.strip()[-300:]}"
    shutil.copy2(pins, stamp)
    return None
