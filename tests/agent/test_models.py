"""Several models of one agent, and the question about what a person can mend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from surefoot import Agent, Surefoot
from surefoot.agent.model import ModelNeedsPerson, ModelRefused, ModelRequest, ModelResponse, ModelRetryable
from surefoot.errors import InvalidInput
from surefoot.snapshot import RunSnapshot

WAIT_SECONDS = 30.0
WRONG_KEY = ModelNeedsPerson("the key is wrong", status=401)
LIMITED = ModelRetryable("slow down", status=429, retry_after=3_000)
BAD = ModelRefused("never", status=400)


class Moody:
    """A model that fails so often, each time alike, then answers. `fails` None: always."""

    def __init__(self, name: str, failure: Exception, fails: int | None = None) -> None:
        self.name = name
        self.failure = failure
        self.left = fails
        self.asked = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Fail, or say who is there."""
        self.asked += 1
        if self.left is None or self.left > 0:
            self.left = None if self.left is None else self.left - 1
            raise self.failure
        return ModelResponse(f"I am {self.name}.", model=self.name)


def _agent(*models: Moody) -> Agent:
    return Agent("talker", models)


async def _run(store_url: str, *models: Moody) -> tuple[RunSnapshot, list[str]]:
    """A run to its rest, and which models answered."""
    async with Surefoot(store_url, [_agent(*models)], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start("talker", "go")).id, timeout=WAIT_SECONDS)
        bodies = [msgspec.json.decode(m.body) for m in await sf.messages(run.id) if m.role == "assistant"]
    return run, [body["model"] for body in bodies]


@pytest.mark.parametrize("failure", [WRONG_KEY, LIMITED, BAD, ModelRetryable("502", status=502), ValueError("odd")])
async def test_an_attempt_that_failed_goes_to_the_next_model_at_once(store_url: str, failure: Exception) -> None:
    first, second = Moody("first", failure), Moody("second", failure, 0)
    run, answered = await _run(store_url, first, second)
    assert (run.status, run.result, answered) == ("completed", {"text": "I am second."}, ["second"])
    assert (first.asked, second.asked, run.steps[0].attempt) == (1, 1, 2)


class Silent:
    """A model that never answers."""

    name = "silent"

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Wait for ever."""
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


async def test_a_model_that_does_not_answer_is_left_after_its_time(store_url: str) -> None:
    agent = Agent("talker", [Silent(), Moody("second", BAD, 0)], model_timeout=0.2)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "go")).id, timeout=WAIT_SECONDS)
    assert (run.result, run.steps[0].attempt) == ({"text": "I am second."}, 2)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (Moody("first", ModelRetryable("first: the answer could not be read")), ["the answer could not be read"]),
        (Moody("first", ValueError("odd")), ["ValueError: odd"]),
        (Silent(), ["no answer within 0.2 s"]),
        (Moody("first", LIMITED), []),  # what it waits for stands in the run
    ],
)
async def test_the_log_says_why_an_attempt_failed_that_is_made_again(
    store_url: str, first: Moody | Silent, said: Sequence[str]
) -> None:
    lines: list[str] = []
    agent = Agent("talker", [first, Moody("second", BAD, 0)], model_timeout=0.2)
    async with Surefoot(store_url, [agent], worker=True, log=lines.append) as sf:
        run = await sf.wait((await sf.start(agent, "go")).id, timeout=WAIT_SECONDS)
    assert run.status == "completed"
    told = [line for line in lines if f"{run.steps[0].id}: the call of {first.name} failed: " in line]
    assert len(told) == len(said) and all(text in line for text, line in zip(said, told, strict=True)), lines


@pytest.mark.parametrize(
    ("failures", "status", "code", "asked"),
    [
        ([WRONG_KEY, WRONG_KEY], "waiting_for_user", None, [1, 1]),
        ([WRONG_KEY, BAD], "waiting_for_user", None, [1, 1]),
        ([BAD, WRONG_KEY], "waiting_for_user", None, [1, 1]),
        ([BAD, BAD], "failed", "model_refused_request", [1, 1]),
        ([BAD], "failed", "model_refused_request", [1]),
        ([WRONG_KEY], "waiting_for_user", None, [1]),
    ],
)
async def test_a_person_is_asked_where_no_model_can_be_called(
    store_url: str, failures: Sequence[Exception], status: str, code: str | None, asked: list[int]
) -> None:
    models = [Moody(f"model{n}", failure) for n, failure in enumerate(failures)]
    run, _ = await _run(store_url, *models)
    assert (run.status, run.error_code, [model.asked for model in models]) == (status, code, asked)
    assert [a.kind for a in run.pending_actions] == (["ask"] if status == "waiting_for_user" else [])
    for question in run.pending_actions:
        assert isinstance(question.preview, dict)
        assert question.preview["warnings"] == [f"{type(failures[-1]).__name__}: {failures[-1]}"], "what to mend"


@pytest.mark.parametrize("value", ["try_again", "stop"])
async def test_what_a_person_has_mended_is_tried_again_through_a_restart(store_url: str, value: str) -> None:
    url = store_url
    models = [Moody("first", WRONG_KEY, 2), Moody("second", WRONG_KEY, 1)]
    async with Surefoot(url, [_agent(*models)], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start("talker", "go")).id, timeout=WAIT_SECONDS)
        assert run.status == "waiting_for_user" and run.steps[0].display.code == "model_waiting"
        assert run.steps[0].error_code == "model_needs_person"
    async with Surefoot(url, [_agent(*models)], worker=True, log=lambda line: None) as sf:
        with pytest.raises(InvalidInput):
            await sf.answer(run.pending_actions[0].id, "perhaps", by="ann")
        await sf.answer(run.pending_actions[0].id, value, by="ann")
        run = await sf.wait(run.id, timeout=WAIT_SECONDS)
    if value == "stop":
        assert (run.status, run.error_code) == ("failed", "model_needs_person")
        assert [model.asked for model in models] == [1, 1]
    else:
        assert (run.status, run.result) == ("completed", {"text": "I am second."})
        assert [model.asked for model in models] == [2, 2] and len(run.steps) == 1


def test_an_agent_has_at_least_one_model_and_its_names_count() -> None:
    with pytest.raises(ValueError, match="at least one model"):
        Agent("talker", [])
    talker, told = Agent("talker", "openai:a"), Agent.model.__doc__ or ""
    for wrong in ([], 5, " ", ["openai:a", None]):
        with pytest.raises((TypeError, ValueError)) as refused:
            talker.model = wrong  # type: ignore[assignment]  # what is no model is what this is about
        assert refused.type.__name__ in told and talker.model == "openai:a"
    one, other = Agent("talker", ["openai:a", "anthropic:b"]), Agent("talker", ["anthropic:b", "openai:a"])
    assert one.input_hash != other.input_hash
