"""Decisions of people and evidence from elsewhere: appends of anybody, guarded by the version alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from surefoot.core.draft import Draft
from surefoot.core.facts import check_name, check_reason
from surefoot.core.people import Decision, decide_action, is_replay
from surefoot.core.reconcile import record_report
from surefoot.core.state import ActionKind, Run
from surefoot.core.values import check_key, clean_text
from surefoot.effects import Absent, Found, Undetermined
from surefoot.errors import AlreadyDecided, InvalidInput, NotFound, SurefootError
from surefoot.runtime.context import Context
from surefoot.runtime.execute import redact_json
from surefoot.runtime.handle import Handle
from surefoot.runtime.late import UNDO, less_undone, shown_before
from surefoot.runtime.look import verdict_look
from surefoot.runtime.questions import Questions
from surefoot.store.port import ActionRow, StepRow


async def handle_of(ctx: Context, run_id: str, step_id: str | None = None) -> Handle:
    """A handle on a run for somebody without a lease. Raises NotFound."""
    run = await ctx.store.load(ctx.tenant_id, run_id, step_id)
    return Handle(ctx.store, run, ctx.registry.of(run).rules)


@asynccontextmanager
async def refusals_told(ctx: Context, action_id: str, decision: str, by: str) -> AsyncIterator[None]:
    """Log that a decision was refused: one line with the run, the action, whose it was and why."""
    try:
        yield
    except SurefootError as refusal:
        about = "an action that is not known"
        with suppress(SurefootError):
            about = f"run {(await ctx.store.action(ctx.tenant_id, action_id)).run_id}"
        tell_refused(ctx, about, action_id, decision, by, refusal.code)
        raise


def tell_refused(ctx: Context, about: str, action_id: str, decision: str, by: str, code: str) -> None:
    """Log one refusal; `about` is `run ID`, where it is known."""
    ctx.log(f"{about}: decision {decision!r} of {by!r} about {action_id!r} was refused ({code})")


async def decide_about(ctx: Context, action_id: str, decision: Decision) -> ActionRow:
    """Record the one decision about an action; the same one again under its key answers what is recorded.

    Raises NotFound, AlreadyDecided, NotAllowed (`action_expired`, `input_changed`), InvalidInput.
    """
    check_name(decision.by, "by")
    check_name(decision.source, "source")
    check_key(decision.key)
    check_reason(decision.reason)
    decision = _redacted(ctx, decision)
    row = await ctx.store.action(ctx.tenant_id, action_id)
    step = await ctx.store.step(ctx.tenant_id, row.action.step_id)
    handle = await handle_of(ctx, row.run_id, row.action.step_id)
    questions = await _questions(ctx, step, handle.run)
    if row.action.kind is ActionKind.duplicate and decision.decision == "approve" and row.action.decision is None:
        # Before the decision: whoever dies behind it leaves something that workers find.
        await ctx.store.mark(ctx.tenant_id, UNDO, action_id, row.run_id)

    def command(d: Draft) -> None:
        # A closed action is not in a run in memory; its row says what became of it.
        if action_id not in d.run.actions:
            d.run = msgspec.structs.replace(d.run, actions={**d.run.actions, action_id: row.action})
        decide_action(d, action_id, decision, questions)

    try:
        await handle.tell(command, step_id=row.action.step_id)
    except AlreadyDecided:
        row = await ctx.store.action(ctx.tenant_id, action_id)
        step = await ctx.store.step(ctx.tenant_id, row.action.step_id)
        if not (is_replay(row.action, decision) and _says_the_same(row, step, decision)):
            raise
    return await ctx.store.action(ctx.tenant_id, action_id)


def _says_the_same(row: ActionRow, step: StepRow, decision: Decision) -> bool:
    """Whether what is said beside the decision is what is recorded: a corrected id, reason or answer is no repeat.

    What is left out says nothing else.
    """
    if decision.input_hash not in (None, row.action.input_hash) or decision.reason not in (None, "", row.reason):
        return False
    if decision.value not in (None, row.answer):
        return False
    return decision.external_resource_id in (None, step.step.external_resource_id, *step.step.receipts)


def _redacted(ctx: Context, decision: Decision) -> Decision:
    """What a person wrote, under the value rule and without known secrets."""
    names = ("by", "reason", "key", "external_resource_id", "url", "source")
    given = {name: text for name in names if (text := getattr(decision, name)) is not None}
    texts = {name: ctx.redactor.text(clean_text(text)) for name, text in given.items()}
    value = None if decision.value is None else redact_json(ctx.redactor, decision.value)
    return msgspec.structs.replace(decision, value=value, **texts)


async def report_about(ctx: Context, key: str, verdict: Found | Absent | Undetermined, source: str) -> tuple[str, bool]:
    """Evidence for an operation key: the run's id, and whether it was new. Raises NotFound, InvalidInput."""
    if not isinstance(verdict, Found | Absent | Undetermined):
        raise InvalidInput(f"evidence is Found(Receipt(…)), Absent(…) or Undetermined(…), not {type(verdict).__name__}")
    look = verdict_look(ctx, verdict, source=check_name(source, "source"))
    if not isinstance(key, str):
        raise InvalidInput(f"the operation key is a text such as run_…:step_…, not {type(key).__name__}")
    row = await ctx.store.step_by_key(ctx.tenant_id, key)
    if row is None:
        raise NotFound(f"no step has the operation key {key!r}")
    if look.verdict == "found" and (look := await less_undone(ctx, row.step, look)).verdict != "found":
        return row.run_id, False
    handle = await handle_of(ctx, row.run_id, row.step.id)
    questions = await _questions(ctx, row, handle.run)
    new = await handle.tell(lambda d: record_report(d, row.step.id, look, questions), step_id=row.step.id)
    return row.run_id, new


async def _questions(ctx: Context, row: StepRow, run: Run) -> Questions:
    tool = ctx.registry.of(run).tools.get(row.step.tool_name or "")
    asked = run.actions.get(row.step.action_id or "")
    effects = await shown_before(ctx, row.step)
    return Questions(ctx.doors, row.step, row.safe_input or b"{}", tool, asked=asked, effects=effects)
