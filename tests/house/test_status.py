"""One module assigns a run's or a step's status, and one row of one table leads to outcome_unknown."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from surefoot.core import transitions
from surefoot.core.state import StepStatus
from tests.house.tree import PACKAGE, Module, module_at, modules

WRITER = "core/evolve.py"
TABLES = "core/transitions.py"
RECORDS = "core/state.py"
ENUMS = {"RunStatus", "StepStatus"}

# Nothing here holds a run or a step of ours: a status in these places is an HTTP status or a pull request's, unless the
# value is one of our own.
ELSEWHERE = ("testing/", "connectors/", "http.py", "http_wire.py", "effects.py", "doors.py")


def _records() -> set[str]:
    """The classes that have a status of RunStatus or StepStatus."""
    found = {
        node.name
        for node in ast.walk(module_at(RECORDS).tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and ast.unparse(field.target) == "status"
        if any(name in ast.unparse(field.annotation) for name in ENUMS)
    }
    assert {"Run", "Step"} <= found, f"core/state.py has no Run and Step with a status: {found}"
    return found


def _words() -> set[str]:
    """The values of both enumerations."""
    found = {
        item.value.value
        for node in ast.walk(module_at(RECORDS).tree)
        if isinstance(node, ast.ClassDef) and node.name in ENUMS
        for item in node.body
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)
    }
    assert {"outcome_unknown", "reconciling", "running"} <= found, f"the enumerations were not read: {found}"
    return found


def _last_name(node: ast.expr) -> str:
    """`replace` of `msgspec.structs.replace`, `Step` of `state.Step`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


class Finder:
    """Finds the places where one module gives a status to a run or a step."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.records = _records()
        self.words = _words()
        self.elsewhere = module.place.startswith(ELSEWHERE)

    def writes(self) -> Iterator[str]:
        for node in ast.walk(self.module.tree):
            if isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                yield from self._assignment(node)

    def _call(self, node: ast.Call) -> Iterator[str]:
        name = _last_name(node.func)
        given = next((keyword.value for keyword in node.keywords if keyword.arg == "status"), None)
        if name in {"replace", "_replace", "__replace__", "evolve"} and given is not None and self._counts(given):
            yield f"{self.module.at(node)} {name}(…, status={ast.unparse(given)})"
        elif name in self.records and self._makes(node, given):
            yield f"{self.module.at(node)} {name}(…) with a status"
        elif name in {"setattr", "__setattr__", "force_setattr"} and any(
            isinstance(argument, ast.Constant) and argument.value == "status" for argument in node.args
        ):
            yield f"{self.module.at(node)} {name}(…, 'status')"

    def _makes(self, node: ast.Call, given: ast.expr | None) -> bool:
        """A record is made with a status. A store does so too, with what the row holds, never with a new one."""
        values = [*node.args, *([given] if given is not None else [])]
        if self.module.place.startswith("store/"):
            return any(self._is_ours(value) for value in values)
        return bool(values)

    def _assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[str]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and target.attr == "status" and node.value is not None:
                if isinstance(target.value, ast.Name) and target.value.id == "self" and not self._is_ours(node.value):
                    continue  # an object's own field, such as the HTTP status of an exception
                if self._counts(node.value):
                    yield f"{self.module.at(node)} {ast.unparse(target)} = …"

    def _counts(self, value: ast.expr) -> bool:
        return not self.elsewhere or self._is_ours(value)

    def _is_ours(self, value: ast.expr) -> bool:
        """The value names a status of a run or a step."""
        return any(
            (isinstance(part, ast.Constant) and part.value in self.words)
            or (isinstance(part, ast.Attribute) and _last_name(part.value) in ENUMS)
            for part in ast.walk(value)
        )


def test_one_module_assigns_a_status() -> None:
    writers = {module.place: found for module in modules() if (found := list(Finder(module).writes()))}
    assert WRITER in writers, "core/evolve.py assigns no status: this test reads something else than the code does"
    del writers[WRITER]
    assert writers == {}, "a status comes from an event, through core/evolve.py"


def _finds(text: str, place: str) -> bool:
    return bool(list(Finder(Module("surefoot.x", PACKAGE / place, text, ast.parse(text))).writes()))


def test_each_way_to_assign_a_status_is_found() -> None:
    for text in (
        "msgspec.structs.replace(step, status=target)",
        "replace(run, version=2, status=RunStatus.running)",
        "copy.replace(step, status='failed')",
        "Step(id=a, status=StepStatus.pending)",
        "state.Run(a, b, 'running')",
        "step.status = other",
        "run.status: RunStatus = other",
        "setattr(step, 'status', other)",
        "msgspec.structs.force_setattr(step, 'status', other)",
    ):
        assert _finds(text, "runtime/worker.py"), text
    for text in ("Step(status='failed')", "Run(status=RunStatus.running)", "replace(step, status=row[3])"):
        assert _finds(text, "store/sqlite.py"), text
    assert _finds("replace(step, status=StepStatus.failed)", "testing/world.py")


def test_what_is_no_assignment_is_let_be() -> None:
    for place, text in (
        ("store/sqlite.py", "Step(id=row[0], status=StepStatus(row[1]))"),
        ("effects.py", "class Refused:\n    def __init__(self, status):\n        self.status = status"),
        ("testing/world.py", "replace(reply, status=502)"),
        ("runtime/worker.py", "if step.status == StepStatus.failed: show(status=step.status.value)"),
        ("runtime/worker.py", "Started(status='running')"),
    ):
        assert not _finds(text, place), text


def _rows_to(status: str) -> list[str]:
    """The keys of the rows of all tables in core/transitions.py that lead to `status`."""
    return [
        ast.unparse(key)
        for node in ast.walk(module_at(TABLES).tree)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if key is not None and any(_is_named(part, status) for part in ast.walk(value))
    ]


def _is_named(node: ast.AST, status: str) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == status) or (
        isinstance(node, ast.Constant) and node.value == status
    )


def test_outcome_unknown_comes_from_one_row() -> None:
    assert _rows_to("outcome_unknown") == ["(StepStatus.running, ev.StepOutcomeUnknown)"]


def test_the_rows_are_read() -> None:
    assert len(_rows_to("succeeded")) > 2


def test_the_tables_of_the_syntax_tree_are_the_tables_in_force() -> None:
    leading = [key for key, target in transitions.STEP.items() if target is StepStatus.outcome_unknown]
    assert len(leading) == 1
    assert leading[0][0] is StepStatus.running
