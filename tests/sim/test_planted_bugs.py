"""Does the simulation find bugs? Each of these is planted into the real code and has to be found."""

from __future__ import annotations

import pytest

from surefoot.testing.simulation import play
from tests.sim.plants import PLANTS, Plant

LONG = {"late_result_thrown_away", "settle_ignored", "second_result_appended"}
"""Found late: they are left to the long proofs."""


@pytest.mark.sqlite_only("some of the bugs are planted into its store")
@pytest.mark.parametrize(
    ("plant", "seeds"),
    [
        pytest.param(plant, seeds, id=plant.__name__, marks=[pytest.mark.prove] if plant.__name__ in LONG else [])
        for plant, seeds in PLANTS
    ],
)
def test_a_planted_bug_is_found(plant: Plant, seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = next((result for seed in range(seeds) if (result := play(seed)).violations), None)
    assert found is not None, f"{plant.__name__} was not found within {seeds} seeds"
