"""What the tracked files must not hold, and the form of the decision records. Forbidden words are built from pieces, so
that this file does not hold them."""

from __future__ import annotations

import re
import tomllib

from tests.house.tree import ROOT, tracked_texts

MACHINE_PATHS = [f"/{name}/" for name in ("wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers", "fa" + "rm")]
MAKING = [
    r"sub" + r"agent",
    r"\bfarm-" + r"\w+",
    r"\." + r"library\b",
    r"\bissues? " + r"(show|note|resolved|blocked)\b",
    r"\bin (this|an earlier|a previous|the next) ses" + r"sion\b",
    r"\bhelper ses" + r"sion",
    r"\bthe br" + r"ief (says|asks)",
    r"\bCE" + r"O\b",
]
REGISTRIES = [
    "py" + "pi.org",
    "python" + "hosted.org",
    "npm" + "js.org",
    "npm" + "js.com",
    "deb" + "ian.org",
    "ubuntu" + ".com",
    "crates" + ".io",
    "proxy.golang" + ".org",
    "--index" + "-url",
    "--extra-index" + "-url",
    "--find" + "-links",
]
HEADINGS = ["## Choice", "## Why", "## Cost", "## Instead of"]
DECISION_LINES_MAX = 60


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()[:100]}"
        for path, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def _either(words: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(word) for word in words), re.IGNORECASE)


def test_no_absolute_path_of_a_machine() -> None:
    # Not inside a longer path or URL: repository paths such as acme/app are fine, and so are URLs.
    pattern = re.compile(rf"(?<![\w.\-/])({'|'.join(re.escape(path) for path in MACHINE_PATHS)})")
    assert pattern.search(f'open("{MACHINE_PATHS[0]}x")')
    assert _lines_with(pattern) == []


def test_nothing_speaks_of_how_the_project_is_made() -> None:
    assert _lines_with(re.compile("|".join(MAKING), re.IGNORECASE)) == []


def test_no_registry_is_named() -> None:
    pattern = _either(REGISTRIES)
    assert pattern.search("https://" + REGISTRIES[0] + "/simple")
    assert _lines_with(pattern) == []


def test_locks_are_exact_and_cover_the_project() -> None:
    locked: dict[str, str] = {}
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(("#", "-r ")) or not line:
                continue
            match = re.fullmatch(r"([A-Za-z0-9_.-]+)==([0-9][A-Za-z0-9.!+]*)( ; .+)?", line)
            assert match, f"{path.name}: not an exact version: {line}"
            name = match[1].lower().replace("_", "-")
            # The site's generator runs in an environment of its own.
            place = name if path.name != "lock-docs.txt" or name == "zensical" else f"{name} of the site"
            assert place not in locked, f"{name} is locked twice"
            locked[place] = match[2]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(item for items in project["optional-dependencies"].values() for item in items),
    ]
    names = {re.split(r"[\[<>=!~ ;]", item)[0].lower() for item in wanted}
    assert names
    assert names - locked.keys() == set(), "not in requirements/*.txt: run requirements/lock.sh"


def test_decisions_have_their_four_headings() -> None:
    paths = sorted((ROOT / "docs" / "decisions").glob("*"))
    assert [path.name[:4] for path in paths] == [f"{number:04}" for number in range(1, len(paths) + 1)]
    assert len(paths) >= 9
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name), path.name
        assert re.match(rf"# {int(path.name[:4])}\. \S", text), f"{path.name}: the title is `# N. Title`"
        assert [line for line in text.splitlines() if line.startswith("## ")] == HEADINGS, path.name
        assert text.count("\n") <= DECISION_LINES_MAX, f"{path.name} is longer than half a page"


def test_the_changelog_names_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[?{re.escape(version)}\b", text, re.MULTILINE)


def test_sleeps_are_banned_in_tests() -> None:
    config = tomllib.loads((ROOT / "tests" / "ruff.toml").read_text(encoding="utf-8"))
    assert {"asyncio.sleep", "time.sleep"} <= config["lint"]["flake8-tidy-imports"]["banned-api"].keys()
