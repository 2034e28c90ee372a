"""How three provider APIs write an answer and an error, whole and as a stream of server-sent events."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from surefoot.agent.model import CallPart, ModelResponse
from surefoot.testing.histories import arguments_object
from surefoot.testing.wire import Reply, json_reply

Api = Literal["chat", "responses", "anthropic"]
JsonObject = dict[str, object]

PATHS: Mapping[str, Api] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "anthropic",
}


def error_reply(
    api: Api, status: int, message: str, headers: Mapping[str, str] | None = None, *, code: str | None = None
) -> Reply:
    """An error as the provider shapes it; `code` in place of the one that goes with the status."""
    kinds = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
    kind = kinds.get(status, "rate_limit_error" if status == 429 else "api_error")
    if api == "anthropic":
        return json_reply(status, {"type": "error", "error": {"type": code or kind, "message": message}}, headers)
    code = code or {401: "invalid_api_key", 404: "model_not_found"}.get(status)
    return json_reply(status, {"error": {"message": message, "type": kind, "param": None, "code": code}}, headers)


def answer_reply(api: Api, answer: ModelResponse, number: int, now: float, *, stream: bool) -> Reply:
    """A whole answer, or all events of a streamed one. `number` makes its ids unique."""
    if api == "chat":
        body, events = _chat(answer, number, now), _chat_events(answer, number, now)
    elif api == "responses":
        body, events = _response(answer, number, now), _response_events(answer, number, now)
    else:
        body, events = _message(answer, number), _message_events(answer, number)
    if not stream:
        return json_reply(200, body)
    return Reply(200, {"content-type": "text/event-stream; charset=utf-8"}, b"".join(events))


def _sse(value: object, name: str | None = None) -> bytes:
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + msgspec.json.encode(value) + b"\n\n"


def _pieces(text: str) -> list[str]:
    """Text in two pieces, so that whoever reads a stream has to join."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def _chat_call(call: CallPart) -> JsonObject:
    named: JsonObject = {"id": call.wire_id} if call.wire_id else {}
    return named | {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _chat_usage(answer: ModelResponse) -> JsonObject:
    read, written = answer.usage.input_tokens, answer.usage.output_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _chat(answer: ModelResponse, number: int, now: float) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.calls:
        message["tool_calls"] = [_chat_call(call) for call in answer.calls]
    choice = {"index": 0, "message": message, "finish_reason": answer.finish, "logprobs": None}
    head = _chat_head(answer, number, now, "chat.completion")
    return head | {"choices": [choice], "usage": _chat_usage(answer)}


def _chat_head(answer: ModelResponse, number: int, now: float, kind: str) -> JsonObject:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": int(now), "model": answer.model}


def _chat_events(answer: ModelResponse, number: int, now: float) -> Iterable[bytes]:
    head = _chat_head(answer, number, now, "chat.completion.chunk")

    def chunk(delta: JsonObject, finish: str | None = None) -> bytes:
        return _sse(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(answer.text):
        yield chunk({"content": piece})
    for index, call in enumerate(answer.calls):
        first, *rest = _pieces(call.arguments) or [""]
        opened = _chat_call(msgspec.structs.replace(call, arguments=first))
        yield chunk({"tool_calls": [{"index": index, **opened}]})
        for piece in rest:
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, answer.finish)
    yield _sse(head | {"choices": [], "usage": _chat_usage(answer)})
    yield b"data: [DONE]\n\n"


def _response_items(answer: ModelResponse, number: int) -> list[JsonObject]:
    said: list[JsonObject] = []
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        said = [
            {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}
        ]
    return said + [
        {
            "type": "function_call",
            "id": f"fc_{number}_{index}",
            "call_id": call.wire_id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        for index, call in enumerate(answer.calls)
    ]


def _response(answer: ModelResponse, number: int, now: float) -> JsonObject:
    read, written = answer.usage.input_tokens, answer.usage.output_tokens
    cut = answer.finish == "length"
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": int(now),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": _response_items(answer, number),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        },
    }


def _response_events(answer: ModelResponse, number: int, now: float) -> Iterable[bytes]:
    whole = _response(answer, number, now)
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    events: list[JsonObject] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(_response_items(answer, number)):
        events += _item_events(index, item)
    ended = "response.incomplete" if whole["status"] == "incomplete" else "response.completed"
    events.append({"type": ended, "response": whole})
    for order, event in enumerate(events):
        yield _sse(event | {"sequence_number": order}, str(event["type"]))


def _item_events(index: int, item: JsonObject) -> list[JsonObject]:
    place: JsonObject = {"output_index": index, "item_id": item["id"]}
    if item["type"] == "message":
        parts = item["content"]
        part: Mapping[str, object] = parts[0] if isinstance(parts, list) else {}
        text = str(part["text"])
        at = place | {"content_index": 0}
        inner: list[JsonObject] = [
            at | {"type": "response.content_part.added", "part": {**part, "text": ""}},
            *(at | {"type": "response.output_text.delta", "delta": p, "logprobs": []} for p in _pieces(text)),
            at | {"type": "response.output_text.done", "text": text, "logprobs": []},
            at | {"type": "response.content_part.done", "part": part},
        ]
        empty = item | {"content": [], "status": "in_progress"}
    else:
        text = str(item["arguments"])
        inner = [
            *(place | {"type": "response.function_call_arguments.delta", "delta": p} for p in _pieces(text)),
            place | {"type": "response.function_call_arguments.done", "arguments": text, "name": item["name"]},
        ]
        empty = item | {"arguments": "", "status": "in_progress"}
    added: JsonObject = {"type": "response.output_item.added", "output_index": index, "item": empty}
    done: JsonObject = {"type": "response.output_item.done", "output_index": index, "item": item}
    return [added, *inner, done]


def _message(answer: ModelResponse, number: int) -> JsonObject:
    stops = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": _blocks(answer),
        "stop_reason": stops.get(answer.finish, "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": answer.usage.input_tokens, "output_tokens": answer.usage.output_tokens},
    }


def thinking_signature(text: str) -> str:
    """How the double signs its reasoning."""
    return hashlib.sha256(b"thinking:" + text.encode()).hexdigest()


def check_thinking(messages: Sequence[JsonObject]) -> str | None:
    """The refusal of Anthropic's API with thinking on: calls that are answered follow their signed reasoning."""
    blocks = next((m["content"] for m in reversed(messages) if m.get("role") == "assistant"), None)
    if not isinstance(blocks, list) or not any(block.get("type") == "tool_use" for block in blocks):
        return None
    first: JsonObject = blocks[0]
    if first.get("type") != "thinking":
        return f"Expected `thinking` or `redacted_thinking`, but found `{first.get('type')}`"
    if first.get("signature") != thinking_signature(str(first.get("thinking"))):
        return "Invalid `signature` in `thinking` block"
    return None


def _blocks(answer: ModelResponse) -> list[JsonObject]:
    said: list[JsonObject] = []
    if answer.reasoning:
        signature = thinking_signature(answer.reasoning)
        said.append({"type": "thinking", "thinking": answer.reasoning, "signature": signature})
    said += [{"type": "text", "text": answer.text}] if answer.text else []
    return said + [
        {"type": "tool_use", "id": call.wire_id, "name": call.name, "input": arguments_object(call.arguments)}
        for call in answer.calls
    ]


def _message_events(answer: ModelResponse, number: int) -> Iterable[bytes]:
    whole = _message(answer, number)
    begun = whole | {"content": [], "stop_reason": None}
    events: list[JsonObject] = [{"type": "message_start", "message": begun}]
    for index, (block, text) in enumerate(zip(_blocks(answer), _block_texts(answer), strict=True)):
        events += _block_events(index, block, text)
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": answer.usage.output_tokens}})
    events.append({"type": "message_stop"})
    for event in events:
        yield _sse(event, str(event["type"]))


def _block_texts(answer: ModelResponse) -> Sequence[str]:
    said = [text for text in (answer.reasoning, answer.text) if text]
    return [*said, *(call.arguments or "{}" for call in answer.calls)]


_DELTAS: Mapping[str, tuple[str, str, JsonObject]] = {
    "thinking": ("thinking_delta", "thinking", {"thinking": "", "signature": ""}),
    "text": ("text_delta", "text", {"text": ""}),
    "tool_use": ("input_json_delta", "partial_json", {"input": {}}),
}
"""By the type of a block: its deltas, their field, and how the block opens."""


def _block_events(index: int, block: JsonObject, text: str) -> list[JsonObject]:
    kind, field, opening = _DELTAS[str(block["type"])]
    deltas: list[JsonObject] = [{"type": kind, field: piece} for piece in _pieces(text)]
    if "signature" in block:
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    start: JsonObject = {"type": "content_block_start", "index": index, "content_block": block | opening}
    stop: JsonObject = {"type": "content_block_stop", "index": index}
    return [start, *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas), stop]
