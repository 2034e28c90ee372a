"""Does the simulation find bugs? Each of these is planted into the real code and has to be found."""

from __future__ import annotations

import pytest

from surefoot.testing.simulation import play
from tests.sim.plants import PLANTS, Plant


@pytest.mark.sqlite_only("some of the bugs are planted into its store")
@pytest.mark.parametrize(("plant", "seeds", "near"), [pytest.param(*plant, id=plant[0].__name__) for plant in PLANTS])
def test_a_planted_bug_is_found(plant: Plant, seeds: int, near: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    outward = sorted(range(seeds), key=lambda seed: abs(seed - near))
    found = next((result for seed in outward if (result := play(seed, further=())).violations), None)
    assert found is not None, f"{plant.__name__} was not found within {seeds} seeds"
