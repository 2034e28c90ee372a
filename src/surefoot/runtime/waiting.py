"""Calls that wait for a signal, and the signals of programs: each is handed over once, whichever comes first."""

from __future__ import annotations

from surefoot.core.decide import ask_question
from surefoot.core.draft import Draft
from surefoot.core.facts import check_name
from surefoot.core.state import ActionKind, Step, StepStatus
from surefoot.core.text import clean_text
from surefoot.core.unread import first_unread
from surefoot.core.values import canonical, check_key, digest
from surefoot.core.waiting import receive_signal, take_signal
from surefoot.errors import InvalidInput
from surefoot.runtime.context import Context
from surefoot.runtime.deciding import handle_of
from surefoot.runtime.execute import redact_json
from surefoot.runtime.held import Held
from surefoot.runtime.questions import SIGNAL_NAME_CHARACTERS_MAX, make_ask, signal_name, signal_seconds, signal_shown

SIGNAL_BYTES_MAX = 256 * 1024


async def signal_run(ctx: Context, run_id: str, name: str, value: object, *, by: str, key: str | None) -> bool:
    """Say something to a run; False where it was said before under this key.

    Raises NotFound, RunEnded, KeyReused, NotAllowed (`too_many_signals`), InvalidInput (the name or the value).
    """
    plain = ctx.redactor.text(signal_name(name)) if isinstance(name, str) else ""
    if not 0 < len(plain) <= SIGNAL_NAME_CHARACTERS_MAX:
        raise InvalidInput(f"a signal's name is a text of 1 to {SIGNAL_NAME_CHARACTERS_MAX} characters")
    check_key(key)
    data = redact_json(ctx.redactor, canonical(value, "value"))
    if len(data) > SIGNAL_BYTES_MAX:
        raise InvalidInput(
            f"the value has {len(data)} bytes as JSON, and a signal carries {SIGNAL_BYTES_MAX}: send a reference to it",
            code="too_large",
        )
    said_by = ctx.redactor.text(check_name(by, "by"))
    said_key = None if key is None else ctx.redactor.text(clean_text(key))
    handle = await handle_of(ctx, run_id)
    return await handle.tell(lambda d: receive_signal(d, plain, digest(data), data, by=said_by, key=said_key))


async def go_on_waiting(held: Held, step: Step) -> list[str]:
    """A call that waits for a signal takes one that came first, or begins to wait. Returns the steps begun."""
    ctx, name = held.ctx, step.target or ""
    signal = first_unread(held.run, name)
    value = b"" if signal is None else await ctx.store.blob(ctx.tenant_id, signal.ref)
    question = make_ask(
        ctx.doors,
        ActionKind.ask,
        tool_name=step.tool_name or "",
        target=None,
        safe_input=await held.view(step),
        expires_s=signal_seconds(step.rules, await held.arguments(step)),
        shown=signal_shown(name),
    )

    def command(d: Draft) -> list[str]:
        if d.run.ended or d.step(step.id).status is not StepStatus.pending:
            return []
        if signal is not None and take_signal(d, step.id, signal, value):
            return held.go_on(d)
        if first_unread(d.run, name) is None:
            ask_question(d, step.id, question)
        return []

    return await held.decide(command, step_id=step.id) or []
