"""Answers that are streamed, by the providers' double: the same answer as a whole one, told piece by piece."""

from __future__ import annotations

import pytest

from surefoot.agent.model import ModelError, ModelNeedsPerson, ModelRefused, ModelRetryable
from surefoot.core.values import parse_arguments
from surefoot.testing.model_server import ServerCall, ServerFault, ServerStep
from tests.agent.providers import ANTHROPIC, CHAT, KEY, NAMES, Secrets, answered, asked, serve

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
