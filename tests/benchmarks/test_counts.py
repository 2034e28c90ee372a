"""What a step may cost in work, on any machine: calls of functions and SQL statements, counted.

Where a step has become cheaper, the limit follows, so that it does not become dear again unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest

from benchmarks.programs.counted import PerStep
from benchmarks.rounds import LOOP, PERFORM, Program, run_program
from tests.places import Place

STEPS, AT_ONCE = 20, 8


@dataclass(frozen=True)
class Most:
    """What a step may cost, with AT_ONCE runs at once."""

    calls: float
    statements: float
    commits: float


# On PostgreSQL it depends on the moments at which answers come how many decisions share a statement: more room.
MOST = {
    ("perform", "sqlite"): Most(1_600, 66, 0.9),
    ("loop", "sqlite"): Most(950, 16.5, 0.5),
    ("perform", "postgres"): Most(3_600, 3.5, 1.8),
    ("loop", "postgres"): Most(2_200, 1.8, 0.7),
}


@pytest.mark.parametrize("program", [pytest.param(PERFORM, id="perform"), pytest.param(LOOP, id="loop")])
def test_a_step_takes_no_more_calls_statements_and_commits(
    program: Program,
    place: Place,
    record_property: Callable[[str, object], None],
) -> None:
    where = str(place.folder) if place.kind == "sqlite" else f"{place.fresh()},{place.fresh()}"
    line = run_program(program.python, "counted", program.what, where, str(STEPS), str(AT_ONCE))
    counted = msgspec.json.decode(line, type=PerStep)
    what = (
        f"{place.kind}, {program.what}: {counted.calls:.0f} calls, {counted.statements:.1f} statements and "
        f"{counted.commits:.2f} commits a step"
    )
    record_property("figure", what)
    most = MOST[program.what, place.kind]
    assert 100 < counted.calls <= most.calls, what
    assert 0.1 < counted.statements <= most.statements, what
    assert 0.05 < counted.commits <= most.commits, what
