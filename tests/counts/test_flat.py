"""What a step costs does not grow with the run: statements and bytes, from 100 to 3,000 steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from surefoot import Surefoot
from tests.counts.flat import Sample

pytestmark = pytest.mark.sqlite_only("statements, bytes and syncs are counted where SQLite makes them")

ROOT = Path(__file__).parents[2]
STEPS = 3_000
EARLY, LATE = (100, 300), (STEPS - 200, STEPS)
RATIO_MAX = 1.1
MOST = {"statements": 9.5, "bytes": 1_600}
"""What a step may cost that says next to nothing. Where it has become cheaper, the limit follows."""


async def _samples(folder: Path) -> dict[int, Sample]:
    path = folder / "app.db"
    url = f"sqlite:///{path}"
    async with Surefoot(url):
        pass
    command = [sys.executable, "-m", "tests.counts.flat", url, str(path), str(STEPS // 2)]
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    samples: list[Sample] = json.loads(ended.stdout)
    return {sample["steps"]: sample for sample in samples}


def _per_step(samples: dict[int, Sample], window: tuple[int, int], what: Literal["statements", "bytes"]) -> float:
    first, last = window
    return (samples[last][what] - samples[first][what]) / (last - first)


async def test_statements_and_bytes_a_step_are_flat(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    samples = await _samples(tmp_path)
    names: tuple[Literal["statements", "bytes"], ...] = ("statements", "bytes")
    for what in names:
        early, late = _per_step(samples, EARLY, what), _per_step(samples, LATE, what)
        assert early > 1, "nothing was counted"
        record_property("figure", f"{what} a step: {early:.1f} after {EARLY[0]} steps, {late:.1f} before step {STEPS}")
        assert late / early <= RATIO_MAX, what
        assert late <= MOST[what], what
