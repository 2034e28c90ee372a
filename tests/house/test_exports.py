"""The public names: pinned here, so that adding or losing one is a decision and not an accident."""

from __future__ import annotations

import inspect
from importlib.metadata import version

import surefoot

EXPORTS = [
    "Absent",
    "Agent",
    "Approval",
    "Found",
    "Operation",
    "Receipt",
    "Schedule",
    "Surefoot",
    "Throttle",
    "Tool",
    "ToolCall",
    "Undetermined",
    "ask_person",
    "effects",
    "errors",
    "run_sync",
    "sleep",
    "tool",
    "wait_for_signal",
]
EXPORTS_MAX = 40


def test_the_list_is_sorted_and_short() -> None:
    assert sorted(EXPORTS) == EXPORTS
    assert len(EXPORTS) <= EXPORTS_MAX


def test_exports_are_pinned() -> None:
    assert list(surefoot.__all__) == EXPORTS


def test_the_version_is_that_of_the_installation() -> None:
    assert surefoot.__version__ == version("surefoot")


def test_every_export_exists_and_is_documented() -> None:
    for name in surefoot.__all__:
        value = getattr(surefoot, name)
        assert inspect.getdoc(value), f"surefoot.{name} has no docstring"


def test_every_public_method_of_an_export_is_documented() -> None:
    classes = [value for name in surefoot.__all__ if inspect.isclass(value := getattr(surefoot, name))]
    assert classes
    missing = [
        f"{cls.__name__}.{name}"
        for cls in classes
        if cls.__module__.startswith("surefoot")
        for name, member in vars(cls).items()
        if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property))
        if not inspect.getdoc(member)
    ]
    assert missing == []
