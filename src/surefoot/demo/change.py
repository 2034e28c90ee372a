"""The pull request that is reviewed: a commit of surefoot where this is a checkout, else the one in change.diff."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec

PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED_TITLE = "A door no longer knows the operation: it is told what it needs"
DIFF_CHARACTERS = range(300, 20_000)
COMMITS_MAX = 40
GIT_SECONDS_MAX = 10.0


class Change(msgspec.Struct, frozen=True):
    """A real diff with its title, and where it comes from."""

    title: str
    diff: str
    source: str


def real_change() -> Change:
    """The newest commit of a readable size, else the shipped one."""
    return _from_checkout(PACKAGE.parents[1]) or shipped_change()


def shipped_change() -> Change:
    """The diff in the package."""
    diff = (Path(__file__).parent / "change.diff").read_text(encoding="utf-8")
    return Change(SHIPPED_TITLE, diff, "a change of surefoot that comes with the package")


def _from_checkout(root: Path) -> Change | None:
    # A package in somebody's .venv may lie below their own checkout, whose commits are none of ours.
    if PACKAGE.parent.name != "src" or not (root / ".git").exists():
        return None
    listed = _git(root, "rev-list", "--no-merges", f"--max-count={COMMITS_MAX}", "HEAD") or ""
    for commit in listed.split():
        diff = _git(root, "show", "--format=", "--no-color", "--no-ext-diff", "--no-textconv", commit) or ""
        if len(diff) in DIFF_CHARACTERS and diff.startswith("diff --git") and "\0" not in diff:
            title = (_git(root, "show", "--no-patch", "--format=%s", commit) or "").strip()
            return Change(title, diff, f"commit {commit[:12]} of this checkout")
    return None


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, timeout=GIT_SECONDS_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")
