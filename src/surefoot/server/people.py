"""Endpoints of people: the inbox of questions, one question, and its one decision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from surefoot.core.people import CHOICES
from surefoot.core.state import ActionKind, ActionStatus
from surefoot.errors import NotFound, Unreadable
from surefoot.runtime.deciding import tell_refused
from surefoot.server.callers import Act
from surefoot.server.openapi import described
from surefoot.server.problems import Problem, bad_cursor
from surefoot.server.requests import KeyHeader, Reader, Visitor, read_json, read_key
from surefoot.server.runs import LIMIT_DEFAULT, Limit
from surefoot.server.service import Visit
from surefoot.server.wire import ActionPage, Decide, reply
from surefoot.snapshot import ActionView, action_view
from surefoot.store.port import ActionRow

router = APIRouter(prefix="/v1/pending-actions", tags=["people"])

ACT_OF: dict[ActionKind, Act] = {
    ActionKind.approve: "approve",
    ActionKind.ask: "approve",
    ActionKind.resolve: "resolve",
    ActionKind.duplicate: "resolve",
}
"""What it takes to decide about each kind of question."""


@router.get("", summary="List questions", **described({200: ActionPage}, 404, 422))
async def list_actions(
    visit: Reader,
    status: ActionStatus | None = None,
    run_id: Annotated[str | None, Query(description="Of this run, and of the runs that work for it.")] = None,
    cursor: Annotated[str | None, Query(description="next_cursor of the page before.")] = None,
    limit: Limit = LIMIT_DEFAULT,
) -> Response:
    """Questions to people, oldest first; `status=waiting` is the inbox."""
    store, tenant = visit.sf.store, visit.sf.tenant
    if run_id is not None:
        with suppress(Unreadable):
            await store.run(tenant, run_id)  # an unknown run is refused, not empty
    if cursor is not None:
        await _known_cursor(visit, cursor)
    rows = await store.actions(
        tenant, status=status and status.value, run_id=run_id, below=True, after=cursor, limit=limit
    )
    items = rows.shown(lambda row: action_view(row, visit.language), lambda row: (row.action.id, row.run_id))
    return reply(ActionPage(items, items.behind, items.unreadable))


async def _known_cursor(visit: Visit, cursor: str) -> None:
    try:
        await visit.sf.store.action(visit.sf.tenant, cursor)
    except NotFound:
        raise bad_cursor() from None
    except Unreadable:
        return  # there it is, and the next page is behind it


@router.get("/{action_id}", summary="One question", **described({200: ActionView}, 404))
async def show(visit: Reader, action_id: str) -> Response:
    """The exact action with its preview, its hash, who asked and until when."""
    return reply(action_view(await visit.sf.store.action(visit.sf.tenant, action_id), visit.language))


class Asked:
    """A question, and a caller who may decide about it."""

    def __init__(self, visit: Visit, row: ActionRow) -> None:
        self.visit = visit
        self.row = row


async def _asked(visit: Visitor, action_id: str) -> Asked:
    """Raises NotFound, Problem 403."""
    row = await visit.sf.store.action(visit.sf.tenant, action_id)
    step = await visit.sf.store.step(visit.sf.tenant, row.action.step_id)
    with problems_told(visit, row):
        visit.need(
            ACT_OF[row.action.kind],
            tool=row.tool_name,
            effect_class=step.step.rules.effect.value,
            permission=row.action.permission,
        )
    return Asked(visit, row)


@contextmanager
def problems_told(visit: Visit, row: ActionRow, decision: str = "") -> Iterator[None]:
    """Log a decision that ends before it is made: the caller may not make it, or its request is none."""
    try:
        yield
    except Problem as problem:
        about, by = f"run {row.run_id}", visit.caller.name
        tell_refused(visit.sf.context, about, row.action.id, decision, by, problem.code)
        raise


class Wanted(msgspec.Struct):
    """The decision that a caller wants to make."""

    asked: Asked
    decision: Decide
    key: str | None


async def _wanted(request: Request, asked: Annotated[Asked, Depends(_asked)], key: KeyHeader = None) -> Wanted:
    """Raises Problem: 400, 408, 413, 415, 422."""
    with problems_told(asked.visit, asked.row):
        return Wanted(asked, await read_json(request, Decide), read_key(key))


@router.post("/{action_id}/decision", summary="Decide", **described({200: ActionView}, 404, 409, reads=Decide))
async def decide(wanted: Annotated[Wanted, Depends(_wanted)]) -> Response:
    """Decide once: the first decision wins, another gets 409 with what was decided.

    The same decision by the same person under the same Idempotency-Key is answered as the first time.
    """
    visit = wanted.asked.visit
    row = await make_decision(visit, wanted.asked.row, wanted.decision, wanted.key)
    return reply(action_view(row, visit.language))


async def make_decision(visit: Visit, row: ActionRow, asked: Decide, key: str | None) -> ActionRow:
    """Record the decision as the caller's. Raises NotFound, AlreadyDecided, NotAllowed, InvalidInput, Problem."""
    sf, id, by, source = visit.sf, row.action.id, visit.caller.name, visit.caller.source
    if asked.decision not in CHOICES[row.action.kind]:
        names = ", ".join(CHOICES[row.action.kind])
        with problems_told(visit, row, asked.decision):
            text = f"an action of kind {row.action.kind.value} is decided by: {names}"
            raise Problem(422, "wrong_decision", text)
    return await sf.decide(id, **msgspec.structs.asdict(asked), by=by, key=key, source=source)
