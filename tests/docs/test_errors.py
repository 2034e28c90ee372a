"""docs/errors.md lists every stable code, and none that there is not."""

from __future__ import annotations

import re

import pytest

from surefoot import errors
from surefoot.connectors import github_lookup
from tests.docs.codes import codes, names_in
from tests.docs.test_examples import ROOT

PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
LISTED = set(re.findall(r"`([a-z_]+)`", "".join(line.split("|")[1] for line in PAGE.splitlines() if line[:3] == "| `")))


def test_every_code_is_listed() -> None:
    found = codes()
    assert len(found) > 80, "the codes are found"
    missing = {code: sorted(files) for code, files in found.items() if code not in LISTED}
    assert missing == {}


def test_every_code_that_is_listed_exists() -> None:
    texts = names_in("src/surefoot")
    assert {code for code in LISTED if code not in texts} == set()


def test_every_class_is_listed_with_its_code() -> None:
    found = [value for value in vars(errors).values() if isinstance(value, type)]
    classes = [value for value in found if issubclass(value, errors.SurefootError)]
    assert len(classes) > 10
    for each in classes:
        assert f"| `{each.code}` | `{each.__name__}` |" in PAGE, each.__name__


@pytest.mark.parametrize("reason", sorted(set(github_lookup._REASONS.values())))
def test_every_reason_of_a_refused_look_is_listed(reason: str) -> None:
    assert reason in LISTED
