"""Every stable code that surefoot's own code can give, read from its syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.docs.test_examples import ROOT

PACKAGE = ROOT / "src" / "surefoot"
LEFT_OUT = ("testing", "demo")
"""Doubles and the demo: their codes are those of providers, or part of a story."""

POSITIONS = {
    "Problem": 1,
    "Refusal": 0,
    "fail_run": 1,
    "close_calls": 1,
    "fail_step": 2,
    "block": 3,
    "doubt": 0,
    "refused": 0,
    "_refused": 1,
    "Stop": 0,
    "Finding": 0,
}
"""Where a call of this name has its code, if it is not given by name."""


def codes() -> dict[str, set[str]]:
    """The codes, each with the files that give it."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(LEFT_OUT):
            for code in _codes_of(path):
                found.setdefault(code, set()).add(name)
    return found


def _codes_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield from _texts(_code_of_call(node))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id in ("code", "NO_RESEND") for target in targets):
                yield from _texts(node.value)


def _code_of_call(call: ast.Call) -> ast.expr | None:
    named = next((k.value for k in call.keywords if k.arg in ("code", "error_code")), None)
    if named is not None:
        return named
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    place = POSITIONS.get(name)
    return call.args[place] if place is not None and place < len(call.args) else None


def _texts(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _texts(value)


def names_in(folder: str) -> set[str]:
    """Every text literal in the Python files of a folder of the repository."""
    return {
        node.value
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
