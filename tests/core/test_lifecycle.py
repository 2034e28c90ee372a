"""docs/lifecycle.md is what the tables say today."""

from __future__ import annotations

from pathlib import Path

from surefoot.core import events as ev
from surefoot.core.lifecycle import document
from surefoot.core.transitions import RUN, STEP

PAGE = Path(__file__).parents[2] / "docs" / "lifecycle.md"


def test_the_page_is_not_stale() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == document(), "run: python -m surefoot.core.lifecycle > docs/lifecycle.md"


def test_every_row_and_every_event_is_on_the_page() -> None:
    text = document()
    for (before, kind), after in [*STEP.items(), *RUN.items()]:
        name = f"`{before.value}`" if before is not None else "(none)"
        assert f"| {name} | `{kind.__struct_config__.tag}` | `{after.value}` |" in text
    for kind in ev.AnyEvent.__args__:
        assert kind.__doc__ and f"| `{kind.__struct_config__.tag}` | {kind.__doc__.split('.')[0].split('`')[0]}" in text
