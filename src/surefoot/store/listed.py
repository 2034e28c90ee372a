"""Rows of a list: those that can be read, and beside them those that cannot, so that one of them takes none down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from surefoot.errors import Unreadable

Row = Mapping[str, object]
T = TypeVar("T")
V = TypeVar("V")
ODD = (
    *(Unreadable, msgspec.MsgspecError),
    *(ArithmeticError, AssertionError, LookupError, RecursionError, TypeError, ValueError),
)
"""What comes of a value that cannot be read; any other error is about the store as a whole."""


class UnreadableRow(msgspec.Struct, frozen=True):
    """A row of a list that cannot be read. It is as it was, and nothing is executed on it."""

    id: str
    run_id: str
    """Its run; its own id where it is one."""
    message: str
    """What is wrong, and what to do."""
    code: str = Unreadable.code


class Listed(list[T]):
    """The rows of a list that can be read, in order: a list as any other. What it leaves out stands beside it."""

    def __init__(self, rows: Iterable[T] = (), unreadable: Iterable[UnreadableRow] = (), behind: str | None = None):
        super().__init__(rows)
        self.unreadable = list(unreadable)
        """The rows in between that cannot be read, in the same order."""
        self.behind = behind
        """The id behind which the list goes on, that of its last row, readable or not; None where nothing follows."""

    def whole(self) -> Listed[T]:
        """The same, for who needs all of them. Raises Unreadable."""
        if self.unreadable:
            raise Unreadable(self.unreadable[0].message)
        return self

    def shown(self, view: Callable[[T], V], ids: Callable[[T], tuple[str, str]]) -> Listed[V]:
        """The same rows as `view` shows them; `ids` gives a row's id and its run's, where that cannot be done."""
        made: Listed[V] = Listed((), self.unreadable, self.behind)
        for row in self:
            try:
                made.append(view(row))
            except ODD as problem:
                made.unreadable.append(_unreadable(*ids(row), problem))
        return made

    def go_on(self, page: Listed[T]) -> None:
        """Put the next page behind this one."""
        self += page
        self.unreadable += page.unreadable
        self.behind = page.behind


async def to_the_end(page: Callable[[str | None], Awaitable[Listed[T]]]) -> Listed[T]:
    """All pages of a list; `page` gives the one behind an id."""
    found = await page(None)
    while found.behind is not None:
        found.go_on(await page(found.behind))
    return found


def listed(rows: Sequence[Row], read: Callable[[Row], T], limit: int | None = None) -> Listed[T]:
    """Read each of the first `limit` rows by itself. One more than these says that the list goes on."""
    taken = rows if limit is None else rows[:limit]
    found: Listed[T] = Listed(behind=str(taken[-1]["id"]) if len(rows) > len(taken) else None)
    for row in taken:
        try:
            found.append(read(row))
        except ODD as problem:
            found.unreadable.append(_unreadable(str(row["id"]), str(row.get("run_id", row["id"])), problem))
    return found


def _unreadable(row_id: str, run_id: str, problem: Exception) -> UnreadableRow:
    if isinstance(problem, Unreadable):
        return UnreadableRow(row_id, run_id, str(problem))
    # The text of an error that nobody foresaw may hold anything.
    name = type(problem).__name__
    return UnreadableRow(row_id, run_id, f"{row_id} cannot be shown ({name}). Run `surefoot doctor`")
