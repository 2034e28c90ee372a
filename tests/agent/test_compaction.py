"""Long histories: what is sent fits, stays valid, and never forgets what was done outside."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest

from surefoot import Agent, Operation, Receipt, Surefoot, effects, tool
from surefoot.agent.compaction import DONE_MAX, INSTRUCTIONS, NOT_KNOWN, cut_of, opening, summary_body
from surefoot.agent.messages import History, SummaryBody
from surefoot.agent.model import ModelRequest, ModelResponse, ModelRetryable, NoteMessage, ToolResultMessage
from surefoot.core.state import EffectClass, Rules, Step as StepRecord, StepStatus, StepType
from surefoot.store.port import MessageRow, StepRow
from surefoot.testing.histories import validate_history
from surefoot.testing.model import Answer, FakeModel, Step

WAIT_SECONDS = 30.0
BOUND = 300


@tool(effect=effects.read)
def look(op: Operation, number: int) -> str:
    """Look."""
    return f"seen {number} " + "x" * 200


@tool(effect=effects.opaque)
def shout(op: Operation, text: str) -> Receipt:
    """Shout."""
    return Receipt(resource_id=f"echo-{text}", url=f"https://echo.example/{text}")


def _is_compaction(request: ModelRequest) -> bool:
    return request.instructions == INSTRUCTIONS


def _script(turns: list[Answer]) -> list[Step]:
    """By call: a summary where one is asked for, else the next turn."""
    left = iter(turns)

    def answer(request: ModelRequest) -> Answer:
        return "SUMMARY" if _is_compaction(request) else next(left)

    return [answer] * 40


def _agent(model: FakeModel, **options: object) -> Agent:
    return Agent("reader", model, "Read.", [look, shout], **{"history_tokens": BOUND, **options})  # type: ignore[arg-type]  # mixed options


def _characters(request: ModelRequest) -> int:
    return len(msgspec.json.encode(request.messages))


async def test_a_long_run_goes_on_with_summaries_and_what_it_did(store_url: str) -> None:
    turns: list[Answer] = [[("shout", {"text": "hi"})], *([("look", {"number": n})] for n in range(12)), "done"]
    model = FakeModel(_script(turns), by="call")
    async with Surefoot(store_url, [_agent(model)], worker=True) as sf:
        run = await sf.wait((await sf.start("reader", "What is there?")).id, timeout=WAIT_SECONDS)
        assert (run.status, run.result) == ("completed", {"text": "done"})
        messages = await sf.messages(run.id)
    compactions = [step for step in run.steps if step.purpose == "compact"]
    assert len(compactions) > 1 and {step.display.code for step in compactions} == {"model_compacted"}
    assert [m.role for m in messages].count("summary") == len(compactions)
    assert [m.role for m in messages].count("tool_result") == 13, "nothing is taken out of the conversation itself"
    assert [validate_history(request.messages) for request in model.requests] == [None] * len(model.requests)
    sent = [request for request in model.requests if not _is_compaction(request)]
    assert len(sent) == len(turns)
    # The newest turn stays, so a little more than the bound may be sent.
    assert max(_characters(request) for request in sent) < 4 * BOUND * 2
    opened = [request.messages[0] for request in sent[-5:]]
    for message in opened:
        assert isinstance(message, NoteMessage) and "SUMMARY" in message.text
        assert "- shout: done, echo-hi, https://echo.example/hi" in message.text
    asked = [request for request in model.requests if _is_compaction(request)]
    assert all(request.tools == () for request in asked)
    assert "What is there?" in str(asked[0].messages) and "[earlier summary]\\nSUMMARY" in str(asked[1].messages)


async def test_another_process_sends_the_same(store_url: str) -> None:
    """What was built row by row is what is read at once."""
    url = store_url
    turns: list[Answer] = [[("look", {"number": n})] for n in range(6)]
    model = FakeModel(_script([*turns, "done", "more"]), by="call")
    async with Surefoot(url, [_agent(model)], worker=True) as sf:
        run = await sf.wait((await sf.start("reader", "go")).id, timeout=WAIT_SECONDS)
        rows = await sf.messages(run.id)
    at_once, row_by_row = History(), History()
    at_once.extend(rows)
    for row in rows:
        row_by_row.extend([row])
    assert at_once.messages == row_by_row.messages and at_once.tokens == row_by_row.tokens
    assert at_once.summary is not None and len(at_once.messages) < len(rows)
    async with Surefoot(url, [_agent(model)], worker=True) as sf:
        more = await sf.start("reader", "And now?", conversation_id=run.conversation_id)
        assert (await sf.wait(more.id, timeout=WAIT_SECONDS)).result == {"text": "more"}
    assert model.requests[-1].messages[1 : 1 + len(at_once.messages)] == at_once.messages


async def test_the_last_turn_is_not_spent_on_a_summary(store_url: str) -> None:
    turns: list[Answer] = [[("look", {"number": n})] for n in range(9)]
    model = FakeModel(_script(turns), by="call")
    async with Surefoot(store_url, [_agent(model, turns=5)], worker=True) as sf:
        run = await sf.wait((await sf.start("reader", "x" * 1_000)).id, timeout=WAIT_SECONDS)
    assert run.error_code == "turns_used_up" and len(model.requests) == 5
    assert not _is_compaction(model.requests[-1])


async def test_a_history_that_may_not_be_summarised_is_sent_as_it_is(store_url: str) -> None:
    """The summary was asked for until the attempts were used up, by every run of the conversation anew."""
    turns: Iterator[Answer] = iter([*([("look", {"number": n})] for n in range(9)), "done"])

    def answer(request: ModelRequest) -> Answer:
        return ModelResponse("I cannot.", finish="content_filter") if _is_compaction(request) else next(turns)

    model = FakeModel([answer] * 40, by="call")
    async with Surefoot(store_url, [_agent(model)], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start("reader", "What is there?")).id, timeout=WAIT_SECONDS)
    assert (run.status, run.result) == ("completed", {"text": "done"})
    asked = [_is_compaction(request) for request in model.requests]
    assert True in asked and (True, True) not in pairwise(asked)
    sent = [request for request in model.requests if not _is_compaction(request)]
    assert [validate_history(request.messages) for request in sent] == [None] * 10


async def test_an_empty_summary_is_asked_for_again(store_url: str) -> None:
    answers: list[Step] = [[("look", {"number": 1})], " ", "SUMMARY", "done"]
    model = FakeModel(answers, by="call")
    async with Surefoot(store_url, [_agent(model)], worker=True) as sf:
        run = await sf.wait((await sf.start("reader", "x" * 1_000)).id, timeout=WAIT_SECONDS)
    assert (run.status, [step.attempt for step in run.steps if step.purpose]) == ("completed", [2])


def _row(position: int, role: str, body: object, step: int | None = None, call_id: str | None = None) -> MessageRow:
    step_id = None if step is None else f"step_a_{step:05d}"
    return MessageRow(f"m{position}", "conv", "run_a", step_id, call_id, position, role, msgspec.json.encode(body), 0.0)


def _batch(position: int, step: int, sizes: list[int]) -> list[MessageRow]:
    """An answer with calls, and a result of each size."""
    calls = [{"wire_id": f"w{step}{n}", "name": "look", "arguments": "{}"} for n in range(len(sizes))]
    rows = [_row(position, "assistant", {"text": "", "calls": calls}, step)]
    for n, size in enumerate(sizes):
        body = {"content": "r" * size, "code": None, "is_error": False}
        rows.append(_row(position + 1 + n, "tool_result", body, step, f"call_a_{step}_{n}"))
    return rows


@pytest.mark.parametrize(
    ("sizes", "up_to"),
    [
        ([[10, 10], [10]], None),  # it fits
        ([[900, 900], [10]], 3),
        ([[400], [400, 400], [10]], 5),
        ([[900], [5_000]], 2),  # the newest turn stays, whatever its size
        ([[5_000]], None),  # nothing worth a summary stands before it
    ],
)
def test_a_cut_stands_before_a_turn(sizes: list[list[int]], up_to: int | None) -> None:
    history, position = History(), 1
    history.extend([_row(0, "user", {"text": "go"})])
    for step, batch in enumerate(sizes, 1):
        history.extend(_batch(position, step, batch))
        position += 1 + len(batch)
    assert cut_of(history, BOUND) == up_to
    if up_to is not None:
        history.extend([_row(position, "summary", {"text": "SUMMARY", "up_to": up_to})])
        assert not isinstance(history.messages[0], ToolResultMessage)
        assert cut_of(history, BOUND) is None, "a summary is not made of what was just left"


def _step(number: int, status: StepStatus, **facts: object) -> StepRow:
    step = StepRecord(
        id=f"step_{number}", sequence=number, type=StepType.tool_call, status=status, position=number,
        rules=Rules(effect=EffectClass.opaque), tool_name="shout", target="acme/app#1", **facts,  # type: ignore[arg-type]  # facts
    )  # fmt: skip
    return StepRow(step, "run", "conv", None, None, 0.0, 0.0)


def test_what_was_done_is_told_by_the_records_and_never_guessed() -> None:
    rows = [
        _step(1, StepStatus.succeeded, external_resource_id="7"),
        _step(2, StepStatus.failed, error_code="rejected"),
        _step(3, StepStatus.outcome_unknown),
        _step(4, StepStatus.succeeded, external_resource_id="later"),
    ]
    text = opening(SummaryBody("SUMMARY", 3), rows).text
    assert "- shout acme/app#1: done, 7\n- shout acme/app#1: not executed (rejected)\n" in text
    assert f"- shout acme/app#1 (step_3): {NOT_KNOWN}" in text and "later" not in text
    many = [_step(n, StepStatus.succeeded) for n in range(DONE_MAX + 5)]
    assert "- 5 earlier calls, not listed" in opening(SummaryBody("SUMMARY", 10_000), many).text
    assert opening(SummaryBody("SUMMARY", 3), []).text.endswith("SUMMARY")


@pytest.mark.parametrize("answer", [ModelResponse("I cannot do this.", finish="content_filter"), ModelResponse(" ")])
def test_a_refusal_is_no_summary(answer: ModelResponse) -> None:
    with pytest.raises(ModelRetryable):
        summary_body(answer, 7, BOUND)
