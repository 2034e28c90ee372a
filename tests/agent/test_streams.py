"""Answers that are streamed, by the providers' double: the same answer as a whole one, told piece by piece."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request

import pytest

from surefoot.agent.model import ModelError, ModelNeedsPerson, ModelRefused, ModelRetryable
from surefoot.core.values import parse_arguments
from surefoot.testing.model_server import ServerCall, ServerFault, ServerStep
from tests.agent.providers import ANTHROPIC, CHAT, KEY, NAMES, RESPONSES, Secrets, answered, asked, serve

BIG = 2512292042121000001
HUGE = 10**40 + 7
TEXT = "I look at it, then I say more."


@pytest.mark.parametrize("name", NAMES)
async def test_c049_a_streamed_answer_is_that_of_a_whole_one_with_all_digits(name: str) -> None:
    calls = (ServerCall("read", {"n": BIG}), ServerCall("read", f'{{"n": {HUGE}}}', id="own"))
    async with serve(name, [ServerStep(text=TEXT, calls=calls), ServerStep(text="done")]) as (server, model):
        pieces: list[str] = []
        streamed = await model.stream(asked(), pieces.append)
        assert b'"stream":true' in bytes(server.log[0].body).replace(b" ", b"")
        assert len(pieces) > 1 and "".join(pieces) == streamed.text == TEXT
        assert [parse_arguments(call.arguments)["n"] for call in streamed.calls] == [BIG, HUGE]
        assert streamed.usage.input_tokens > 0 and streamed.usage.output_tokens > 0
        whole = await model.complete(asked())
        assert [(c.wire_id, c.name) for c in whole.calls] == [(c.wire_id, c.name) for c in streamed.calls]
        assert (whole.text, whole.finish, whole.model) == (streamed.text, streamed.finish, streamed.model)
        last = await model.stream(answered(asked(), streamed, "one", "two"), pieces.append)
        assert last.text == "done" and str(HUGE) in bytes(server.log[-1].body).decode()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (ServerFault(429, {"Retry-After": "7"}, "slow down"), ModelRetryable),
        (ServerFault(503), ModelRetryable),
        (ServerFault(hang_seconds=0), ModelRetryable),
        (ServerFault(403, message=f"no use for {KEY}"), ModelNeedsPerson),
        (ServerFault(400, message=f"no use for {KEY}"), ModelRefused),
        (ServerFault(200, body="no stream at all"), ModelRetryable),
    ],
)
async def test_a_stream_fails_as_a_whole_answer_does_after_one_request(
    name: str, fault: ServerFault, kind: type[ModelError]
) -> None:
    async with serve(name, [ServerStep(fault=fault), ServerStep(text="done")]) as (server, model):
        with pytest.raises(ModelError) as caught:
            await model.stream(asked(), lambda piece: None)
        assert type(caught.value) is kind, caught.value
        assert len(server.log) == 1 and KEY not in str(caught.value)
        assert caught.value.__cause__ is None and caught.value.__suppress_context__


async def _pieces(name: str, step: ServerStep) -> list[str]:
    """The events of the stream of an answer, as the provider writes them."""
    async with serve(name, [step]) as (server, model):
        await model.stream(asked(), lambda piece: None)
        path = {CHAT: "/v1/chat/completions", RESPONSES: "/v1/responses", ANTHROPIC: "/v1/messages"}[name]
        request = urllib.request.Request(
            f"{os.environ['ANTHROPIC_BASE_URL']}{path}",
            data=bytes(server.log[0].body),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {KEY}", "X-Api-Key": KEY},
        )
        with await asyncio.to_thread(urllib.request.urlopen, request) as reply:
            return [f"{event}\n\n" for event in (await asyncio.to_thread(reply.read)).decode().split("\n\n")[:-1]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("calls", [(), (ServerCall("read", {"n": BIG}), ServerCall("read", {"n": 7}))])
async def test_a_stream_that_stops_is_no_answer(name: str, calls: tuple[ServerCall, ...]) -> None:
    step = ServerStep(text=TEXT, calls=calls)
    pieces = await _pieces(name, step)
    taken = 0
    for count in range(1, len(pieces)):
        cut = ServerFault(200, {"Content-Type": "text/event-stream"}, body="".join(pieces[:count]))
        async with serve(name, [ServerStep(fault=cut), step]) as (_, model):
            try:
                answer = await model.stream(asked(), lambda piece: None)
            except ModelRetryable:
                answer = await model.stream(asked(), lambda piece: None)
            else:
                taken += 1
            assert answer.text == TEXT, count
            assert [parse_arguments(c.arguments) for c in answer.calls] == [c.arguments for c in calls], count
            streamed: list[str] = []
            await model.stream(asked(), streamed.append)
            assert "".join(streamed) == TEXT, "the next one is streamed again"
    assert taken <= 2, "what comes behind the provider's own end may be lost"


async def test_an_answer_that_the_library_streams_by_itself_is_whole_or_none() -> None:
    step = ServerStep(text=TEXT, calls=(ServerCall("read", {"n": BIG}),))
    pieces = await _pieces(ANTHROPIC, step)
    for count in range(1, len(pieces) - 2):
        cut = ServerFault(200, {"Content-Type": "text/event-stream"}, body="".join(pieces[:count]))
        async with serve(ANTHROPIC, [ServerStep(fault=cut)]) as (server, model):
            with pytest.raises(ModelRetryable, match="did not finish"):
                await model.complete(asked())
            assert b'"stream":true' in bytes(server.log[0].body).replace(b" ", b"")


async def test_the_streams_of_a_server_that_never_says_why_it_ends_are_taken_once_that_is_known() -> None:
    pieces = await _pieces(CHAT, ServerStep(text=TEXT))
    body = "".join(pieces).replace('"finish_reason":"stop"', '"finish_reason":null')
    stream = ServerFault(200, {"Content-Type": "text/event-stream"}, body=body)
    whole = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": None}
    answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [whole]}
    odd = ServerFault(200, {"Content-Type": "application/json"}, body=json.dumps(answer))
    steps = [ServerStep(fault=fault) for fault in (stream, odd, stream, stream)]
    async with serve(CHAT, steps) as (server, model):
        with pytest.raises(ModelRetryable, match="did not finish"):
            await model.stream(asked(), lambda piece: None)
        for _ in range(3):
            assert (await model.stream(asked(), lambda piece: None)).text == TEXT
        assert len(server.log) == 4


async def test_c056_a_wrong_key_in_a_stream_is_told_by_its_name_only() -> None:
    async with serve(CHAT, [], source=Secrets(OPENAI_API_KEY="sk-wrong-0123456789")) as (_, model):
        with pytest.raises(ModelNeedsPerson, match="OPENAI_API_KEY") as caught:
            await model.stream(asked(), lambda piece: None)
        assert "sk-wrong" not in str(caught.value)


@pytest.mark.parametrize(("name", "known"), [(CHAT, True), (ANTHROPIC, True), ("openai-chat:no-such-model", False)])
async def test_the_cost_stands_with_the_usage_where_a_price_is_known(name: str, known: bool) -> None:
    async with serve(name, [ServerStep(text="done")]) as (_, model):
        whole = await model.complete(asked())
        streamed = await model.stream(asked(), lambda piece: None)
    for usage in (whole.usage, streamed.usage):
        assert (usage.cost_microdollars is not None and usage.cost_microdollars > 0) is known, usage
