"""Signed reasoning that a provider wants back: kept until its batch is answered, then gone; shown nowhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from surefoot import Agent, Approval, Operation, Surefoot, effects, tool
from surefoot.agent.model import AssistantMessage, CallPart, ModelRequest, ToolResultMessage, UserMessage
from surefoot.agent.providers_pydantic import from_library, to_library
from surefoot.testing.model_server import ModelServer, ServerCall, ServerFault, ServerStep
from tests.agent.providers import ANTHROPIC, KEY, sent
from tests.places import Place, bytes_of

WAIT_SECONDS = 30.0
THOUGHT = "A private line of thought that nobody is to read."
SECOND = "Another private line."
THINK = {"anthropic_thinking": {"type": "adaptive"}, "max_tokens": 2048}
SCRIPT = [
    ServerStep(text="I look.", calls=(ServerCall("look", {"number": 1}),), thinking=THOUGHT),
    ServerStep(fault=ServerFault(503)),
    ServerStep(calls=(ServerCall("look", {"number": 2}),), thinking=SECOND),
    ServerStep(text="done", thinking="Done."),
]


@tool(effect=effects.read, approval=Approval(when=lambda number: number == 1))
def look(op: Operation, number: int) -> str:
    """Look."""
    return f"seen {number}"


def _agent() -> Agent:
    return Agent("thinker", ANTHROPIC, "Think.", [look], settings=THINK)


@asynccontextmanager
async def _served(place: Place, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ModelServer, str]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    server = ModelServer(SCRIPT)
    async with server as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        yield server, place.url


def _blobs(place: Place) -> list[tuple[str, bytes]]:
    return sorted((str(row["retention"]), bytes_of(row["data"])) for row in place.contents()["blob"])


def _rows(place: Place) -> str:
    """Every value of every table but blobs."""
    return repr({name: rows for name, rows in place.contents().items() if name != "blob"})


async def test_it_survives_a_restart_goes_back_unchanged_and_is_gone_with_the_next_answer(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    async with _served(place, monkeypatch) as (server, store):
        async with Surefoot(store, [_agent()], worker=True, log=lines.append) as sf:
            run = await sf.wait((await sf.start("thinker", "go")).id, timeout=WAIT_SECONDS)
            (question,) = run.pending_actions
        transient = [data for kind, data in _blobs(place) if kind == "transient"]
        assert len(transient) == 1 and THOUGHT.encode() in transient[0]
        async with Surefoot(store, [_agent()], worker=True, log=lines.append) as sf:
            await sf.approve(question.id, by="ann")
            run = await sf.wait(run.id, timeout=WAIT_SECONDS)
            messages, told = await sf.messages(run.id), [event async for event in sf.events(run.id)]
            actions = await sf.actions()
    assert run.status == "completed" and run.result == {"text": "done"}, run.error_code
    assert [entry.status for entry in server.log] == [200, 503, 200, 200]
    for index, thought in ((1, THOUGHT), (2, THOUGHT), (3, SECOND)):
        (block, *_), *_ = [m["content"] for m in reversed(sent(server, index)["messages"]) if m["role"] == "assistant"]  # type: ignore[call-overload]  # JSON
        assert (block["type"], block["thinking"]) == ("thinking", thought)
    assert not [kind for kind, _ in _blobs(place) if kind == "transient"]
    exits = [msgspec.json.encode([run, messages, told, actions]).decode(), _rows(place), "\n".join(lines)]
    assert not [text for text in exits if "private line" in text]
    assert not [data for _, data in _blobs(place) if b"private line" in data]


async def test_it_goes_with_a_cancel_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        _served(place, monkeypatch) as (_, store),
        Surefoot(store, [_agent()], worker=True) as sf,
    ):
        run = await sf.wait((await sf.start("thinker", "go")).id, timeout=WAIT_SECONDS)
        assert "transient" in [kind for kind, _ in _blobs(place)]
        await sf.cancel(run.id)
        assert "transient" not in [kind for kind, _ in _blobs(place)]


async def test_with_a_known_secret_in_it_nothing_is_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        _served(place, monkeypatch) as (_, store),
        Surefoot(store, [_agent()], worker=True) as sf,
    ):
        sf.redactor.add("PLAN", "private line")
        await sf.wait((await sf.start("thinker", "go")).id, timeout=WAIT_SECONDS)
    assert not [data for _, data in _blobs(place) if b"private line" in data]
    assert "transient" not in [kind for kind, _ in _blobs(place)]


def test_another_model_and_a_text_that_does_not_fit_get_none_of_it() -> None:
    from pydantic_ai import messages as wire

    parts: list[wire.ModelResponsePart] = [
        wire.ThinkingPart("first", signature="s1", provider_name="anthropic"),
        wire.TextPart("I look."),
        wire.ToolCallPart("look", '{"number": 1}', "a"),
        wire.ThinkingPart("between", signature="s2", provider_name="anthropic"),
        wire.ToolCallPart("look", '{"number": 2}', "b", provider_details={"thought_signature": "x"}),
    ]
    answer = from_library(wire.ModelResponse(parts=parts), ANTHROPIC)

    def again(name: str, reasoning: str | None, calls: tuple[CallPart, ...] = answer.calls) -> list[str]:
        said = AssistantMessage(answer.text, calls, reasoning)
        results = tuple(ToolResultMessage(call.wire_id, call.name, "seen") for call in calls)
        sent = to_library(ModelRequest("", (UserMessage("go"), said, *results)), name)
        (response,) = [message for message in sent if isinstance(message, wire.ModelResponse)]
        return [part.part_kind for part in response.parts]

    assert again(ANTHROPIC, answer.reasoning) == ["thinking", "text", "tool-call", "thinking", "tool-call"]
    plain = ["text", "tool-call", "tool-call"]
    assert again("anthropic:other", answer.reasoning) == again(ANTHROPIC, None) == again(ANTHROPIC, "{") == plain
    assert again(ANTHROPIC, answer.reasoning, answer.calls[:1]) == ["text", "tool-call"]
    unsigned = wire.ModelResponse(parts=[wire.ThinkingPart("open"), wire.ToolCallPart("look", "{}", "a")])
    assert from_library(unsigned, ANTHROPIC).reasoning is None
    ended = wire.ModelResponse(parts=[parts[0], wire.TextPart("done")])
    assert from_library(ended, ANTHROPIC).reasoning is None, "no calls: nothing is wanted back"
    assert json.loads(answer.reasoning or "")["model"] == ANTHROPIC
