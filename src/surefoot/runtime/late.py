"""What was found of a call that had ended, and what became of it: of several questions about it the last one counts.

An effect that a person had undone is undone for good: whichever code comes later, and however long ago it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from surefoot.core.state import Action, ActionKind, ActionStatus, StepStatus
from surefoot.runtime.context import Context
from surefoot.store.port import ActionRow, StepRow

UNDO = "undo"
"""The kind of the marks that name questions about duplicates whose effects somebody may have decided to undo, until
they are undone."""
NOT_UNDONE = "not_undone"
"""The same of those whose undoing has failed: what was to be undone stands."""
Fate = Literal["nothing", "applied", "undecided", "given_up"]


async def fate_of_failed(ctx: Context, row: StepRow) -> Fate | None:
    """What is known of the effect of a failed call by now, while it has its business key; None for any other call.

    It may have been found after all: then it stands until it is undone, as somebody has decided. `operation_key_claim`
    says the same.
    """
    if row.step.status is not StepStatus.failed:
        return None
    asked = await _asked_about(ctx, row)
    if not asked:
        return "applied" if row.step.receipts else "nothing"
    last = asked[-1]  # each shows what those before it did, and more
    if last.status is not ActionStatus.approved:
        return "undecided" if last.status is ActionStatus.waiting else "applied"
    if await ctx.store.marked(ctx.tenant_id, UNDO, last.id) is not None:
        # Whoever asks need not wait for a worker's next look, and there may be no worker at all.
        given_up = await ctx.undo(last.id)
        if await ctx.store.marked(ctx.tenant_id, UNDO, last.id) is not None:
            return "given_up" if given_up else "undecided"
    return "nothing" if await ctx.store.marked(ctx.tenant_id, NOT_UNDONE, last.id) is None else "applied"


async def as_it_stands(ctx: Context, row: StepRow) -> StepRow:
    """A step with the id and the link of an effect of it that is not undone."""
    undone, step = await undone_of(ctx, row), row.step
    if step.external_resource_id not in undone:
        return row
    stands = next((one for one in step.receipts if one not in undone), None)
    links = dict[str | None, str | None]()
    for action in await _asked_about(ctx, row):
        links.update(shown_of(await ctx.store.action(ctx.tenant_id, action.id)))
    return replace(row, step=replace(step, external_resource_id=stands, resource_url=links.get(stands)))


async def undone_of(ctx: Context, row: StepRow) -> set[str]:
    """The ids of its effects that are undone, as somebody had decided."""
    undone = set[str]()
    for action in await _asked_about(ctx, row):
        if action.status is not ActionStatus.approved:
            continue
        if not any([await ctx.store.marked(ctx.tenant_id, kind, action.id) is not None for kind in (UNDO, NOT_UNDONE)]):
            shown = shown_of(await ctx.store.action(ctx.tenant_id, action.id))
            undone.update(one for one in shown if one is not None)
    return undone


def shown_of(action: ActionRow) -> Mapping[str | None, str | None]:
    """The effects that a question shows: their ids with their links. None: one that has no id."""
    effects = msgspec.json.decode(action.preview, type=dict[str, object]).get("effects", [])
    return {one["id"]: one["url"] for one in msgspec.convert(effects, list[dict[str, str | None]])}


async def _asked_about(ctx: Context, row: StepRow) -> list[Action]:
    """The questions about its effects, oldest first."""
    run = await ctx.store.load(ctx.tenant_id, row.run_id, row.step.id)
    return [one for one in run.actions.values() if one.step_id == row.step.id and one.kind is ActionKind.duplicate]
