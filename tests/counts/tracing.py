"""A program of tests.counts.programs under the tracer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.counts.tracer import Line as Line, read_lines

ROOT = Path(__file__).parents[2]


def traced(out: Path, *words: str, environ: Mapping[str, str] | None = None) -> list[Line]:
    """Run the program that `words` describe to its good end; its system calls, by their entries. `out` keeps them."""
    program = [sys.executable, "-m", "tests.counts.programs", *words]
    tracer = [sys.executable, str(ROOT / "tests/counts/tracer.py"), str(out), "--", *program]
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    ended = subprocess.run(tracer, env={**os.environ, **(environ or {}), **paths}, capture_output=True, text=True)
    assert ended.returncode == 0, f"{ended.stderr}\nThe tests of syncs need Linux 5.3 and the right to trace a child."
    return read_lines(out)
