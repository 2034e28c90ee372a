"""A model that says what a script tells it to, and refuses the histories that real providers refuse."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from surefoot.agent.model import (
    AssistantMessage,
    CallPart,
    ModelRefused,
    ModelRequest,
    ModelResponse,
    NoteMessage,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from surefoot.testing.histories import validate_history

CHARACTERS_PER_TOKEN = 4

S = TypeVar("S")

Arguments = Mapping[str, object] | str
"""As a mapping, or as the raw text that the model wrote, however broken."""

ScriptedCall = tuple[str, Arguments] | tuple[str, Arguments, str]
"""A tool's name, its arguments, and the provider's id: made from the position if left out, omitted if ""."""

Answer = str | Sequence[ScriptedCall] | ModelResponse
Step = Answer | Exception | Callable[[ModelRequest], Answer | Awaitable[Answer]]
"""One step of a script: a text, calls, a whole response, an exception to raise, or a function of the request."""


class FakeModel:
    """The model port with a script in place of a model: `FakeModel(["done"])`.

    By "history" the answer depends only on how many answers the request's history already holds, so that a new process
    with the same script goes on where the old one was. Exceptions stand before the answer that they delay: each is
    raised once by this object, then the answer comes. By "call" the nth call gets the nth step, whatever it asks.

    Raises ModelRefused for a history that OpenAI or Anthropic would refuse, and where the script has no further step.
    `requests` keeps every request, refused ones too. While somebody reads along, texts come in pieces.
    """

    def __init__(
        self, script: Sequence[Step], *, by: Literal["history", "call"] = "history", name: str = "fake"
    ) -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self.piece = 5
        self._by = by
        self._script = tuple(script)
        self._raised: Counter[int] = Counter()

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The script's answer to `request`."""
        self.requests.append(request)
        refusal = validate_history(request.messages)
        if refusal is not None:
            raise ModelRefused(refusal, status=400)
        position = sum(isinstance(message, AssistantMessage) for message in request.messages)
        step = self._step(position)
        if isinstance(step, Exception):
            raise step
        if callable(step):
            made = step(request)
            step = await made if inspect.isawaitable(made) else made
        return response_of(step, position, request, self.name)

    async def stream(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelResponse:
        """The same, its text told in pieces of `piece` characters."""
        answer = await self.complete(request)
        for place in range(0, len(answer.text), self.piece):
            emit(answer.text[place : place + self.piece])
            await asyncio.sleep(0)
        return answer

    def _step(self, position: int) -> Step:
        if self._by == "call":
            return self._at(self._script, len(self.requests) - 1)
        faults, answer = grouped(self._script, lambda step: isinstance(step, Exception), position)
        if self._raised[position] < len(faults):
            self._raised[position] += 1
            return faults[self._raised[position] - 1]
        return self._at(answer, 0)

    def _at(self, steps: Sequence[Step], index: int) -> Step:
        if index >= len(steps):
            raise ModelRefused(f"the script of {len(self._script)} steps has no step for this request", status=400)
        return steps[index]


def grouped(steps: Sequence[S], is_fault: Callable[[S], bool], position: int) -> tuple[list[S], list[S]]:
    """The faults that stand before the answer at `position`, and that answer (none if the script is over)."""
    answers = 0
    faults: list[S] = []
    for step in steps:
        if is_fault(step):
            faults.append(step)
        elif answers == position:
            return faults, [step]
        else:
            answers += 1
            faults = []
    return (faults if answers == position else []), []


def response_of(answer: Answer, position: int, request: ModelRequest, name: str) -> ModelResponse:
    """A scripted answer as a response; usage is counted by length."""
    if isinstance(answer, ModelResponse):
        return answer
    text = answer if isinstance(answer, str) else ""
    scripted = () if isinstance(answer, str) else answer
    calls = tuple(call_of(call, position, index) for index, call in enumerate(scripted))
    written = len(text) + sum(len(call.arguments) for call in calls)
    usage = Usage(_characters(request) // CHARACTERS_PER_TOKEN + 1, written // CHARACTERS_PER_TOKEN + 1)
    return ModelResponse(text, calls, usage, "tool_calls" if calls else "stop", name)


def call_of(scripted: ScriptedCall, position: int, index: int) -> CallPart:
    """A scripted call with its id and its arguments as text."""
    name, arguments = scripted[0], scripted[1]
    wire_id = scripted[2] if len(scripted) == 3 else f"call_{position + 1}_{index + 1}"
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return CallPart(wire_id, name, text)


def _characters(request: ModelRequest) -> int:
    total = len(request.instructions)
    for message in request.messages:
        match message:
            case UserMessage(text=text) | NoteMessage(text=text) | ToolResultMessage(content=text):
                total += len(text)
            case AssistantMessage(text=text, calls=calls):
                total += len(text) + sum(len(call.arguments) for call in calls)
    return total
