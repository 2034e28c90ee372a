"""Built-in tools: a question to a person is a unit of work of its own, and a sleep survives its process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from surefoot import Agent, Surefoot, ask_person, sleep
from surefoot.agent.answers import check_answer, schema_fault
from surefoot.errors import AlreadyDecided, InvalidInput, NotAllowed
from surefoot.testing.model import FakeModel, Step

WAIT_SECONDS = 30.0


def _agent(script: list[Step]) -> Agent:
    return Agent("helper", FakeModel(script), "Help.", [ask_person, sleep])


def _question(**arguments: object) -> list[Step]:
    return [[("ask_person", arguments)], "thank you"]


async def test_a_person_answers_a_question_once_and_the_answer_fits_its_schema(store_url: str) -> None:
    url = store_url
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    agent = _agent(_question(question="Which one?", answer_schema=schema))
    async with Surefoot(url, [agent], worker=True) as sf:
        run = await sf.start("helper", "go")
        asked = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert asked.status == "waiting_for_user"
        assert [step.type for step in asked.steps] == ["model_call", "human_approval"]
        question = asked.pending_actions[0]
        assert question.kind == "ask"
        with pytest.raises(InvalidInput) as refused:
            await sf.answer(question.id, {"n": "three"}, by="ann")
        assert refused.value.code == "answer_does_not_fit"
    # Another process goes on with the answer.
    async with Surefoot(url, [agent], worker=True) as sf:
        await sf.answer(question.id, {"n": 3}, by="ann")
        with pytest.raises(AlreadyDecided):
            await sf.answer(question.id, {"n": 4}, by="ann")
        ended = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert ended.status == "completed"
        assert ended.steps[1].status == "succeeded"
        results = [m for m in await sf.messages(run.id) if m.role == "tool_result"]
        assert len(results) == 1 and b'{"n":3}' in results[0].body


async def test_an_answer_is_to_the_question_that_was_shown(store_url: str) -> None:
    """The hash binds every decision, an answer too; and why it was given is kept."""
    agent = _agent(_question(question="Ship it?", choices=["yes", "no"]))
    async with Surefoot(store_url, [agent], worker=True) as sf:
        run = await sf.start("helper", "go")
        asked = (await sf.wait(run.id, timeout=WAIT_SECONDS)).pending_actions[0]
        with pytest.raises(NotAllowed) as refused:
            await sf.decide(asked.id, "answer", value="yes", by="ann", input_hash="0" * 64)
        assert refused.value.code == "input_changed"
        shown = asked.input_hash
        row = await sf.decide(asked.id, "answer", value="yes", by="ann", input_hash=shown, reason="all green")
        assert row.reason == "all green"
        assert (await sf.wait(run.id, timeout=WAIT_SECONDS)).status == "completed"


async def test_choices_are_the_only_answers(store_url: str) -> None:
    agent = _agent(_question(question="Ship it?", choices=["yes", "no"]))
    async with Surefoot(store_url, [agent], worker=True) as sf:
        run = await sf.start("helper", "go")
        asked = await sf.wait(run.id, timeout=WAIT_SECONDS)
        with pytest.raises(InvalidInput):
            await sf.answer(asked.pending_actions[0].id, "perhaps", by="ann")
        await sf.answer(asked.pending_actions[0].id, "yes", by="ann")
        assert (await sf.wait(run.id, timeout=WAIT_SECONDS)).status == "completed"


async def test_a_question_that_is_no_question_is_told_to_the_model(store_url: str) -> None:
    agent = _agent(_question(question="?", answer_schema={"type": "no such type"}))
    async with Surefoot(store_url, [agent], worker=True) as sf:
        run = await sf.start("helper", "go")
        ended = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert ended.status == "completed"
        assert ended.steps[1].status == "failed" and ended.steps[1].error_code == "limit"


async def test_a_schema_of_a_model_is_fetched_from_nowhere(store_url: str, tmp_path: Path) -> None:
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    (tmp_path / "schema.json").write_text("{}")
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    there = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    schemas: list[dict[str, object]] = [
        {"$ref": f"{there}a"},
        {"$ref": f"file://{tmp_path}/schema.json"},
        {"properties": {"a": {"items": [{"$dynamicRef": f"{there}b"}]}}},
        {"$id": there, "$ref": "c"},
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"anyOf": [{"$defs": {"x": {"$ref": "#"}}}]},
    ]
    calls: Step = [("ask_person", {"question": f"{n}?", "answer_schema": schema}) for n, schema in enumerate(schemas)]
    async with Surefoot(store_url, [_agent([calls, "done"])], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start("helper", "go")).id, timeout=WAIT_SECONDS)
    assert run.status == "completed"
    assert [step.error_code for step in run.steps if step.tool_name == "ask_person"] == ["limit"] * len(schemas)
    with pytest.raises(InvalidInput, match="cancel the run"):
        await asyncio.to_thread(check_answer, {"$ref": f"{there}a"}, "x")
    with pytest.raises(InvalidInput, match="cancel the run"):
        check_answer({"$ref": "#"}, "x")
    with pytest.raises(InvalidInput, match="a smaller one"):
        check_answer({"type": "number", "multipleOf": 0.5}, 10**400)
    server.close()
    assert asked == []


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "string", "pattern": "^(a+)+$"}, "has no 'pattern'"),
        ({"additionalProperties": {"patternProperties": {"(a+)+$": True}}}, "has no 'patternProperties'"),
        ({"not": {"$recursiveRef": "#"}}, "without '$recursiveRef'"),
        ({"properties": {"pattern": {"type": "string"}, "$ref": {"enum": [{"$ref": "http://x"}]}}}, None),
        ({"const": {"pattern": "x"}, "examples": [{"$ref": "y"}]}, None),
        ({"$defs": {"pattern": {"type": "string"}}}, None),
    ],
)
def test_a_schema_has_no_references_and_no_patterns(schema: dict[str, object], fault: str | None) -> None:
    found = schema_fault(schema)
    assert found is None if fault is None else fault in str(found)


async def test_a_sleep_goes_on_in_another_process(store_url: str) -> None:
    url = store_url
    agent = _agent([[("sleep", {"seconds": 3})], "awake"])
    async with Surefoot(url, [agent], worker=True) as sf:
        run = await sf.start("helper", "go")
        slept = await sf.wait(run.id, until=lambda s: len(s.steps) == 2, timeout=WAIT_SECONDS)
        assert slept.steps[1].status == "pending" and slept.steps[1].attempt == 0
        began = sf.doors.clock.now().wall
    async with Surefoot(url, [agent], worker=True) as sf:
        ended = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert ended.status == "completed" and ended.steps[1].attempt == 1
        assert sf.doors.clock.now().wall - began >= 2.5
