"""What was found of a call that had ended, and what became of it: of several questions about it the last one counts.

An effect that a person had undone is undone for good: whichever code comes later, and however long ago it was.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from surefoot.core.duplicates import Effects
from surefoot.core.ids import run_of_step
from surefoot.core.reconcile import Look
from surefoot.core.state import Action, ActionKind, ActionStatus, Step, StepStatus
from surefoot.core.values import canonical, digest
from surefoot.runtime.context import Context
from surefoot.store.port import ActionRow, StepRow, Store

UNDO = "undo"
"""The kind of the marks that name questions about duplicates whose effects somebody may have decided to undo, until
they are undone."""
NOT_UNDONE = "not_undone"
"""The same of those whose undoing has failed: what was to be undone stands."""
UNDONE = "undone"
"""The same of each effect that is undone, for good, by the key of its call and its id: the target may go on listing it,
and another call may have the key by then."""
UNDONE_BEFORE = "undone_before"
"""Why it is not said what became of a call: all that was found under its key was an earlier one's, and is undone."""
Fate = Literal["nothing", "applied", "undecided", "given_up"]
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,100}")


async def fate_of_failed(ctx: Context, row: StepRow) -> Fate | None:
    """What is known of the effect of a failed call by now, while it has its business key; None for any other call.

    It may have been found after all: then it stands until it is undone, as somebody has decided. `operation_key_claim`
    says the same.
    """
    if row.step.status is not StepStatus.failed:
        return None
    asked = await _asked_about(ctx, row.step.id)
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
    links = await links_of(ctx, step.id)
    return replace(row, step=replace(step, external_resource_id=stands, resource_url=links.get(stands)))


async def links_of(ctx: Context, step_id: str) -> Effects:
    """Every effect of a step that a question has shown, with its link where one of them had it."""
    links = dict[str | None, str | None]()
    for action in await _asked_about(ctx, step_id):
        for one, url in shown_of(await ctx.store.action(ctx.tenant_id, action.id)).items():
            links[one] = url or links.get(one)
    return links


async def shown_before(ctx: Context, step: Step) -> Effects:
    """The same for a further question: of a single effect the step itself has the link."""
    return await links_of(ctx, step.id) if len(step.receipts) > 1 else {}


async def undone_of(ctx: Context, row: StepRow) -> set[str]:
    """The ids of its effects that are undone, as somebody had decided."""
    key = row.step.operation_key
    undone = {one for one in row.step.receipts if await _is_undone(ctx, key, one)}
    for action in await _asked_about(ctx, row.step.id):
        if action.status is not ActionStatus.approved:
            continue
        if not any([await ctx.store.marked(ctx.tenant_id, kind, action.id) is not None for kind in (UNDO, NOT_UNDONE)]):
            shown = shown_of(await ctx.store.action(ctx.tenant_id, action.id))
            undone.update(one for one in shown if one is not None)
    return undone


async def mark_undone(ctx: Context, operation_key: str, ids: Iterable[str]) -> None:
    """They are undone, for good."""
    for one in ids:
        await ctx.store.mark(ctx.tenant_id, UNDONE, _name_of(operation_key, one), "")


async def less_undone(ctx: Context, step: Step, look: Look) -> Look:
    """What was found under a call's key, less what is undone: taken for the call's own, it would never be made."""
    found = ((look.resource_id, look.url), *look.also)
    left = [(i, url) for i, url in found if i is None or not await _is_undone(ctx, step.operation_key, i)]
    if len(left) == len(found):
        return look
    if not left:
        return replace(look, verdict="undetermined", reason=UNDONE_BEFORE, resource_id=None, url=None, also=())
    (resource_id, url), *others = left
    also = tuple((i, link) for i, link in others if i is not None)
    first = resource_id == look.resource_id
    body, output = (look.body, look.safe_output) if first else (b"", None)
    return replace(look, resource_id=resource_id, url=url, also=also, body=body, safe_output=output)


async def _is_undone(ctx: Context, operation_key: str, resource_id: str) -> bool:
    return await ctx.store.marked(ctx.tenant_id, UNDONE, _name_of(operation_key, resource_id)) is not None


def _name_of(operation_key: str, resource_id: str) -> str:
    return digest(canonical([operation_key, resource_id]))


def key_of_undoing(step_id: str, resource_id: str) -> str:
    """The key of the call that undoes an effect, whichever tool does it: other code may do that by another one."""
    name = resource_id if _PLAIN.fullmatch(resource_id) else hashlib.sha256(resource_id.encode()).hexdigest()
    return f"compensate:{step_id}:{name}"


def too_many_of(action: ActionRow, step: Step) -> list[str]:
    """The effects that a question showed and nobody wanted: all but the one on the step, of a failed step all."""
    shown = shown_of(action)
    kept = step.external_resource_id if step.status is StepStatus.succeeded else None
    # What had no id when it was shown may have one by now.
    ids = step.receipts if None in shown or not shown else shown
    return [one for one in ids if one is not None and one != kept]


async def not_begun(store: Store, tenant_id: str, action: ActionRow) -> list[str]:
    """Those of them that nobody has begun to undo. Raises NotFound, Unreadable."""
    step = (await store.step(tenant_id, action.action.step_id)).step
    effects = too_many_of(action, step)
    return [one for one in effects if await store.key_owner(tenant_id, key_of_undoing(step.id, one)) is None]


def shown_of(action: ActionRow) -> Effects:
    """The effects that a question shows: their ids with their links. None: one that has no id."""
    effects = _preview(action).get("effects", [])
    return {one["id"]: one["url"] for one in msgspec.convert(effects, list[dict[str, str | None]])}


async def asked_behind(ctx: Context, action: ActionRow) -> list[object]:
    """The texts of the questions about the same effects that were asked behind this one: they show all of them too."""
    asked = [one.id for one in await _asked_about(ctx, action.action.step_id)]
    later = asked[asked.index(action.action.id) + 1 :] if action.action.id in asked else []
    return [_preview(await ctx.store.action(ctx.tenant_id, one)).get("text") for one in later]


async def _asked_about(ctx: Context, step_id: str) -> list[Action]:
    """The questions about its effects, oldest first."""
    run = await ctx.store.load(ctx.tenant_id, run_of_step(step_id), step_id)
    return [one for one in run.actions.values() if one.step_id == step_id and one.kind is ActionKind.duplicate]


def _preview(action: ActionRow) -> dict[str, object]:
    return msgspec.json.decode(action.preview, type=dict[str, object])
