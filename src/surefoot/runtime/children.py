"""Calls that a run of another agent works on: wait for its end, tell of it, and stop it with the run that called it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

from surefoot.core.codec import decode_value
from surefoot.core.decide import cancel_run, defer
from surefoot.core.draft import Draft
from surefoot.core.ends import fail_step
from surefoot.core.facts import check_name
from surefoot.core.ids import run_of_step
from surefoot.core.payloads import result_body
from surefoot.core.state import Run, RunStatus, Step, StepStatus, WaitsFor
from surefoot.core.values import encode_output
from surefoot.core.waiting import answer_from_run, look_again, no_more_looks, run_has_ended
from surefoot.errors import LeaseLost, NotAllowed, RunEnded, SurefootError, Unreadable
from surefoot.runtime.context import Context
from surefoot.runtime.deciding import handle_of
from surefoot.runtime.execute import RESULT_BYTES_MAX, redact_json, view_json
from surefoot.runtime.held import Held, refuse_step

DEPTH_MAX = 5
"""A run, a run that works for it, and so on: that many below the first."""
POLL_SECONDS_MIN = 5.0
POLL_SECONDS_MAX = 300.0
"""How rarely a run looks after one that works for it. Its end is told at once; the looks are for what went wrong."""

RUN_UNREADABLE = "run_unreadable"

Wake = Callable[[str | None], None]


async def go_on_with_run(held: Held, step: Step) -> list[str]:
    """Start the run that works on this call, or look after it; its end is the call's. Returns the steps begun."""
    ctx, arguments = held.ctx, await held.arguments(step)
    try:
        if await _depth(ctx, held.run) >= DEPTH_MAX:
            raise NotAllowed(f"agents call agents at most {DEPTH_MAX} deep; do it yourself", code="too_deep")
        child = await ctx.start_child(held.run, step, arguments, held.handle.token)
        end = await _end_of(ctx, child) if child.ended else None
    except Unreadable as problem:
        pause_s, code = await _told_unreadable(ctx, step, problem)
        told = await held.decide(
            lambda d: _go_on(held, d, step, lambda: defer(d, step.id, pause_s, code)), step_id=step.id
        )
        return told or []
    except RunEnded:
        return []
    except LeaseLost:
        held.lost = True
        return []
    except NotAllowed as refusal:
        refused = refusal
        told = await held.decide(
            lambda d: _go_on(held, d, step, lambda: refuse_step(d, step, refused)), step_id=step.id
        )
        return told or []
    ctx.patience.over(_unread(step))

    def command(d: Draft) -> list[str]:
        def go_on() -> None:
            if end is None:
                defer(d, step.id, _poll_seconds(d, child), "waits_for_run")
            elif child.status is RunStatus.completed:
                answer_from_run(d, step.id, body=end, safe_output=_view(ctx, end))
            else:
                fail_step(d, step, f"run_{child.status.value}", body=end)

        return _go_on(held, d, step, go_on)

    return await held.decide(command, step_id=step.id) or []


async def _told_unreadable(ctx: Context, step: Step, problem: Unreadable) -> tuple[float, str | None]:
    """Seconds until it is looked again for what cannot be read of another run, and the code of the call, where a run
    works on it: this one goes on beside it.
    """
    child_id = None
    with contextlib.suppress(SurefootError):
        child_id = await ctx.store.run_of_key(ctx.tenant_id, step.operation_key or "")
    about = "a run that it works for" if child_id is None else f"run {child_id}, which works on it,"
    ctx.log(f"{step.id}: {about} cannot be read ({problem}); looking again")
    now = ctx.doors.clock.now().mono
    pause_s = ctx.patience.pause_s(_unread(step), now, 1.0, POLL_SECONDS_MIN, POLL_SECONDS_MAX)
    return pause_s, None if child_id is None else RUN_UNREADABLE


def _unread(step: Step) -> str:
    return f"unreadable {step.id}"


def _go_on(held: Held, d: Draft, step: Step, act: Callable[[], None]) -> list[str]:
    """`act` on the call, unless it was ended meanwhile; what can begin then begins."""
    if d.run.ended or d.step(step.id).status is not StepStatus.pending:
        return []
    act()
    return held.go_on(d)


async def _depth(ctx: Context, run: Run) -> int:
    depth = 0
    while run.parent_step_id is not None and depth < DEPTH_MAX:
        run = await ctx.store.load(ctx.tenant_id, run_of_step(run.parent_step_id))
        depth += 1
    return depth


def _poll_seconds(d: Draft, child: Run) -> float:
    """The longer it has worked, the more rarely it is looked after: a wait of days is a handful of lines."""
    return min(max(d.at.mono - child.started.mono, POLL_SECONDS_MIN), POLL_SECONDS_MAX)


async def _end_of(ctx: Context, child: Run) -> bytes:
    """What the calling model is told: the result, or why there is none. Raises Unreadable."""
    row = await ctx.store.run(ctx.tenant_id, child.id)
    if child.status is RunStatus.completed:
        value = decode_value(row.result or b"null", object, f"result of run {child.id}")
        if isinstance(value, dict) and value.keys() == {"text"}:
            value = value["text"]
        data, notes = encode_output(value, RESULT_BYTES_MAX)
        content: object = msgspec.Raw(data) if not notes else {"output": msgspec.Raw(data), "notes": notes}
        return redact_json(ctx.redactor, result_body(content))
    why = "was cancelled" if child.status is RunStatus.cancelled else f"failed ({child.error_code})"
    text = f"The run that worked on this {why}. What it had done until then stays done."
    return result_body(text, code=f"run_{child.status.value}")


def _view(ctx: Context, body: bytes) -> bytes:
    return view_json(ctx.redactor, bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw])["content"]))


# Telling and stopping


async def tell_parent(ctx: Context, child: Run) -> str | None:
    """The run has ended: the call that waits for it goes on at once. Returns the calling run's id, if there is one."""
    if child.parent_step_id is None or not child.ended:
        return None
    return await tell_call(ctx, child.parent_step_id)


async def tell_call(ctx: Context, step_id: str) -> str:
    """The run that works on this call has ended: it is looked after at once. Returns the calling run's id."""
    parent = run_of_step(step_id)
    handle = await handle_of(ctx, parent)
    await handle.decide(lambda d: run_has_ended(d, step_id))
    return parent


async def cancel_tree(ctx: Context, run_id: str, by: str, wake: Wake) -> tuple[str, ...]:
    """Cancel a run, then every run that works for it; the steps of all of them whose calls may have been sent.

    Once the first commit stands, no further run comes to work for it. Raises RunEnded, NotFound, InvalidInput (`by`).
    """
    by = ctx.redactor.text(check_name(by, "by"))
    handle = await handle_of(ctx, run_id)
    try:
        sent = await handle.tell(lambda d: cancel_run(d, by))
    except RunEnded:
        # Perhaps an earlier cancel was interrupted behind its first commit.
        await cancel_children(ctx, run_id, by, wake)
        raise
    wake(run_id)
    with contextlib.suppress(SurefootError):
        # Told in vain, or not at all: a worker's next round does it.
        wake(await tell_parent(ctx, handle.run))
    return (*sent, *await cancel_children(ctx, run_id, by, wake))


async def cancel_children(ctx: Context, run_id: str, by: str, wake: Wake) -> tuple[str, ...]:
    """The same for the runs that work for it. Raises Unreadable behind the others, where one of them is."""
    sent: tuple[str, ...] = ()
    children = await ctx.store.children(ctx.tenant_id, run_id)
    if any(child.ended for child in children) and await ctx.store.confirm():
        children = await ctx.store.children(ctx.tenant_id, run_id)
    for child in children:
        if child.ended:
            await cancel_children(ctx, child.id, by, wake)
            continue
        with contextlib.suppress(RunEnded):
            sent += await cancel_tree(ctx, child.id, by, wake)
    if children.unreadable:
        # Nothing is executed on it, and whoever mends it finds it under way: this one is not done until it is stopped.
        child_id, why = children.unreadable[0].id, children.unreadable[0].message
        raise Unreadable(f"{run_id} is cancelled, and {child_id}, which works for it, is not: {why}")
    return sent


async def stop_children(held: Held, step: Step) -> list[str]:
    """The calling run has ended, or the call was refused: the runs that work for it, or on the call, are stopped.

    Whoever cancelled it may have died before that.
    """
    try:
        if held.run.ended:
            await cancel_children(held.ctx, held.run.id, held.run.id, _tell_nobody)
        else:
            await _stop_child(held.ctx, step)
    except Unreadable as problem:
        # Whoever mends it finds it under way; and what else is left of the run is looked up meanwhile.
        pause_s, _ = await _told_unreadable(held.ctx, step, problem)
        await held.decide(lambda d: look_again(d, step.id, pause_s), step_id=step.id)
    else:
        await held.decide(lambda d: no_more_looks(d, step.id), step_id=step.id)
    return []


async def _stop_child(ctx: Context, step: Step) -> None:
    child_id = await ctx.store.run_of_key(ctx.tenant_id, step.operation_key or "")
    if child_id is None or (await ctx.store.load(ctx.tenant_id, child_id)).parent_step_id != step.id:
        return
    with contextlib.suppress(RunEnded):
        await cancel_tree(ctx, child_id, run_of_step(step.id), _tell_nobody)


def _tell_nobody(run_id: str | None) -> None:
    """A worker's next claim finds what there is to do."""


async def rests(ctx: Context, run: Run) -> bool:
    """True where the run has ended, or nothing in it and in the runs that work for it goes on without a person."""
    if run.ended or run.status is RunStatus.waiting_for_user:
        return True
    if run.status is not RunStatus.running:
        return False
    open_steps = [step for step in run.steps.values() if step.open_in_loop]
    called = {step.id for step in open_steps if _at_work(step)}
    if not called or any(s.id not in called and s.status is not StepStatus.waiting_for_approval for s in open_steps):
        return False
    children = {c.parent_step_id: c for c in await ctx.store.children(ctx.tenant_id, run.id)}
    for step_id in called:
        child = children.get(step_id)
        if child is None or child.ended or not await rests(ctx, child):
            return False
    return True


def may_rest(run: Run) -> bool:
    """False where `rests` certainly says so."""
    return run.ended or run.status is RunStatus.waiting_for_user or calls_run(run)


def calls_run(run: Run) -> bool:
    """True where another run works on one of its calls."""
    return True in [_at_work(step) for step in run.steps.values()]


def _at_work(step: Step) -> bool:
    return step.rules.waits_for is WaitsFor.run and step.status is StepStatus.pending
