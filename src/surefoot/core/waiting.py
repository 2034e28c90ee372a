"""Commands of calls that wait for a signal or for a child run. Like every command they know neither clock nor I/O."""

from __future__ import annotations

import msgspec

from surefoot.core import events as ev
from surefoot.core.draft import Draft
from surefoot.core.ends import answer
from surefoot.core.payloads import ActionAnswer, BlobPut, StepView, result_body
from surefoot.core.state import Action, ActionStatus, Signal, Step, StepStatus, WaitsFor
from surefoot.core.unread import known_mark, mark
from surefoot.errors import KeyReused, NotAllowed

UNREAD_SIGNALS_MAX = 100
"""Of one run: more are refused until some are taken."""


def receive_signal(d: Draft, name: str, ref: str, value: bytes, *, by: str, key: str | None) -> bool:
    """A program's signal: the result of the call that has waited for it longest, or kept for the next one.

    `value` is JSON, `ref` the sha256 of its bytes. False where the key has come before with the same content. Raises
    RunEnded, KeyReused (other content), NotAllowed (`too_many_signals`).
    """
    known = None if key is None else known_mark(d.run.signals, key)
    if key is not None and known is not None:
        if known != mark(key, name, ref):
            raise KeyReused(f"the key {key!r} came with another signal before: use a new key")
        return False
    d.require_open()
    if len(d.run.signals.unread) >= UNREAD_SIGNALS_MAX:
        raise NotAllowed(
            f"the run has {UNREAD_SIGNALS_MAX} signals that no call has taken yet: send it again later",
            code="too_many_signals",
        )
    d.emit(ev.SignalReceived(name, ref, by, key=key))
    d.carry(BlobPut(ref, value, "signal"))
    waiting = _longest_waiting(d, name)
    if waiting is not None:
        step, action = waiting
        d.emit(ev.ActionDecided(action.id, step.id, ActionStatus.approved, "answer", by, decision_key=key))
        d.carry(ActionAnswer(action.id, answer=value))
        _take(d, step, d.run.signals.unread[-1].number, value)
    return True


def take_signal(d: Draft, step_id: str, signal: Signal, value: bytes) -> bool:
    """A call that has not begun to wait takes a signal that came first. False where another has taken it."""
    step = d.step(step_id)
    if step.status is not StepStatus.pending or signal not in d.run.signals.unread:
        return False
    _take(d, step, signal.number, value)
    return True


def _take(d: Draft, step: Step, number: int, value: bytes) -> None:
    d.emit(ev.SignalTaken(number, step.id))
    d.emit(ev.StepSucceeded(step.id))
    answer(d, step, result_body(msgspec.Raw(value)))


def _longest_waiting(d: Draft, name: str) -> tuple[Step, Action] | None:
    """The call that waits for this signal, whose time is not over."""
    for step in sorted(d.run.steps.values(), key=lambda s: s.sequence):
        action = d.run.actions.get(step.action_id or "")
        waits = step.rules.waits_for is WaitsFor.signal and step.target == name
        if not waits or action is None or action.status is not ActionStatus.waiting:
            continue
        if action.expires_wall is None or d.at.wall < action.expires_wall:
            return step, action
    return None


# Runs that work on a call


def answer_from_run(d: Draft, step_id: str, *, body: bytes, safe_output: bytes) -> None:
    """The run that worked on the call has its result: so has the call."""
    step = d.step(step_id)
    d.emit(ev.StepSucceeded(step.id))
    d.carry(StepView(step.id, safe_output=safe_output))
    answer(d, step, body)


def run_has_ended(d: Draft, step_id: str) -> None:
    """Somebody says that the run that works on the call has ended: it is looked after at once."""
    step = d.run.steps.get(step_id)
    if step is None or d.run.ended or step.status is not StepStatus.pending or step.not_before <= d.at.mono:
        return
    d.emit(ev.StepDeferred(step_id, 0.0, code="run_ended"))


def no_more_looks(d: Draft, step_id: str) -> None:
    """The runs that worked on the call of an ended run are stopped."""
    if d.step(step_id).look_at is not None:
        d.emit(ev.SweepScheduled(step_id, None))


def look_again(d: Draft, step_id: str, pause_s: float) -> None:
    """One of them cannot be stopped now."""
    step = d.step(step_id)
    if step.look_at is not None:
        d.emit(ev.SweepScheduled(step_id, step.sweep, pause_s))
