"""The scripted model behind the port."""

from __future__ import annotations

import pytest

from surefoot.agent.model import (
    AssistantMessage,
    CallPart,
    ModelRefused,
    ModelRequest,
    ModelResponse,
    ModelRetryable,
    ToolResultMessage,
    UserMessage,
    WireMessage,
)
from surefoot.testing.model import FakeModel, Step

GO = UserMessage("go")


def request(*messages: WireMessage) -> ModelRequest:
    return ModelRequest("be kind", messages or (GO,))


def answered(response: ModelResponse) -> list[WireMessage]:
    results = [ToolResultMessage(call.wire_id, call.name, "ok") for call in response.calls]
    return [AssistantMessage(response.text, response.calls), *results]


async def test_texts_calls_and_functions_are_steps() -> None:
    async def last(asked: ModelRequest) -> str:
        return f"saw {len(asked.messages)} messages"

    model = FakeModel([[("read", {"n": 1}), ("write", "{broken", "own")], lambda asked: "between", last])
    first = await model.complete(request())
    assert first.calls == (CallPart("call_1_1", "read", '{"n":1}'), CallPart("own", "write", "{broken"))
    assert (first.finish, first.model) == ("tool_calls", "fake")
    history: list[WireMessage] = [GO, *answered(first)]
    second = await model.complete(request(*history))
    assert (second.text, second.finish) == ("between", "stop")
    third = await model.complete(request(*history, *answered(second), GO))
    assert third.text == "saw 6 messages"
    assert third.usage.input_tokens > first.usage.input_tokens > 0
    assert len(model.requests) == 3


async def test_by_history_a_new_process_goes_on_where_the_old_one_was() -> None:
    script: list[Step] = [[("read", {})], "done"]
    first = await FakeModel(script).complete(request())
    again = await FakeModel(script).complete(request())
    assert first == again
    assert (await FakeModel(script).complete(request(GO, *answered(first)))).text == "done"


async def test_c015_by_call_a_second_question_gets_another_answer() -> None:
    model = FakeModel([[("post", {"body": "reviewed-value"})], [("post", {"body": "changed-value"})]], by="call")
    bodies = [(await model.complete(request())).calls[0].arguments for _ in range(2)]
    assert bodies == ['{"body":"reviewed-value"}', '{"body":"changed-value"}']


async def test_c001_errors_stand_before_the_answer_that_they_delay() -> None:
    model = FakeModel(
        [[("read", {})], ModelRetryable("busy", retry_after=2, status=429), ModelRetryable("bad"), "done"]
    )
    first = await model.complete(request())
    messages = [GO, *answered(first)]
    for expected in ("busy", "bad"):
        with pytest.raises(ModelRetryable, match=expected):
            await model.complete(request(*messages))
    assert (await model.complete(request(*messages))).text == "done"
    assert (await model.complete(request())).calls == first.calls


async def test_c016_a_provider_may_reuse_or_omit_ids() -> None:
    model = FakeModel([[("post", {"n": 1}, "call_1")], [("post", {"n": 2}, "call_1")], [("post", {"n": 3}, "")]])
    history: list[WireMessage] = [GO]
    for index, expected in enumerate(["call_1", "call_1", ""]):
        response = await model.complete(request(*history))
        assert response.calls[0].wire_id == expected
        unique = CallPart(f"ours_{index}", "post", response.calls[0].arguments)
        history += [AssistantMessage("", (unique,)), ToolResultMessage(unique.wire_id, "post", "ok")]


async def test_c029_a_broken_history_is_refused() -> None:
    model = FakeModel(["never said"])
    broken = request(GO, AssistantMessage("", (CallPart("a", "post", "{}"),)), UserMessage("and?"))
    with pytest.raises(ModelRefused, match="did not have response messages: a") as caught:
        await model.complete(broken)
    assert caught.value.status == 400
    assert model.requests == [broken]


@pytest.mark.parametrize("by", ["history", "call"])
async def test_a_script_that_is_over_says_so(by: str) -> None:
    model = FakeModel([], by="call" if by == "call" else "history")
    with pytest.raises(ModelRefused, match="the script of 0 steps"):
        await model.complete(request())


async def test_a_step_may_raise_from_a_function_each_time() -> None:
    def fail(asked: ModelRequest) -> str:
        raise ModelRetryable("always", status=503)

    model = FakeModel([fail])
    for _ in range(2):
        with pytest.raises(ModelRetryable, match="always"):
            await model.complete(request())
