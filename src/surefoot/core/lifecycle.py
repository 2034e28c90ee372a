"""docs/lifecycle.md, made from the two tables: `python -m surefoot.core.lifecycle > docs/lifecycle.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum

from surefoot.core import events as ev
from surefoot.core.state import STEP_ENDS, TERMINAL, RunStatus, StepStatus
from surefoot.core.transitions import RUN, RUN_CHANGES, STEP

_RUN: dict[StrEnum, str] = {
    RunStatus.running: "Something runs or can begin.",
    RunStatus.waiting_for_user: "A question is open, nothing runs or is ready, every step in doubt has its question.",
    RunStatus.reconciling: "A step is in doubt, and the target is being asked what happened.",
    RunStatus.completed: "The run reached its result. Final.",
    RunStatus.failed: "The run ended without its result. Final.",
    RunStatus.cancelled: "Somebody stopped the run. Final.",
}
_STEP: dict[StrEnum, str] = {
    StepStatus.pending: "Written down; not begun, or to begin again.",
    StepStatus.running: (
        "The intent of an attempt is committed: the call may have been sent. After its worker is gone this is read as "
        "outcome_unknown."
    ),
    StepStatus.waiting_for_approval: "A person decides, or answers.",
    StepStatus.outcome_unknown: "The call may have been sent, and nobody wrote down its end. It is looked up.",
    StepStatus.succeeded: "There is a receipt, or an answer. Final.",
    StepStatus.failed: "It did not happen, with proof. Final.",
}

_HEAD = """\
# Life of a run and of a step

Made from `src/surefoot/core/transitions.py` by `python -m surefoot.core.lifecycle`; do not edit. A pair of status and
event that is not listed is refused, and nothing changes.
"""

_DERIVED = """\
Between its beginning and its end a run's status is derived from its steps and questions, by one function
(`derive_status` in `src/surefoot/core/draft.py`), and written with the events that changed it:

1. an end is final;
2. `waiting_for_user` if a question is open, nothing runs or is ready to run, and every step in doubt has its question;
3. `reconciling` if a step is in doubt (one that a person gave up knowingly is left aside);
4. `running` otherwise.

The typical rescue reads running, reconciling, running, completed. What may have been sent when a run ends goes on being
settled after it, by reading only: the steps still move, the run does not.
"""

_DOUBT = """\
`outcome_unknown` comes from one row only. A step that a person gave up keeps it: closed for the run, open for later
evidence.
"""


def document() -> str:
    """The whole of docs/lifecycle.md. Raises KeyError for a status without a gloss."""
    parts = [
        _HEAD,
        "## Step\n",
        _diagram(_step_arrows(), [s for s in StepStatus if s in STEP_ENDS]),
        _statuses(StepStatus, _STEP),
        _table(((_name(a), event, _name(b)) for (a, event), b in STEP.items())),
        _DOUBT,
        "## Run\n",
        _DERIVED,
        _diagram(_run_arrows(), [s for s in RunStatus if s in TERMINAL]),
        _statuses(RunStatus, _RUN),
        _table(_run_rows()),
        "## Events\n",
        _events(),
    ]
    return "\n".join(parts)


def _name(status: StrEnum | None) -> str:
    return "(none)" if status is None else f"`{status.value}`"


def _tag(kind: type[ev.Event]) -> str:
    return str(kind.__struct_config__.tag)


def _gloss(kind: type[ev.Event]) -> str:
    return " ".join((inspect.getdoc(kind) or "").split())


def _step_arrows() -> Iterator[tuple[str, str, str]]:
    for (before, kind), after in STEP.items():
        yield "[*]" if before is None else before.value, after.value, _tag(kind)


def _run_arrows() -> Iterator[tuple[str, str, str]]:
    yield "[*]", RunStatus.running.value, _tag(ev.RunStarted)
    for before, after in sorted(RUN_CHANGES):
        yield before.value, after.value, _tag(ev.RunStatusChanged)
    for (status, kind), end in RUN.items():
        yield status.value, end.value, _tag(kind)


def _run_rows() -> Iterator[tuple[str, type[ev.Event], str]]:
    yield "(none)", ev.RunStarted, _name(RunStatus.running)
    for before, after in sorted(RUN_CHANGES):
        yield _name(before), ev.RunStatusChanged, _name(after)
    for (status, kind), end in RUN.items():
        yield _name(status), kind, _name(end)


def _diagram(arrows: Iterator[tuple[str, str, str]], ends: Sequence[StrEnum]) -> str:
    together: dict[tuple[str, str], list[str]] = {}
    for before, after, label in arrows:
        together.setdefault((before, after), []).append(label)
    lines = [f"    {before} --> {after}: {', '.join(labels)}" for (before, after), labels in together.items()]
    lines += [f"    {end.value} --> [*]" for end in ends]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```", ""])


def _statuses(kind: type[StrEnum], gloss: dict[StrEnum, str]) -> str:
    lines = [f"| `{status.value}` | {gloss[status]} |" for status in kind]
    return "\n".join(["| status | means |", "|---|---|", *lines, ""])


def _table(rows: Iterator[tuple[str, type[ev.Event], str]]) -> str:
    lines = [f"| {before} | `{_tag(kind)}` | {after} |" for before, kind, after in rows]
    return "\n".join(["| from | event | to |", "|---|---|---|", *lines, ""])


def _events() -> str:
    lines = [f"| `{_tag(kind)}` | {_gloss(kind)} |" for kind in ev.AnyEvent.__args__]
    return "\n".join(["| event | means |", "|---|---|", *lines, ""])


if __name__ == "__main__":
    sys.stdout.write(document())
