"""Runs and questions as aligned plain text. Texts of others go through `shown`, so that none can move the cursor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from surefoot.cli.output import Output, clock_time, cut, local, shown
from surefoot.snapshot import ActionView, EvidenceView, MessageView, RunEvent, RunSnapshot, RunSummary, StepView
from surefoot.store.listed import UnreadableRow
from surefoot.vocabulary import NEXT

DECIDE = {
    "approve": ("surefoot actions approve {id}", "surefoot actions reject {id}"),
    "resolve": (
        "surefoot actions resolve {id} --happened --id X",
        "surefoot actions resolve {id} --did-not-happen",
        "surefoot actions resolve {id} --give-up",
    ),
    "ask": ("surefoot actions answer {id} VALUE", "surefoot actions reject {id}"),
    "model": ("surefoot actions answer {id} try_again", "surefoot actions answer {id} stop"),
    "duplicate": (
        "surefoot actions approve {id}   (undo it; where its tool cannot: you have)",
        "surefoot actions reject {id}   (leave it)",
    ),
}
"""How each kind of question is answered; "model" is an ask about a model that cannot be called."""
_UNTOLD = ("usage", "finish", "model", "is_error")
"""Members of a stored message that --json has, and people rarely ask for."""
_PREVIEW_PLACED = ("text", "tool", "target", "arguments", "warnings", "effects")
UNREADABLE_MAX = 20
ENDED = ("completed", "failed", "cancelled")


def print_run(out: Output, run: RunSnapshot) -> None:
    """A run with its steps, what it waits for, and its open questions."""
    out.line(f"{run.id}  {run.agent}  {run.display.text}")
    facts = [f"started {local(run.created_at)} by {shown(run.created_by)}"]
    if run.next is not None:
        facts.append(_next(run, out.language))
    if run.error_code:
        facts.append(f"code {run.error_code}")
    for fact in facts:
        out.line(f"  {fact}")
    _print_retry(out, run)
    out.line()
    out.table([("", "STEP", "STATUS", "TRY", ""), *[_step_row(s) for s in run.steps]], "  ")
    for step in run.steps:
        _print_doubt(out, step)
    if run.result is not None:
        out.line()
        out.line("  result")
        print_value(out, run.result, "    ")
    for action in run.pending_actions:
        out.line()
        print_action(out, action, "  ")


def _next(run: RunSnapshot, language: str) -> str:
    assert run.next is not None, "checked by the caller"
    what = NEXT.get(run.next.what, {})
    text = what.get(language) or what.get("en") or run.next.what
    since = f" since {local(run.next.since)}" if run.next.since else ""
    at = f", next look {local(run.next.at)}" if run.next.at else ""
    return f"next: {text}{since}{at}"


def _step_row(step: StepView) -> tuple[str, ...]:
    name = cut(shown(step.tool_name or step.type))  # a model may have invented it
    tries = str(step.attempt) if step.attempt else ""
    return (str(step.sequence), name, step.status, tries, cut(shown(_step_text(step)), 120))


def _step_text(step: StepView) -> str:
    made = " ".join(filter(None, (step.external_resource_id, step.resource_url)))
    code = f"({step.error_code})" if step.error_code else ""
    return " ".join(filter(None, (step.display.text, made, code)))


def _print_doubt(out: Output, step: StepView) -> None:
    """What was looked at and found, for a step that was ever in doubt."""
    if not step.evidence:
        return
    out.line()
    out.line(f"  step {step.sequence}, operation {shown(step.operation_key)}")
    out.table([_evidence_row(e) for e in step.evidence], "    ")


def _evidence_row(evidence: EvidenceView) -> tuple[str, ...]:
    what = " ".join(filter(None, (evidence.resource_id, evidence.url, evidence.reason)))
    return (clock_time(evidence.at), evidence.source, evidence.verdict, cut(shown(what), 100))


def print_action(out: Output, action: ActionView, indent: str = "") -> None:
    """A question as the person has to see it before the decision: the preview, hidden characters as escapes."""
    preview = action.preview if isinstance(action.preview, dict) else {}
    out.line(f"{indent}{action.id}  {action.kind}  {_standing(action)}")
    out.line(f"{indent}  {shown(preview.get('text', ''))}")
    rows = [("run", action.run_id), ("tool", action.tool_name or "the model")]
    rows += [(name, shown(preview[name])) for name in ("target",) if preview.get(name)]
    rows += [("expires", local(action.expires_at))] if action.expires_at and action.status == "waiting" else []
    rows += [("needs permission", action.permission)] if action.permission else []
    rows += [("hash", action.input_hash)] if action.input_hash else []
    rows += [("reason", shown(action.reason))] if action.reason else []
    out.table(rows, indent + "  ")
    # The arguments of a preview are escaped already; once more would show the escapes as fakes.
    print_value(out, preview.get("arguments", {}), indent + "    ", escaped=True)
    for warning in _texts(preview.get("warnings")):
        out.line(f"{indent}  warning: {warning}")
    for effect in preview.get("effects") or ():
        out.line(f"{indent}  effect: {shown(' '.join(filter(None, (effect.get('id'), effect.get('url')))))}")
    print_value(out, {k: v for k, v in preview.items() if k not in _PREVIEW_PLACED and v}, indent + "  ")
    if action.status == "waiting":
        kind = "model" if action.kind == "ask" and action.tool_name is None else action.kind
        for command in DECIDE.get(kind, ()):
            out.line(f"{indent}  > {command.format(id=action.id)}")


def _standing(action: ActionView) -> str:
    if action.status == "waiting":
        return f"waiting since {local(action.created_at)}"
    if action.status == "expired":
        return f"expired ({action.why})"
    place = f", from {shown(action.decided_from)}" if action.decided_from else ""
    return f"{action.status}: {action.decision} by {shown(action.decided_by)} at {local(action.decided_at)}{place}"


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def print_value(out: Output, value: object, indent: str, *, escaped: bool = False) -> None:
    """A JSON value; the lines of its texts stay lines, so that a body can be read. `escaped`: by `visible` already."""
    if isinstance(value, dict):
        for name, item in value.items():
            _print_member(out, name if escaped else shown(name), _lines(item, escaped), indent)
    else:
        for line in _lines(value, escaped):
            out.line(indent + line)


def _print_member(out: Output, name: str, lines: list[str], indent: str) -> None:
    if len(lines) == 1:
        out.line(f"{indent}{name}: {lines[0]}")
        return
    out.line(f"{indent}{name}:")
    for line in lines:
        out.line(f"{indent}  | {line}")


def _lines(value: object, escaped: bool) -> list[str]:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return (text if escaped else shown(text)).split("\n")


def print_runs(out: Output, runs: Sequence[RunSummary]) -> None:
    """Runs, one a line."""
    if not runs:
        out.line("no runs")
        return
    rows = [("RUN", "AGENT", "STARTED", "BY", "")]
    rows += [(r.id, r.agent, local(r.created_at), cut(shown(r.created_by), 20), _run_text(r)) for r in runs]
    out.table(rows)


def _run_text(run: RunSummary) -> str:
    return f"{run.display.text} ({run.error_code})" if run.error_code else run.display.text


def print_actions(out: Output, actions: Sequence[ActionView]) -> None:
    """Questions, one a line; open ones last, where they are seen."""
    if not actions:
        out.line("nothing waits for a person")
        return
    ordered = [*(a for a in actions if a.status != "waiting"), *(a for a in actions if a.status == "waiting")]
    rows = [("ACTION", "KIND", "TOOL", "STATUS", "SINCE", "")]
    rows += [(a.id, a.kind, a.tool_name or "", a.status, local(a.created_at), _target(a)) for a in ordered]
    out.table(rows)


def _target(action: ActionView) -> str:
    target = action.preview.get("target") if isinstance(action.preview, dict) else None
    return cut(shown(target or ""))


def note_unreadable(out: Output, rows: Sequence[UnreadableRow]) -> None:
    """The rows that a list leaves out, on stderr: with --json stdout is the list alone."""
    for row in rows[:UNREADABLE_MAX]:
        of = "" if row.id == row.run_id else f" (of {shown(row.run_id)})"
        out.note(f"surefoot: {shown(row.id)}{of} is not in this list ({row.code}): {shown(row.message)}")
    if len(rows) > UNREADABLE_MAX:
        out.note(f"surefoot: {len(rows) - UNREADABLE_MAX} more cannot be read; `surefoot doctor` names all of them")


def print_messages(out: Output, messages: Iterable[MessageView]) -> None:
    """The conversation."""
    out.line()
    out.line("conversation")
    for message in messages:
        place = "queued" if message.position is None else str(message.position)
        out.line(f"  {place:>6}  {local(message.created_at)}  {message.role}")
        body: Mapping[str, object] = message.body if isinstance(message.body, dict) else {"": message.body}
        print_value(out, {k: v for k, v in body.items() if k not in _UNTOLD and v not in (None, [], "")}, " " * 10)


def timed(event: RunEvent, line: str) -> str:
    """A line of a run's story with its time. It stays one line: what a model wrote must not look like another."""
    return f"{clock_time(event.at)}  {shown(line)}".replace("\n", "⟦U+000A⟧")


def print_what_next(out: Output, run: RunSnapshot) -> None:
    """Where a wait for a run ended, and what to do."""
    out.line(f"{run.id}  {run.display.text}" + (f" ({run.error_code})" if run.error_code else ""))
    _print_retry(out, run)
    if run.result is not None:
        print_value(out, run.result, "  ")
    for action in run.pending_actions:
        print_action(out, action, "  ")


def _print_retry(out: Output, run: RunSnapshot) -> None:
    """How a run that failed is taken up; one that works on a call of another run is its caller's to have done again."""
    if run.status == "failed" and run.kind == "agent" and run.parent_step_id is None:
        out.line(f"  > surefoot runs retry {run.id}")
