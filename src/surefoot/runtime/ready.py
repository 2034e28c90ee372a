"""Pending steps that cannot start from memory alone: they need an account, a reading, a new question or an owner."""

from __future__ import annotations

import sys

import msgspec

from surefoot.core import policy
from surefoot.core.attempts import count_as_sent
from surefoot.core.decide import answer_from_owner, ask_approval, defer, key_reused, start_step
from surefoot.core.draft import Draft
from surefoot.core.ends import fail_step
from surefoot.core.payloads import result_body
from surefoot.core.people import is_worked_on
from surefoot.core.reconcile import Look, receipt_body
from surefoot.core.state import ActionKind, Resolution, Step, StepStatus, WaitsFor
from surefoot.core.values import to_json_value
from surefoot.effects import Operation
from surefoot.errors import NotAllowed, NotFound, SurefootError, Unreadable
from surefoot.runtime.children import go_on_with_run
from surefoot.runtime.context import Context
from surefoot.runtime.execute import RECEIPT_ERROR, Call, shown_receipt, wait_call
from surefoot.runtime.held import Held, refuse_step
from surefoot.runtime.late import Fate, as_it_stands, fate_of_failed
from surefoot.runtime.questions import Questions, meant_now
from surefoot.runtime.registry import RunnableTool
from surefoot.runtime.waiting import go_on_waiting
from surefoot.store.port import StepRow

PRECONDITION_TIMEOUT_SECONDS = 30.0
OWNER_GIVEN_UP = "owner_given_up"
DECLARED_ANEW = "declared_anew"
_NOT_NOW = frozenset({"account_changed", "account_unknown", "approval_expired", "not_yet"})
ACCOUNT_SECONDS = 60.0
"""So often it is asked whose a credential is that is not that of the step's earlier attempts."""


async def start_when_ready(held: Held, step: Step) -> list[str]:
    """Do the I/O that comes before the step's intent, then commit the intent. Returns the steps begun."""
    if step.owner_step_id is not None:
        return await _ask_owner(held, step)
    if held.was_read(step):
        return await _find_out(held, step)
    tool = held.tools[step.tool_name]
    if await _asked_again(held, step, tool):
        return []
    if step.rules.waits_for is not None:
        return await (go_on_with_run if step.rules.waits_for is WaitsFor.run else go_on_waiting)(held, step)
    if not await held.resolve_account(step, tool):
        pause_s = held.account_pause_s(tool)
        await held.decide(lambda d: _not_yet(d, step.id, pause_s, "account_unknown"), step_id=step.id)
        return []
    if not await held.enter(step):
        if held.stopping:
            return []
        again_s = policy.backoff(2, held.ctx.doors.entropy.fraction())
        await held.decide(lambda d: _not_yet(d, step.id, again_s, "throttled"), step_id=step.id)
        return []
    begun: list[str] = []
    try:
        begun = await _start(held, step)
    finally:
        if step.id not in begun:
            held.leave(step.id)
    return begun


async def _find_out(held: Held, step: Step) -> list[str]:
    """What it did as a read, before it is tried as what it is by now."""

    def command(d: Draft) -> list[str]:
        now, token = d.step(step.id), held.handle.token
        if not d.run.ended and now.status is StepStatus.pending and token is not None:
            count_as_sent(d, step.id, token, now.attempts[0].started.wall, DECLARED_ANEW)
        return held.go_on(d)

    return await held.decide(command, step_id=step.id) or []


def _not_yet(d: Draft, step_id: str, again_s: float, code: str) -> None:
    if not d.run.ended and d.step(step_id).status is StepStatus.pending:
        defer(d, step_id, again_s, code)


async def _start(held: Held, step: Step) -> list[str]:
    start, tool = held.start(step), held.tools[step.tool_name]
    if start is None or not held.account_told(tool):
        # While it waited for its throttles, a look at another call found that it is not known. It is asked again.
        return []
    changed = step.account not in (None, start.account)
    if changed:
        # It may be put right at any time: the next try asks anew whose the credential is.
        held.accounts.pop(step.credential or "", None)

    def command(d: Draft) -> list[str]:
        if d.run.ended or d.step(step.id).status is not StepStatus.pending:
            return []
        # Once more: this may have waited for another decision, and what is left of the lease is less by now.
        start = held.start(step)
        if start is None or not (changed or held.account_told(tool)):
            return []
        try:
            start_step(d, step.id, start)
        except NotAllowed as refusal:
            if refusal.code in _NOT_NOW:
                defer(d, step.id, ACCOUNT_SECONDS if refusal.code.startswith("account") else 0.5, refusal.code)
            else:
                refuse_step(d, step, refusal)
            return held.go_on(d)
        return [step.id]

    return await held.decide(command, step_id=step.id) or []


async def _asked_again(held: Held, step: Step, tool: RunnableTool) -> bool:
    """The approval is over, the code means another call now, or what held does not hold: ask, show what differs."""
    if is_worked_on(step):
        # The approval let that run begin. Asked once more, and not answered in time, the call would fail beside it.
        return False
    shown: dict[str, object] = {}
    why = await held.difference(step, tool)
    if held.needs_question(step):
        why = " ".join(filter(None, ("The approval of this call is over.", why)))
    elif why is None and step.action_id is not None:
        why = await _changed(held, step, tool, shown)
    if why is None or await _has_begun(held, step):
        return False
    shown.update(meant_now(step, tool, await held.arguments(step)))
    if tool.precondition is not None and "precondition" not in shown:
        shown["precondition"] = await _precondition(held, step, tool)
    view = await held.view(step)
    questions = Questions(held.ctx.doors, step, view, tool, (why,), shown, asked=held.asked(step))

    def command(d: Draft) -> None:
        if not d.run.ended and d.step(step.id).status is StepStatus.pending:
            ask_approval(d, step.id, questions[ActionKind.approve])

    await held.decide(command, step_id=step.id)
    return True


async def _has_begun(held: Held, step: Step) -> bool:
    """Whether a run works on the call already, though its worker was cut off before it wrote that down."""
    if step.rules.waits_for is not WaitsFor.run:
        return False
    return await held.ctx.store.run_of_key(held.ctx.tenant_id, step.operation_key) is not None


async def _changed(held: Held, step: Step, tool: RunnableTool, shown: dict[str, object]) -> str | None:
    """Whether what held when the person was asked, whose approval the step runs under, is different now."""
    if tool.precondition is None:
        return None
    before, now = (await held.shown(step)).get("precondition"), await _precondition(held, step, tool)
    if before == now:
        return None
    shown.update(precondition=now, precondition_before=before)
    return "What held when this call was approved has changed."


async def _precondition(held: Held, step: Step, tool: RunnableTool) -> object:
    op = held.ctx.operation(held.run.id, step, None)
    return await read_precondition(held.ctx, op, tool, await held.arguments(step))


async def read_precondition(ctx: Context, op: Operation, tool: RunnableTool, arguments: dict[str, object]) -> object:
    """The precondition's value as JSON. An exception is a value of its own kind, which equals no other reading."""
    call: Call | None = None
    try:
        call = Call(tool.make_precondition(op, arguments), is_async=True)
        if not await wait_call(ctx.doors, call, PRECONDITION_TIMEOUT_SECONDS):
            raise SurefootError("the precondition did not answer in time", code="precondition_timeout")
        if call.done.cancelled():
            raise SurefootError("the precondition was stopped from inside", code="precondition_cancelled")
        # Shown at approval and kept beside it; the same redaction stands on both sides of the comparison.
        read = msgspec.to_builtins(call.done.result(), str_keys=True, enc_hook=_of_a_kind_of_its_own)
        plain, _ = to_json_value(read, bytes_max=sys.maxsize)
        return ctx.redactor.value(plain)
    except Exception as problem:
        return {"unreadable": type(problem).__name__, "reading": ctx.doors.entropy.token(8).hex()}
    finally:
        if call is not None:
            call.cancel()


def _of_a_kind_of_its_own(value: object) -> object:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float):
        return value + 0
    raise NotImplementedError(type(value).__name__)


def asked_of(step: Step) -> tuple[str | None, str | None, str | None]:
    """What has to be the same of two calls under one business key: the bytes, the target and the credential."""
    return step.input_ref, step.target, step.credential


def _told_of(owner: StepRow) -> tuple[bytes, bytes | None]:
    """What the model is told of another call's receipt, and its view; a failed call's row says why it had failed."""
    if owner.step.status is StepStatus.failed:
        return receipt_body(
            Look("found", resource_id=owner.step.external_resource_id, url=owner.step.resource_url)
        ), None
    bad_news = shown_receipt(owner.step, owner.safe_output).error is not None
    body = result_body(msgspec.Raw(owner.safe_output or b"null"), code=RECEIPT_ERROR if bad_news else None)
    return body, owner.safe_output


async def _ask_owner(held: Held, step: Step) -> list[str]:
    """Another step holds this business key: answer from its receipt, or wait for it."""
    owner, fate, reads = None, None, True
    try:
        owner = await held.ctx.store.step(held.ctx.tenant_id, step.owner_step_id or "")
        fate = await fate_of_failed(held.ctx, owner)
        if fate == "applied":
            owner = await as_it_stands(held.ctx, owner)
    except NotFound:
        owner = None  # pruned with its run, which had ended
    except Unreadable as problem:
        # Whoever mends it finds this call waiting; what else there is to do in its run is done meanwhile.
        reads = False
        held.ctx.log(f"{step.id}: the call that has its key cannot be read ({problem}); looking again")

    def command(d: Draft) -> list[str]:
        if d.run.ended or d.step(step.id).status is not StepStatus.pending:
            return []
        if reads and _settle_by(d, step, owner, fate):
            held.ctx.patience.over(f"owner {step.id}")
        else:
            now = held.ctx.doors.clock.now().mono
            bounds = (policy.OWNER_SHARE, policy.OWNER_SECONDS_MIN, policy.OWNER_SECONDS_MAX)
            defer(d, step.id, held.ctx.patience.pause_s(f"owner {step.id}", now, *bounds), "waits_for_owner")
        return held.go_on(d)

    return await held.decide(command, step_id=step.id) or []


def _settle_by(d: Draft, step: Step, owner: StepRow | None, fate: Fate | None) -> bool:
    """Give the call what the one came to that has its key; False while that is not known. None: it is gone."""
    if owner is not None and fate != "nothing" and asked_of(owner.step) != asked_of(step):
        # It could not be read when this call was proposed.
        reused = key_reused(step.operation_key or "")
        fail_step(d, step, reused.code, body=result_body(reused.text, code=reused.code))
    elif owner is not None and (owner.step.status is StepStatus.succeeded or fate == "applied"):
        body, known = _told_of(owner)
        answer_from_owner(d, step.id, owner.step.external_resource_id, owner.step.resource_url, body, known)
    elif fate == "nothing":
        text = "An earlier call under the same key failed; propose the call again."
        fail_step(d, step, "owner_failed", body=result_body(text, code="owner_failed"))
    elif owner is None or owner.step.resolution is Resolution.given_up or fate == "given_up":
        # Whoever gave it up has closed the only question: nothing that this call could wait for would come.
        text = "Not executed: what became of an earlier call under the same key is not known, and nobody looks for it."
        fail_step(d, step, OWNER_GIVEN_UP, body=result_body(text, code=OWNER_GIVEN_UP))
    else:
        return False
    return True
