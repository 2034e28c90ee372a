"""docs/events.md has every event type, each with all of its fields and an example that can be read."""

from __future__ import annotations

import re
from typing import get_args

import msgspec
import pytest

from surefoot.core.codec import decode_event, event_type
from surefoot.core.events import AnyEvent
from tests.docs.test_examples import ROOT

PAGE = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
TYPES: dict[str, type[msgspec.Struct]] = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyEvent)}


def test_every_type_has_a_section_in_the_order_of_the_code() -> None:
    assert len(TYPES) > 20
    assert list(SECTIONS) == list(TYPES)


@pytest.mark.parametrize("kind", TYPES)
def test_every_field_is_listed(kind: str) -> None:
    listed = dict(re.findall(r"^\| `(\w+)`(\??) \| \S", SECTIONS[kind], re.MULTILINE))
    fields = msgspec.structs.fields(TYPES[kind])
    assert listed == {field.encode_name: "" if field.required else "?" for field in fields}


@pytest.mark.parametrize("kind", TYPES)
def test_the_example_is_an_event_of_this_type(kind: str) -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```", SECTIONS[kind], re.MULTILINE | re.DOTALL)
    assert event_type(decode_event(kind, example)) == kind
