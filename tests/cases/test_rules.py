"""Every case of this store has its test, and every rule names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

CASES = Path(__file__).parent
RULES = CASES.parents[1] / "docs" / "rules.md"
WANTED = [*range(1, 22), *range(25, 29), 30, *range(32, 45), *range(46, 52), 55, 60]


def names_of_tests() -> set[str]:
    """The names of all tests of field cases."""
    texts = [path.read_text(encoding="utf-8") for path in CASES.glob("test_*.py")]
    return {name for text in texts for name in re.findall(r"^(?:async )?def (test_c\w+)", text, re.MULTILINE)}


def test_every_case_has_a_test() -> None:
    covered = {int(name[6:9]) for name in names_of_tests()}
    assert [number for number in WANTED if number not in covered] == []


def test_every_rule_names_tests_that_there_are() -> None:
    there_are = names_of_tests()
    rules = re.split(r"\n- ", RULES.read_text(encoding="utf-8"))[1:]
    assert len(rules) > 20
    for rule in rules:
        named = re.findall(r"`(test_c\w+)`", rule)
        assert named, f"a rule without a test: {rule[:60]}"
        assert set(named) <= there_are, f"no such test: {set(named) - there_are}"
        ids = {int(number) for number in re.findall(r"C(\d{3})", rule.partition(":**")[0].partition(".**")[0])}
        assert ids & {int(name[6:9]) for name in named}, f"the tests are of other cases: {rule[:60]}"
