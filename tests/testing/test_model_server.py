"""The scripted provider over real sockets: raw with httpx, and through the library that surefoot calls models with."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from openai import AsyncOpenAI
from pydantic_ai import ModelHTTPError
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

from surefoot.testing.model_server import ModelServer, ServerCall, ServerFault, ServerStep
from tests.testing.processes import process

BIG = 2512292042121000001
SCRIPT = [
    ServerStep(text="I look.", calls=(ServerCall("read", {"n": BIG}), ServerCall("read", {"n": 2}, id="own"))),
    ServerStep(text="done"),
]
TOOLS = ModelRequestParameters(
    function_tools=[ToolDefinition(name="read", description="Read.", parameters_json_schema={"type": "object"})]
)
GO: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("go")], instructions="be kind")]
PATHS = ["/v1/chat/completions", "/v1/responses", "/v1/messages"]


@asynccontextmanager
async def serve(
    script: Sequence[ServerStep], **options: Sequence[str]
) -> AsyncIterator[tuple[ModelServer, httpx.AsyncClient]]:
    server = ModelServer(script, keys=options.get("keys"))
    headers = {"authorization": "Bearer k"}
    async with server as url, httpx.AsyncClient(base_url=url, headers=headers, timeout=5, trust_env=False) as client:
        yield server, client


def body_of(path: str, *, stream: bool = False, text: str = "go") -> dict[str, object]:
    field = "input" if path.endswith("responses") else "messages"
    return {"model": "m", field: [{"role": "user", "content": text}], "stream": stream, "max_tokens": 10}


def answered(response: ModelResponse, messages: list[ModelMessage]) -> list[ModelMessage]:
    results = [
        ToolReturnPart(tool_name=part.tool_name, content="ok", tool_call_id=part.tool_call_id)
        for part in response.parts
        if isinstance(part, ToolCallPart)
    ]
    return [*messages, response, ModelRequest(parts=results, instructions="be kind")]


@pytest.mark.parametrize("kind", [OpenAIChatModel, OpenAIResponsesModel])
@pytest.mark.parametrize("stream", [False, True])
async def test_pydantic_ai_holds_a_conversation_with_it(
    kind: type[OpenAIChatModel] | type[OpenAIResponsesModel], stream: bool
) -> None:
    async with ModelServer(SCRIPT) as url, AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        model = kind("gpt-5", provider=OpenAIProvider(openai_client=client))

        async def ask(messages: list[ModelMessage]) -> ModelResponse:
            if not stream:
                return await model_request(model, messages, model_request_parameters=TOOLS)
            async with model_request_stream(model, messages, model_request_parameters=TOOLS) as events:
                async for _ in events:
                    pass
                return events.get()

        first = await ask(GO)
        calls = [part for part in first.parts if isinstance(part, ToolCallPart)]
        assert [call.args_as_dict()["n"] for call in calls] == [BIG, 2]
        assert [call.tool_call_id for call in calls] == ["call_1_1", "own"]
        assert first.text == "I look."
        assert first.usage.input_tokens > 0 and first.usage.output_tokens > 0
        assert (await ask(answered(first, GO))).text == "done"


async def test_a_model_name_finds_it_through_the_environment(tmp_path: Path) -> None:
    """In a process of its own, since the library keeps its clients for the life of the process."""
    (tmp_path / "script.json").write_text('[{"text": "hello"}]')
    code = (
        "import asyncio\n"
        "from pydantic_ai.direct import model_request\n"
        "from pydantic_ai.messages import ModelRequest\n"
        "asked = [ModelRequest.user_text_prompt('go')]\n"
        "for name in ('openai:gpt-5', 'openai-chat:gpt-5'):\n"
        "    print(asyncio.run(model_request(name, asked)).text)\n"
    )
    with process(
        "surefoot.testing.model_server", "--script", str(tmp_path / "script.json"), port_file=tmp_path / "port"
    ) as (_, url):
        env = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "k", "NO_PROXY": "127.0.0.1"}
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, env={**os.environ, **env}, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(child.communicate(), 60)
        log = httpx.get(f"{url}/_model/log", trust_env=False).json()
    assert out.decode().split() == ["hello", "hello"]
    assert [entry["api"] for entry in log] == ["responses", "chat"]


@pytest.mark.parametrize("kind", [OpenAIChatModel, OpenAIResponsesModel])
async def test_c029_a_broken_history_gets_400(kind: type[OpenAIChatModel] | type[OpenAIResponsesModel]) -> None:
    server = ModelServer(SCRIPT)
    async with server as url, AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        model = kind("gpt-5", provider=OpenAIProvider(openai_client=client))
        broken: list[ModelMessage] = [*GO, ModelResponse(parts=[ToolCallPart("read", "{}", "a")]), *GO]
        with pytest.raises(ModelHTTPError) as caught:
            await model_request(model, broken, model_request_parameters=TOOLS)
    assert caught.value.status_code == 400
    assert server.log[0].refusal is not None and "a" in server.log[0].refusal


async def test_anthropic_messages_whole_and_streamed() -> None:
    async with serve(SCRIPT) as (_, client):
        whole = (await client.post("/v1/messages", json=body_of("/v1/messages"))).json()
        assert whole["stop_reason"] == "tool_use"
        assert whole["content"][1] == {"type": "tool_use", "id": "call_1_1", "name": "read", "input": {"n": BIG}}
        stream = await client.post("/v1/messages", json=body_of("/v1/messages", stream=True))
        events = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: ")]
        assert (events[0]["type"], events[-1]["type"]) == ("message_start", "message_stop")
        pieces = [event["delta"] for event in events if event["type"] == "content_block_delta" and event["index"] == 1]
        assert json.loads("".join(piece["partial_json"] for piece in pieces)) == {"n": BIG}
        history = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": whole["content"]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": i, "content": "ok"} for i in ("call_1_1", "own")],
            },
        ]
        second = (await client.post("/v1/messages", json={"model": "m", "messages": history})).json()
        assert (second["content"][0]["text"], second["stop_reason"]) == ("done", "end_turn")
        refused = await client.post("/v1/messages", json={"model": "m", "messages": history[:2]})
        assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize("path", PATHS)
async def test_errors_stand_before_the_answer(path: str) -> None:
    faults = [
        ServerStep(fault=ServerFault(429, {"retry-after": "2"}, "slow down")),
        ServerStep(fault=ServerFault(500)),
        ServerStep(fault=ServerFault(hang_seconds=0.05)),
    ]
    async with serve([*faults, *SCRIPT]) as (server, client):
        first = await client.post(path, json=body_of(path))
        assert (first.status_code, first.headers["retry-after"]) == (429, "2")
        assert first.json()["error"]["message"] == "slow down"
        assert (await client.post(path, json=body_of(path))).status_code == 500
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(path, json=body_of(path))
        assert (await client.post(path, json=body_of(path))).status_code == 200
    assert [entry.status for entry in server.log] == [429, 500, None, 200]
    assert [entry.position for entry in server.log] == [0, 0, 0, 0]


@pytest.mark.parametrize("path", PATHS)
async def test_a_key_that_is_not_known_gets_401(path: str) -> None:
    async with serve(SCRIPT, keys=["k"]) as (_, client):
        wrong = await client.post(path, json=body_of(path), headers={"authorization": "Bearer other"})
        assert wrong.status_code == 401
        assert (await client.post(path, json=body_of(path))).status_code == 200
        none = await client.post(path, json=body_of(path), headers={"authorization": "", "x-api-key": "k"})
        assert none.status_code == 200


@pytest.mark.parametrize("path", PATHS)
async def test_what_cannot_be_read_or_answered_gets_400(path: str) -> None:
    async with serve([]) as (server, client):
        assert (await client.post(path, content=b"{")).status_code == 400
        over = await client.post(path, json=body_of(path))
        assert over.status_code == 400 and "the script of 0 steps" in over.text
        assert (await client.get(path)).status_code == 404
        assert len((await client.get("/_model/log")).json()) == 2
    assert len(server.log) == 2


async def test_faults_are_set_from_outside() -> None:
    path = PATHS[0]
    async with serve(SCRIPT) as (_, client):
        answer = await client.post("/_model/faults", json=[{"status": 403, "message": "quota"}])
        assert answer.json()[0]["status"] == 403
        assert (await client.post(path, json=body_of(path))).status_code == 403
        assert (await client.post(path, json=body_of(path))).status_code == 200
        assert (await client.post("/_model/faults", json={})).status_code == 400
        assert (await client.get("/_model/other")).status_code == 404


async def test_an_answer_may_be_cut_short_or_have_no_ids() -> None:
    script = [ServerStep(text="half a sen", finish="length", calls=(ServerCall("read", "", id=""),))]
    async with serve(script) as (_, client):
        chat = (await client.post(PATHS[0], json=body_of(PATHS[0]))).json()["choices"][0]
        assert chat["finish_reason"] == "length"
        assert chat["message"]["tool_calls"] == [{"type": "function", "function": {"name": "read", "arguments": ""}}]
        response = (await client.post(PATHS[1], json=body_of(PATHS[1]))).json()
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        message = (await client.post(PATHS[2], json=body_of(PATHS[2]))).json()
        assert message["stop_reason"] == "max_tokens"
