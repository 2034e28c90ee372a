"""What a step may cost in work, on any machine: calls of functions and SQL statements, counted.

Where a step has become cheaper, the limit follows, so that it does not become dear again unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from benchmarks.programs.counted import PerStep
from benchmarks.rounds import LOOP, PERFORM, Program, run_program

STEPS, AT_ONCE = 20, 8


@pytest.mark.parametrize(
    ("program", "calls_max", "statements_max"),
    [pytest.param(PERFORM, 2_900, 66, id="perform"), pytest.param(LOOP, 1_150, 16.5, id="loop")],
)
def test_a_step_takes_no_more_calls_and_statements(
    program: Program,
    calls_max: float,
    statements_max: float,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    line = run_program(program.python, "counted", program.what, str(tmp_path), str(STEPS), str(AT_ONCE))
    counted = msgspec.json.decode(line, type=PerStep)
    what = f"{program.what}: {counted.calls:.0f} calls and {counted.statements:.1f} statements a step"
    record_property("figure", what)
    assert 100 < counted.calls <= calls_max, what
    assert 1 < counted.statements <= statements_max, what
