"""Named queries: all SQL stands in `sql/<dialect>/queries.sql`, each query with a comment of its purpose and guard."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache

FOLDER = os.path.join(os.path.dirname(__file__), "sql")
"""Not a pathlib.Path: its import costs as much as twenty of our modules, at every start of a process."""

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_SECTION = re.compile(r"^-- [A-Z][^\n]* -{10,}$", re.MULTILINE)


@cache
def queries(dialect: str) -> Mapping[str, str]:
    """The queries of a dialect by name, without their comments."""
    with open(os.path.join(FOLDER, dialect, "queries.sql"), encoding="utf-8") as file:
        return parse(file.read())


def parse(text: str) -> Mapping[str, str]:
    """The queries of a file: `-- name: x`, at least one line of comment, then the statement.

    Raises ValueError for a name that comes twice, and for a query without a comment or without a statement.
    """
    found: dict[str, str] = {}
    parts = _NAME.split(_SECTION.sub("", text))
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        lines = body.strip().splitlines()
        statement = [line for line in lines if not line.lstrip().startswith("--")]
        if name in found or not statement or not lines[0].startswith("-- "):
            raise ValueError(f"query {name}: named twice, or without its comment or its statement")
        found[name] = "\n".join(statement).strip()
    return found
