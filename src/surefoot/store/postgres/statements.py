"""Named queries with their parameters in the driver's form, and the statements of batches, put together from parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from surefoot.store.rows import FLUSH_ORDER, Values
from surefoot.store.sqlfile import queries

DIALECT = "postgres"
ONE_ROWS_MAX = 8
"""A decision with more rows of a kind is written as a batch of many: the forms of statements stay few."""

_NAME = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_ROWS = re.compile(r"\brows AS new \((.*?)\)", re.DOTALL)
_CLOCKS = {"mono": "now_once", "wall": "now_once", "mono_now": "now_each", "wall_now": "now_each"}
_DOOR = {"mono": "mono", "wall": "wall", "mono_now": "mono", "wall_now": "wall"}
_CHECKED = ("operation_key_claim", "message_place")
PARTS = (*FLUSH_ORDER, *_CHECKED)
"""What a batch is put together from, behind its guard, in this order."""


class Statement(msgspec.Struct, frozen=True):
    """One statement: `names` are what its $1, $2 and so on stand for."""

    sql: str
    names: tuple[str, ...]


class Shape(msgspec.Struct, frozen=True):
    """What a batch's statement depends on: whether it creates runs, and its parts, each with its number of rows where
    the batch is one decision and with 0 where it is many.
    """

    creates: bool
    parts: tuple[tuple[str, int], ...]


class Statements:
    """The statements of one store. `of_door`: times come as parameters, from the clock door, not from the server."""

    def __init__(self, of_door: bool) -> None:
        self.of_door = of_door
        self._texts = queries(DIALECT)
        self._named: dict[tuple[str, str], Statement] = {}
        self._batches: dict[Shape, Statement] = {}

    def text(self, name: str, **filled: object) -> str:
        """A query as it stands, with what is in braces filled in."""
        return self._texts[name].format(**filled) if filled else self._texts[name]

    def named(self, name: str, chosen: str = "") -> Statement:
        """A query by name; `chosen` is the name of the query that stands in it as {chosen}."""
        key = (name, chosen)
        found = self._named.get(key)
        if found is None:
            text = self._texts[name]
            found = self._named[key] = self._numbered(
                text.replace("{chosen}", self._texts[chosen]) if chosen else text, 0
            )
        return found

    def _numbered(self, text: str, before: int) -> Statement:
        """Names become $n behind `before` parameters; the same name is one parameter."""
        names: list[str] = []

        def number(match: re.Match[str]) -> str:
            name = match[1]
            if name in _CLOCKS and not self.of_door:
                return self._texts[_CLOCKS[name]]
            name = _DOOR.get(name, name)
            if name not in names:
                names.append(name)
            cast = "::double precision" if name in _DOOR else ""
            return f"${before + names.index(name) + 1}{cast}"

        return Statement(_NAME.sub(number, text), tuple(names))

    # Batches

    def batch(self, shape: Shape) -> Statement:
        """The one statement that writes a batch of this shape. Its parameters: for each part the columns of its rows,
        then the decisions' numbers (or, for one, the values of its rows one after another); then the door's times.
        """
        found = self._batches.get(shape)
        if found is None:
            found = self._batches[shape] = self._assembled(shape)
        return found

    def _assembled(self, shape: Shape) -> Statement:
        parts: list[str] = []
        checks: list[str] = []
        used = 0
        for name, count in shape.parts:
            text, source, used = self._part(name, count, used)
            if name == "run_insert":
                inserted = self._filled("run_inserted", source, text)
                parts.append(f"made AS ({text})")
                parts.append(f"won AS ({inserted})")
                continue
            parts.append(f"{'won' if name == 'append_guard' else name} AS ({text})")
            if name in _CHECKED:
                checks.append(self.text("batch_check", part=name, rows=source))
        whole = self.text("batch", parts=",\n".join(parts), checks="".join(checks))
        return self._numbered(whole, used)

    def _part(self, name: str, count: int, used: int) -> tuple[str, str, int]:
        columns = columns_of(name)
        if count:
            rows = []
            for place in range(1, count + 1):
                values = [f"${used + n}::{kind}" for n, (_, kind) in enumerate(columns, 1)]
                used += len(columns)
                rows.append(f"({', '.join([*values, '1::bigint', f'{place}::bigint'])})")
            source = self.text("rows_of_one", values=", ".join(rows), columns=_listed(columns))
        else:
            values = [f"${used + n}::{kind}[]" for n, (_, kind) in enumerate(columns, 1)]
            used += len(columns) + 1
            source = self.text(
                "rows_of_many", values=", ".join([*values, f"${used}::bigint[]"]), columns=_listed(columns)
            )
        return _ROWS.sub(lambda match: source, self._texts[name]), source, used

    def _filled(self, name: str, source: str, text: str) -> str:
        return _ROWS.sub(lambda match: source, self._texts[name])


@cache
def columns_of(name: str) -> tuple[tuple[str, str], ...]:
    """The columns of `rows` in a part of a batch, with their types."""
    match = _ROWS.search(queries(DIALECT)[name])
    assert match is not None, f"{name} is a part of a batch"
    pairs = [column.split() for column in match[1].split(",")]
    return tuple((column, kind) for column, kind in pairs)


def _listed(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(column for column, _ in columns)


class Filling:
    """The rows of a batch, gathered decision by decision."""

    def __init__(self, creates: bool) -> None:
        self._creates = creates
        self._first: list[Values] = []
        self._rows: dict[str, list[Values]] = {}
        self._owners: dict[str, list[int]] = {}

    def add(self, guarded: Values, rows: Mapping[str, Sequence[Values]]) -> None:
        """One more decision: the row of its guard, and its other rows by part."""
        self._first.append(guarded)
        number = len(self._first)
        for name, values in rows.items():
            if values:
                self._rows.setdefault(name, []).extend(values)
                self._owners.setdefault(name, []).extend([number] * len(values))

    def finish(self) -> tuple[Shape, list[object]]:
        """The shape of the statement and its parameters, the door's times aside."""
        alone = len(self._first) == 1 and all(len(rows) <= ONE_ROWS_MAX for rows in self._rows.values())
        head = "run_insert" if self._creates else "append_guard"
        parts = [(head, self._first, list(range(1, len(self._first) + 1)))]
        parts += [(name, self._rows[name], self._owners[name]) for name in PARTS if name in self._rows]
        assert len(parts) == len(self._rows) + 1, "every part has its place in the order"
        values: list[object] = []
        for _, rows, owners in parts:
            if alone:
                for row in rows:
                    values.extend(row)
            else:
                values.extend(map(list, zip(*rows, strict=True)))
                values.append(owners)
        return Shape(self._creates, tuple((name, len(rows) if alone else 0) for name, rows, _ in parts)), values
