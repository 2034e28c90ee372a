"""Which histories the providers refuse, each by its own rules. None means accepted; a text is the refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from surefoot.agent.model import AssistantMessage, CallPart, NoteMessage, ToolResultMessage, UserMessage, WireMessage

OPENAI_CALL_ID_CHARACTERS_MAX = 40
RESPONSES_CALL_ID_CHARACTERS_MAX = 64
OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
ANTHROPIC_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")

JsonMessage = Mapping[str, object]


class _Refused(Exception):
    """Carries the refusal out of the checks."""


def validate_openai(messages: Sequence[JsonMessage]) -> str | None:
    """The refusal of OpenAI's chat completions for these messages, or None.

    Every call of an assistant message has exactly one tool message directly behind it, before any other role; no tool
    message stands elsewhere; ids are unique within an assistant message and at most 40 characters; arguments are text.
    """
    return _judge(_check_openai, messages)


def validate_openai_responses(items: Sequence[JsonMessage]) -> str | None:
    """The refusal of OpenAI's responses API for these input items, or None: each call has one output behind it."""
    return _judge(_check_responses, items)


def validate_anthropic(messages: Sequence[JsonMessage]) -> str | None:
    """The refusal of Anthropic's messages API for these messages, or None.

    Neighbours of one role are merged first. Every tool_use is answered in the very next user message, whose results
    come before anything else; ids are unique in the conversation; no text is empty; the last word is the user's.
    """
    return _judge(_check_anthropic, messages)


def validate_history(messages: Sequence[WireMessage]) -> str | None:
    """The refusal that any of the providers would give for the neutral history, or None."""
    return (
        validate_openai(to_openai(messages))
        or validate_anthropic(to_anthropic(messages))
        or validate_openai_responses(to_responses(messages))
    )


def to_openai(messages: Iterable[WireMessage]) -> list[JsonMessage]:
    """The neutral history as chat completion messages."""
    return [_openai_message(message) for message in messages]


def to_responses(messages: Iterable[WireMessage]) -> list[JsonMessage]:
    """The neutral history as input items of the responses API."""
    return [item for message in messages for item in _responses_items(message)]


def to_anthropic(messages: Iterable[WireMessage]) -> list[JsonMessage]:
    """The neutral history as Anthropic messages, not merged."""
    return [_anthropic_message(message) for message in messages]


def arguments_object(text: str) -> dict[str, object]:
    """Arguments as Anthropic has them, always an object: what is none is wrapped, as client libraries do."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return {"INVALID_JSON": text}


def turns_of(api: Literal["chat", "responses", "anthropic"], messages: Sequence[JsonMessage]) -> int:
    """How many turns of the model an accepted history holds: where a script goes on."""
    if api == "chat":
        return sum(message.get("role") == "assistant" for message in messages)
    if api == "anthropic":
        return sum(role == "assistant" for role, _ in merged(messages))
    by_model = [m.get("role") == "assistant" or m.get("type") in ("function_call", "reasoning") for m in messages]
    return sum(now and not before for before, now in pairwise([False, *by_model]))


def _judge(check: Callable[[Sequence[JsonMessage]], None], messages: Sequence[JsonMessage]) -> str | None:
    try:
        _check_utf8(messages)
        check(messages)
    except _Refused as refused:
        return str(refused)
    return None


def _openai_message(message: WireMessage) -> JsonMessage:
    match message:
        case UserMessage(text=text) | NoteMessage(text=text):
            return {"role": "user", "content": text}
        case ToolResultMessage():
            return {"role": "tool", "tool_call_id": message.wire_id, "content": message.content}
        case AssistantMessage():
            calls = [
                {"id": call.wire_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.calls
            ]
            return {"role": "assistant", "content": message.text} | ({"tool_calls": calls} if calls else {})


def _responses_items(message: WireMessage) -> list[JsonMessage]:
    match message:
        case UserMessage(text=text) | NoteMessage(text=text):
            return [{"role": "user", "content": text}]
        case ToolResultMessage():
            return [{"type": "function_call_output", "call_id": message.wire_id, "output": message.content}]
        case AssistantMessage():
            said: list[JsonMessage] = [{"role": "assistant", "content": message.text}] if message.text else []
            return said + [
                {"type": "function_call", "call_id": c.wire_id, "name": c.name, "arguments": c.arguments}
                for c in message.calls
            ]


def _anthropic_message(message: WireMessage) -> JsonMessage:
    match message:
        case UserMessage(text=text) | NoteMessage(text=text):
            return {"role": "user", "content": [{"type": "text", "text": text}]}
        case ToolResultMessage():
            block = {"type": "tool_result", "tool_use_id": message.wire_id, "content": message.content}
            return {"role": "user", "content": [block | {"is_error": message.is_error}]}
        case AssistantMessage():
            said: list[JsonMessage] = [{"type": "text", "text": message.text}] if message.text else []
            return {"role": "assistant", "content": said + [_tool_use(call) for call in message.calls]}


def _tool_use(call: CallPart) -> JsonMessage:
    return {"type": "tool_use", "id": call.wire_id, "name": call.name, "input": arguments_object(call.arguments)}


def _check_utf8(messages: Sequence[JsonMessage]) -> None:
    for text in _texts(messages):
        if _SURROGATE.search(text):
            raise _Refused("We could not parse the JSON body of your request: a lone surrogate is no valid UTF-8.")


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(name)
            yield from _texts(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _texts(item)


def _check_openai(messages: Sequence[JsonMessage]) -> None:
    open_ids: list[str] = []
    for index, message in enumerate(messages):
        where = f"messages.[{index}]"
        role = message.get("role")
        if role == "tool":
            _close_openai(message, open_ids, where)
            continue
        if open_ids:
            raise _Refused(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(open_ids)}"
            )
        if role == "assistant":
            open_ids = _open_openai(message, where)
        elif role not in ("user", "system", "developer"):
            raise _Refused(f"Invalid value: {role!r} in {where}.role.")
        elif message.get("content") is None:
            raise _Refused(f"Invalid value for 'content' in {where}: expected a string, got null.")
    if open_ids:
        raise _Refused(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(open_ids)}"
        )


def _close_openai(message: JsonMessage, open_ids: list[str], where: str) -> None:
    number = message.get("tool_call_id")
    if number not in open_ids:
        raise _Refused(
            "Invalid parameter: messages with role 'tool' must be a response to a preceding message with "
            f"'tool_calls' ({where}, tool_call_id {number!r})."
        )
    if message.get("content") is None:
        raise _Refused(f"Invalid value for 'content' in {where}: expected a string, got null.")
    open_ids.remove(str(number))


def _open_openai(message: JsonMessage, where: str) -> list[str]:
    calls = _items(message.get("tool_calls"))
    if message.get("tool_calls") == []:
        raise _Refused(f"Invalid '{where}.tool_calls': empty array. Expected an array with minimum length 1.")
    if not calls and message.get("content") is None:
        raise _Refused(f"Invalid value for 'content' in {where}: expected a string, got null.")
    for index, call in enumerate(calls):
        at = f"{where}.tool_calls.[{index}]"
        function = call.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        arguments = function.get("arguments") if isinstance(function, Mapping) else None
        _check_call(call.get("id"), name, arguments, OPENAI_CALL_ID_CHARACTERS_MAX, at)
    ids = [str(call["id"]) for call in calls]
    if len(set(ids)) < len(ids):
        raise _Refused(f"Duplicate tool call ids in {where}: {', '.join(ids)}.")
    return ids


def _check_call(number: object, name: object, arguments: object, characters_max: int, where: str) -> None:
    if not isinstance(number, str) or not number:
        raise _Refused(f"Missing required parameter: '{where}.id'.")
    if len(number) > characters_max:
        raise _Refused(
            f"Invalid '{where}.id': string too long. Expected a string with maximum length {characters_max}, "
            f"but got a string with length {len(number)} instead."
        )
    if not isinstance(name, str) or not OPENAI_NAME.fullmatch(name):
        raise _Refused(f"Invalid '{where}.name': string does not match pattern '^[a-zA-Z0-9_-]+$'.")
    if not isinstance(arguments, str):
        raise _Refused(f"Invalid type for '{where}.arguments': expected a string.")


def _check_responses(items: Sequence[JsonMessage]) -> None:
    open_ids: list[str] = []
    for index, item in enumerate(items):
        where = f"input[{index}]"
        match item.get("type", "message"):
            case "function_call":
                _check_call(
                    item.get("call_id"),
                    item.get("name"),
                    item.get("arguments"),
                    RESPONSES_CALL_ID_CHARACTERS_MAX,
                    where,
                )
                if item["call_id"] in open_ids:
                    raise _Refused(f"Duplicate function call id {item['call_id']} in {where}.")
                open_ids.append(str(item["call_id"]))
            case "function_call_output":
                if item.get("call_id") not in open_ids:
                    raise _Refused(f"No tool call found for function call output with call_id {item.get('call_id')}.")
                open_ids.remove(str(item["call_id"]))
            case _:
                pass
    if open_ids:
        raise _Refused(f"No tool output found for function call {open_ids[0]}.")


def _check_anthropic(messages: Sequence[JsonMessage]) -> None:
    turns = merged(messages)
    if not turns or turns[0][0] != "user":
        raise _Refused('messages: first message must use the "user" role')
    if turns[-1][0] != "user":
        raise _Refused(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    seen: set[str] = set()
    asked: list[str] = []
    for index, (role, blocks) in enumerate(turns):
        where = f"messages.{index}"
        if not blocks:
            raise _Refused(f"{where}: all messages must have non-empty content")
        for position, block in enumerate(blocks):
            _check_block(block, f"{where}.content.{position}")
        _check_results(blocks, asked, where)
        asked = _new_calls(blocks, seen, where) if role == "assistant" else []


def merged(messages: Sequence[JsonMessage]) -> list[tuple[str, list[JsonMessage]]]:
    """Anthropic messages as turns: neighbours of one role joined, text content as a block."""
    turns: list[tuple[str, list[JsonMessage]]] = []
    for index, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant"):
            raise _Refused(f"messages.{index}.role: Input should be 'user' or 'assistant'")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else _items(content)
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((str(role), list(blocks)))
    return turns


def _check_block(block: JsonMessage, where: str) -> None:
    match block.get("type"):
        case "text":
            text = block.get("text")
            if not isinstance(text, str) or not text:
                raise _Refused("messages: text content blocks must be non-empty")
            if not text.strip():
                raise _Refused("messages: text content blocks must contain non-whitespace text")
        case "tool_use":
            if not isinstance(block.get("id"), str) or not ANTHROPIC_ID.fullmatch(str(block["id"])):
                raise _Refused(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
            if not isinstance(block.get("name"), str) or not ANTHROPIC_NAME.fullmatch(str(block["name"])):
                raise _Refused(f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
            if not isinstance(block.get("input"), Mapping):
                raise _Refused(f"{where}.tool_use.input: Input should be a valid dictionary")
        case _:
            pass


def _check_results(blocks: Sequence[JsonMessage], asked: Sequence[str], where: str) -> None:
    """The results of `asked` stand first in `blocks`, one for each, and no others."""
    first = [str(b.get("tool_use_id")) for b in _leading_results(blocks)]
    every = [str(b.get("tool_use_id")) for b in blocks if b.get("type") == "tool_result"]
    for number in every:
        if number not in asked:
            raise _Refused(
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {number}. Each `tool_result` block "
                "must have a corresponding `tool_use` block in the previous message."
            )
        if every.count(number) > 1:
            raise _Refused(
                f"{where}: each tool_use must have a single result. Found multiple results with id: {number}"
            )
    missing = [number for number in asked if number not in first]
    if missing:
        raise _Refused(
            f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}. "
            "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        )


def _leading_results(blocks: Sequence[JsonMessage]) -> list[JsonMessage]:
    others = [index for index, block in enumerate(blocks) if block.get("type") != "tool_result"]
    return list(blocks[: others[0]] if others else blocks)


def _new_calls(blocks: Sequence[JsonMessage], seen: set[str], where: str) -> list[str]:
    asked = [str(block["id"]) for block in blocks if block.get("type") == "tool_use"]
    for number in asked:
        if number in seen:
            raise _Refused(f"{where}: `tool_use` ids must be unique")
        seen.add(number)
    return asked


def _items(value: object) -> list[JsonMessage]:
    if value is None:
        return []
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(v, Mapping) for v in value):
        raise _Refused("expected an array of objects")
    return list(value)
