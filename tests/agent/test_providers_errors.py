"""What goes wrong at a provider: one request each, sorted into what time mends, what a person mends, and the rest."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from surefoot.agent.model import ModelError, ModelNeedsPerson, ModelRefused, ModelRetryable, UserMessage
from surefoot.agent.providers import PydanticAIModel
from surefoot.testing.model_server import ServerFault, ServerStep
from tests.agent.providers import ANTHROPIC, CHAT, KEY, NAMES, RESPONSES, Secrets, asked, secrets, serve

DONE = ServerStep(text="done")
ASKED = "the salary of Anna"


async def failed(name: str, fault: ServerFault, **settings: object) -> ModelError:
    """How a call ends in `fault`; exactly one request was made, and the text gives nothing away."""
    async with serve(name, [ServerStep(fault=fault), DONE]) as (server, model):
        with pytest.raises(ModelError) as caught:
            await model.complete(asked(UserMessage(ASKED), **settings))
        assert len(server.log) == 1
        assert caught.value.__cause__ is None and caught.value.__suppress_context__
        text = str(caught.value)
        assert text.startswith(name) and len(text) < 400
        assert KEY not in text and KEY[-6:] not in text and ASKED not in text and "x-request" not in text
        return caught.value


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "9", "Retry-After-Ms": "1500"}, 1.5),
        ({"Retry-After": "Wed, 21 Oct 2037 07:28:00 GMT"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "inf"}, None),
        ({}, None),
    ],
)
async def test_429_may_work_later_and_was_asked_once(name: str, headers: dict[str, str], seconds: float | None) -> None:
    error = await failed(name, ServerFault(429, headers, "slow down"))
    assert isinstance(error, ModelRetryable)
    assert (error.status, error.retry_after) == (429, seconds)
    assert "slow down" in str(error)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 529])
async def test_what_time_mends(name: str, status: int) -> None:
    error = await failed(name, ServerFault(status, {"Retry-After": "3", "X-Request-Id": "x-request-1"}))
    assert isinstance(error, ModelRetryable)
    assert (error.status, error.retry_after) == (status, 3.0)


@pytest.mark.parametrize("name", NAMES)
async def test_a_hang_ends_with_the_time_out_of_the_settings(name: str) -> None:
    error = await failed(name, ServerFault(hang_seconds=30), timeout=0.3)
    assert isinstance(error, ModelRetryable) and error.status is None
    assert "in time" in str(error)


@pytest.mark.parametrize("name", NAMES)
async def test_a_connection_that_breaks_may_work_later(name: str) -> None:
    error = await failed(name, ServerFault(hang_seconds=0))
    assert isinstance(error, ModelRetryable) and error.status is None
    assert "connection" in str(error)


async def test_a_server_that_is_not_there_may_come() -> None:
    async with serve(CHAT, [DONE]) as (_, model):
        await model.complete(asked())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
        patch.setenv("NO_PROXY", "127.0.0.1")
        with pytest.raises(ModelRetryable, match="connection"):
            await model.complete(asked())
        await model.aclose()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("body", ["{", "", '{"choices": []}', '"text"', "null", '{"content": 5, "output": 5}'])
async def test_an_answer_that_cannot_be_read_may_come_better(name: str, body: str) -> None:
    error = await failed(name, ServerFault(200, body=body))
    assert isinstance(error, ModelRetryable)


@pytest.mark.parametrize("name", NAMES)
async def test_c056_a_wrong_key_needs_a_person_who_is_told_its_name_only(name: str) -> None:
    source = Secrets(OPENAI_API_KEY="sk-wrong-0123456789", ANTHROPIC_API_KEY="sk-wrong-0123456789")
    async with serve(name, [DONE], source=source) as (server, model):
        with pytest.raises(ModelNeedsPerson) as caught:
            await model.complete(asked())
        assert len(server.log) == 1
    assert caught.value.status == 401
    expected = "ANTHROPIC_API_KEY" if name == ANTHROPIC else "OPENAI_API_KEY"
    assert expected in str(caught.value) and "sk-wrong" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
async def test_c056_an_error_that_quotes_the_key_or_more_is_cut(name: str) -> None:
    error = await failed(name, ServerFault(400, message=f"no use for {KEY}\nat all \x00{'x' * 500}"))
    assert isinstance(error, ModelRefused)
    assert "no use for [redacted] at all \ufffd" in str(error)
    error = await failed(name, ServerFault(403, message=f"key {KEY[:8]}***{KEY[-6:]} may not"))
    assert isinstance(error, ModelNeedsPerson) and error.status == 403


@pytest.mark.parametrize("name", [CHAT, RESPONSES])
@pytest.mark.parametrize("code", ["insufficient_quota", "billing_hard_limit_reached"])
async def test_a_quota_that_is_used_up_needs_a_person_though_it_is_a_429(name: str, code: str) -> None:
    error = await failed(name, ServerFault(429, {"Retry-After": "1"}, "You exceeded your quota.", code))
    assert isinstance(error, ModelNeedsPerson) and error.status == 429
    assert "quota" in str(error)


async def test_anthropic_says_that_credit_is_used_up_with_a_400() -> None:
    fault = ServerFault(400, message="Your credit balance is too low to access the Anthropic API.")
    error = await failed(ANTHROPIC, fault)
    assert isinstance(error, ModelNeedsPerson) and error.status == 400


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ModelRefused),
        (413, ModelRefused),
        (422, ModelRefused),
        (402, ModelNeedsPerson),
        (404, ModelNeedsPerson),
    ],
)
async def test_what_time_does_not_mend(name: str, status: int, kind: type[ModelError]) -> None:
    error = await failed(name, ServerFault(status, message="no"))
    assert type(error) is kind
    assert error.status == status


async def test_a_failure_told_inside_a_response_is_sorted_too() -> None:
    body = {"id": "r", "object": "response", "created_at": 1, "status": "failed", "model": "m", "output": []}
    for code, kind in (("server_error", ModelRetryable), ("insufficient_quota", ModelNeedsPerson)):
        told = body | {"error": {"code": code, "message": "no"}}
        assert type(await failed(RESPONSES, ServerFault(200, body=json.dumps(told)))) is kind


async def test_a_missing_key_names_the_secret_and_sends_nothing() -> None:
    for name in ("openai:gpt-5", "anthropic:claude-haiku-5-5", "groq:llama"):
        with pytest.raises(ModelNeedsPerson, match=r"(OPENAI|ANTHROPIC)_API_KEY|groq"):
            await PydanticAIModel(name, Secrets()).complete(asked())


async def test_an_unknown_provider_needs_a_person() -> None:
    with pytest.raises(ModelNeedsPerson, match="nobody:model"):
        await PydanticAIModel("nobody:model", secrets()).complete(asked())


def test_a_missing_package_names_what_to_install() -> None:
    code = (
        "import asyncio, sys\n"
        "sys.modules['pydantic_ai'] = None\n"
        "from surefoot.agent.model import ModelNeedsPerson, ModelRequest\n"
        "from surefoot.agent.providers import resolve_model\n"
        "try:\n"
        "    asyncio.run(resolve_model('openai:gpt-5', None).complete(ModelRequest('', ())))\n"
        "except ModelNeedsPerson as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'surefoot[models]'" in done.stdout
