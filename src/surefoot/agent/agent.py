"""An agent: a model, instructions and tools under a name. It holds no state; runs do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from surefoot.agent.model import Model, ToolSpec
from surefoot.agent.tools import Tool
from surefoot.core.state import Limits
from surefoot.core.values import canonical, digest

TURNS_MAX = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


class Agent:
    """An agent that runs under its name.

    `model` is a pydantic-ai model name such as "openai:gpt-5", or an object with `name` and `complete(request)`.
    `version` changes when runs under way should not go on with the new code. `turns` bounds the model calls of a run,
    `seconds` its whole time (None: no bound), waiting for people included.

    Raises ValueError for a name that is not one, or two tools of one name.
    """

    def __init__(
        self,
        name: str,
        model: str | Model,
        instructions: str = "",
        tools: Sequence[Tool] = (),
        *,
        version: str = "1",
        turns: int = TURNS_MAX,
        seconds: float | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not an agent's name: letters, digits, '_', '.' and '-', at most 64, no digit first"
            )
        if turns < 1:
            raise ValueError("turns is at least 1")
        self.name = name
        self.model = model
        self.instructions = instructions
        self.tools = {tool.name: tool for tool in tools}
        if len(self.tools) != len(tools):
            raise ValueError(f"agent {name!r} has two tools of one name; give one of them another with using(name=…)")
        self.version = version
        self.limits = Limits(turns_max=turns, seconds_max=seconds)
        self.settings = dict(settings or {})
        self.specs = tuple(ToolSpec(t.name, t.description, t.parameters_schema) for t in tools)
        self.input_hash = digest(canonical([name, version, str(getattr(model, "name", model)), instructions]))

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, tools={sorted(self.tools)})"
