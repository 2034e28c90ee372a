"""The kill tests: an effect whose process dies directly before the request, or after it with the response lost.

Right is one effect and a completed run, both times, with nobody's help. Each program is started again at most three
times, by the ordinary documented usage of its engine.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import Conditions, conditions
from benchmarks.peers import NAMES, PEERS, Peers, version
from benchmarks.postgres import Databases, version_of
from benchmarks.rounds import fresh_folder
from benchmarks.tables import Judged, grid
from benchmarks.target import Target, play

RESTARTS_MAX = 3
SUREFOOT = "surefoot, a tool with a lookup"
ON_POSTGRES = "surefoot on PostgreSQL, a tool with a lookup"


@dataclass(frozen=True)
class Killed:
    """One kill test of one engine."""

    program: str
    before: bool
    effects: int
    completed: bool
    restarts: int
    seconds: float
    said: str

    @property
    def right(self) -> bool:
        """One effect, and the run is completed."""
        return self.effects == 1 and self.completed


@dataclass(frozen=True)
class Kills:
    """All of them."""

    on: Conditions
    tests: list[Killed]
    missing: dict[str, str] = field(default_factory=dict)


def programs_of(peers: Peers, databases: Databases | None) -> list[tuple[str, Path, str]]:
    """Label, Python and module of each engine's kill program."""
    found = [(f"{PEERS[name]} {version(name)}", python, f"kill_{name}") for name, python in peers.on_files().items()]
    ours = [SUREFOOT, *([ON_POSTGRES] if databases is not None else [])]
    return [*((label, Path(sys.executable), "kill_ours") for label in ours), *found]


def measure(peers: Peers, databases: Databases | None, tell: Callable[[str], None]) -> Kills:
    """Both tests of every engine that is there."""
    on = conditions(version_of(databases))
    tests = []
    for label, python, module in programs_of(peers, databases):
        for before in (True, False):
            url = databases.fresh() if databases is not None and label == ON_POSTGRES else None
            tests.append(_killed(label, python, module, *([url] if url is not None else []), before=before))
            if databases is not None and url is not None:
                databases.drop(url)
            tell(f"kill test: {label}, {'before the request' if before else 'response lost'}: {_words(tests[-1])}")
    return Kills(on, tests, dict(peers.missing))


def _killed(label: str, python: Path, module: str, *words: str, before: bool) -> Killed:
    target, folder = Target(), fresh_folder("kills")
    try:
        target.kills_poster = not before
        play(target, python, module, folder, 0, *words, *(["before"] if before else []))
        assert len(target.comments) == (0 if before else 1), f"{label} was not killed where it should have been"
        played = play(target, python, module, folder, 0, *words)
        restarts = 1
        while not played.said.startswith("DONE") and restarts < RESTARTS_MAX:
            played = play(target, python, module, folder, 0, *words)
            restarts += 1
    finally:
        target.close()
    shutil.rmtree(folder)
    completed = played.said.startswith("DONE")
    return Killed(label, before, len(target.comments), completed, restarts, played.said_seconds, played.said[:200])


def section(kills: Kills) -> str:
    """A line for each engine."""
    rows = []
    for label in dict.fromkeys(test.program for test in kills.tests):
        tests = {test.before: test for test in kills.tests if test.program == label}
        seconds = " / ".join(f"{tests[before].seconds:.2f} s" for before in (True, False))
        rows.append((label, _words(tests[True]), _words(tests[False]), seconds))
    head = ("", "killed before the request", "killed after it, response lost", "restart to the end (before / after)")
    missing = [f"**{NAMES[name]} is missing**: {why}" for name, why in kills.missing.items()]
    return "\n\n".join([*missing, grid(head, rows)])


def _words(test: Killed) -> str:
    count = f"{test.effects} effect{'s' if test.effects != 1 else ''}"
    if test.effects > 1:
        count = f"**{count}: a duplicate**"
    return f"{count}, {'completed' if test.completed else 'not completed: ' + test.said}"


def judged(kills: Kills) -> list[Judged]:
    """Both right, on each store."""
    found = []
    for program, store in ((SUREFOOT, "SQLite"), (ON_POSTGRES, "PostgreSQL")):
        ours = [test.right for test in kills.tests if test.program == program]
        if ours:
            what = f"{store}: kill tests: one effect and a completed run, nobody's help"
            shown = f"**{sum(ours)} of {len(ours)}**"
            found.append(Judged(what, 2, 2, sum(ours), shown, ceiling=False))
    return found
