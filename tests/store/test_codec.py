"""Events to JSON and back. What cannot be read is an error and never None."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given, strategies as st

from surefoot.core import codec, events as ev
from surefoot.core.state import EffectClass, Limits, Rules, RunStatus
from surefoot.errors import Unreadable

KINDS = list(get_args(ev.AnyEvent))
STARTED = ev.StepStarted("step_1", 1, 7, 30.0, 10.0)

events: st.SearchStrategy[ev.AnyEvent] = st.one_of([st.from_type(kind) for kind in KINDS])


@given(events)
def test_an_event_comes_back_as_it_was(event: ev.AnyEvent) -> None:
    if any(value != value or abs(value) == float("inf") for value in _floats(event)):
        return
    try:
        data = codec.encode_event(event)
    except UnicodeEncodeError:
        return
    assert codec.decode_event(codec.event_type(event), data) == event


def _floats(event: object) -> list[float]:
    found: list[float] = []
    values = [getattr(event, name) for name in getattr(event, "__struct_fields__", ())]
    for value in values:
        found += [value] if isinstance(value, float) else _floats(value)
    return found


def test_every_event_has_its_name_on_the_wire() -> None:
    names = {str(kind.__struct_config__.tag) for kind in KINDS}
    assert len(names) == len(KINDS)
    changed = codec.encode_event(ev.RunStatusChanged(RunStatus.running, RunStatus.reconciling))
    assert changed == '{"type":"run_status_changed","from":"running","to":"reconciling"}'


@pytest.mark.parametrize(
    "data",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"type":"step_started"}',
        '{"type":"step_flew","step_id":"step_1"}',
        '{"type":"step_given_up","step_id":"step_1"}',
        codec.encode_event(STARTED).replace("timeout_s", "timeout_z"),
        codec.encode_event(STARTED).replace('"attempt":1', '"attempt":"1"'),
        codec.encode_event(STARTED)[:-1],
        codec.encode_event(STARTED) + "}",
        "[" * 10_000,
    ],
)
def test_c044_what_cannot_be_read_is_an_error(data: str) -> None:
    with pytest.raises(Unreadable):
        codec.decode_event("step_started", data)


def test_c044_a_newer_format_is_an_error() -> None:
    with pytest.raises(Unreadable):
        codec.decode_event("step_started", codec.encode_event(STARTED), codec.FORMAT + 1)
    with pytest.raises(Unreadable):
        codec.decode_event("step_started", codec.encode_event(STARTED), 0)


def test_older_formats_are_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "FORMAT", 3)

    def renamed(raw: dict[str, object]) -> dict[str, object]:
        return {("timeout_s" if key == "seconds" else key): value for key, value in raw.items()}

    old = codec.encode_event(STARTED).replace("timeout_s", "seconds")
    upcasts = {("step_started", 2): renamed}
    assert codec.decode_event("step_started", old, 1, upcasts) == STARTED
    assert codec.decode_event("step_started", old, 2, upcasts) == STARTED
    with pytest.raises(Unreadable):
        codec.decode_event("step_started", old, 3, upcasts)


def test_c044_small_structures_are_read_whole() -> None:
    rules = Rules(EffectClass.lookup, settle_s=5.0)
    data = codec.encode_value(rules)
    assert codec.decode_struct(data, Rules, "step") == rules
    for damaged in (data.replace("settle_s", "settle_z"), data.replace("lookup", "looked"), data[1:], "null"):
        with pytest.raises(Unreadable):
            codec.decode_struct(damaged, Rules, "step")
    with pytest.raises(Unreadable):
        codec.decode_struct('{"turns_max":"many"}', Limits, "run")
    with pytest.raises(Unreadable):
        codec.json_text('{"a":', "view")
    assert codec.json_text('{"a":2512292042121000001}', "view") == b'{"a":2512292042121000001}'
    with pytest.raises(Unreadable):
        codec.convert({"turns_max": None}, Limits, "run")
    assert msgspec.json.decode(data) == {"effect": "lookup", "settle_s": 5.0}
