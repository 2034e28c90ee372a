"""From rows to records. Each function raises Unreadable; no value that cannot be read becomes None."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from surefoot.core import codec
from surefoot.core.evolve import Recorded, forget_closed
from surefoot.core.ids import operation_key, run_of_step, sequence_of_step
from surefoot.core.payloads import AS_TOLD
from surefoot.core.state import (
    STEP_ENDS,
    TERMINAL,
    Action,
    ActionStatus,
    Attempt,
    Instant,
    Limits,
    Rules,
    Run,
    RunStatus,
    Signals,
    Step,
)
from surefoot.errors import Unreadable
from surefoot.store import port
from surefoot.store.access import Credential
from surefoot.store.lock import worker_of
from surefoot.store.packing import unpacked

Row = Mapping[str, object]
_TEXTS = tuple[str, ...]
UNDER_WAY = frozenset(RunStatus) - TERMINAL


def runs_query(status: str | None) -> str:
    """The name of the query that lists runs of a status: those under way are few among all, and have an index."""
    return "runs_list_open" if status in UNDER_WAY else "runs_list"


def read_run(row: Row, steps: Sequence[Step], actions: Sequence[Action]) -> Run:
    """A run with the steps and actions that were read with it."""
    what = f"run {row['id']}"
    run = codec.convert(
        {
            **row,
            "started": _instant(row, "started_mono", "started_wall", what),
            "limits": codec.decode_struct(_str(row, "limits", what), Limits, what),
            "signals": codec.decode_struct(_str(row, "signals", what), Signals, what),
            "queued": codec.decode_value(_str(row, "queued", what), tuple[str, ...], what),
        },
        Run,
        what,
    )
    return replace(run, steps={step.id: step for step in steps}, actions={action.id: action for action in actions})


def read_run_row(row: Row, run: Run) -> port.RunRow:
    """A run for listing."""
    what = f"run {run.id}"
    owner = row["lease_owner"]
    fields = {
        **row,
        "run": run,
        "result": _json(row, "result", what),
        "metadata": _json(row, "metadata", what),
        "lease_owner": worker_of(owner) if isinstance(owner, str) else None,
    }
    return codec.convert(fields, port.RunRow, what)


def step_named(step_id: str) -> dict[str, object]:
    """What a query binds to find a step by its id."""
    return {"step_id": step_id, "run_id": run_of_step(step_id), "sequence": sequence_of_step(step_id)}


def read_attempts(row: Row) -> tuple[Attempt, ...]:
    """A step's attempts. A step whose attempts are not all there is unreadable: nothing may be sent on it."""
    what = f"step {row['id']}"
    attempts = codec.decode_value(_str(row, "attempts", what), tuple[Attempt, ...], f"attempts of {what}")
    if row["attempt"] != (attempts[-1].number if attempts else 0):
        raise Unreadable(f"{what} lacks attempts. Nothing is executed on it; run `surefoot doctor`")
    return attempts


def read_step(row: Row, *, tried: bool = True) -> Step:
    """One step; without its attempts where they are not asked for."""
    what = f"step {row['id']}"
    key = row["operation_key"]
    fields = {
        **row,
        "operation_key": operation_key(str(row["run_id"]), str(row["id"])) if key is None else key,
        "rules": codec.decode_struct(_str(row, "rules", what), Rules, what),
        "receipts": () if row["receipts"] == "[]" else codec.decode_value(_str(row, "receipts", what), _TEXTS, what),
        "person_absent": _flag(row, "person_absent", what),
        "answered": _flag(row, "answered", what),
        "attempts": read_attempts(row) if tried else (),
    }
    return codec.convert(fields, Step, what)


def read_step_row(row: Row, *, tried: bool = True) -> port.StepRow:
    """One step with its views; `tried` as of `read_step`."""
    step = read_step(row, tried=tried)
    what = f"step {step.id}"
    # Only what stands beside the step: a run is shown by as many of these as it has steps.
    beside = {name: row[name] for name in ("run_id", "conversation_id", "created_at", "updated_at")}
    views = {"safe_input": _large(row, "safe_input", what), "safe_output": _output(row, what)}
    return codec.convert({**beside, **views, "step": step}, port.StepRow, what)


def _output(row: Row, what: str) -> bytes | None:
    if row["safe_output"] != AS_TOLD.decode():
        return _large(row, "safe_output", what)
    told = f"the result of {what}"
    body = codec.decode_value(_large(row, "told", told) or b"", dict[str, msgspec.Raw], told)
    if "content" not in body:
        raise Unreadable(f"the result of {what} has no content; run `surefoot doctor`")
    return bytes(body["content"])


def read_shown(row: Row, steps: Iterable[Row], evidence: Iterable[Row], actions: Iterable[Row]) -> port.ShownRun:
    """A run with everything that it is shown by; with attempts only those steps that a run in memory keeps."""
    asked = [read_action_row(line) for line in actions]
    waiting = {one.action.step_id for one in asked if one.action.status is ActionStatus.waiting}
    shown = [read_step_row(line, tried=_kept(line, waiting)) for line in steps]
    run = forget_closed(read_run(row, [one.step for one in shown], [one.action for one in asked]))
    return port.ShownRun(read_run_row(row, run), shown, [read_evidence(line) for line in evidence], asked)


def _kept(row: Row, waiting: Container[object]) -> bool:
    """Of the rows as `forget_closed` has it of the steps."""
    return row["status"] not in STEP_ENDS or row["look_at"] is not None or row["id"] in waiting


def read_action(row: Row) -> Action:
    """One action."""
    return codec.convert({**row, "expires_wall": row["expires_at"]}, Action, f"action {row['id']}")


def arrival(row: Row) -> int:
    """The order in which rows were written."""
    number = row["arrival"]
    assert isinstance(number, int), "it is the table's primary key"
    return number


def read_action_row(row: Row) -> port.ActionRow:
    """One action with what the person is shown."""
    what = f"action {row['id']}"
    shown = {name: _json(row, name, what) for name in ("arguments", "preview", "answer")}
    return codec.convert({**row, **shown, "action": read_action(row)}, port.ActionRow, what)


def actions_query(status: str | None, run_id: str | None, *, below: bool) -> str:
    """The name of the query that lists actions: each has an index of its own."""
    if run_id is not None:
        return "actions_below_run" if below else "actions_of_run"
    return "actions_list_waiting" if status == "waiting" else "actions_list"


def read_evidence(row: Row) -> port.EvidenceRow:
    """One row of evidence."""
    what = f"evidence {row['arrival']}"
    return codec.convert({**row, "detail": _json(row, "detail", what)}, port.EvidenceRow, what)


def read_key_owner(row: Row) -> port.KeyOwner:
    """Who holds a business key."""
    return codec.convert(row, port.KeyOwner, "operation key")


def read_message(row: Row) -> port.MessageRow:
    """One message."""
    what = f"message {row['id']}"
    return codec.convert({**row, "body": _large(row, "body", what)}, port.MessageRow, what)


def read_events(rows: Iterable[Row], after: int, limit: int) -> list[Recorded]:
    """So many of the events behind `after`, of the appends that hold them. Raises Unreadable as `read_append` does."""
    found: list[Recorded] = []
    for row in rows:
        found += [recorded for recorded in read_append(row) if recorded.sequence > after]
    return found[:limit]


def read_append(row: Row) -> list[Recorded]:
    """The events of one append. Raises Unreadable for a type or format that this version does not know."""
    what = f"event {row['sequence']} of {row['run_id']}"
    written = row["format"]
    try:
        events = codec.decode_events(
            str(row["type"]), _str(row, "data", what), str(row["run_id"]), written if isinstance(written, int) else 0
        )
    except Unreadable as error:
        raise Unreadable(f"{what}: {error}") from error
    if not events or row["events"] != len(events):
        raise Unreadable(f"{what}: {len(events)} of {row['events']} events are there; run `surefoot doctor`")
    at = _instant(row, "at_mono", "created_at", what)
    last = codec.convert({**row, "at": at, "event": events[-1]}, Recorded, what)
    first = last.sequence - len(events) + 1
    return [Recorded(last.run_id, first + place, last.version, at, event) for place, event in enumerate(events)]


def _instant(row: Row, mono: str, wall: str, what: str) -> Instant:
    at, since = row[mono], row[wall]
    if type(at) is float and type(since) is float:
        return Instant(at, since)
    return codec.convert({"mono": at, "wall": since}, Instant, what)


def _str(row: Row, name: str, what: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise Unreadable(f"{what}: {name} is no text. Nothing is executed on it; run `surefoot doctor`")
    return value


def _json(row: Row, name: str, what: str) -> bytes | None:
    return None if row[name] is None else codec.json_text(_str(row, name, what), f"{name} of {what}")


def _large(row: Row, name: str, what: str) -> bytes | None:
    """JSON that may be packed."""
    value = row[name]
    if value is None:
        return None
    text = unpacked(value if isinstance(value, bytes) else _str(row, name, what), f"{name} of {what}")
    return codec.json_text(text, f"{name} of {what}")


def _flag(row: Row, name: str, what: str) -> bool:
    value = row[name]
    if value != 0 and value != 1:
        raise Unreadable(f"{what}: {name} is neither 0 nor 1. Nothing is executed on it; run `surefoot doctor`")
    return value == 1


def read_credential(row: Row) -> Credential:
    """An API token or a session. What one that was revoked might do is no matter, whether or not it can be read."""
    what = f"credential {row['id']}"
    try:
        permissions = codec.decode_value(str(row["permissions"]), _TEXTS, what)
        return codec.convert({**row, "permissions": permissions}, Credential, what)
    except Unreadable:
        if row["revoked_at"] is None:
            raise
    name = row["name"].decode(errors="replace") if isinstance(row["name"], bytes) else row["name"]
    return codec.convert({**row, "name": name, "permissions": ()}, Credential, what)
