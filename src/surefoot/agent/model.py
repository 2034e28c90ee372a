"""The model port: what the loop asks of a model and what it gets back, in words that belong to no provider.

A model call changes nothing outside, so it may be repeated. A port never retries by itself: it raises one of three
errors, and the runtime decides.

    ModelError
    +-- ModelRetryable      429, 5xx, time-outs: the same request may work later
    +-- ModelNeedsPerson    401, 403, quota, unknown model: works once a person has mended something
    +-- ModelRefused        400: this request will never work
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

CHARACTERS_PER_TOKEN = 4
"""By which the size of a text is estimated that no provider has counted."""
FILTERED = "content_filter"
"""How an answer ends that a filter of the provider has stopped, or in which the model refused to answer."""


class CallPart(msgspec.Struct, frozen=True):
    """A tool call as the model wrote it. `arguments` is its own text, parsed by nobody yet.

    `wire_id` is the provider's id; in a response it may be empty, since some providers omit ids, or repeat them.
    """

    wire_id: str
    name: str
    arguments: str


class UserMessage(msgspec.Struct, frozen=True, tag="user", tag_field="role"):
    """What a person said."""

    text: str


class AssistantMessage(msgspec.Struct, frozen=True, tag="assistant", tag_field="role"):
    """What the model said and the calls that it proposed, in its order."""

    text: str
    calls: tuple[CallPart, ...] = ()
    reasoning: str | None = None
    """What the response gave as its `reasoning`, for the newest answer alone, while its calls have no next answer."""


class ToolResultMessage(msgspec.Struct, frozen=True, tag="tool", tag_field="role"):
    """The one result of one call."""

    wire_id: str
    name: str
    content: str
    is_error: bool = False


class NoteMessage(msgspec.Struct, frozen=True, tag="note", tag_field="role"):
    """Something the runtime tells the model, such as a receipt that came late. Providers see it as a user's text."""

    text: str


WireMessage = UserMessage | AssistantMessage | ToolResultMessage | NoteMessage


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model sees it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, object]


class ModelRequest(msgspec.Struct, frozen=True):
    """Everything a model call depends on. `settings` are the provider-neutral ones, such as `max_tokens`."""

    instructions: str
    messages: tuple[WireMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    settings: Mapping[str, object] = {}


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens, as the provider counted them, and what they cost in millionths of a dollar (None: no price is known)."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_microdollars: int | None = None


class ModelResponse(msgspec.Struct, frozen=True):
    """One answer. `finish` is why it ended: stop, tool_calls, length or content_filter; `model` is who gave it."""

    text: str
    calls: tuple[CallPart, ...] = ()
    usage: Usage = Usage()
    finish: str = "stop"
    model: str = ""
    reasoning: str | None = None
    """Signed reasoning that the provider wants back unchanged with the results of these calls: the port's own text."""


class ModelError(Exception):
    """Base of what a model call may end in. `status` is the HTTP status, if there was one."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ModelRetryable(ModelError):
    """The same request may work later: 429, 5xx, a time-out, a broken connection. `retry_after` is in seconds."""

    def __init__(self, message: str, *, retry_after: float | None = None, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after


class ModelNeedsPerson(ModelError):
    """It works once a person has mended something: a missing or wrong key, no quota, an unknown model."""


class ModelRefused(ModelError):
    """The provider will never take this request, such as one with a broken history."""


class Model(Protocol):
    """The port. Implementations keep no state of a conversation between calls.

    A model may also have `async def stream(request, emit) -> ModelResponse`, which calls `emit(text)` with each piece
    of its text as it comes and otherwise does what `complete` does. It is used while somebody reads along.
    """

    @property
    def name(self) -> str:
        """How the model is called in steps and events."""
        ...

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """One answer to `request`; exactly one request to the provider.

        Raises ModelRetryable, ModelNeedsPerson or ModelRefused. A cancelled call raises CancelledError.
        """
        ...


def model_fault(one: object) -> str | None:
    """Why this is nothing that could be called as a model, or None: found out before a run waits for it."""
    if isinstance(one, str):
        provider, colon, model = one.partition(":")
        if provider.strip() and colon and model.strip():
            return None
        return f"{one!r} is no model name; write provider and model with a colon, such as 'openai:gpt-5'"
    if isinstance(getattr(one, "name", None), str) and callable(getattr(one, "complete", None)):
        return None
    what = "None" if one is None else type(one).__name__
    return f"a model is a name such as 'openai:gpt-5', or an object with `name` and `complete(request)`, not {what}"
