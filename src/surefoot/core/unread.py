"""The signals of a run that no call has taken yet, and the keys by which a repeated one is known. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from surefoot.core import events as ev
from surefoot.core.canonical import digest
from surefoot.core.state import Instant, Run, Signal, Signals, StepStatus, WaitsFor
from surefoot.errors import NotAllowed

KEYS_REMEMBERED_MAX = 1_000
"""Of one run: an older key may be used again."""
_KEY_CHARACTERS = 24
_CONTENT_CHARACTERS = 16


def signal_received(run: Run, event: ev.SignalReceived, at: Instant) -> Run:
    """With one more unread signal, and its key remembered."""
    keys = run.signals.keys
    if event.key is not None:
        keys = (*keys, mark(event.key, event.name, event.ref))[-KEYS_REMEMBERED_MAX:]
    signal = Signal(run.event_sequence, event.name, event.ref)
    return replace(run, signals=Signals((*run.signals.unread, signal), keys))


def signal_taken(run: Run, event: ev.SignalTaken, at: Instant) -> Run:
    """Without that signal. Raises NotAllowed (`illegal_transition`) where it is not unread."""
    left = tuple(signal for signal in run.signals.unread if signal.number != event.signal)
    if len(left) == len(run.signals.unread) or event.step_id not in run.steps:
        raise NotAllowed(f"signal {event.signal} is not there, or was taken already", code="illegal_transition")
    return replace(run, signals=Signals(left, run.signals.keys))


def mark(key: str, name: str, ref: str) -> str:
    """What is remembered of a key: enough to know it again, and to see that it came with other content."""
    return digest(key.encode())[:_KEY_CHARACTERS] + digest(f"{name}\n{ref}".encode())[:_CONTENT_CHARACTERS]


def known_mark(signals: Signals, key: str) -> str | None:
    """The mark under which the key came before."""
    begin = digest(key.encode())[:_KEY_CHARACTERS]
    return next((one for one in signals.keys if one.startswith(begin)), None)


def first_unread(run: Run, name: str) -> Signal | None:
    """The oldest unread signal of that name."""
    return next((signal for signal in run.signals.unread if signal.name == name), None)


def left_for_another(run: Run, step_id: str) -> bool:
    """True if a signal is unread that this pending call can take, those aside which earlier calls are about to take."""
    name = run.steps[step_id].target
    unread = sum(signal.name == name for signal in run.signals.unread)
    takers = sum(
        step.status is StepStatus.pending and step.rules.waits_for is WaitsFor.signal and step.target == name
        for step in run.steps.values()
        if step.id != step_id
    )
    return unread > takers
