"""The source as the house tests read it: parsed modules, their imports, and the files that git tracks."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "surefoot"

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its path below the package, its text and its syntax tree."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def place(self) -> str:
        return self.path.relative_to(PACKAGE).as_posix()

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def at(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def _name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@lru_cache(maxsize=1)
def modules() -> tuple[Module, ...]:
    """Every module of the package. Never empty: a rule over no code would hold for ever."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Module(_name_of(path), path, text, ast.parse(text, filename=str(path))))
    assert found, f"no source under {PACKAGE}"
    return tuple(found)


def modules_below(folder: str) -> tuple[Module, ...]:
    """The modules of one folder of the package; AssertionError if there is none."""
    found = tuple(module for module in modules() if module.place.startswith(f"{folder}/"))
    assert found, f"no source under src/surefoot/{folder}"
    return found


def module_at(place: str) -> Module:
    """The module at this path below the package; AssertionError if it does not exist."""
    found = [module for module in modules() if module.place == place]
    assert found, f"src/surefoot/{place} does not exist"
    return found[0]


def functions(tree: ast.AST) -> Iterator[FunctionNode]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def docstrings(tree: ast.AST) -> set[ast.Constant]:
    """The constants that are documentation: strings that stand alone as a statement."""
    return {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def imports(module: Module, *, load_only: bool = False) -> Iterator[tuple[str, ast.stmt]]:
    """The dotted names that a module imports. `load_only`: at load, so neither for types only nor inside functions."""
    nodes = _loaded(module.tree.body) if load_only else ast.walk(module.tree)
    known = {other.name for other in modules()}
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            stem = _stem(module, node)
            for alias in node.names:
                full = f"{stem}.{alias.name}"
                yield (full if full in known else stem), node


def _stem(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    base = parts[: len(parts) - (node.level - 1)]
    return ".".join([*base, node.module] if node.module else base)


def _loaded(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run at load: not the bodies of functions, not what only type checkers see."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield statement
        if isinstance(statement, ast.If):
            if "TYPE_CHECKING" not in ast.unparse(statement.test):
                yield from _loaded(statement.body)
            yield from _loaded(statement.orelse)
        elif isinstance(statement, ast.Try):
            handlers = [inner for handler in statement.handlers for inner in handler.body]
            yield from _loaded([*statement.body, *handlers, *statement.orelse, *statement.finalbody])
        elif isinstance(statement, ast.With | ast.ClassDef):
            yield from _loaded(statement.body)


def tracked_files() -> tuple[Path, ...]:
    """The files that git tracks, or all but the ignored ones where this is no checkout (a source archive)."""
    if (ROOT / ".git").exists():
        out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        paths = [ROOT / name for name in out.decode().split("\0") if name]
    else:
        hidden = {".venv", ".git", "__pycache__", "build", "dist"}
        paths = [path for path in ROOT.rglob("*") if not hidden.intersection(path.relative_to(ROOT).parts)]
    found = tuple(path for path in paths if path.is_file())
    assert found, "no tracked files"
    return found


def tracked_texts() -> Iterator[tuple[Path, str]]:
    """The tracked files that are text, with their path below the root."""
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" not in data:
            yield path.relative_to(ROOT), data.decode("utf-8")
