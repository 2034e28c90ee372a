"""The parts of the demo that can be wrong without a process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from surefoot.demo import change
from surefoot.demo.agent_file import Times, write_agent_file
from surefoot.demo.change import DIFF_CHARACTERS, Change, real_change, shipped_change
from surefoot.demo.script import review
from surefoot.testing.world import World


def _commit(root: Path, name: str, text: str, title: str) -> None:
    (root / name).write_text(text)
    for words in (("add", name), ("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", title)):
        subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in which the package lies, as this one does."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, capture_output=True)
    monkeypatch.setattr(change, "PACKAGE", tmp_path / "src" / "surefoot")
    return tmp_path


def test_the_newest_commit_of_a_readable_size_is_reviewed(checkout: Path) -> None:
    _commit(checkout, "a.py", "x = 1\n" * 100, "The one")
    _commit(checkout, "b.py", "y = 1\n" * 10_000, "Too large")
    _commit(checkout, "c.py", "z", "Too small")
    found = real_change()
    assert found.title == "The one" and "+x = 1" in found.diff and "of this checkout" in found.source


def test_without_a_checkout_the_shipped_diff_is_reviewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change, "PACKAGE", tmp_path / "src" / "surefoot")
    assert real_change() == shipped_change()


def test_the_checkout_of_somebody_else_is_left_alone(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _commit(checkout, "a.py", "x = 1\n" * 100, "Theirs")
    monkeypatch.setattr(change, "PACKAGE", checkout / "site-packages" / "surefoot")
    assert real_change() == shipped_change()


def test_the_shipped_diff_is_one_that_the_world_can_show() -> None:
    shipped = shipped_change()
    assert len(shipped.diff) in DIFF_CHARACTERS and shipped.title
    world = World()
    world.add_repo("acme/app")
    world.add_pull("acme/app", 128, title=shipped.title, body="", diff=shipped.diff)


def _review(found: Change) -> str:
    return review({"title": found.title, "diff": found.diff})


def test_the_review_counts_what_is_in_the_diff() -> None:
    diff = (
        "diff --git a/app.py b/app.py\n--- a/app.py\n+++ b/app.py\n@@ -1,2 +1,3 @@\n-old\n+new\n"
        f"+# TODO {'x' * 130}\n+++ counter\n"
    )
    text = _review(Change("Title", diff, ""))
    assert "“Title”**: 1 files, +2 −1." in text and "- `app.py`" in text
    assert "1 new lines are longer" in text and "1 new lines say TODO" in text and "No test is changed" in text


@pytest.mark.parametrize("model", [None, "openai:gpt-5"])
def test_the_agent_file_is_a_users_file(tmp_path: Path, model: str | None) -> None:
    write_agent_file(tmp_path, model, Times(settle=2))
    names: dict[str, object] = {}
    exec((tmp_path / "reviewer.py").read_text(), names)
    agent = names["reviewer"]
    assert repr(agent) == "Agent('reviewer', tools=['create_issue_comment', 'read_pull_request'])"
    assert ("openai:gpt-5" in (tmp_path / "reviewer.py").read_text()) == (model is not None)
