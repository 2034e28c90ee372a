"""A provider's double over real sockets, and models that find it as users' models do: by the environment."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from surefoot.agent.model import (
    AssistantMessage,
    ModelRequest,
    ModelResponse,
    NoteMessage,
    ToolResultMessage,
    ToolSpec,
    UserMessage,
    WireMessage,
)
from surefoot.agent.providers import PydanticAIModel
from surefoot.testing.model_server import ModelServer, ServerStep

KEY = "sk-test-0123456789abcdef"
CHAT, RESPONSES, ANTHROPIC = "openai-chat:gpt-4.1", "openai:gpt-5", "anthropic:claude-haiku-5-5"
NAMES = (CHAT, RESPONSES, ANTHROPIC)
READ = ToolSpec("read", "Read.", {"type": "object", "properties": {"n": {"type": "integer"}}})


class Secrets:
    """A source of secrets that remembers what it was asked for."""

    def __init__(self, **known: str) -> None:
        self.known = known
        self.asked: list[str] = []

    def get(self, name: str) -> str | None:
        self.asked.append(name)
        return self.known.get(name)


def secrets() -> Secrets:
    return Secrets(OPENAI_API_KEY=KEY, ANTHROPIC_API_KEY=KEY)


@asynccontextmanager
async def serve(
    name: str, script: Sequence[ServerStep], *, source: Secrets | None = None
) -> AsyncIterator[tuple[ModelServer, PydanticAIModel]]:
    server = ModelServer(script, keys=[KEY])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        async with server as url:
            patch.setenv("OPENAI_BASE_URL", f"{url}/v1")
            patch.setenv("ANTHROPIC_BASE_URL", url)
            model = PydanticAIModel(name, source or secrets())
            try:
                yield server, model
            finally:
                await model.aclose()


def asked(*messages: WireMessage, **settings: object) -> ModelRequest:
    return ModelRequest("be kind", messages or (UserMessage("go"),), (READ,), settings)


def answered(request: ModelRequest, answer: ModelResponse, *results: str, note: str = "") -> ModelRequest:
    """The next request: the answer, a result for each of its calls, and a note behind them."""
    more: list[WireMessage] = [AssistantMessage(answer.text, answer.calls)]
    more += [ToolResultMessage(c.wire_id, c.name, text) for c, text in zip(answer.calls, results, strict=True)]
    if note:
        more.append(NoteMessage(note))
    return ModelRequest(request.instructions, (*request.messages, *more), request.tools, request.settings)


def sent(server: ModelServer, index: int = -1) -> dict[str, object]:
    """The body of a request that the double got."""
    body: dict[str, object] = json.loads(bytes(server.log[index].body))
    return body
