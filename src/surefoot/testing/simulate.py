"""Play simulated stories by hand: `python -m surefoot.testing.simulate --seed 7 --trace`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from surefoot.testing.further import FURTHER
from surefoot.testing.simulation import play


def main(arguments: Sequence[str] | None = None) -> int:
    """Play seeds from the command line; 0 if all hold."""
    parser = argparse.ArgumentParser(prog="python -m surefoot.testing.simulate", description="Play simulated stories.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--deploys", action="store_true", help="each process has a code drawn")
    known = ",".join(FURTHER)
    parser.add_argument("--with", dest="further", metavar=known, help="instead of what is drawn; empty: nothing")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    options = parser.parse_args(arguments)
    named = None if options.further is None else [name for name in options.further.split(",") if name]
    if not set(named or ()) <= set(FURTHER):
        parser.error(f"--with takes some of {known}")
    further = None if named is None else tuple(kind for kind in FURTHER if kind in named)
    failed = runs = completed = 0
    for seed in range(options.seed, options.seed + options.count):
        trace = print if options.trace else None
        result = play(seed, workers=options.workers, trace=trace, deploys=options.deploys, further=further)
        runs += len(result.statuses)
        completed += result.completed
        failed += bool(result.violations)
        for violation in result.violations:
            print(f"seed {seed}: {violation}")
    print(f"{options.count} seeds, {failed} failed; {completed} of {runs} runs completed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
