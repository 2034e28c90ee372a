"""ARCHITECTURE.md names every module, and every function that it sends a reader to."""

from __future__ import annotations

import ast
import re
import tomllib

from tests.docs.test_examples import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "surefoot"
AS_A_WHOLE = ("testing", "demo", "cli", "connectors", "store/sqlite", "store/postgres", "store/sql")
"""Folders that have one line."""


def test_every_module_is_in_the_tree() -> None:
    modules = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")]
    single = [name for name in modules if not name.startswith(AS_A_WHOLE) and not name.endswith("/__init__.py")]
    assert len(single) > 50
    assert [name for name in single if not re.search(rf"\b{name.rpartition('/')[2]}", PAGE)] == []
    assert all(f"{name.rpartition('/')[2]}/" in PAGE for name in AS_A_WHOLE)


def test_every_file_that_is_named_exists() -> None:
    names = {path.name for folder in (PACKAGE, ROOT / "tests") for path in folder.rglob("*.*")}
    assert set(re.findall(r"\b(\w+\.(?:py|sql))\b", PAGE)) - names == set()


def test_every_function_that_is_named_exists() -> None:
    named = re.findall(r"(?:(\w+)/)?(\w+\.py)::(\w+)", PAGE)
    assert len(named) > 10
    for folder, file, name in named:
        paths = [path for path in PACKAGE.rglob(file) if folder in ("", path.parent.name)]
        assert any(name in _defined(path.read_text(encoding="utf-8")) for path in paths), f"{file}::{name}"


def _defined(code: str) -> set[str]:
    nodes = ast.walk(ast.parse(code))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


def test_the_arrows_are_the_layers_of_the_contract() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    wanted = [layer.strip("()") for layer in layers if "__main__" not in layer]
    for page in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        (shown,) = re.findall(r"^    (cli > .*(?:\n +> .*)*)$", text, re.MULTILINE)
        assert re.split(r"\s*>\s*", shown.strip()) == wanted, page
