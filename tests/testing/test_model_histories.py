"""Which histories are refused, and by whom."""

from __future__ import annotations

import pytest

from surefoot.agent.model import AssistantMessage, CallPart, NoteMessage, ToolResultMessage, UserMessage, WireMessage
from surefoot.testing.histories import (
    JsonMessage,
    to_responses,
    turns_of,
    validate_anthropic,
    validate_history,
    validate_openai,
    validate_openai_responses,
)

USER = UserMessage("go")
NOTE = NoteMessage("the comment was found after all")


def call(number: str, arguments: str = "{}") -> CallPart:
    return CallPart(number, "post", arguments)


def result(number: str, content: str = "ok") -> ToolResultMessage:
    return ToolResultMessage(number, "post", content)


def asks(*numbers: str) -> AssistantMessage:
    return AssistantMessage("", tuple(call(number) for number in numbers))


ACCEPTED: list[list[WireMessage]] = [
    [USER],
    [USER, asks("a"), result("a")],
    [USER, asks("a", "b"), result("a"), result("b")],
    [USER, asks("a", "b"), result("b"), result("a"), NOTE],
    [USER, asks("a"), result("a", ""), asks("b"), result("b"), AssistantMessage("done"), USER, NOTE],
    [USER, AssistantMessage("let me see", (call("a", ""),)), result("a")],
    [USER, AssistantMessage("", (call("a", '["no object"]'),)), result("a")],
    [USER, AssistantMessage("", (call("a", '{"n": 2512292042121000001}'),)), result("a", "\x00 and 🙂")],
]

REFUSED: list[tuple[list[WireMessage], str]] = [
    ([], "first message"),
    ([USER, asks("a")], "did not have response messages: a"),
    ([USER, asks("a"), USER], "did not have response messages: a"),
    ([USER, asks("a"), NOTE, result("a")], "did not have response messages: a"),
    ([USER, asks("a", "b"), result("a")], "did not have response messages: b"),
    ([USER, asks("a", "b"), result("a"), NOTE, result("b")], "did not have response messages: b"),
    ([USER, asks("a"), result("a"), result("a")], "must be a response to a preceding message"),
    ([USER, result("a")], "must be a response to a preceding message"),
    ([USER, asks("a"), result("b")], "must be a response to a preceding message"),
    ([USER, asks("a", "a"), result("a"), result("a")], "Duplicate tool call ids"),
    ([USER, asks("a"), result("a"), asks("a"), result("a")], "ids must be unique"),
    ([USER, asks("a" * 41), result("a" * 41)], "maximum length 40"),
    ([USER, asks(""), result("")], "Missing required parameter"),
    ([USER, asks("a.b"), result("a.b")], "should match pattern"),
    ([UserMessage("")], "non-empty"),
    ([UserMessage(" \n")], "non-whitespace"),
    ([USER, AssistantMessage(""), USER], "non-empty content"),
    ([AssistantMessage("hello"), USER], "first message"),
    ([USER, AssistantMessage("hello")], "must end with a user message"),
    ([USER, asks("a"), result("a", "half an emoji \ud83d")], "surrogate"),
    ([USER, AssistantMessage("", (CallPart("a", "a tool", "{}"),)), result("a")], "does not match pattern"),
]


@pytest.mark.parametrize("messages", ACCEPTED)
def test_i8_a_whole_history_is_accepted(messages: list[WireMessage]) -> None:
    assert validate_history(messages) is None


@pytest.mark.parametrize(("messages", "reason"), REFUSED)
def test_i8_a_broken_history_is_refused(messages: list[WireMessage], reason: str) -> None:
    refusal = validate_history(messages)
    assert refusal is not None and reason in refusal


def anthropic(*blocks: JsonMessage) -> list[JsonMessage]:
    use = {"type": "tool_use", "id": "a", "name": "post", "input": {}}
    return [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": list(blocks)},
    ]


def test_c027_anthropic_wants_results_before_anything_else() -> None:
    answer: JsonMessage = {"type": "tool_result", "tool_use_id": "a", "content": "ok"}
    text: JsonMessage = {"type": "text", "text": "by the way"}
    assert validate_anthropic(anthropic(answer, text)) is None
    refusal = validate_anthropic(anthropic(text, answer))
    assert refusal is not None and "immediately after: a" in refusal
    refusal = validate_anthropic(anthropic(answer, answer))
    assert refusal is not None and "multiple results" in refusal
    refusal = validate_anthropic(anthropic(answer, {**answer, "tool_use_id": "b"}))
    assert refusal is not None and "unexpected `tool_use_id`" in refusal


def test_anthropic_joins_neighbours_of_one_role() -> None:
    split = anthropic({"type": "tool_result", "tool_use_id": "a", "content": "ok"})
    split.append({"role": "user", "content": "by the way"})
    assert validate_anthropic(split) is None
    assert turns_of("anthropic", split) == 1
    refusal = validate_anthropic([{"role": "system", "content": "x"}])
    assert refusal is not None and "Input should be 'user' or 'assistant'" in refusal


def test_openai_wants_arguments_as_text() -> None:
    function = {"name": "post", "arguments": {}}
    messages: list[JsonMessage] = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
    ]
    refusal = validate_openai(messages)
    assert refusal is not None and "expected a string" in refusal
    assert validate_openai([{"role": "robot", "content": "x"}]) is not None
    assert validate_openai([{"role": "user", "content": None}]) is not None
    assert validate_openai([{"role": "assistant", "content": "x", "tool_calls": []}]) is not None


def test_the_responses_api_wants_one_output_for_each_call() -> None:
    items = to_responses([USER, asks("a", "b"), result("a"), result("b"), AssistantMessage("x"), USER, asks("c")])
    refusal = validate_openai_responses(items)
    assert refusal == "No tool output found for function call c."
    assert turns_of("responses", items) == 3
    refusal = validate_openai_responses(to_responses([USER, result("z")]))
    assert refusal is not None and "No tool call found" in refusal
