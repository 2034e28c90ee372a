"""The question about a call that had an effect which was not expected, or more than one: its text and what it shows."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from surefoot.core.draft import Draft
from surefoot.core.ends import ask, open_question
from surefoot.core.payloads import Ask
from surefoot.core.state import ActionKind, Step

Questions = Mapping[ActionKind, Ask]
"""Prepared questions; at most one of each kind is asked."""
Effects = Mapping[str | None, str | None]
"""Ids of effects with their links. None: one that has no id."""

UNDO_IT = "This call has had an effect that was not expected, or more than one. Undo it?"
UNDO_EITHER_WAY = f"{UNDO_IT} If its tool cannot, undo it yourself before you approve."
UNDO_BY_HAND = f"""{UNDO_IT.removesuffix(" Undo it?")} Its tool cannot undo it: \
undo it yourself, then approve; or reject, which leaves it as it is."""
"""By these a question says who undoes, whatever the code that is there when it is answered would."""


def ask_about_duplicate(d: Draft, step: Step, questions: Questions, found: Effects) -> None:
    """Unless a person is asked about the step already. `found` are the effects, for whoever looks at them.

    The prepared question may hold effects that were shown before, for their links.
    """
    if open_question(d, step.id, ActionKind.duplicate) is None and ActionKind.duplicate in questions:
        question = questions[ActionKind.duplicate]
        preview: dict[str, object] = msgspec.json.decode(question.preview)
        before = msgspec.convert(preview.get("effects", []), list[dict[str, str | None]])
        links = {one["id"]: one["url"] for one in before}
        preview["effects"] = [{"id": i, "url": url or links.get(i)} for i, url in found.items() if i or url]
        if None in found and preview.get("text") == UNDO_IT:
            # No call undoes what has no id.
            preview["text"] = UNDO_EITHER_WAY
        ask(d, step.id, ActionKind.duplicate, msgspec.structs.replace(question, preview=msgspec.json.encode(preview)))


def ask_anew_about_duplicate(d: Draft, step_id: str, decided: str, questions: Questions, found: Effects) -> None:
    """Ask about effects that a decision did not undo. A question behind the `decided` one is about them already."""
    asked = [one.id for one in d.run.actions.values() if one.step_id == step_id and one.kind is ActionKind.duplicate]
    if asked[-1:] == [decided]:
        ask_about_duplicate(d, d.step(step_id), questions, found)
