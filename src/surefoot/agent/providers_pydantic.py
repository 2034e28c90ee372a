"""The model port spoken through pydantic-ai. Loaded by providers.py with the first call, never before."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from pydantic_ai import exceptions as failures, messages as wire
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.models import Model as LibraryModel, ModelRequestParameters, infer_model
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from surefoot.agent.model import (
    AssistantMessage,
    CallPart,
    ModelNeedsPerson,
    ModelRefused,
    ModelRequest,
    ModelResponse,
    ModelRetryable,
    NoteMessage,
    ToolResultMessage,
    ToolSpec,
    Usage,
    UserMessage,
    WireMessage,
)
from surefoot.agent.providers_errors import shortened, sort_error
from surefoot.agent.providers_reasoning import kept_of, restored
from surefoot.core.values import canonical, parse_arguments
from surefoot.effects import SecretSource
from surefoot.errors import InvalidInput

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion
    from pydantic_ai.models.openai import OpenAIChatModel

BLANK = "(empty message)"
"""Stands for a blank text of a user: some providers refuse every history that holds one."""
NOT_FINISHED = "the provider did not finish its answer"
MADE_ID = "pyd_ai_"
"""How ids begin that pydantic-ai makes up where a provider omits them."""

_KEYS: Mapping[str, str] = {
    "azure": "AZURE_OPENAI_API_KEY",
    "azure-responses": "AZURE_OPENAI_API_KEY",
    "bedrock": "AWS_BEARER_TOKEN_BEDROCK",
    "cohere": "CO_API_KEY",
    "heroku": "HEROKU_INFERENCE_KEY",
    "huggingface": "HF_TOKEN",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "snowflake": "SNOWFLAKE_TOKEN",
    "vercel": "VERCEL_AI_GATEWAY_API_KEY",
}
"""Where a provider's key has another name than PROVIDER_API_KEY."""
_OPENAI = ("openai", "openai-chat", "openai-responses")

_STREAMED = ("anthropic", "gateway/anthropic")
"""Providers whose answers the library streams also where nobody asks for it; each of them says why it ends."""

Emit = Callable[[str], None]


class _Closable(Protocol):
    """What the clients of OpenAI and Anthropic have in common."""

    api_key: str | None

    async def close(self) -> None: ...


def load_provider(name: str) -> None:
    """Load a provider's library ahead of its client, for use in a thread. What fails here is told by the client."""
    provider = name.partition(":")[0]
    family = "openai" if provider in _OPENAI else provider
    with contextlib.suppress(Exception):
        infer_provider_class(provider)
        importlib.import_module(f"pydantic_ai.models.{family}")
        importlib.import_module("genai_prices")


class ProviderClient:
    """One provider's client, on the event loop that made it.

    A call is one request. OpenAI's and Anthropic's clients are made with max_retries=0. Every other provider gets the
    library's setting `max_retries` 0, which Google, Groq, Mistral, Cohere and the OpenAI-compatible ones follow.
    Bedrock, Hugging Face and xAI have no such setting: their clients may repeat a request that failed.

    Raises ModelNeedsPerson where the client cannot be made: no key, unknown provider, a package that is missing.
    """

    def __init__(self, name: str, secrets: SecretSource) -> None:
        self._name = name
        self._secrets = secrets
        self._own: _Closable | None = None
        self._says_ends = True
        """Its answers say why they end, as far as is known; some imitations never do."""
        self._stopped = False
        """The newest stream stopped without saying why."""
        self._streams_all = name.partition(":")[0] in _STREAMED
        with _needs_person(name):
            self._model = _lenient(infer_model(name, self._provider))

    async def ask(self, request: ModelRequest, emit: Emit | None = None) -> ModelResponse:
        """One request and its answer in the words of the port; with `emit` it is streamed, its text told on the way."""
        provider = self._name.partition(":")[0]
        key = self._secrets.get(key_name(provider))
        if self._own is not None and key is not None:
            self._own.api_key = key  # A person may have mended it since.
        try:
            if emit is None or self._stopped:
                streamed, answer = False, await self._whole(request)
            else:
                streamed, answer = True, await self._streamed(request, emit)
        except Exception as error:
            # Not chained: the library's exceptions hold bodies, headers and what was asked.
            raise sort_error(error, self._name, key_name(provider), key) from None
        self._check_end(answer, streamed=streamed)
        return from_library(answer, self._name)

    def _check_end(self, answer: wire.ModelResponse, *, streamed: bool) -> None:
        """Raises ModelRetryable for a stream that merely stopped: the library takes half a text, or a call without its
        arguments, for a whole answer. The next answer is asked for whole: it shows whether this provider says ends.
        """
        told = answer.finish_reason not in (None, "stop") or "finish_reason" in (answer.provider_details or {})
        if not streamed and self._stopped:
            self._stopped, self._says_ends = False, told
        if not told and (self._streams_all or (streamed and self._says_ends)):
            self._stopped = not self._streams_all
            raise ModelRetryable(f"{self._name}: {NOT_FINISHED}")

    async def _whole(self, request: ModelRequest) -> wire.ModelResponse:
        return await model_request(
            self._model,
            to_library(request, self._name),
            model_settings=self._settings(request.settings),
            model_request_parameters=_parameters(request),
            instrument=False,  # Traces of the library would hold the conversation, past redaction.
        )

    async def _streamed(self, request: ModelRequest, emit: Emit) -> wire.ModelResponse:
        async with model_request_stream(
            self._model,
            to_library(request, self._name),
            model_settings=self._settings(request.settings),
            model_request_parameters=_parameters(request),
            instrument=False,
        ) as stream:
            async for event in stream:
                match event:
                    case wire.PartStartEvent(part=wire.TextPart(content=text)) if text:
                        emit(text)
                    case wire.PartDeltaEvent(delta=wire.TextPartDelta(content_delta=text)) if text:
                        emit(text)
            return stream.get()

    async def close(self) -> None:
        """Close the connections."""
        if self._own is not None:
            await self._own.close()
        async with self._model:  # Leaving it closes a client that the library made.
            pass

    def _settings(self, settings: Mapping[str, object]) -> ModelSettings:
        given = dict(settings)
        if "max_retries" not in type(self._model).unsupported_settings:
            given["max_retries"] = 0
        return cast(ModelSettings, given)

    def _provider(self, provider: str) -> Provider[object]:
        key = self._secrets.get(key_name(provider))
        if provider in _OPENAI:
            return self._openai(key)
        if provider == "anthropic":
            return self._anthropic(key)
        if key is None or provider.startswith("gateway/"):
            return infer_provider(provider)
        made = infer_provider_class(provider)
        if "api_key" not in inspect.signature(made).parameters:
            return infer_provider(provider)
        return cast("_TakesKey", made)(api_key=key)

    def _openai(self, key: str | None) -> Provider[object]:
        from openai import AsyncOpenAI
        from pydantic_ai.providers.openai import OpenAIProvider

        if key is None and os.environ.get("OPENAI_BASE_URL"):
            key = "not-needed"  # Servers of one's own often take none, but the client insists on one.
        client = AsyncOpenAI(api_key=_given(key, "OPENAI_API_KEY"), max_retries=0)
        self._own = cast(_Closable, client)
        return cast("Provider[object]", OpenAIProvider(openai_client=client))

    def _anthropic(self, key: str | None) -> Provider[object]:
        from anthropic import AsyncAnthropic
        from pydantic_ai.providers.anthropic import AnthropicProvider

        client = AsyncAnthropic(api_key=_given(key, "ANTHROPIC_API_KEY"), max_retries=0)
        self._own = cast(_Closable, client)
        return cast("Provider[object]", AnthropicProvider(anthropic_client=client))


class _TakesKey(Protocol):
    """A provider's class that takes its key."""

    def __call__(self, *, api_key: str) -> Provider[object]: ...


def key_name(provider: str) -> str:
    """The name of the secret that `provider` is called with."""
    if provider.startswith("gateway/"):
        return "PYDANTIC_AI_GATEWAY_API_KEY"
    return _KEYS.get(provider) or f"{provider.upper().replace('-', '_')}_API_KEY"


def _given(key: str | None, name: str) -> str:
    if not key:
        raise failures.UserError(f"the secret {name} is not set; set it and try again")
    return key


@contextlib.contextmanager
def _needs_person(name: str) -> Iterator[None]:
    provider = name.partition(":")[0]
    try:
        yield
    except ImportError as error:
        raise ModelNeedsPerson(
            f"{name}: the provider's library cannot be loaded ({error.name or 'unknown'}): "
            f"pip install 'surefoot[models]' 'pydantic-ai-slim[{provider}]'"
        ) from None
    except Exception as error:
        raise ModelNeedsPerson(f"{name}: the client cannot be made: {shortened(str(error), None)}") from None


def _lenient(model: LibraryModel) -> LibraryModel:
    """`model`, or for the many imitations of OpenAI's chat API one that takes calls without id or arguments."""
    with contextlib.suppress(ImportError):
        from pydantic_ai.models.openai import OpenAIChatModel

        if type(model) is OpenAIChatModel and model.provider is not None:
            return _lenient_chat()(model.model_name, provider=model.provider)
    return model


@functools.cache
def _lenient_chat() -> type[OpenAIChatModel]:
    from pydantic_ai.models.openai import OpenAIChatModel

    class LenientChatModel(OpenAIChatModel):
        # The hook that the library names for this. Without it such an answer is refused as a whole.
        def _validate_completion(self, response):  # type: ignore[no-untyped-def]  # the library's type is private
            _complete_calls(response)
            return super()._validate_completion(response)

    return LenientChatModel


def _complete_calls(response: ChatCompletion) -> None:
    """Fill in what calls lack: no id becomes "", no type "function", and arguments that are no text become one."""
    for choice in response.choices or ():
        for call in choice.message.tool_calls or ():
            call.id = getattr(call, "id", None) or ""
            call.type = getattr(call, "type", None) or "function"
            if call.type == "function":
                call.function.arguments = _argument_text(getattr(call.function, "arguments", None))


# ---- what is sent


def to_library(request: ModelRequest, name: str = "") -> list[wire.ModelMessage]:
    """The conversation as pydantic-ai has it: the results of a batch directly behind their calls and in their order."""
    out: list[wire.ModelMessage] = []
    asked: Sequence[CallPart] = ()
    heard: list[UserMessage | NoteMessage | ToolResultMessage] = []
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            out += _said_to_model(heard, asked, request.instructions)
            out.append(wire.ModelResponse(parts=_said_by_model(message, name)))
            asked, heard = message.calls, []
        else:
            heard.append(message)
    return out + _said_to_model(heard, asked, request.instructions)


def _said_to_model(
    heard: Sequence[WireMessage], asked: Sequence[CallPart], instructions: str
) -> list[wire.ModelMessage]:
    order = {call.wire_id: index for index, call in enumerate(asked)}
    results = [message for message in heard if isinstance(message, ToolResultMessage)]
    results.sort(key=lambda result: order.get(result.wire_id, len(order)))
    parts: list[wire.ModelRequestPart] = [
        wire.ToolReturnPart(
            result.name, result.content, result.wire_id, outcome="failed" if result.is_error else "success"
        )
        for result in results
    ]
    for message in heard:
        if isinstance(message, UserMessage | NoteMessage):
            parts.append(wire.UserPromptPart(message.text if message.text.strip() else BLANK))
    return [wire.ModelRequest(parts=parts, instructions=instructions or None)] if parts else []


def _said_by_model(message: AssistantMessage, name: str) -> list[wire.ModelResponsePart]:
    calls = [wire.ToolCallPart(call.name, _sendable(call.arguments), call.wire_id) for call in message.calls]
    as_given = restored(message, calls, name)
    if as_given is not None:
        return as_given
    said: list[wire.ModelResponsePart] = [wire.TextPart(message.text)] if message.text.strip() else []
    return said + calls


def _sendable(arguments: str) -> str | dict[str, object]:
    """The model's own text where it is an object; else wrapped, as the library does, lest the provider refuse all."""
    try:
        return arguments if parse_arguments(arguments) else {}
    except InvalidInput:
        return {wire.INVALID_JSON_KEY: arguments}


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    return ModelRequestParameters(function_tools=[_definition(tool) for tool in request.tools])


def _definition(tool: ToolSpec) -> ToolDefinition:
    # Strict schemas forbid defaults and optional fields, which Python signatures have.
    return ToolDefinition(
        name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters), strict=False
    )


# ---- what comes back


def from_library(answer: wire.ModelResponse, name: str) -> ModelResponse:
    """An answer in the words of the port. Of reasoning only what the provider wants back with the calls' results.

    Raises ModelRefused where the provider ran a tool of its own, ModelRetryable where it gave up on its answer.
    """
    calls: list[CallPart] = []
    for part in answer.parts:
        match part:
            case wire.TextPart() | wire.ThinkingPart():
                pass
            case wire.ToolCallPart():
                calls.append(_call(part))
            case wire.NativeToolCallPart() | wire.NativeToolReturnPart():
                raise ModelRefused(
                    f"{name}: the provider ran its tool {part.tool_name!r} inside the model call, outside of every "
                    "check; switch it off in the model's settings"
                )
            case _:
                raise ModelRefused(f"{name}: the answer holds a part of kind {part.part_kind!r}, which is not taken")
    if answer.state != "complete" or answer.finish_reason == "error":
        raise ModelRetryable(f"{name}: {NOT_FINISHED}")
    if answer.finish_reason == "tool_call" and not calls:
        # What it said instead is no answer either: imitations of a provider lose calls that they cannot read.
        raise ModelRetryable(f"{name}: the answer is said to call tools, and there is no call in it")
    usage = Usage(answer.usage.input_tokens, answer.usage.output_tokens, cost_of(answer))
    text = answer.text or str((answer.provider_details or {}).get("refusal") or "")
    model, reasoning = answer.model_name or name, kept_of(answer, name) if calls else None
    return ModelResponse(text, tuple(calls), usage, _finish(answer, bool(calls)), model, reasoning)


def cost_of(answer: wire.ModelResponse) -> int | None:
    """What an answer cost, in millionths of a dollar; None where no price is known for its model."""
    try:
        return math.ceil(answer.cost().total_price * 1_000_000)
    except Exception:
        # Whatever the table of prices stumbles over: the answer is there and paid for.
        return None


def _call(part: wire.ToolCallPart) -> CallPart:
    wire_id = part.tool_call_id or ""
    return CallPart("" if wire_id.startswith(MADE_ID) else wire_id, part.tool_name, _argument_text(part.args))


def _argument_text(arguments: object) -> str:
    """A text as it is; an object, which some providers send, as JSON with all digits of its integers."""
    if arguments is None:
        return ""
    if isinstance(arguments, str):
        return arguments
    try:
        return canonical(arguments).decode()
    except InvalidInput:
        return json.dumps(arguments)  # Refused where arguments are read, with the reason.


def _finish(answer: wire.ModelResponse, has_calls: bool) -> str:
    if answer.finish_reason in ("length", "content_filter"):
        return answer.finish_reason
    return "tool_calls" if has_calls else "stop"
