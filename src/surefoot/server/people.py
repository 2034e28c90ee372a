"""Endpoints of people: the inbox of questions, one question, and its one decision."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from surefoot.core.people import CHOICES
from surefoot.core.state import ActionKind, ActionStatus
from surefoot.errors import InvalidInput, NotFound
from surefoot.server.callers import Act
from surefoot.server.openapi import described
from surefoot.server.problems import bad_cursor
from surefoot.server.requests import KeyHeader, Reader, Visitor, body_of, read_key
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
        await store.run(tenant, run_id)  # an unknown run is refused, not empty
    if cursor is not None:
        await _known_cursor(visit, cursor)
    rows = await store.actions(
        tenant, status=status and status.value, run_id=run_id, below=True, after=cursor, limit=limit + 1
    )
    items = [action_view(row, visit.language) for row in rows[:limit]]
    return reply(ActionPage(items, items[-1].id if len(rows) > limit else None))


async def _known_cursor(visit: Visit, cursor: str) -> None:
    try:
        await visit.sf.store.action(visit.sf.tenant, cursor)
    except NotFound:
        raise bad_cursor() from None


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
    visit.need(
        ACT_OF[row.action.kind],
        tool=row.tool_name,
        effect_class=step.step.rules.effect.value,
        permission=row.action.permission,
    )
    return Asked(visit, row)


@router.post("/{action_id}/decision", summary="Decide", **described({200: ActionView}, 404, 409, reads=Decide))
async def decide(
    asked: Annotated[Asked, Depends(_asked)],
    decision: Annotated[Decide, Depends(body_of(Decide))],
    key: KeyHeader = None,
) -> Response:
    """Decide once: the first decision wins, another gets 409 with what was decided.

    The same decision by the same person under the same Idempotency-Key is answered as the first time.
    """
    row = await make_decision(asked.visit, asked.row, decision, read_key(key))
    return reply(action_view(row, asked.visit.language))


async def make_decision(visit: Visit, row: ActionRow, asked: Decide, key: str | None) -> ActionRow:
    """Record the decision as the caller's. Raises NotFound, AlreadyDecided, NotAllowed, InvalidInput."""
    sf, id, by, source = visit.sf, row.action.id, visit.caller.name, visit.caller.source
    if asked.decision not in CHOICES[row.action.kind]:
        names = ", ".join(CHOICES[row.action.kind])
        raise InvalidInput(f"an action of kind {row.action.kind.value} is decided by: {names}", code="wrong_decision")
    return await sf.decide(id, **msgspec.structs.asdict(asked), by=by, key=key, source=source)
