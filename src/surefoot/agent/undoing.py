"""What a person has decided to undo is undone: noted before the decision, begun behind it, by whoever has the code.

Who decides may have no code of the tool, as a command line, and may die behind the commit of the decision. Workers look
for what was noted, begin it, and forget it once it is undone: until then the business key is not free. Each effect is
undone once, however often and by whomever it is begun: the key of the call that undoes it is that of the effect.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from surefoot.agent.tools import ToolCall
from surefoot.core.facts import NAME_CHARACTERS_MAX
from surefoot.core.reconcile import UNDO_BY_HAND, UNDO_IT
from surefoot.core.redact import safe_error
from surefoot.core.state import ActionKind, ActionStatus, Resolution, StepStatus
from surefoot.effects import Receipt
from surefoot.errors import NotFound
from surefoot.runtime.background import Background
from surefoot.runtime.context import Context
from surefoot.runtime.late import NOT_UNDONE, UNDO, fate_of_failed, shown_of, undone_of
from surefoot.store.listed import ODD
from surefoot.store.port import ActionRow
from surefoot.store.requests import request_of

LOOK_SECONDS = 30.0
"""How often a worker looks for what somebody else has decided to undo."""
AT_ONCE_MAX = 100
"""Of what is noted, at one look; the next one goes on behind."""
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,100}")

Begin = Callable[[ToolCall, str, str, str], Awaitable[object]]
"""Begins a call under a key, in the name of somebody, for a decision; said again for that one, it is the same one."""


async def compensations_of(ctx: Context, action: ActionRow) -> list[tuple[str, ToolCall] | None] | None:
    """The calls that undo the effects that a question showed and nobody wanted, each with its key: all but the one on
    the step, of a failed step all; less what is undone. None where the code is not here, and for each effect for which
    the tool gives no call. Empty where undoing was left to whoever approved: as the question said, or without an id.
    """
    text = msgspec.json.decode(action.preview, type=dict[str, object]).get("text")
    if text == UNDO_BY_HAND:
        return []
    row = await ctx.store.step(ctx.tenant_id, action.action.step_id)
    run = (await ctx.store.run(ctx.tenant_id, action.run_id)).run
    tool = ctx.registry.of(run).tools.get(row.step.tool_name or "")
    if tool is None:
        return None
    if tool.compensate is None:
        return None if text == UNDO_IT else []
    shown, undone = shown_of(action), await undone_of(ctx, row)
    kept = {row.step.external_resource_id} if row.step.status is StepStatus.succeeded else set()
    arguments = msgspec.json.decode(await request_of(ctx.store, ctx.tenant_id, row), type=dict[str, object])
    found: list[tuple[str, ToolCall] | None] = []
    # What had no id when it was shown may have one by now.
    for one in row.step.receipts if None in shown or not shown else [i for i in shown if i is not None]:
        if one in kept or one in undone:
            continue
        call = tool.make_compensation(Receipt(resource_id=one), arguments)
        name = one if _PLAIN.fullmatch(one) else hashlib.sha256(one.encode()).hexdigest()
        # Whichever tool undoes it: other code may do that by another one.
        found.append((f"compensate:{row.step.id}:{name}", call) if isinstance(call, ToolCall) else None)
    return found


async def undo(ctx: Context, action: ActionRow, begin: Begin) -> bool:
    """Begin what undoes the effects that the action is about. What cannot be begun here and now is left to workers.

    True where somebody has given up finding out whether it is undone.
    """
    if action.action.kind is not ActionKind.duplicate or action.action.decision != "approve":
        return False
    try:
        calls = await compensations_of(ctx, action)
        if calls is None:
            ctx.log(f"{action.action.id}: the code of {action.tool_name} is not here; a worker that has it undoes this")
            return False
        ends = set[str]()
        for one in calls:
            if one is None:
                ends.add("not_undone")
                continue
            key, call = one
            end = await _end_of(ctx, key, action.decided_at or 0.0)
            if end == "not_begun":
                # What stands there was taken: a name that an older version kept may be longer than one may be now.
                by = (action.action.decided_by or action.action.id)[:NAME_CHARACTERS_MAX]
                await begin(call, key, by, action.action.id)
            ends.add(end)
        if not ends <= {"undone", "not_undone"}:
            # It stays noted all the same: evidence may come late.
            return "given_up" in ends
        if "not_undone" in ends:
            await ctx.store.mark(ctx.tenant_id, NOT_UNDONE, action.action.id, action.run_id)
            ctx.log(f"{action.action.id}: its effects are not undone: there is no call that could, or it has failed")
        await ctx.store.unmark(ctx.tenant_id, UNDO, action.action.id)
    except Exception as problem:
        # The decision is written down all the same, and the user's own function may raise anything.
        told = safe_error(problem, ctx.redactor)
        ctx.log(f"{action.action.id}: its effects are not undone yet ({told}); workers try again")
    return False


async def _end_of(
    ctx: Context, key: str, decided_at: float
) -> Literal["not_begun", "under_way", "given_up", "undone", "not_undone"]:
    """What the call has come to that undoes an effect; what had failed before this was decided is to be tried again."""
    holder = await ctx.store.key_owner(ctx.tenant_id, key)
    if holder is None:
        return "not_begun"
    row = await ctx.store.step(ctx.tenant_id, holder.step_id)
    fate = await fate_of_failed(ctx, row)
    if row.step.status is StepStatus.succeeded or fate == "applied":
        return "undone"
    if row.step.resolution is Resolution.given_up or fate == "given_up":
        return "given_up"
    if fate != "nothing":
        return "under_way"
    return "not_begun" if row.created_at < decided_at else "not_undone"


class Undoing(Background):
    """Looks for what was decided elsewhere while a worker lives."""

    def __init__(self, ctx: Context, begin: Begin) -> None:
        self._ctx = ctx
        self._begin = begin
        self._behind = ""
        """Behind which question the next look goes on."""

    async def _forever(self) -> None:
        while True:
            try:
                await self.look()
            except Exception as problem:
                self._ctx.log(f"undoing: {safe_error(problem, self._ctx.redactor)}; looking again")
            await self._ctx.doors.clock.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Begin what is noted and decided; forget what will not be done. Raises StoreError."""
        store, tenant = self._ctx.store, self._ctx.tenant_id
        noted = await store.marks(tenant, UNDO, AT_ONCE_MAX, self._behind)
        # Many may be for workers with other code, or not decided: what comes behind them is not theirs to hold up.
        self._behind = noted[-1] if len(noted) == AT_ONCE_MAX else ""
        if noted:
            await store.confirm()  # what is read below is there to stay
        for action_id in noted:
            try:
                row = await store.action(tenant, action_id)
            except NotFound:
                await store.unmark(tenant, UNDO, action_id)
                continue
            except ODD as problem:
                # It stays noted, and keeps no other from being undone.
                self._ctx.log(f"{action_id}: its effects are not undone ({safe_error(problem, self._ctx.redactor)})")
                continue
            if row.action.decision == "approve":
                await undo(self._ctx, row, self._begin)
            elif row.action.status is not ActionStatus.waiting:
                await store.unmark(tenant, UNDO, action_id)
