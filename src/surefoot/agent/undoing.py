"""What a person has decided to undo is undone: noted before the decision, begun behind it, by whoever has the code.

Who decides may have no code of the tool, as a command line, and may die behind the commit of the decision. Workers look
for what was noted, begin it, and forget it once it is undone: until then the business key is not free. Each effect is
undone once, however often and by whomever it is begun: the key of the call that undoes it is that of the effect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from surefoot.agent.tools import ToolCall
from surefoot.core.duplicates import UNDO_BY_HAND, UNDO_IT, Effects, ask_anew_about_duplicate
from surefoot.core.facts import NAME_CHARACTERS_MAX
from surefoot.core.redact import safe_error
from surefoot.core.state import ActionKind, ActionStatus, Resolution, StepStatus
from surefoot.effects import Receipt
from surefoot.errors import InvalidInput, NotFound
from surefoot.runtime.background import Background
from surefoot.runtime.context import Context
from surefoot.runtime.deciding import handle_of
from surefoot.runtime.late import (
    NOT_UNDONE,
    UNDO,
    asked_behind,
    fate_of_failed,
    key_of_undoing,
    links_of,
    mark_undone,
    not_begun,
    too_many_of,
    undone_of,
)
from surefoot.runtime.questions import Questions
from surefoot.runtime.registry import RunnableTool
from surefoot.store.listed import ODD
from surefoot.store.port import ActionRow, StepRow
from surefoot.store.requests import request_of

LOOK_SECONDS = 30.0
"""How often a worker looks for what somebody else has decided to undo."""
AT_ONCE_MAX = 100
"""Of what is noted, at one look; the next one goes on behind."""
OTHERS_SECONDS = 300.0
"""So long after a decision code that does not say how its tool is undone, or raises, leaves it to other code: there are
workers of two states of it side by side during a deploy."""
AFTER_A_RESTORE = "The store was restored. This may have been undone since the copy was made: look at the target first."
REFUSED = frozenset({"invalid_arguments", "invalid_key", "limit", "secret_in_arguments", "too_large"})
"""Why a call is never begun, whoever tries."""

End = Literal["not_begun", "under_way", "given_up", "undone", "not_undone"]

Begin = Callable[[ToolCall, str, str, str], Awaitable[object]]
"""Begins a call under a key, in the name of somebody, for a decision; said again for that one, it is the same one."""


async def undo(ctx: Context, action: ActionRow, begin: Begin) -> bool:
    """Begin what undoes the effects that the action is about. What cannot be begun here and now is left to workers, and
    what none could begin to a person, who is asked anew.

    True where somebody has given up finding out whether it is undone.
    """
    if action.action.kind is not ActionKind.duplicate or action.action.decision != "approve":
        return False
    try:
        row = await ctx.store.step(ctx.tenant_id, action.action.step_id)
        came = await _begin_all(ctx, action, row, begin)
        if came is None or not came.ends.keys() <= {"undone", "not_undone"}:
            # It stays noted all the same: evidence may come late.
            return came is not None and "given_up" in came.ends
        await mark_undone(ctx, row.step.operation_key, came.ends.get("undone", ()))
        if came.why:
            await _ask_by_hand(ctx, action, row, came)
        if "not_undone" in came.ends:
            await ctx.store.mark(ctx.tenant_id, NOT_UNDONE, action.action.id, action.run_id)
            ctx.log(f"{action.action.id}: its effects are not undone: there is no call that could, or it has failed")
        await ctx.store.unmark(ctx.tenant_id, UNDO, action.action.id)
    except Exception as problem:
        # The decision is written down all the same.
        told = safe_error(problem, ctx.redactor)
        ctx.log(f"{action.action.id}: its effects are not undone yet ({told}); workers try again")
    return False


class _Came(msgspec.Struct):
    """What the effects that are to be undone have come to: their ids by their ends, and why some cannot be begun."""

    ends: dict[End, list[str]] = {}
    why: dict[str, None] = {}


async def _begin_all(ctx: Context, action: ActionRow, row: StepRow, begin: Begin) -> _Came | None:
    """Begin what undoes each effect that is one too many, once. None where this is left to other code.

    What was left to whoever approved is undone: as the question said, or without an id.
    """
    text = msgspec.json.decode(action.preview, type=dict[str, object]).get("text")
    run = (await ctx.store.run(ctx.tenant_id, action.run_id)).run
    tool, effects, came = (
        ctx.registry.of(run).tools.get(row.step.tool_name or ""),
        too_many_of(action, row.step),
        _Came(),
    )
    if text == UNDO_BY_HAND or (text != UNDO_IT and tool is not None and tool.compensate is None):
        return _Came({"undone": effects} if effects else {})
    if tool is None:
        ctx.log(f"{action.action.id}: the code of {action.tool_name} is not here; a worker that has it undoes this")
        return None
    undone, decided_at = await undone_of(ctx, row), action.decided_at or 0.0
    # A person is asked to undo it by hand: nothing more is begun.
    over = UNDO_BY_HAND in await asked_behind(ctx, action)
    for one in effects:
        key = key_of_undoing(row.step.id, one)
        end = "undone" if one in undone else await _end_of(ctx, key, decided_at)
        if end == "not_begun":
            if tool.compensate is None and _is_new(ctx, action):
                ctx.log(f"{action.action.id}: {tool.name} does not say here how it is undone; a worker that knows does")
                return None
            why = "" if over else await _begin_one(ctx, action, row, tool, one, begin)
            end = "not_undone" if why is not None else "under_way"
            came.why.update({why: None} if why else {})
        came.ends.setdefault(end, []).append(one)
    return came


def _is_new(ctx: Context, action: ActionRow) -> bool:
    return ctx.store.now().wall < (action.decided_at or 0.0) + OTHERS_SECONDS


async def _begin_one(
    ctx: Context, action: ActionRow, row: StepRow, tool: RunnableTool, effect: str, begin: Begin
) -> str | None:
    """Begin what undoes one effect; why that cannot be, in words, which are empty where the tool says so itself."""
    if tool.compensate is None:
        return f"The code of {tool.name} does not say any more how it is undone."
    arguments = msgspec.json.decode(await request_of(ctx.store, ctx.tenant_id, row), type=dict[str, object])
    try:
        call = tool.make_compensation(Receipt(resource_id=effect), arguments)
    except Exception as problem:  # the user's own function may raise anything
        if not isinstance(problem, InvalidInput) and _is_new(ctx, action):
            raise
        return f"The call that undoes {effect} cannot be made: {safe_error(problem, ctx.redactor)}"
    if call is None:
        return ""
    if not isinstance(call, ToolCall):
        return f"What undoes {effect} is no call, but {type(call).__name__}."
    # What stands there was taken: a name that an older version kept may be longer than one may be now.
    by = (action.action.decided_by or action.action.id)[:NAME_CHARACTERS_MAX]
    try:
        await begin(call, key_of_undoing(row.step.id, effect), by, action.action.id)
    except InvalidInput as refusal:
        if refusal.code not in REFUSED:
            raise
        return f"The call that undoes {effect} is refused: {safe_error(refusal, ctx.redactor)}"
    return None


async def hand_over(ctx: Context) -> list[str]:
    """After a copy of the store was put back: what it shows as to be undone, and not begun, may be undone by now. A
    person is asked to undo what stands. Returns the questions; said again, there are none.
    """
    store, tenant, asked, noted = ctx.store, ctx.tenant_id, list[str](), list[str]()
    while page := await store.marks(tenant, UNDO, AT_ONCE_MAX, noted[-1] if noted else ""):
        noted += page
    for action_id in noted:
        with contextlib.suppress(NotFound, *ODD):  # what cannot be read nobody begins
            action = await store.action(tenant, action_id)
            left = await not_begun(store, tenant, action)
            if action.action.decision != "approve" or not left or UNDO_BY_HAND in await asked_behind(ctx, action):
                continue
            row = await store.step(tenant, action.action.step_id)
            await _ask_by_hand(ctx, action, row, _Came({"not_undone": left}, {AFTER_A_RESTORE: None}))
            run = await store.load(tenant, action.run_id, row.step.id)
            asked += [one.id for one in run.waiting_actions if one.kind is ActionKind.duplicate]
    return asked


async def _ask_by_hand(ctx: Context, action: ActionRow, row: StepRow, came: _Came) -> None:
    """Ask a person to undo what no call could, unless somebody is asked about it since."""
    links, left = await links_of(ctx, row.step.id), came.ends["not_undone"]
    tool = ctx.registry.of((await ctx.store.run(ctx.tenant_id, action.run_id)).run).tools.get(row.step.tool_name or "")
    by_hand: dict[str, object] = {"text": UNDO_BY_HAND}
    questions = Questions(ctx.doors, row.step, row.safe_input or b"{}", tool, tuple(came.why), by_hand)
    handle = await handle_of(ctx, action.run_id, row.step.id)
    found: Effects = {one: links.get(one) for one in left}
    await handle.tell(
        lambda d: ask_anew_about_duplicate(d, row.step.id, action.action.id, questions, found), step_id=row.step.id
    )


async def _end_of(ctx: Context, key: str, decided_at: float) -> End:
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
