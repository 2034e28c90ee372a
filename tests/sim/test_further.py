"""What only some stories have, all of it at once: whether that holds, and whether it finds the bugs that it is for."""

from __future__ import annotations

import pytest

from surefoot.testing.further import FURTHER, Further
from surefoot.testing.simulate import main
from surefoot.testing.simulation import play
from tests.places import Place
from tests.sim.deliveries import deliver
from tests.sim.further_plants import FURTHER_PLANTS
from tests.sim.plants import Plant

SEEDS = 3


@pytest.mark.parametrize("deploys", [False, True])
def test_stories_hold_that_have_all_of_it(deploys: bool, place: Place) -> None:
    for seed in range(SEEDS):
        result = play(seed, further=FURTHER, deploys=deploys, store=place.renewed(), tell=deliver)
        assert result.violations == (), f"seed {seed}"


def test_a_seed_has_what_was_asked_for_and_is_the_same_story_again(capsys: pytest.CaptureFixture[str]) -> None:
    drawn, plain, unclear = play(2), play(2, further=()), play(2, further=("unclear",))
    assert len({drawn.event_hash, plain.event_hash, unclear.event_hash}) == 3
    assert play(2, further=("unclear",)) == unclear
    assert main(["--seed", "3", "--count", "5", "--with", "unclear", "--trace"]) == 0
    told = capsys.readouterr().out
    assert "append is on_its_way" in told and "arrives" in told


@pytest.mark.sqlite_only("some of the bugs are planted into its store")
@pytest.mark.parametrize(
    ("plant", "further", "seeds", "near"), [pytest.param(*plant, id=plant[0].__name__) for plant in FURTHER_PLANTS]
)
def test_a_planted_bug_is_found(
    plant: Plant, further: tuple[Further, ...], seeds: int, near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    outward = sorted(range(seeds), key=lambda seed: abs(seed - near))
    found = next((result for seed in outward if (result := play(seed, further=further)).violations), None)
    assert found is not None, f"{plant.__name__} was not found within {seeds} seeds"
