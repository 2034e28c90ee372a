"""Questions to people, made when they are asked: what would be done or may have been done, in words and as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from surefoot.core.duplicates import UNDO_BY_HAND, UNDO_EITHER_WAY, UNDO_IT, Effects
from surefoot.core.ids import mint
from surefoot.core.payloads import Ask
from surefoot.core.people import is_worked_on
from surefoot.core.state import Action, ActionKind, Rules, Step, WaitsFor
from surefoot.core.text import clean_text
from surefoot.core.visible import visible_value
from surefoot.doors import Doors
from surefoot.runtime.registry import RunnableTool

SIGNAL_NAME_CHARACTERS_MAX = 200
MODEL_CHOICES = ["try_again", "stop"]
"""The answers to the question whether a model call that a person can mend is tried again."""

_TEXTS = {
    ActionKind.approve: "Approve this call?",
    ActionKind.resolve: "This call may have been sent, and nobody can find out whether it was applied. What happened?",
    ActionKind.ask: "The model cannot be called. Try again, or stop the run?",
    ActionKind.duplicate: UNDO_IT,
}


class Questions(Mapping[ActionKind, Ask]):
    """The questions that a command on `step` may ask; each is minted when it is first looked at."""

    def __init__(
        self,
        doors: Doors,
        step: Step,
        safe_input: bytes,
        tool: RunnableTool | None,
        warnings: tuple[str, ...] = (),
        shown: Mapping[str, object] | None = None,
        *,
        asked: Action | None = None,
        effects: Effects | None = None,
    ) -> None:
        """`asked` is the question about the step before: whom it was for counts where the tool of now asks nobody.
        `effects` are those that earlier questions have shown.
        """
        self._asked = asked
        self._effects = effects or {}
        self._doors = doors
        self._step = step
        self._safe_input = safe_input
        self._tool = tool
        self._warnings = warnings
        self._shown = shown
        self._made: dict[ActionKind, Ask] = {}

    def __getitem__(self, kind: ActionKind) -> Ask:
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

    def __iter__(self) -> Iterator[ActionKind]:
        return iter(ActionKind)

    def __len__(self) -> int:
        return len(ActionKind)

    def _make(self, kind: ActionKind) -> Ask:
        approval = self._tool.approval if self._tool is not None else None
        before = None if self._asked is None else self._asked.permission
        shown = self._shown
        if kind is ActionKind.approve and self._tool is not None:
            shown = {"tool_version": self._tool.version, **(shown or {})}
        elif kind is ActionKind.ask:
            shown = {**(shown or {}), "choices": MODEL_CHOICES, "schema": {"enum": MODEL_CHOICES}}
        elif kind is ActionKind.duplicate:
            shown = {"effects": [{"id": one, "url": url} for one, url in self._effects.items()], **(shown or {})}
            if self._tool is None or self._tool.compensate is None:
                # What is approved counts as undone: the business key of a failed call is free from then on.
                shown = {"text": UNDO_EITHER_WAY if self._tool is None else UNDO_BY_HAND, **shown}
        return make_ask(
            self._doors,
            kind,
            tool_name=self._step.tool_name or "model",
            target=self._step.target,
            safe_input=self._safe_input,
            warnings=self._warnings,
            permission=approval.permission if approval is not None else before,
            expires_s=self._step.rules.approval_expires_s if kind in (ActionKind.approve, ActionKind.ask) else None,
            shown=shown,
        )


def difference(
    step: Step, tool: RunnableTool, arguments: Mapping[str, object], approved: Mapping[str, object] | None
) -> str | None:
    """Why a person has to be asked before a call is sent, in words: what the more careful of two says, the code that
    proposed the call or asked about it, and that of now. Everything that differs, for it is asked about once.

    `approved` is what the person was shown; None where nobody was asked.
    """
    if approved is None:
        begins = step.rules.waits_for in (None, WaitsFor.run) and not is_worked_on(step)
        return "This tool asks for approval now." if begins and tool.needs_approval(arguments) else None
    why: list[str] = []
    version = approved.get("tool_version", step.tool_version)
    if version != tool.version:
        why.append(f"The tool has changed since this call was approved (version {version} to {tool.version}).")
    credential = approved.get("credential", step.credential)
    if credential != tool.credential:
        text = f"The call was approved under the credential {credential}, and would be made under"
        why.append(f"{text} {tool.credential} now.")
    target, now = approved.get("target", step.target), tool.target_text(arguments) or None
    if target != now:
        text = f"The call was approved to act on {target or 'nothing that it named'}, and would act on"
        why.append(f"{text} {now or 'nothing that it names'} now.")
    return " ".join(why) or None


def meant_now(step: Step, tool: RunnableTool, arguments: Mapping[str, object]) -> dict[str, object]:
    """Under which credential and to what the call would be made by the code of now, where its row says otherwise.

    Every question before a send shows it: an approval holds for what its own question showed.
    """
    target = tool.target_text(arguments) or None
    shown: dict[str, object] = {} if tool.credential == step.credential else {"credential": tool.credential}
    return shown if target == step.target else {**shown, "target": target}


def signal_shown(name: str) -> dict[str, object]:
    """What people see of a call that waits for a signal."""
    return {"text": f"Waits for the signal {name}", "signal": name}


def signal_name(name: str) -> str:
    """A signal's name as it is compared: under the value rule, without blanks around it."""
    return clean_text(name).strip()


def signal_seconds(rules: Rules, arguments: Mapping[str, object]) -> float:
    """For how long a call waits for its signal."""
    seconds = arguments.get("timeout_seconds")
    return float(seconds) if isinstance(seconds, int | float) else rules.approval_expires_s


def make_ask(
    doors: Doors,
    kind: ActionKind,
    *,
    tool_name: str,
    target: str | None,
    safe_input: bytes,
    warnings: tuple[str, ...] = (),
    permission: str | None = None,
    expires_s: float | None = None,
    shown: Mapping[str, object] | None = None,
) -> Ask:
    """A question with a fresh id. Hidden characters are made visible in the preview; the bytes stay as they are."""
    arguments, found = visible_value(msgspec.json.decode(safe_input or b"{}"))
    preview = {
        "text": _TEXTS[kind],
        "tool": tool_name,
        "target": target,
        "arguments": arguments,
        "warnings": [*warnings, *found],
        **(shown or {}),
    }
    action_id = mint("act", doors.clock.now().wall, doors.entropy.token(10))
    return Ask(action_id, safe_input or b"{}", msgspec.json.encode(preview), permission=permission, expires_s=expires_s)
