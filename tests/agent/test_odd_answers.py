"""Model objects of users' own: what they answer is paid for, so it is read as far as it can be."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from surefoot import Agent, Operation, Receipt, Surefoot, effects, tool
from surefoot.agent.messages import COUNT_MAX, AssistantBody, assistant_body, read_answer
from surefoot.agent.model import AssistantMessage, CallPart, ModelRequest, ModelResponse, NoteMessage, Usage
from surefoot.core.text import clean_text
from surefoot.snapshot import RunSnapshot

WAIT_SECONDS = 30.0
Answer = Callable[[], object]


@tool(effect=effects.opaque)
async def send(op: Operation, number: int = 1) -> Receipt:
    """Send something."""
    return Receipt(resource_id=f"sent {number}")


class Odd:
    """Answers whatever it was given, and says "done" once a call has its result."""

    name = "odd"

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer."""
        self.asked += 1
        if any(isinstance(message, AssistantMessage) for message in request.messages):
            return ModelResponse("done")
        return self._answer()  # type: ignore[return-value]  # what users do


async def _run(store_url: str, model: Odd, log: list[str]) -> tuple[RunSnapshot, int]:
    async with Surefoot(store_url, [Agent("talker", model, "", [send])], worker=True, log=log.append) as sf:
        run = await sf.wait((await sf.start("talker", "go")).id, timeout=WAIT_SECONDS)
        stored = await sf.store.load(sf.tenant, run.id)
    return run, stored.input_tokens + stored.output_tokens


class Kindred(ModelResponse, frozen=True):
    """An answer of a kind that is always read with care."""


class Word(str):
    """A text of a program's own kind."""


_WORDS = st.sampled_from(
    ["", "stop", "text", "\x00", "\ud83d", "\ud83d\ude00", "\\u0000", "é", Word("own"), b"bytes", None, 7]
)
_COUNTS = st.sampled_from([0, 1, -1, COUNT_MAX, COUNT_MAX + 1, True, False, 0.0, 1.5, math.nan, math.inf, "3", None])
_PARTS = st.builds(CallPart, _WORDS, _WORDS, _WORDS | st.just({"a": 1}))
_ANSWERS = st.fixed_dictionaries(
    {
        "text": _WORDS,
        "calls": st.lists(_PARTS, max_size=2).map(tuple) | st.lists(_PARTS, max_size=1) | st.none(),
        "usage": st.builds(Usage, _COUNTS, _COUNTS, _COUNTS) | st.none(),
        "finish": _WORDS,
        "model": _WORDS,
        "reasoning": _WORDS,
    }
)
_PLAIN_WORDS = st.sampled_from(["", "stop", "\x00", "\ud83d", "\ud83d\ude00", "\\u0000", "é"])


@settings(max_examples=2_000, deadline=None)
@given(_ANSWERS)
def test_an_answer_of_the_usual_kind_is_read_as_every_other_is(answer: dict[str, object]) -> None:
    usual, careful = ModelResponse(**answer), Kindred(**answer)  # type: ignore[arg-type]  # what users do
    # As text: 0, 0.0 and False differ, and so do texts of another kind.
    assert repr(read_answer(usual, "m")) == repr(read_answer(careful, "m"))


@settings(max_examples=500, deadline=None)
@given(st.lists(_PLAIN_WORDS, min_size=6, max_size=6))
def test_what_is_kept_of_an_answer_is_under_the_value_rule(words: list[str]) -> None:
    text, finish, model, *call = words
    body = assistant_body(ModelResponse(text, (CallPart(*call),), Usage(1, 2), finish, model), "ref")
    kept = AssistantBody(
        clean_text(text),
        (CallPart(*[clean_text(word) for word in call]),),
        Usage(1, 2),
        clean_text(finish),
        clean_text(model),
        "ref",
    )
    assert msgspec.json.decode(body, type=AssistantBody) == kept
    assert body == msgspec.json.encode(kept)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (None, 0),
        (Usage(10**30, 1), 10**12 + 1),
        (Usage(-50, 7), 7),
        (Usage(1.6, 2), 3),  # type: ignore[arg-type]  # what users do
        (Usage(math.nan, math.inf), 0),  # type: ignore[arg-type]
        (Usage("12", None), 0),  # type: ignore[arg-type]
        (Usage(3, 4, cost_microdollars=math.nan), 7),  # type: ignore[arg-type]
        (Usage(3, 4, cost_microdollars=-(10**40)), 7),
    ],
)
async def test_what_cannot_be_counted_is_not_counted(store_url: str, usage: Usage | None, tokens: int) -> None:
    log: list[str] = []
    model = Odd(lambda: ModelResponse("hello", usage=usage))  # type: ignore[arg-type]
    run, counted = await _run(store_url, model, log)
    assert (run.status, run.result, model.asked) == ("completed", {"text": "hello"}, 1)
    assert counted == tokens and not log


@pytest.mark.parametrize(
    "part",
    [
        CallPart(None, "send", '{"number": 2}'),  # type: ignore[arg-type]  # what users do
        CallPart("1", "send", {"number": 2}),  # type: ignore[arg-type]
        CallPart(7, "send", b'{"number": 2}'),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("text", ["", None])
async def test_a_call_is_read_in_each_of_its_common_forms(store_url: str, part: CallPart, text: str | None) -> None:
    log: list[str] = []
    model = Odd(lambda: ModelResponse(text, [part], finish=None, model=None))  # type: ignore[arg-type]
    run, _ = await _run(store_url, model, log)
    assert (run.status, run.result, model.asked) == ("completed", {"text": "done"}, 2)
    assert [step.external_resource_id for step in run.steps if step.type == "tool_call"] == ["sent 2"] and not log


async def test_no_text_and_no_call_is_an_empty_answer(store_url: str) -> None:
    model = Odd(lambda: ModelResponse(None, None))  # type: ignore[arg-type]
    run, _ = await _run(store_url, model, [])
    assert (run.status, run.result, model.asked) == ("completed", {"text": ""}, 1)


@pytest.mark.parametrize("answer", ["hello", None, {"text": "hello"}, ModelResponse("", ("send",))])  # type: ignore[arg-type]
async def test_an_answer_of_another_kind_says_so(store_url: str, answer: object) -> None:
    log: list[str] = []
    answers = iter([answer, ModelResponse("hello")])
    model = Odd(lambda: next(answers))
    run, _ = await _run(store_url, model, log)
    assert (run.status, run.result, model.asked) == ("completed", {"text": "hello"}, 2)
    assert len(log) == 1 and "the model 'odd' answered" in log[0] and "a ModelResponse" in log[0]


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
async def test_a_model_does_not_end_the_worker(store_url: str, ending: type[BaseException]) -> None:
    log: list[str] = []

    def end_once() -> object:
        if model.asked == 1:
            raise ending(3)
        return ModelResponse("hello")

    model = Odd(end_once)
    run, _ = await _run(store_url, model, log)
    assert (run.status, run.result, model.asked) == ("completed", {"text": "hello"}, 2)
    assert ending.__name__ in log[0]


class Long:
    """Writes too much for as long as it is told to."""

    name = "long"

    def __init__(self, cuts: int, finish: str = "length") -> None:
        self._cuts = cuts
        self._finish = finish
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Half an answer, or in the end a whole one."""
        self.requests.append(request)
        cut = len(self.requests) <= self._cuts
        return ModelResponse("Half an ans" if cut else "A whole answer.", finish=self._finish if cut else "stop")


async def _talk(store_url: str, model: Long) -> RunSnapshot:
    async with Surefoot(store_url, [Agent("talker", model)], worker=True) as sf:
        return await sf.wait((await sf.start("talker", "go")).id, timeout=WAIT_SECONDS)


ENDINGS = [("length", "cut off", "answer_cut"), ("content_filter", "content filter", "answer_filtered")]


@pytest.mark.parametrize(("finish", "told", "code"), ENDINGS)
async def test_an_answer_that_is_not_whole_is_no_result_and_is_asked_for_again(
    store_url: str, finish: str, told: str, code: str
) -> None:
    model = Long(1, finish)
    run = await _talk(store_url, model)
    assert (run.status, run.result, len(model.requests)) == ("completed", {"text": "A whole answer."}, 2)
    said = model.requests[1].messages
    assert isinstance(said[-2], AssistantMessage) and said[-2].text == "Half an ans"
    assert isinstance(said[-1], NoteMessage) and told in said[-1].text


@pytest.mark.parametrize(("finish", "told", "code"), ENDINGS)
async def test_a_run_whose_answers_are_not_whole_again_fails_and_can_be_taken_up(
    store_url: str, finish: str, told: str, code: str
) -> None:
    model = Long(2, finish)
    agent = Agent("talker", model)
    async with Surefoot(store_url, [agent], worker=True) as sf:
        run = await sf.wait((await sf.start("talker", "go")).id, timeout=WAIT_SECONDS)
        assert (run.status, run.error_code, run.result, len(model.requests)) == ("failed", code, None, 2)
        again = await sf.wait((await sf.retry(run.id)).id, timeout=WAIT_SECONDS)
    assert again.result == {"text": "A whole answer."}
    assert isinstance(model.requests[2].messages[-1], NoteMessage), "no provider is asked to go on in its own words"


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_a_call_that_was_cut_off_before_its_arguments_is_not_made_without_them(
    store_url: str, finish: str
) -> None:
    """None are as good as an object without entries, and each argument of this tool may be left out."""
    wiped: list[str] = []

    @tool(effect=effects.opaque)
    def wipe(op: Operation, folder: str = "/") -> str:
        """Empty a folder."""
        wiped.append(folder)
        return "empty"

    cut = ModelResponse("", (CallPart("a", "wipe", '{"folder": "a"}'), CallPart("b", "wipe", " ")), finish=finish)
    answers = iter([cut, ModelResponse("", (CallPart("c", "wipe", ""),), finish="tool_calls"), ModelResponse("done")])

    class Scripted:
        name = "scripted"

        async def complete(self, request: ModelRequest) -> ModelResponse:
            return next(answers)

    async with Surefoot(store_url, [Agent("talker", Scripted(), tools=[wipe])], worker=True) as sf:
        run = await sf.wait((await sf.start("talker", "go")).id, timeout=WAIT_SECONDS)
    codes = [step.error_code for step in run.steps if step.type == "tool_call"]
    assert (run.status, wiped, codes) == ("completed", ["a", "/"], [None, "invalid_arguments", None])
