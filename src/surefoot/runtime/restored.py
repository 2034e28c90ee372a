"""After a copy of the store was put back: what it shows as not begun may have been sent since it was made, and what it
shows as in doubt may have been sent again.
"""

from __future__ import annotations

import msgspec

from surefoot.core import policy
from surefoot.core.attempts import count_as_sent, recover_step
from surefoot.core.draft import Draft
from surefoot.core.state import ActionKind, ActionStatus, EffectClass, Step, StepStatus, StepType
from surefoot.errors import NotAllowed, Unreadable
from surefoot.runtime.context import Context
from surefoot.runtime.handle import Handle
from surefoot.runtime.rounds import UNKNOWN_TOOL
from surefoot.store.listed import to_the_end

RESTORED = "restored"


class Restored(msgspec.Struct, frozen=True):
    """Ids. What is looked up or asked about now, what waits for an approval that it may have had, runs under way."""

    counted_as_sent: list[str]
    approvals_to_check: list[str]
    runs_under_way: list[str]
    unreadable: list[str] = []
    """Runs that cannot be read, on which nothing is executed."""


async def count_all_as_sent(ctx: Context, worker_id: str) -> Restored:
    """Every call that the copy shows as not begun or in doubt, in runs that have not ended, counts as possibly sent.

    It is looked up, sent again under its key where the target drops repeats, or asked about, as after a crash. Said
    again within a call's settle time, it changes nothing of it.

    Raises NotAllowed (`workers_run`) where a worker holds a run.
    """
    sent: list[str] = []
    asked: list[str] = []
    under_way: list[str] = []
    unreadable: list[str] = []
    await ctx.store.register_worker(worker_id)
    for run_id in await ctx.store.run_ids(ctx.tenant_id):
        try:
            row = await ctx.store.run(ctx.tenant_id, run_id)
            await ctx.store.load(ctx.tenant_id, run_id)
        except Unreadable:
            unreadable.append(run_id)  # no worker takes it either, and it keeps nobody from counting the others
            continue
        if row.run.ended:
            continue
        under_way.append(run_id)
        aside = row.blocked_code
        claimed = await ctx.store.claim_one(ctx.tenant_id, run_id, worker_id, ctx.lease_s, aside or UNKNOWN_TOOL)
        if claimed is None:
            raise NotAllowed(
                f"run {run_id} is held by a worker, or its lease of before the copy is not over: stop every worker, "
                f"wait {ctx.lease_s:g} seconds, and say it again",
                code="workers_run",
            )
        try:
            run = await ctx.store.load(ctx.tenant_id, run_id)
            handle = Handle(ctx.store, run, ctx.registry.of(run).rules, claimed.token)
            sent += await _count(handle, claimed.token, row.updated_at)
            asked += [action.id for action in handle.run.waiting_actions]
        finally:
            if aside is None:
                await ctx.store.release(ctx.tenant_id, run_id, claimed.token)
            else:
                # Why no worker takes it holds as before.
                await ctx.store.block(ctx.tenant_id, run_id, claimed.token, aside)
    # Nothing is sent for a run that has ended, but for what a yes undoes.
    waiting = ActionStatus.waiting.value
    for question in await to_the_end(lambda after: ctx.store.actions(ctx.tenant_id, status=waiting, after=after)):
        if question.action.kind is ActionKind.duplicate and question.action.id not in asked:
            asked.append(question.action.id)
    return Restored(sent, asked, under_way, unreadable)


async def _count(handle: Handle, token: int, since_wall: float) -> list[str]:
    def command(d: Draft) -> list[str]:
        for step in list(d.run.steps.values()):
            if step.status is StepStatus.running and _has_effect(d, step):
                recover_step(d, step.id, owner_died=False, start=None)
        counted = _perhaps_sent(d)
        for step_id in counted:
            count_as_sent(d, step_id, token, since_wall, RESTORED)
        return counted

    return await handle.decide(command)


def _perhaps_sent(d: Draft) -> list[str]:
    """Calls with an effect of their own that would begin, or begin again, by themselves."""
    return [
        step.id
        for step in sorted(d.run.steps.values(), key=lambda s: s.sequence)
        if _has_effect(d, step) and (step.status is StepStatus.pending or (step.in_doubt and not _settles(d, step)))
    ]


def _settles(d: Draft, step: Step) -> bool:
    """Whether it was counted already, and its settle time of then is not over.

    Until it is, the call was sent again behind no copy that shows it so. Later it may have been, by workers of which
    this copy knows nothing.
    """
    return step.attempts[-1].code == RESTORED and policy.settle_left(step, d.rules(step), d.at) > 0


def _has_effect(d: Draft, step: Step) -> bool:
    return (
        step.type is StepType.tool_call
        and d.rules(step).effect is not EffectClass.read
        and step.rules.waits_for is None
        and step.owner_step_id is None
    )
