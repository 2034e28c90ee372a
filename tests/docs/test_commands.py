"""Commands, settings, links and make targets of the documents are those that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from surefoot.cli.arguments import parse, parser, split_json
from surefoot.cli.settings import NAMES
from tests.docs.codes import names_in
from tests.docs.test_examples import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
COMING = ("rules.md",)
"""Pages that are linked before they are there."""
COMMAND = re.compile(r"^\$ (surefoot .*)$", re.MULTILINE)
COMMANDS = sorted({command for page in PAGES for command in COMMAND.findall(page.read_text(encoding="utf-8"))})


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_real_parser_takes_it(command: str) -> None:
    assert parse(split_json(shlex.split(command)[1:])[1]).command


def test_every_command_is_shown_somewhere() -> None:
    shown = {parse(split_json(shlex.split(command)[1:])[1]).command for command in COMMANDS}
    actions = {f"actions {verb}" for verb in ("list", "show", "approve", "reject", "resolve", "answer", "link")}
    tokens = {f"tokens {verb}" for verb in ("create", "list", "revoke")}
    runs = {f"runs {verb}" for verb in ("start", "list", "show", "watch", "message", "cancel")}
    assert {"worker", "doctor", "prune", "export", "test", "db upgrade"} | actions | runs | tokens <= shown


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_settings_of_the_readme_exist(name: str) -> None:
    listed = set(re.findall(r"`((?:SUREFOOT|GITHUB|OPENAI|ANTHROPIC)_[A-Z_]+)`", text_of(name)))
    known = {setting for text in names_in("src/surefoot") for setting in re.findall(r"[A-Z]{3,}_[A-Z_]+", text)}
    known |= {f"SUREFOOT_{setting.upper()}" for setting in NAMES}
    assert listed - known == set()
    assert {f"SUREFOOT_{setting.upper()}" for setting in NAMES} <= listed


def test_the_exit_codes_of_the_readme_are_those_of_the_help() -> None:
    codes = re.findall(r"^  (\d)  ", parser().epilog or "", re.MULTILINE)
    assert len(codes) > 4
    for name in ("README.md", "README.zh-CN.md", "docs/operate.md"):
        assert all(re.search(rf"^\| {code} \|", text_of(name), re.MULTILINE) for code in codes), name


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    written = re.compile(r"`make ([a-z-]+)[^`]*`|^    make ([a-z-]+)", re.MULTILINE)
    named = {a or b for page in PAGES for a, b in written.findall(page.read_text(encoding="utf-8"))}
    assert {"demo", "test"} <= named
    assert named - targets == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        if linked.name in COMING and not linked.exists():
            continue
        assert linked.exists(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {_anchor(heading) for heading in headings}, f"{page.name}: {target}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_readme_names_every_setting_of_the_project_file(name: str) -> None:
    listed = text_of(name).partition("`[tool.surefoot]`")[2].partition("Surefoot(")[0]
    assert re.findall(r"`([a-z_]+)`", listed) == list(NAMES)
