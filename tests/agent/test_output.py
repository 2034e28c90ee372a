"""Structured output: the run ends with the value that the model gives by `final_result`, and with no other."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal, TypedDict

import msgspec
import pydantic
import pytest

from surefoot import Agent, Operation, Receipt, Surefoot, ask_person, effects, tool
from surefoot.agent.output import FINAL_RESULT, REMINDER, Output
from surefoot.core.audit import check_run
from surefoot.errors import InvalidInput
from surefoot.snapshot import RunSnapshot
from surefoot.testing.histories import validate_history
from surefoot.testing.model import FakeModel, ScriptedCall, Step

WAIT_SECONDS = 30.0
BIG = 2512292042121000001


class Verdict(msgspec.Struct):
    """What a review comes to."""

    ok: bool
    number: int = 0
    remarks: list[str] = []


@dataclasses.dataclass
class Point:
    """A place."""

    x: int
    y: int = 7


class Named(TypedDict):
    """A name."""

    name: str


class Inner(pydantic.BaseModel):
    """A part of it."""

    name: str


class Model(pydantic.BaseModel):
    """A pydantic model."""

    count: int = pydantic.Field(ge=1)
    inner: Inner


@tool(effect=effects.opaque)
def shout(op: Operation, text: str) -> Receipt:
    """Shout."""
    return Receipt(resource_id=text)


def _final(**arguments: object) -> ScriptedCall:
    return FINAL_RESULT, arguments


async def _run(store_url: str, script: list[Step], **options: object) -> tuple[RunSnapshot, FakeModel, list[str]]:
    """A run to its end: its snapshot, its model, the roles of its messages. Rows fit events, histories are valid."""
    model = FakeModel(script)
    agent = Agent("judge", model, "Judge.", [shout, ask_person], **{"output": Verdict, **options})  # type: ignore[arg-type]  # mixed options
    async with Surefoot(store_url, [agent], worker=True) as sf:
        started = await sf.start("judge", "go")
        run = await sf.wait(started.id, timeout=WAIT_SECONDS)
        rows = [row.step for row in await sf.store.steps("default", run.id)]
        events = await sf.store.events("default", run.id, 0, 1000)
        assert check_run((await sf.store.run("default", run.id)).run, rows, [], events) == []
        roles = [message.role for message in await sf.messages(run.id)]
    assert [validate_history(request.messages) for request in model.requests] == [None] * len(model.requests)
    return run, model, roles


async def test_a_run_ends_with_the_value_and_the_call_has_its_one_result(store_url: str) -> None:
    run, model, roles = await _run(store_url, [[_final(ok=True, number=BIG)]])
    assert (run.status, run.result) == ("completed", {"ok": True, "number": BIG, "remarks": []})
    assert roles == ["user", "assistant", "tool_result"]
    assert [(s.type, s.status, s.attempt) for s in run.steps][1:] == [("tool_call", "succeeded", 0)]
    spec = model.requests[0].tools[-1]
    assert spec.name == FINAL_RESULT and list(spec.parameters["properties"]) == ["ok", "number", "remarks"]  # type: ignore[call-overload]  # JSON


async def test_an_invalid_result_and_a_plain_text_are_told_to_the_model(store_url: str) -> None:
    script: list[Step] = [[_final(ok="perhaps")], "It is fine.", [_final(ok=False, remarks=["one"])]]
    run, model, roles = await _run(store_url, script)
    assert run.result == {"ok": False, "number": 0, "remarks": ["one"]}
    assert run.steps[1].error_code == "invalid_arguments"
    assert roles == ["user", "assistant", "tool_result", "assistant", "note", "assistant", "tool_result"]
    assert "argument ok" in str(model.requests[1].messages[-1]) and REMINDER in str(model.requests[2].messages[-1])


async def test_texts_without_the_call_are_bounded_by_the_turns(store_url: str) -> None:
    run, model, _ = await _run(store_url, ["no"] * 5, turns=3)
    assert (run.status, run.error_code, run.result, len(model.requests)) == ("failed", "turns_used_up", None, 3)


async def test_calls_beside_it_run_first_and_only_the_first_result_counts(store_url: str) -> None:
    calls = [_final(ok=True), ("shout", {"text": "hi"}), _final(ok=False)]
    run, _, roles = await _run(store_url, [calls])
    assert (run.status, run.result) == ("completed", {"ok": True, "number": 0, "remarks": []})
    assert [(s.tool_name, s.status, s.error_code) for s in run.steps[1:]] == [
        (FINAL_RESULT, "succeeded", None),
        ("shout", "succeeded", None),
        (FINAL_RESULT, "failed", "result_given"),
    ]
    assert roles == ["user", "assistant"] + ["tool_result"] * 3


@pytest.mark.parametrize("speaks", [False, True])
async def test_the_result_waits_for_a_person_through_a_restart_and_a_users_message_undoes_it(
    store_url: str, speaks: bool
) -> None:
    url = store_url
    sure: ScriptedCall = "ask_person", {"question": "Sure?"}
    script: list[Step] = [[_final(ok=True), sure], [_final(ok=False)]]

    def agent() -> Agent:
        return Agent("judge", FakeModel(script), "Judge.", [ask_person], output=Verdict)

    async with Surefoot(url, [agent()], worker=True) as sf:
        run = await sf.wait((await sf.start("judge", "go")).id, timeout=WAIT_SECONDS)
        assert (run.status, run.result) == ("waiting_for_user", None)
        if speaks:
            await sf.message(run.id, "No, wait.")
    async with Surefoot(url, [agent()], worker=True) as sf:
        await sf.answer(run.pending_actions[0].id, "yes", by="ann")
        run = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert run.status == "completed" and isinstance(run.result, dict)
        assert run.result["ok"] is not speaks
        assert [step.type for step in run.steps].count("model_call") == (2 if speaks else 1)


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (Verdict, '{"ok": true}', {"ok": True, "number": 0, "remarks": []}),
        (Point, '{"x": 1}', {"x": 1, "y": 7}),
        (Named, '{"name": "a"}', {"name": "a"}),
        (Literal["yes", "no"], '{"value": "no"}', "no"),
        (int | list[str], '{"value": ["a"]}', ["a"]),
        (list[Point], '{"value": [{"x": 1, "y": 2}]}', [{"x": 1, "y": 2}]),
        (dict[str, int], f'{{"value": {{"a": {BIG}}}}}', {"a": BIG}),
        (Model, '{"count": 2, "inner": {"name": "a"}}', {"count": 2, "inner": {"name": "a"}}),
    ],
)
def test_types_that_a_result_may_have(kind: object, given: str, value: object) -> None:
    output = Output(kind)
    assert output.check(given) == value
    assert output.spec.parameters["type"] == "object" and "$ref" not in str(output.spec.parameters)


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        (Verdict, "", "ok"),
        (Verdict, '{"ok": true, "extra": 1}', "extra"),
        (Point, '{"x": "1"}', "argument x"),
        (Literal["yes"], '{"value": "no"}', "no"),
        (Literal["yes"], '"yes"', "object"),
        (int, '{"number": 1}', "value"),
        (Model, '{"count": 0, "inner": {"name": "a"}}', "argument count"),
        (Model, '{"count": 1, "inner": {}}', "inner.name"),
        (Point, '{"x": 1', "JSON"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_text_for_the_model(kind: object, given: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=FINAL_RESULT) as refused:
        Output(kind).check(given)
    assert says in str(refused.value)


def test_an_output_that_cannot_be_is_refused_where_the_agent_is_made() -> None:
    with pytest.raises(TypeError):
        Agent("judge", FakeModel([]), output=Path)
    named = shout.using(name=FINAL_RESULT)
    with pytest.raises(ValueError, match=FINAL_RESULT):
        Agent("judge", FakeModel([]), tools=[named], output=int)


class Picky(pydantic.BaseModel):
    """Refuses in its own way."""

    number: int

    @pydantic.field_validator("number")
    @classmethod
    def _known(cls, number: int) -> int:
        return {7: 7}[number]


class Strict(msgspec.Struct):
    """The same without pydantic."""

    number: int

    def __post_init__(self) -> None:
        {7: 7}[self.number]


@pytest.mark.parametrize("kind", [Picky, Strict])
async def test_a_check_of_the_type_itself_is_told_to_the_model_whatever_it_raises(store_url: str, kind: type) -> None:
    model = FakeModel([[("final_result", {"number": 1})], [("final_result", {"number": 7})]])
    async with Surefoot(store_url, [Agent("giver", model, output=kind)], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start("giver", "Go.")).id, timeout=20)
    assert (run.status, run.result, len(model.requests)) == ("completed", {"number": 7}, 2)
    assert "a check of their type refuses them (KeyError: 1)" in str(model.requests[1].messages)


async def test_a_check_of_an_arguments_type_is_told_to_the_model_too(store_url: str) -> None:
    made: list[int] = []

    @tool(effect=effects.opaque)
    async def take(op: Operation, given: Strict) -> Receipt:
        """Take it."""
        made.append(given.number)
        return Receipt(resource_id="1")

    model = FakeModel([[("take", {"given": {"number": 1}})], [("take", {"given": {"number": 7}})], "Done."])
    async with Surefoot(store_url, [Agent("giver", model, tools=[take])], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start("giver", "Go.")).id, timeout=20)
    assert (run.status, made, len(model.requests)) == ("completed", [7], 3)
