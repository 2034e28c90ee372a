"""Events to JSON and back. What cannot be read is an error and never None."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import get_args

import msgspec
import pytest
from hypothesis import given, strategies as st

from surefoot.core import codec, events as ev
from surefoot.core.state import (
    ActionKind,
    ActionStatus,
    AttemptEnd,
    EffectClass,
    Limits,
    Resolution,
    Rules,
    RunStatus,
    StepType,
)
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


ids = st.one_of(st.just("run_1"), st.just("run_"), st.just("run_\x01"), st.just("run_null"), st.text(max_size=8))


@given(st.lists(events, min_size=1, max_size=4), ids, st.text(alphabet='\x01\x02,nul1_"\\', max_size=30))
def test_the_events_of_an_append_come_back_whatever_their_texts_look_like(
    made: list[ev.AnyEvent], run_id: str, text: str
) -> None:
    name = run_id.removeprefix("run_")
    text += f"step_{name}_"
    made += [
        ev.StepCreated(text, 1, StepType.tool_call, Rules(EffectClass.read), text, None, name, None, run_id, text),
        ev.MessageAppended(f"msg_{name}_1", f"{name},null{text}", 1, f"step_{name}_00001"),
        ev.RunFailed(run_id),
    ]
    if any(value != value or abs(value) == float("inf") for event in made for value in _floats(event)):
        return
    try:
        data = codec.encode_events(made, run_id)
    except UnicodeEncodeError:
        return
    assert codec.decode_events(codec.EVENTS, data, run_id) == made


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
    with pytest.raises(Unreadable, match="written by a newer surefoot; use that version"):
        codec.decode_event("step_started", codec.encode_event(STARTED), codec.FORMAT + 1)
    with pytest.raises(Unreadable, match="written by a newer surefoot; use that version"):
        codec.decode_events(codec.EVENTS, "[28,[]]", "run_1", codec.FORMAT + 1)
    with pytest.raises(Unreadable):
        codec.decode_event("step_started", codec.encode_event(STARTED), 0)


def test_older_formats_are_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    now, later = codec.FORMAT, codec.FORMAT + 1
    monkeypatch.setattr(codec, "FORMAT", later)

    def renamed(raw: dict[str, object]) -> dict[str, object]:
        return {("timeout_s" if key == "seconds" else key): value for key, value in raw.items()}

    old = codec.encode_event(STARTED).replace("timeout_s", "seconds")
    upcasts = {("step_started", now): renamed}
    assert codec.decode_event("step_started", old, 1, upcasts) == STARTED
    assert codec.decode_event("step_started", old, now, upcasts) == STARTED
    with pytest.raises(Unreadable):
        codec.decode_event("step_started", old, later, upcasts)


# One of each kind, as it is stored: a field that moves, or a number that is given anew, makes other events of old ones.
STORED: Mapping[str, ev.AnyEvent] = {
    '1,["run_\x01","t","c","a","1","agent",0,"ann",{}\x03]': ev.RunStarted(
        "run_7k", "t", "c", "a", "1", "agent", 0, "ann"
    ),
    '2,["running","reconciling"]': ev.RunStatusChanged(RunStatus.running, RunStatus.reconciling),
    "3,[]": ev.RunCompleted(),
    '4,["budget"]': ev.RunFailed("budget"),
    '5,["ann",["s"]]': ev.RunCancelled("ann", ("s",)),
    '6,["s",1,"tool_call",{"effect":"read"},"n","1","c",2,"k","h","r","i","t","d","o"]': ev.StepCreated(
        "s", 1, StepType.tool_call, Rules(EffectClass.read), "n", "1", "c", 2, "k", "h", "r", "i", "t", "d", "o"
    ),
    '7,["s","a"]': ev.StepWaitingForApproval("s", "a"),
    '8,["s","a"]': ev.StepReleased("s", "a"),
    '9,["s",1,7,30.0,10.0,"a","k",5.0,{"effect":"opaque"}]': ev.StepStarted(
        "s", 1, 7, 30.0, 10.0, "a", "k", 5.0, Rules(EffectClass.opaque)
    ),
    '10,["s",1.5,"c",1,"refused"]': ev.StepDeferred("s", 1.5, "c", 1, AttemptEnd.refused),
    '11,["s",1,"c",true,false,0.0]': ev.StepOutcomeUnknown("s", 1, "c"),
    '12,["s",1,"e","u","found",true,1,2,3,"compact"]': ev.StepSucceeded(
        "s", 1, "e", "u", Resolution.found, True, 1, 2, 3, "compact"
    ),
    '13,["s","c",1,"refused","found"]': ev.StepFailed("s", "c", 1, AttemptEnd.refused, Resolution.found),
    '14,["\x0200001"]': ev.StepGivenUp("step_7k_00001"),
    '15,["s",1,"applied","c"]': ev.AttemptEnded("s", 1, AttemptEnd.applied, "c"),
    '16,["s","found","r",true,1.0,"e"]': ev.LookupAnswered("s", "found", "r", True, 1.0, "e"),
    '17,["s","lookup","found",1,"r","u"]': ev.EvidenceRecorded("s", "lookup", "found", 1, "r", "u"),
    '18,["s","r","u"]': ev.ReceiptRecorded("s", "r", "u"),
    '19,["s",["r"],["u"]]': ev.DuplicateDetected("s", ("r",), ("u",)),
    '20,["s",1,60.0]': ev.SweepScheduled("s", 1, 60.0),
    '21,["a","s","approve","h","p",1.0]': ev.ActionRequested("a", "s", ActionKind.approve, "h", "p", 1.0),
    '22,["a","s","approved","approve","ann","k","page"]': ev.ActionDecided(
        "a", "s", ActionStatus.approved, "approve", "ann", "k", "page"
    ),
    '23,["a","s","time"]': ev.ActionExpired("a", "s", "time"),
    '24,["n","r","ann","k"]': ev.SignalReceived("n", "r", "ann", "k"),
    '25,[3,"s"]': ev.SignalTaken(3, "s"),
    '26,["msg_\x01_1","user"]': ev.MessageQueued("msg_7k_1", "user"),
    '27,["msg_\x01_1","user",1,"s","c"]': ev.MessageAppended("msg_7k_1", "user", 1, "s", "c"),
}


@pytest.mark.parametrize("data", STORED)
def test_what_is_stored_stays_what_it_means(data: str) -> None:
    assert codec.encode_events([STORED[data]], "run_7k") == f"[{data}]"
    assert codec.decode_events(codec.EVENTS, f"[{data}]", "run_7k") == [STORED[data]]
    assert {type(event) for event in STORED.values()} == set(KINDS)


def test_events_without_a_field_that_came_later_are_still_read() -> None:
    made = ev.StepStarted("s", 1, 7, 30.0, 10.0, "a", "k", 5.0)
    assert codec.decode_events(codec.EVENTS, '[9,["s",1,7,30.0,10.0,"a","k",5.0]]', "run_7k", 3) == [made]


SHAPES = {4: "02da2ca1ef12ea23"}
"""What the events of a format are made of."""


def test_an_event_that_changes_gets_a_higher_format() -> None:
    """Else an older surefoot takes what it does not know for damage."""
    words = (ActionKind, ActionStatus, AttemptEnd, EffectClass, Resolution, RunStatus, StepType)
    shapes = [
        *(
            (kind.__name__, [field.encode_name for field in msgspec.structs.fields(kind)])
            for kind in (*KINDS, Rules, Limits)
        ),
        *((word.__name__, [member.value for member in word]) for word in words),
        sorted((kind.__name__, number) for kind, number in codec.NUMBERS.items()),
    ]
    made = hashlib.sha256(msgspec.json.encode(shapes)).hexdigest()[:16]
    assert made == SHAPES[codec.FORMAT], "raise codec.FORMAT, and note here what its events are made of"


def test_the_form_before_is_still_read() -> None:
    made = [STARTED, ev.RunCompleted()]
    data = msgspec.json.encode(made).decode()
    assert codec.decode_events(codec.EVENTS, data, "run_1", 2) == made


def test_defaults_of_rules_are_a_part_of_what_is_stored() -> None:
    plain = Rules(EffectClass.lookup, 60.0, None, False, 8, 30.0, 120.0, 604_800.0, False, None)
    assert codec.encode_rules(plain) == '{"effect":"lookup"}'
    assert codec.decode_struct('{"effect":"lookup"}', Rules, "step") == plain
    other = Rules(EffectClass.lookup, float("60.0"), 1.0, True, 7, 31.0, 121.0, 604_801.0, True)
    assert codec.decode_struct(codec.encode_rules(other), Rules, "step") == other
    assert codec.in_few_words(other) == other and "settle_s" not in codec.encode_rules(other)


DAMAGED = ("[", "{}", "[1]", "[3,[],3]", '["3",[]]', "[true,[]]", "[28,[]]", "[3,[1]]", "[3,{}]", "[14,[]]", "[14,[1]]")


@pytest.mark.parametrize("data", [*DAMAGED, "[3,[]]\x01", "[\x04]", "[\x02]"])
def test_c044_a_list_of_events_that_cannot_be_read_is_an_error(data: str) -> None:
    with pytest.raises(Unreadable):
        codec.decode_events(codec.EVENTS, data, "run_1")


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
