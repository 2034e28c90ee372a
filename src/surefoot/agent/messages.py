"""From the conversation as it is stored to what a model is sent, and back. Rows are JSON; wire ids are the provider's.

Providers reuse, repeat and omit call ids. On the wire a call keeps the provider's id where that is unique in the
conversation and short enough, else it goes out under its own call_id, which is unique for ever.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping

import msgspec

from surefoot.agent.model import (
    CHARACTERS_PER_TOKEN,
    AssistantMessage,
    CallPart,
    ModelResponse,
    NoteMessage,
    ToolResultMessage,
    Usage,
    UserMessage,
    WireMessage,
)
from surefoot.core.ids import call_id, run_of_step
from surefoot.core.text import clean_text
from surefoot.errors import InvalidInput
from surefoot.store.port import MessageRow

WIRE_ID_CHARACTERS_MAX = 40
_WIRE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
WIRE_NAME_CHARACTERS_MAX = 64
COUNT_MAX = 10**12
"""Of tokens, and of millionths of a dollar, that one answer may have cost: more is no count."""


class AssistantBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an assistant message is stored."""

    text: str
    calls: tuple[CallPart, ...] = ()
    usage: Usage = Usage()
    finish: str = "stop"
    model: str = ""
    reasoning_ref: str | None = None
    """Names the transient blob with the reasoning that the provider wants back; it is gone after the next answer."""


class SummaryBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a summary is stored: it stands for all messages up to a position."""

    text: str
    up_to: int
    usage: Usage = Usage()
    model: str = ""


class Entry(msgspec.Struct, frozen=True):
    """A message of the history with its place and its size."""

    position: int
    message: WireMessage
    characters: int


class ResultBody(msgspec.Struct, frozen=True):
    """How a tool result or a note is stored."""

    content: object
    code: str | None = None
    is_error: bool = False


def given_text(value: object, name: str) -> str:
    """A text that somebody gave, under the value rule. Raises InvalidInput for what is none, or blank."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{name} is a text that is not empty")
    return clean_text(value)


def user_body(text: str) -> bytes:
    """A user's text as a message body, under the value rule."""
    return msgspec.json.encode({"text": clean_text(text)})


def assistant_body(response: ModelResponse, reasoning_ref: str | None = None) -> bytes:
    """A model's answer as a message body, without its reasoning."""
    body = AssistantBody(response.text, response.calls, response.usage, response.finish, response.model, reasoning_ref)
    try:
        data = msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(_cleaned(body))
    # What may be a NUL: its escape, or a text that shows one. Lone surrogates are not encoded at all.
    return msgspec.json.encode(_cleaned(body)) if b"\\u0000" in data else data


def _cleaned(body: AssistantBody) -> AssistantBody:
    return AssistantBody(
        clean_text(body.text),
        tuple(CallPart(clean_text(c.wire_id), clean_text(c.name), clean_text(c.arguments)) for c in body.calls),
        body.usage,
        clean_text(body.finish),
        clean_text(body.model),
        body.reasoning_ref,
    )


class History:
    """The conversation in the words of the model port, grown row by row and never built again."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        """What is sent as it is: the messages above the summary, where there is one."""
        self._messages: list[WireMessage] = []
        """The same without their places: a copy for each request, however long the history is."""
        self.summary: SummaryBody | None = None
        self.position = -1
        """Up to where rows were taken in."""
        self.notes = 0
        """How many notes were taken in."""
        self.reasoning_ref: str | None = None
        """The blob with the reasoning of the newest answer, if it has one."""
        self._counted = (0, 0)
        """Tokens by the provider's count, and how many entries they cover."""
        self._wire_ids: dict[str, tuple[str, str]] = {}
        self._used: set[str] = set()

    def extend(self, rows: Iterable[MessageRow]) -> None:
        """Take in rows in the order of their positions: results stand in call order, directly behind their calls."""
        for row in rows:
            assert row.position is not None and row.position > self.position, "rows come in order, once"
            self.position = row.position
            if row.role == "summary":
                self._shorten(msgspec.json.decode(row.body, type=SummaryBody))
                continue
            body = msgspec.json.decode(row.body, type=AssistantBody) if row.role == "assistant" else None
            message = self._wire(row) if body is None else self._assistant(row, body)
            self.entries.append(Entry(row.position, message, _characters(message)))
            self._messages.append(message)
            self.notes += isinstance(message, NoteMessage)
            if body is not None:
                self._counted = (body.usage.input_tokens + body.usage.output_tokens, len(self.entries))
                self.reasoning_ref = body.reasoning_ref

    @property
    def messages(self) -> tuple[WireMessage, ...]:
        """The messages above the summary."""
        return tuple(self._messages)

    def ends_with(self, note: str) -> bool:
        """Whether the newest message is this note of the runtime."""
        return bool(self.entries) and self.entries[-1].message == NoteMessage(note)

    def with_reasoning(self, reasoning: str) -> tuple[WireMessage, ...]:
        """The messages, the newest answer with its reasoning."""
        messages = list(self._messages)
        for place in reversed(range(len(messages))):
            message = messages[place]
            if isinstance(message, AssistantMessage):
                messages[place] = msgspec.structs.replace(message, reasoning=reasoning)
                break
        return tuple(messages)

    @property
    def tokens(self) -> int:
        """The size of what is sent: the provider's last count and an estimate of the rest, or the estimate of all."""
        counted, covered = self._counted
        rest = self.entries[covered if counted else 0 :]
        characters = sum(entry.characters for entry in rest)
        if not counted and self.summary is not None:
            characters += len(self.summary.text)
        return counted + characters // CHARACTERS_PER_TOKEN

    def _shorten(self, summary: SummaryBody) -> None:
        self.summary = summary
        self.entries = [entry for entry in self.entries if entry.position > summary.up_to]
        self._messages = [entry.message for entry in self.entries]
        # What a provider counted before was the longer history.
        self._counted = (0, 0)

    def _wire(self, row: MessageRow) -> WireMessage:
        if row.role == "user":
            return UserMessage(msgspec.json.decode(row.body)["text"])
        body = msgspec.json.decode(row.body, type=ResultBody)
        if row.role == "tool_result":
            wire_id, name = self._wire_ids[row.call_id or ""]
            return ToolResultMessage(wire_id, name, _text(body.content), body.is_error)
        return NoteMessage(_text(body.content))

    def _assistant(self, row: MessageRow, body: AssistantBody) -> AssistantMessage:
        step = row.step_id or ""
        sequence = int(step.rpartition("_")[2])
        calls: list[CallPart] = []
        for index, call in enumerate(body.calls):
            own = call_id(run_of_step(step), sequence, index)
            usable = _WIRE_ID.fullmatch(call.wire_id) is not None and call.wire_id not in self._used
            wire_id = call.wire_id if usable else own
            name = wire_name(call.name)
            self._used.add(wire_id)
            self._wire_ids[own] = (wire_id, name)
            calls.append(CallPart(wire_id, name, call.arguments))
        return AssistantMessage(body.text, tuple(calls))


def wire_name(name: str) -> str:
    """A tool's name as providers take it back: models invent names that no provider accepts in a history."""
    return _NOT_IN_A_NAME.sub("_", name)[:WIRE_NAME_CHARACTERS_MAX] or "_"


def _characters(message: WireMessage) -> int:
    match message:
        case AssistantMessage(text=text, calls=calls):
            characters = len(text)
            for call in calls:
                characters += len(call.name) + len(call.arguments)
            return characters
        case ToolResultMessage(content=content):
            return len(content)
        case UserMessage(text=text) | NoteMessage(text=text):
            return len(text)


def _text(content: object) -> str:
    return content if isinstance(content, str) else msgspec.json.encode(content).decode()


def read_answer(answer: object, model: str) -> ModelResponse:
    """What a model object answered, in the port's own form. It is paid for: what is odd about it is mended.

    None is no text, no call, no usage; a call's arguments may be a mapping, or bytes; what cannot be counted is not.
    Raises TypeError, naming `model`, for an answer or a call of another kind.
    """
    if not isinstance(answer, ModelResponse):
        raise TypeError(f"the model {model!r} answered {type(answer).__name__}, not a ModelResponse")
    if _is_fit(answer):
        return answer
    return ModelResponse(
        text=_told(answer.text),
        calls=tuple(_read_call(part, model) for part in answer.calls or ()),
        usage=_read_usage(answer.usage),
        finish=_told(answer.finish) or "stop",
        model=_told(answer.model),
        reasoning=answer.reasoning if isinstance(answer.reasoning, str) else None,
    )


def _is_fit(answer: ModelResponse) -> bool:
    """Whether nothing is odd about it, as about nearly every answer. It asks for types: a subclass may do anything."""
    if type(answer) is not ModelResponse or type(answer.calls) is not tuple or type(answer.usage) is not Usage:
        return False
    texts = [answer.text, answer.finish, answer.model]
    if answer.reasoning is not None:
        texts.append(answer.reasoning)
    for part in answer.calls:
        if type(part) is not CallPart:
            return False
        texts += (part.wire_id, part.name, part.arguments)
    counts = [answer.usage.input_tokens, answer.usage.output_tokens]
    if answer.usage.cost_microdollars is not None:
        counts.append(answer.usage.cost_microdollars)
    if set(map(type, texts)) != {str} or set(map(type, counts)) != {int}:
        return False
    return answer.finish != "" and min(counts) >= 0 and max(counts) <= COUNT_MAX


def _read_call(part: object, model: str) -> CallPart:
    if not isinstance(part, CallPart):
        raise TypeError(f"the model {model!r} answered a {type(part).__name__} among the calls of a ModelResponse")
    given: object = part.arguments
    if isinstance(given, Mapping):
        given = json.dumps(given)
    return CallPart(_told(part.wire_id), _told(part.name), _told(given))


def _told(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _read_usage(usage: object) -> Usage:
    if not isinstance(usage, Usage):
        return Usage()
    cost: object = usage.cost_microdollars
    tokens = (_counted(usage.input_tokens), _counted(usage.output_tokens))
    return Usage(*tokens, cost_microdollars=None if cost is None else _counted(cost))


def _counted(value: object) -> int:
    if not isinstance(value, int | float) or value != value:
        return 0
    return int(min(max(value, 0), COUNT_MAX)) if value != math.inf else 0
