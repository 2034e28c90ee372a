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
PEERS = {"dbos": "DBOS", "langgraph": "LangGraph", "absurd": "absurd", "restate": "Restate"}
NAMES = {**PEERS, "postgres": "PostgreSQL"}
"""Of all that may be missing."""
DISTRIBUTIONS = {"absurd": "absurd-sdk", "restate": "restate-sdk"}
"""Whose version is told, where it is not called as the peer is."""
ON_FILES = ("dbos", "langgraph")
"""Peers that run where nothing else does: they also take part in the kill tests, in storage and in starts."""
RESTATE_SERVER = "@restatedev/restate-server@1.7.12"


@dataclass(frozen=True)
class Variant:
    """A row of the speed table: what the peer's program is asked for, and beside which floor it stands."""

    what: str
    text: str
    store: str = "sqlite"
    own_server: bool = False


VARIANTS = {
    "dbos": (
        Variant("dbos", "its default (rollback journal), async"),
        Variant("dbos-wal", "file in WAL, async"),
        Variant("dbos-wal-threads", "file in WAL, threads"),
        Variant("dbos", "async", "postgres"),
        Variant("dbos-threads", "threads", "postgres"),
    ),
    "langgraph": (
        Variant("langgraph", "durability sync, async"),
        Variant("langgraph-threads", "durability sync, threads"),
    ),
    "absurd": (Variant("absurd", "one async worker", "postgres"),),
    "restate": (Variant("restate", "its own server and log, no PostgreSQL", "postgres", own_server=True),),
}


@dataclass
class Peers:
    """The Pythons of the peers that are there, and why the others are not."""

    pythons: dict[str, Path] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def programs(self) -> list[Program]:
        """The rows of the speed table."""
        return [
            Program(
                f"{PEERS[name]} {version(name)}, {row.text}",
                f"peer_{name}",
                row.what,
                python,
                row.store,
                row.own_server,
            )
            for name, python in self.pythons.items()
            for row in VARIANTS[name]
        ]

    def on_files(self) -> dict[str, Path]:
        """Those of ON_FILES that are there."""
        return {name: python for name, python in self.pythons.items() if name in ON_FILES}


def version(name: str) -> str:
    """The version that is pinned."""
    lines = (HERE / f"peers-{name}.txt").read_text(encoding="utf-8").splitlines()
    distribution = DISTRIBUTIONS.get(name, name)
    return next(line for line in lines if line.startswith(f"{distribution}==")).partition("==")[2]


def ready_peers(tell: Callable[[str], None]) -> Peers:
    """Make what is not there yet. A peer whose installation fails is among the missing."""
    peers = Peers()
    for name in PEERS:
        failure = _make(name, tell) or (_make_restate_server(tell) if name == "restate" else None)
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


def _make_restate_server(tell: Callable[[str], None]) -> str | None:
    """By npm: the server is a program in a package. No script of a package is run."""
    folder = BUILD / "node"
    stamp = folder / "installed.txt"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == RESTATE_SERVER:
        return None
    if shutil.which("npm") is None:
        return "its server comes by npm, which is not installed"
    tell(f"installing {RESTATE_SERVER}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    npm = ["npm", "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", RESTATE_SERVER]
    done = subprocess.run(npm, capture_output=True, text=True)
    if done.returncode != 0:
        return f"its server could not be installed: {done.stderr.strip()[-300:]}"
    stamp.write_text(RESTATE_SERVER, encoding="utf-8")
    return None
