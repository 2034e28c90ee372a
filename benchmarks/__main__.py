"""The command: `make bench`, or `python -m benchmarks`. README.md says what is measured and how to read it."""

from __future__ import annotations

import argparse
import sys

from benchmarks.profiling import write_profile
from benchmarks.rounds import FULL, OURS, QUICK, measure_rounds
from benchmarks.summary import lines
from benchmarks.tables import bars_table, speed_tables


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds: to look, not to publish")
    parser.add_argument("--rounds", type=int, help="rounds of each cell")
    parser.add_argument("--at-once", default="1,64", help="runs at once, comma-separated (default: 1,64)")
    parser.add_argument("--steps", default="20,1", help="steps of a run, comma-separated (default: 20,1)")
    parser.add_argument("--profile", action="store_true", help="only write profile.md: where the time of a step goes")
    return parser.parse_args()


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Measure, and print what was found."""
    asked = _arguments()
    if asked.profile:
        write_profile(_tell)
        return 0
    effort = QUICK if asked.quick else FULL
    shapes = [(int(steps), int(n)) for steps in asked.steps.split(",") for n in asked.at_once.split(",")]
    measured = measure_rounds(OURS, shapes, effort, _tell)
    table = lines(measured)
    print(f"{speed_tables(table)}\n\n{bars_table(table)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
