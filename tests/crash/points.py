"""Write points.txt anew: `python -m tests.crash.points`."""

from __future__ import annotations

from pathlib import Path

from surefoot.testing.crash import record
from surefoot.testing.story import standard_scenario

if __name__ == "__main__":
    lines = [f"{point}\n" for point in record(standard_scenario())]
    Path(__file__).with_name("points.txt").write_text("".join(lines), encoding="utf-8")
