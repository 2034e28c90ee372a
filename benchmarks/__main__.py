"""The command: `make bench`, or `python -m benchmarks`. README.md says what is measured and how to read it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from benchmarks import counts, kills, speed, starts, storage, waiting, workers
from benchmarks.peers import Peers, ready_peers
from benchmarks.postgres import Databases, databases
from benchmarks.profiling import write_profile
from benchmarks.report import Results, figures, load, save
from benchmarks.rounds import FULL, QUICK, Effort

PARTS = ("speed", "workers", "counts", "storage", "starts", "waiting", "kills")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds, printed only: to look, not to publish")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, comma-separated (all: {','.join(PARTS)})")
    parser.add_argument("--no-peers", action="store_true", help="surefoot and the floors alone, printed only")
    parser.add_argument("--rounds", type=int, help="rounds of each cell of the speed table (5, quick: 2)")
    parser.add_argument("--at-once", default="1,8,64,512", help="runs at once, comma-separated (1,8,64,512)")
    parser.add_argument("--steps", default="20,1", help="steps of a run, comma-separated (default: 20,1)")
    parser.add_argument("--store", choices=("both", "sqlite"), default="both", help="sqlite: without PostgreSQL")
    parser.add_argument("--waiting", type=int, help="runs that wait for a person (100000, quick: 2000)")
    parser.add_argument("--write", action="store_true", help="keep the figures in README.md although they are --quick")
    parser.add_argument("--render", action="store_true", help="only make README.md and the plot anew from results.json")
    parser.add_argument("--profile", action="store_true", help="only write profile.md: where the time of a step goes")
    asked = parser.parse_args()
    unknown = set(asked.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return asked


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _measure(asked: argparse.Namespace, results: Results) -> None:
    parts = asked.only.split(",")
    effort = QUICK if asked.quick else FULL
    effort = replace(effort, rounds=asked.rounds or effort.rounds)
    peers = Peers() if asked.no_peers else ready_peers(_tell)
    with ExitStack() as stack:
        server = stack.enter_context(databases(_tell, peers.missing)) if asked.store == "both" else None
        _measure_parts(asked, parts, effort, peers, server, results)


def _measure_parts(
    asked: argparse.Namespace,
    parts: Sequence[str],
    effort: Effort,
    peers: Peers,
    server: Databases | None,
    results: Results,
) -> None:
    if "speed" in parts:
        shapes = [(int(steps), int(n)) for steps in asked.steps.split(",") for n in asked.at_once.split(",")]
        results.speed = speed.measure(peers, server, shapes, effort, _tell)
    if "workers" in parts and server is not None:
        results.workers = workers.measure(server, _tell, quick=asked.quick)
    if "counts" in parts:
        results.counts = counts.measure(peers, _tell)
    if "storage" in parts:
        results.storage = storage.measure(peers, server, _tell, quick=asked.quick)
    if "starts" in parts:
        results.starts = starts.measure(peers, server, _tell, quick=asked.quick)
    if "waiting" in parts:
        results.waiting = waiting.measure(server, _tell, quick=asked.quick, count=asked.waiting)
    if "kills" in parts:
        results.kills = kills.measure(peers, server, _tell)


def main() -> int:
    """Measure, print what was found, and keep it in README.md unless it is a look only."""
    asked = _arguments()
    if asked.profile:
        write_profile(_tell)
        return 0
    if asked.render:
        save(load())
        return 0
    keep = asked.write or not (asked.quick or asked.no_peers)
    results = load() if keep else Results()
    _measure(asked, results)
    print(figures(results))
    if keep:
        save(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
