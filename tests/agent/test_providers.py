"""Conversations with the providers' double, through the library and over sockets."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import NoReturn

import pytest
from pydantic_ai import messages as wire

from surefoot.agent.model import (
    AssistantMessage,
    CallPart,
    ModelNeedsPerson,
    ModelRefused,
    ModelRequest,
    ModelResponse,
    ModelRetryable,
    NoteMessage,
    ToolResultMessage,
    UserMessage,
)
from surefoot.agent.providers import PydanticAIModel, resolve_model
from surefoot.agent.providers_pydantic import from_library
from surefoot.core.values import parse_arguments
from surefoot.errors import InvalidInput
from surefoot.testing.model import FakeModel
from surefoot.testing.model_server import ModelServer, ServerCall, ServerFault, ServerStep
from tests.agent.providers import ANTHROPIC, CHAT, KEY, NAMES, RESPONSES, Secrets, answered, asked, secrets, sent, serve

BIG = 2512292042121000001
HUGE = 10**40 + 7
TWO_CALLS = ServerStep(text="I look.", calls=(ServerCall("read", {"n": BIG}), ServerCall("read", {"n": 2}, id="own")))
BATCH = (
    UserMessage("go"),
    AssistantMessage("", (CallPart("a", "read", '{"n": 1}'), CallPart("b", "read", "{}"))),
    ToolResultMessage("a", "read", "one"),
    ToolResultMessage("b", "read", "not executed: rejected", is_error=True),
)


def chat_answer(message: Mapping[str, object]) -> ServerStep:
    """An answer of the chat API in a shape of its own."""
    finish = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "odd", "choices": [choice]}
    return ServerStep(fault=ServerFault(status=200, body=json.dumps(body)))


def response_answer(*items: Mapping[str, object]) -> ServerStep:
    """An answer of the responses API in a shape of its own."""
    body = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "odd",
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return ServerStep(fault=ServerFault(status=200, body=json.dumps(body)))


@pytest.mark.parametrize("name", NAMES)
async def test_a_conversation_with_parallel_calls_results_and_a_note(name: str) -> None:
    async with serve(name, [TWO_CALLS, ServerStep(text="done")]) as (server, model):
        request = asked(max_tokens=77)
        first = await model.complete(request)
        assert [parse_arguments(call.arguments)["n"] for call in first.calls] == [BIG, 2]
        assert [(call.wire_id, call.name) for call in first.calls] == [("call_1_1", "read"), ("own", "read")]
        assert (first.text, first.finish, first.model) == ("I look.", "tool_calls", name.partition(":")[2])
        assert first.usage.input_tokens > 0 and first.usage.output_tokens > 0
        last = await model.complete(answered(request, first, "one", "two", note="a receipt came late"))
        assert (last.text, last.calls, last.finish) == ("done", (), "stop")
        assert [entry.refusal for entry in server.log] == [None, None]
        everything = json.dumps(sent(server))
        assert all(text in everything for text in ("be kind", "one", "two", "a receipt came late", "Read.", str(BIG)))
        assert 77 in (sent(server).get(field) for field in ("max_tokens", "max_completion_tokens", "max_output_tokens"))


async def test_settings_are_passed_through() -> None:
    async with serve(CHAT, [ServerStep(text="done")]) as (server, model):
        await model.complete(asked(temperature=0.25, max_retries=5))
        assert sent(server)["temperature"] == 0.25


@pytest.mark.parametrize("name", NAMES)
async def test_c027_results_stand_behind_their_calls_in_call_order_and_the_rest_later(name: str) -> None:
    user, said, one, two = BATCH
    mixed = (user, said, NoteMessage("extra of one"), two, UserMessage("and hurry"), one)
    async with serve(name, [ServerStep(), ServerStep(text="done")]) as (server, model):
        assert (await model.complete(asked(*mixed))).text == "done"
        assert server.log[0].refusal is None
        wire = json.dumps(sent(server))
        places = [wire.rindex(text) for text in ('"one"', "not executed: rejected", "extra of one", "and hurry")]
        assert places == sorted(places)


@pytest.mark.parametrize("name", NAMES)
async def test_c025_a_new_user_message_behind_the_results_is_taken(name: str) -> None:
    async with serve(name, [ServerStep(), ServerStep(text="shorter")]) as (server, model):
        answer = await model.complete(asked(*BATCH, UserMessage("make it shorter"), UserMessage("  ")))
        assert answer.text == "shorter"
        assert server.log[0].refusal is None


@pytest.mark.parametrize("name", NAMES)
async def test_c028_a_rejection_is_a_result_beside_a_real_one(name: str) -> None:
    async with serve(name, [ServerStep(), ServerStep(text="done")]) as (server, model):
        assert (await model.complete(asked(*BATCH))).text == "done"
        assert server.log[0].refusal is None
        if name == ANTHROPIC:
            content = sent(server)["messages"][-1]["content"]  # type: ignore[index]  # JSON
            assert [block.get("is_error") for block in content] == [False, True]


@pytest.mark.parametrize("name", NAMES)
async def test_c029_a_call_without_its_result_is_refused_by_the_provider(name: str) -> None:
    async with serve(name, [ServerStep(), ServerStep(text="done")]) as (server, model):
        with pytest.raises(ModelRefused) as caught:
            await model.complete(asked(*BATCH[:3]))
        assert caught.value.status == 400 and "b" in str(caught.value)
        assert len(server.log) == 1


@pytest.mark.parametrize("name", NAMES)
async def test_c049_integers_of_any_size_keep_their_digits_both_ways(name: str) -> None:
    script = [ServerStep(calls=(ServerCall("read", f'{{"n": {HUGE}}}'),)), ServerStep(text="done")]
    async with serve(name, script) as (server, model):
        request = asked()
        answer = await model.complete(request)
        assert parse_arguments(answer.calls[0].arguments) == {"n": HUGE}
        await model.complete(answered(request, answer, "ok"))
        assert str(HUGE) in bytes(server.log[1].body).decode()


@pytest.mark.parametrize("raw", ["", "null", "{}", " "])
async def test_arguments_that_mean_none_stay_as_the_model_wrote_them_and_go_back_as_an_object(raw: str) -> None:
    for name in (CHAT, RESPONSES):
        async with serve(name, [ServerStep(calls=(ServerCall("read", raw),)), ServerStep(text="done")]) as (
            server,
            model,
        ):
            request = asked()
            answer = await model.complete(request)
            assert answer.calls[0].arguments == raw
            assert (await model.complete(answered(request, answer, "ok"))).text == "done"
            assert '"arguments":"{}"' in bytes(server.log[1].body).decode()


@pytest.mark.parametrize("raw", ['{"n": 1', '{"n": 1e999}', '{"n": NaN}', "[1]", '{"a": "\\ud800"}'])
@pytest.mark.parametrize("name", NAMES)
async def test_broken_arguments_do_not_make_the_history_unusable(name: str, raw: str) -> None:
    broken = AssistantMessage("\n", (CallPart("a", "read", raw),))
    async with serve(name, [ServerStep(), ServerStep(text="sorry")]) as (server, model):
        answer = await model.complete(
            asked(UserMessage("go"), broken, ToolResultMessage("a", "read", "bad", is_error=True))
        )
        assert answer.text == "sorry"
        assert "INVALID_JSON" in bytes(server.log[0].body).decode()


async def test_ids_may_be_omitted_or_repeated_and_arguments_null_or_an_object() -> None:
    calls = [
        {"type": "function", "function": {"name": "read", "arguments": None}},
        {"function": {"name": "read", "arguments": {"n": HUGE, "a": [1.5]}}},
        {"id": "same", "type": "function", "function": {"name": "read", "arguments": "{}"}},
        {"id": "same", "type": "function", "function": {"name": "read"}},
    ]
    async with serve(CHAT, [chat_answer({"tool_calls": calls})]) as (_, model):
        answer = await model.complete(asked())
    assert [call.wire_id for call in answer.calls] == ["", "", "same", "same"]
    assert [call.arguments for call in answer.calls] == ["", f'{{"a":[1.5],"n":{HUGE}}}', "{}", ""]


async def test_an_id_that_is_omitted_in_a_response_stays_empty() -> None:
    async with serve(RESPONSES, [ServerStep(calls=(ServerCall("read", {}, id=""),))]) as (_, model):
        assert (await model.complete(asked())).calls == (CallPart("", "read", "{}"),)


async def test_nothing_of_reasoning_is_kept() -> None:
    thought = {"type": "reasoning", "id": "t", "summary": [{"type": "summary_text", "text": "the plan"}]}
    said = {"type": "output_text", "text": "hello", "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [said]}
    async with serve(RESPONSES, [response_answer(thought, message)]) as (_, model):
        answer = await model.complete(asked())
    assert answer == ModelResponse("hello", model="odd")
    async with serve(CHAT, [chat_answer({"content": "hello", "reasoning_content": "the plan"})]) as (_, model):
        assert (await model.complete(asked())).text == "hello"


async def test_a_tool_that_the_provider_ran_itself_is_refused_by_name() -> None:
    searched = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "q"}}
    async with serve(RESPONSES, [response_answer(searched)]) as (_, model):
        with pytest.raises(ModelRefused, match="web_search"):
            await model.complete(asked())


async def test_a_refusal_of_the_model_is_its_text() -> None:
    async with serve(CHAT, [chat_answer({"refusal": "I will not."})]) as (_, model):
        answer = await model.complete(asked())
    assert (answer.text, answer.finish) == ("I will not.", "content_filter")


@pytest.mark.parametrize("finish", ["tool_calls", "function_call"])
async def test_an_answer_that_says_it_calls_tools_and_names_none_is_asked_for_again(finish: str) -> None:
    """As of a server that could not read the call which its model wrote."""
    message = {"role": "assistant", "content": ""}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = json.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})
    async with serve(CHAT, [ServerStep(fault=ServerFault(200, body=body)), ServerStep("later")]) as (_, model):
        with pytest.raises(ModelRetryable, match="no call"):
            await model.complete(asked())
        assert (await model.complete(asked())).text == "later"


@pytest.mark.parametrize("raised", [TypeError, AttributeError, OverflowError])
def test_an_answer_whose_price_cannot_be_told_is_an_answer(raised: type[Exception]) -> None:
    class Dear(wire.ModelResponse):
        def cost(self) -> NoReturn:
            raise raised

    answer = from_library(Dear(parts=[wire.TextPart("hi")], finish_reason="stop"), CHAT)
    assert (answer.text, answer.usage.cost_microdollars) == ("hi", None)


@pytest.mark.parametrize("name", NAMES)
async def test_an_answer_that_was_cut_says_so(name: str) -> None:
    async with serve(name, [ServerStep(text="half a sen", finish="length")]) as (_, model):
        answer = await model.complete(asked())
    assert (answer.text, answer.finish) == ("half a sen", "length")


@pytest.mark.parametrize("name", NAMES)
async def test_c056_the_key_comes_from_the_source_of_secrets_and_is_read_again(name: str) -> None:
    source = Secrets(OPENAI_API_KEY="sk-old-and-wrong", ANTHROPIC_API_KEY="sk-old-and-wrong")
    async with serve(name, [ServerStep(text="done")], source=source) as (_, model):
        with pytest.raises(ModelNeedsPerson, match=r"check (OPENAI|ANTHROPIC)_API_KEY"):
            await model.complete(asked())
        source.known.update(OPENAI_API_KEY=KEY, ANTHROPIC_API_KEY=KEY)
        assert (await model.complete(asked())).text == "done"
    expected = "ANTHROPIC_API_KEY" if name == ANTHROPIC else "OPENAI_API_KEY"
    assert set(source.asked) == {expected}


async def test_a_server_of_ones_own_needs_no_key() -> None:
    server = ModelServer([ServerStep(text="done")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        async with server as url:
            patch.setenv("OPENAI_BASE_URL", f"{url}/v1")
            model = PydanticAIModel(CHAT, Secrets())
            assert (await model.complete(asked())).text == "done"
            await model.aclose()


async def test_other_openai_compatible_providers_get_their_key_and_make_one_request() -> None:
    source = Secrets(OLLAMA_API_KEY=KEY, LITELLM_API_KEY=KEY)
    server = ModelServer([ServerStep(fault=ServerFault(503)), ServerStep(text="done")], keys=[KEY])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        async with server as url:
            patch.setenv("OLLAMA_BASE_URL", f"{url}/v1")
            model = PydanticAIModel("ollama:qwen3", source)
            with pytest.raises(ModelRetryable):
                await model.complete(asked())
            assert len(server.log) == 1
            assert (await model.complete(asked())).text == "done"
            await model.aclose()
    assert "OLLAMA_API_KEY" in source.asked


async def test_calls_at_once_share_one_client() -> None:
    async with serve(CHAT, [ServerStep(text="done")]) as (server, model):
        answers = await asyncio.gather(*(model.complete(asked()) for _ in range(5)))
        assert {answer.text for answer in answers} == {"done"}
        assert len(server.log) == 5
        assert len(model._clients) == 1


def test_each_event_loop_has_its_client() -> None:
    async def once(model: PydanticAIModel, close: bool) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NO_PROXY", "127.0.0.1")
            async with ModelServer([ServerStep(text="done")]) as url:
                patch.setenv("OPENAI_BASE_URL", f"{url}/v1")
                answer = await model.complete(asked())
                if close:
                    await model.aclose()
                return answer.text

    model = PydanticAIModel(CHAT, secrets())
    assert [asyncio.run(once(model, True)) for _ in range(2)] == ["done", "done"]
    assert model._clients == {}


async def test_a_cancelled_call_raises_cancelled_error() -> None:
    async with serve(CHAT, [ServerStep(fault=ServerFault(hang_seconds=30))]) as (server, model):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await model.complete(asked())
        assert len(server.log) <= 1


def test_names_and_objects_are_resolved() -> None:
    fake = FakeModel(["done"])
    assert resolve_model(fake, secrets()) is fake
    source = secrets()
    assert resolve_model("openai:gpt-5", source).name == "openai:gpt-5"
    assert source.asked == []
    for wrong in ("gpt-5", "", ":x", "openai:"):
        with pytest.raises(InvalidInput, match="openai:gpt-5"):
            resolve_model(wrong, secrets())
    with pytest.raises(InvalidInput, match="not int"):
        resolve_model(5, secrets())  # type: ignore[arg-type]  # what is tested


def test_resolving_a_name_loads_no_library() -> None:
    code = (
        "import sys\n"
        "from surefoot.agent.providers import resolve_model\n"
        "resolve_model('openai:gpt-5', None)\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('pydantic', 'pydantic_ai', 'openai', 'httpx', 'httpx2')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_requests_are_not_changed_by_being_sent() -> None:
    request = asked(UserMessage("go"))
    again = ModelRequest(request.instructions, request.messages, request.tools, dict(request.settings))
    assert request == again
