"""Real models behind the port. A name such as "openai:gpt-5" becomes a model that calls its provider by pydantic-ai.

Resolving a name loads nothing: pydantic-ai and the provider's library (about two seconds) come in with the first call,
in a thread, so that leases are renewed meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from surefoot.agent.model import Model, ModelNeedsPerson, ModelRequest, ModelResponse, model_fault
from surefoot.effects import SecretSource
from surefoot.errors import InvalidInput
from surefoot.runtime.background import from_inside

if TYPE_CHECKING:
    from surefoot.agent.providers_pydantic import ProviderClient

INSTALL = "pip install 'surefoot[models]'"


def resolve_model(name_or_model: str | Model, secrets: SecretSource) -> Model:
    """The model to call: an object with `name` and `complete` as it is, a pydantic-ai name as a PydanticAIModel.

    Neither the library nor the key is looked at before the first call. Raises InvalidInput for anything else.
    """
    fault = model_fault(name_or_model)
    if fault is not None:
        raise InvalidInput(fault)
    return PydanticAIModel(name_or_model, secrets) if isinstance(name_or_model, str) else name_or_model


async def close_models(models: dict[str, tuple[Model, ...]], log: Callable[[str], None]) -> None:
    """Close those that can be closed, and forget them all. A model that cannot keeps nothing else open."""
    for model in itertools.chain(*models.values()):
        if (closing := getattr(model, "aclose", None)) is not None:
            try:
                await from_inside(closing)
            except Exception as problem:
                log(f"closing the model {model.name} failed ({type(problem).__name__})")
    models.clear()


class PydanticAIModel:
    """A provider's model by its pydantic-ai name; one client for each event loop, closed by `aclose()`.

    One request to the provider for each `complete`: the client's own retries are off, see `ProviderClient`. Keys are
    read through `secrets`, which makes redaction know them, and read again with every call.
    """

    def __init__(self, name: str, secrets: SecretSource) -> None:
        self.name = name
        self._secrets = secrets
        self._clients: dict[asyncio.AbstractEventLoop, ProviderClient] = {}

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """One answer to `request`. Raises ModelRetryable, ModelNeedsPerson or ModelRefused."""
        return await (await self._client()).ask(request)

    async def stream(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelResponse:
        """The same, with `emit` called for each piece of its text as it comes."""
        return await (await self._client()).ask(request, emit)

    async def aclose(self) -> None:
        """Close the connections of the running event loop. Those of another loop only that loop can close."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def _client(self) -> ProviderClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            make = await asyncio.to_thread(_load, self.name)
            for over in [known for known in self._clients if known.is_closed()]:
                del self._clients[over]
            if loop not in self._clients:  # Another call may have come first while this one waited.
                self._clients[loop] = make(self.name, self._secrets)
        return self._clients[loop]


def _load(name: str) -> type[ProviderClient]:
    try:
        # Lazy, since pydantic-ai is slow to load and optional.
        from surefoot.agent import providers_pydantic
    except ImportError as error:
        raise ModelNeedsPerson(
            f"{name}: calling a model by its name needs pydantic-ai, which cannot be loaded ({error.name}): {INSTALL}"
        ) from None
    providers_pydantic.load_provider(name)
    return providers_pydantic.ProviderClient
