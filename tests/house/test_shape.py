"""The shape of the code: sizes, arrows, cycles, documentation, and words that must not be in it."""

from __future__ import annotations

import ast
import re
import tomllib

from tests.house.tree import PACKAGE, ROOT, docstrings, functions, imports, module_at, modules, modules_below

FUNCTION_LINES_MAX = 80
FILE_LINES_MAX = 449

# A file that is longer, and why one reader wants it whole. An entry that is no longer needed fails the test.
LONG_FILES: dict[str, str] = {}

# The modules that load a part of the package late, and why.
LATE_IMPORTS: dict[str, str] = {
    "agent/providers.py": "pydantic-ai and a provider's library take seconds to load, and are optional",
    "cli/": "a command loads what it needs and no more: a rescue must start fast",
    "store/open.py": "the driver of PostgreSQL is an extra, which `import surefoot` must not need",
    "http.py": "the transport loads httpcore, which `import surefoot` must not",
}

SQL = re.compile(
    r"^\s*(select\b.*\bfrom\b|select\s+(1|\?|:|count|max|min|exists|coalesce)|insert\s+(or\s+\w+\s+)?into\b|replace\s+into\b"
    r"|update\s+\w+\s+set\b|delete\s+from\b|with\s+\w+\s*(\(.*?\)\s*)?as\s*(materialized\s*)?\(\s*(select|values|insert|update)"
    r"|(create|drop|alter)\s+(unique\s+|temp\s+|temporary\s+|virtual\s+)*(table|index|view|trigger)\b)",
    re.IGNORECASE | re.DOTALL,
)

IMPURE_CALLS = {"open", "input", "exec", "eval", "__import__", "print"}


def test_functions_are_short() -> None:
    long = [
        f"{module.at(node)} {node.name}: {lines} lines"
        for module in modules()
        for node in functions(module.tree)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert long == [], f"over {FUNCTION_LINES_MAX} lines: move the leaves out, keep the ifs in the parent"


def test_files_are_short_or_say_why() -> None:
    sizes = {module.place: module.text.count("\n") for module in modules()}
    long = {place: lines for place, lines in sizes.items() if lines > FILE_LINES_MAX and place not in LONG_FILES}
    assert long == {}, f"over {FILE_LINES_MAX} lines: split, or explain in LONG_FILES"
    needless = [place for place in LONG_FILES if sizes.get(place, 0) <= FILE_LINES_MAX]
    assert needless == [], "no longer an exception"
    assert all(len(reason) > 20 for reason in LONG_FILES.values()), "an exception says why"


def test_every_folder_of_the_package_is_a_package() -> None:
    folders = {module.path.parent for module in modules()}
    missing = [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()]
    assert missing == [], "an __init__.py is missing: layers and types are not checked without it"


def test_every_module_class_and_function_is_documented() -> None:
    missing = []
    for module in modules():
        if not ast.get_docstring(module.tree):
            missing.append(f"{module.place}: the module")
        missing += [f"{module.at(node)} {name}" for name, node in _public(module.tree) if not ast.get_docstring(node)]
    assert missing == [], "what, units, errors, guarantee"


def _public(tree: ast.Module) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    found = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        found.append((node.name, node))
        if isinstance(node, ast.ClassDef):
            found += [
                (f"{node.name}.{inner.name}", inner)
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and _needs_words(inner)
            ]
    return found


def _needs_words(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Not private, and not the second half of a property or an overload, whose words stand with the first."""
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    return not node.name.startswith("_") and not any(mark.endswith((".setter", "overload")) for mark in marks)


def _impure() -> set[str]:
    """The one list of what the core must not import, which import-linter reads too."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    found = next(set(contract["forbidden_modules"]) for contract in contracts if contract["id"] == "pure-core")
    assert {"asyncio", "sqlite3", "time", "random", "os", "logging", "socket", "httpx", "threading"} <= found
    return found


def test_the_core_is_pure() -> None:
    impure = _impure()
    found = []
    for module in modules_below("core"):
        found += [f"{module.at(node)} imports {name}" for name, node in imports(module) if name.split(".")[0] in impure]
        found += [
            f"{module.at(node)} calls {node.func.id}"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS
        ]
    assert found == [], "the core gets the clock, randomness and bytes as arguments"


def test_no_import_cycle_at_load() -> None:
    assert _cycles(_graph(load_only=True)) == []


def test_no_import_cycle_counting_types_and_late_imports() -> None:
    assert _cycles(_graph(load_only=False)) == [], "type-only imports obey the arrows too"


def _graph(*, load_only: bool) -> dict[str, set[str]]:
    known = {module.name for module in modules()}
    graph = {}
    for module in modules():
        graph[module.name] = {
            name for name, _ in imports(module, load_only=load_only) if name in known and name != module.name
        }
    assert any(graph.values()), "no module imports another: the graph was not read"
    return graph


def _cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that reach each other."""
    reach = {name: _reachable(graph, name) for name in graph}
    groups = {
        tuple(sorted(other for other in graph if other in reach[name] and name in reach[other]))
        for name in graph
        if name in reach[name]
    }
    return sorted(list(group) for group in groups)


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph.get(name, ())
    return seen


def test_cycles_are_found() -> None:
    assert _cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_own_imports_stand_at_the_top() -> None:
    late = [
        f"{module.at(inner)} in {node.name}"
        for module in modules()
        if not any(module.place == place or module.place.startswith(place) for place in LATE_IMPORTS)
        for node in functions(module.tree)
        for inner in ast.walk(node)
        if (isinstance(inner, ast.ImportFrom) and (inner.level or (inner.module or "").startswith("surefoot")))
        or (isinstance(inner, ast.Import) and any(alias.name.startswith("surefoot") for alias in inner.names))
    ]
    assert late == [], "import at the top, or explain in LATE_IMPORTS"


def test_no_sql_outside_the_query_files() -> None:
    assert list((PACKAGE / "store" / "sql").rglob("*.sql")), "no query file under store/sql"
    found = []
    for module in modules():
        words = docstrings(module.tree)
        found += [
            f"{module.at(node)} {node.value.strip()[:60]!r}"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in words
            if SQL.match(node.value)
        ]
    assert found == [], "SQL stands in store/sql, as a named and commented query"


def test_sql_is_recognised() -> None:
    for text in (
        "SELECT id\n FROM run",
        "  insert or ignore into blob values (?)",
        "UPDATE step SET status = ?",
        "WITH x AS (SELECT 1)",
        "create unique index a on b (c)",
        "delete from event",
    ):
        assert SQL.match(text), text
    for text in ("Select a run to show", "update the run", "With care as (ever)", "create a run", "BEGIN IMMEDIATE"):
        assert not SQL.match(text), text


def test_suppressions_are_explained_and_any_is_not_used_below() -> None:
    found = []
    for module in modules():
        for number, line in enumerate(module.text.splitlines(), 1):
            if re.search(r"#\s*type:\s*ignore(?!\[[a-z-]+(, ?[a-z-]+)*\]\s+#\s*\w)", line):
                found.append(f"{module.place}:{number} type: ignore needs a code and, after a second #, a reason")
            if re.search(r"#\s*pyright:\s*ignore", line):
                found.append(f"{module.place}:{number} pyright: ignore")
    for module in (*modules_below("core"), *modules_below("store")):
        found += [
            f"{module.at(node)} Any"
            for node in ast.walk(module.tree)
            if (isinstance(node, ast.Name) and node.id == "Any") or (isinstance(node, ast.alias) and node.name == "Any")
        ]
    assert found == []


def test_the_tables_hold_nothing_but_tables() -> None:
    module = module_at("core/transitions.py")
    assert not list(functions(module.tree)), "transitions.py is data; what applies it is evolve.py"
