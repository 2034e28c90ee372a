"""Rows against events: what `surefoot doctor` checks, and what the tests' invariant checker checks. Pure.

Times are left out: they are the store's, and after another boot they are counted anew. Everything else that a decision
rests on has to be what the events make of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import asdict

from surefoot.core import events as ev
from surefoot.core.evolve import Recorded, replay
from surefoot.core.state import Action, Run, Step
from surefoot.errors import Unreadable

_TIMES = frozenset(
    {
        "started",
        "first_byte_before",
        "last_byte_before",
        "ended",
        "not_before",
        "doubt_since",
        "look_at",
        "expires_wall",
    }
)
_RUN_FIELDS = (
    "tenant_id", "id", "conversation_id", "agent", "agent_version", "kind", "status", "version", "event_sequence",
    "step_count", "turns", "error_code", "limits", "signals", "parent_step_id", "input_tokens", "output_tokens",
    "cost_microdollars", "result_step_id",
)  # fmt: skip
_OPEN_RUN_FIELDS = ("next_position", "queued")
"""What belongs to the conversation, which is the next run's after the end."""
_TERMINAL_EVENTS = (ev.RunCompleted, ev.RunFailed, ev.RunCancelled)


def check_run(run: Run, steps: Sequence[Step], actions: Sequence[Action], recorded: Sequence[Recorded]) -> list[str]:
    """Everything that is wrong with one run's rows and events, in words; empty if nothing is.

    `steps` and `actions` are all that the run has, `recorded` all its events in order.
    """
    try:
        replayed = replay(recorded)
    except Unreadable as error:
        return [str(error), *history_faults(recorded)]
    return [*history_faults(recorded), *compare(run, steps, actions, replayed)]


def compare(run: Run, steps: Sequence[Step], actions: Sequence[Action], replayed: Run) -> list[str]:
    """Where the rows differ from the run that the events make."""
    fields = _RUN_FIELDS if replayed.ended else (*_RUN_FIELDS, *_OPEN_RUN_FIELDS)
    found = list(_differences(f"run {run.id}", run, replayed, fields))
    found += _compare_all("step", {step.id: step for step in steps}, replayed.steps)
    found += _compare_all("action", {action.id: action for action in actions}, replayed.actions)
    for step in steps:
        of_events = replayed.steps.get(step.id)
        if of_events is not None:
            rows = {str(a.number): a for a in step.attempts}
            found += _compare_all(f"step {step.id}, attempt", rows, {str(a.number): a for a in of_events.attempts})
    return found


def _compare_all(what: str, rows: Mapping[str, Struct], of_events: Mapping[str, Struct]) -> list[str]:
    found = [f"{what} {key}: a row without events" for key in rows.keys() - of_events.keys()]
    found += [f"{what} {key}: events without a row" for key in of_events.keys() - rows.keys()]
    for key in rows.keys() & of_events.keys():
        fields = [name for name in rows[key].__struct_fields__ if name not in _TIMES and name != "attempts"]
        found += _differences(f"{what} {key}", rows[key], of_events[key], fields)
    return sorted(found)


def _differences(what: str, row: Struct, of_events: Struct, fields: Iterable[str]) -> Iterable[str]:
    one, other = asdict(row), asdict(of_events)
    for name in fields:
        if one[name] != other[name]:
            yield f"{what}: {name} is {one[name]!r}, and {other[name]!r} by its events"


def history_faults(recorded: Sequence[Recorded]) -> list[str]:
    """What a row of events must not show, whatever the rows say: gaps, a second end, a start after it, stale tokens."""
    found = [
        f"event {line.sequence} stands where {number} should"
        for number, line in enumerate(recorded, start=1)
        if line.sequence != number
    ]
    versions = [line.version for line in recorded]
    # One by one: a damaged number may be any.
    if any(later - earlier not in (0, 1) for earlier, later in pairwise(versions)):
        found.append("the versions of the events do not rise by one from append to append")
    ends = [line.sequence for line in recorded if isinstance(line.event, _TERMINAL_EVENTS)]
    if len(ends) > 1:
        found.append(f"the run ended more than once: events {ends}")
    late = [line for line in _starts(recorded) if ends and line.sequence > ends[0]]
    found += [f"{_where(line)} began after the run's end" for line in late]
    return found + token_faults(recorded)


def token_faults(recorded: Sequence[Recorded]) -> list[str]:
    """Attempts that began under a lease token after one had begun under a newer token."""
    found, newest = [], 0
    for line in _starts(recorded):
        token = line.event.token if isinstance(line.event, ev.StepStarted) else newest
        if token < newest:
            found.append(f"{_where(line)} began under token {token}, after one under token {newest}")
        newest = max(newest, token)
    return found


def _starts(recorded: Sequence[Recorded]) -> list[Recorded]:
    return [line for line in recorded if isinstance(line.event, ev.StepStarted)]


def _where(line: Recorded) -> str:
    event = line.event
    assert isinstance(event, ev.StepStarted)
    return f"attempt {event.attempt} of step {event.step_id} (event {line.sequence})"
