"""An agent: a model, instructions and tools under a name. It holds no state; runs do."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence

from surefoot.agent.as_tool import child_tool
from surefoot.agent.declaring import plain_text, words
from surefoot.agent.model import Model, ToolSpec, model_fault
from surefoot.agent.output import FINAL_RESULT, Output
from surefoot.agent.tools import Tool
from surefoot.core import policy
from surefoot.core.state import Limits
from surefoot.core.values import canonical, digest
from surefoot.runtime.given import called

TURNS_MAX = 100
HISTORY_TOKENS_MIN = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


class Agent:
    """An agent that runs under its name.

    `model` is a pydantic-ai model name such as "openai:gpt-5", or an object with `name` and `complete(request)`.
    With a list of models, attempt n of a model call goes to the nth of them, round and round. `version` changes when
    runs under way should not go on with the new code.

    Budgets of a run, checked before each model call (None: no bound): `turns` are its model calls, `seconds` its whole
    time, waiting for people included, `tokens` those sent and got, `dollars` their cost where prices are known.

    An agent among the `tools` works on each call in a run of its own (`as_tool`).

    `output` is the type of the run's result: the model has to give it by the built-in tool `final_result`. Without it
    the result is {"text": …}. `history_tokens`: a longer history is summarised, by a model call of its own.
    `model_timeout`: seconds after which one attempt of a model call is given up and the next begins.

    Raises ValueError for a name that is not one, two tools of one name, or a budget that bounds nothing; TypeError for
    a model or a tool that is none, and for an output without a schema.
    """

    def __init__(
        self,
        name: str,
        model: str | Model | Sequence[str | Model],
        instructions: str = "",
        tools: Sequence[Tool | Agent] = (),
        *,
        version: str = "1",
        turns: int = TURNS_MAX,
        seconds: float | None = None,
        tokens: int | None = None,
        dollars: float | None = None,
        output: object = None,
        history_tokens: int | None = None,
        model_timeout: float = policy.MODEL_TIMEOUT_SECONDS,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not an agent's name: letters, digits, '_', '.' and '-', at most 64, no digit first"
            )
        where = f"agent {name!r}"
        _check_whole(where, "turns", turns, 1, or_none=False)
        _check_whole(where, "tokens", tokens, 1)
        _check_whole(where, "history_tokens", history_tokens, HISTORY_TOKENS_MIN)
        _check_positive(where, "seconds", seconds)
        _check_positive(where, "dollars", dollars)
        if not policy.is_seconds(model_timeout):
            raise ValueError(f"{where}: model_timeout is a positive number of seconds, not {model_timeout!r}")
        for one in tools:
            if not isinstance(one, Tool | Agent):
                raise TypeError(f"{where}: {called(one)} is no tool; write @tool(effect=…) above the function")
        self.name = plain_text(where, "name", name, 'a text such as "reviewer"')
        self.model = model
        self.instructions = words(where, "instructions", instructions)
        given = [one.as_tool() if isinstance(one, Agent) else one for one in tools]
        self.tools: dict[str, Tool] = {tool.name: tool for tool in given}
        if len(self.tools) != len(tools):
            raise ValueError(f"agent {name!r} has two tools of one name; give one of them another with using(name=…)")
        self.version = plain_text(where, "version", version, 'a text such as "1"')
        # Plain numbers: what is written down of another kind (a bool, a float of numpy) could not be read again.
        self.limits = Limits(
            turns_max=int(turns),
            seconds_max=None if seconds is None else float(seconds),
            tokens_max=None if tokens is None else int(tokens),
            cost_microdollars_max=None if dollars is None else round(dollars * 1_000_000),
        )
        self.output = None if output is None else Output(output)
        self.history_tokens = history_tokens
        self.model_timeout = float(model_timeout)
        self.settings = dict(settings or {})
        self._hashed: tuple[tuple[str, ...], str] | None = None
        self.specs = tuple(ToolSpec(t.name, t.description, t.parameters_schema) for t in given)
        if self.output is not None:
            if FINAL_RESULT in self.tools:
                raise ValueError(f"agent {name!r} has an output: give its tool {FINAL_RESULT!r} another name")
            self.specs += (self.output.spec,)

    @property
    def model(self) -> str | Model | Sequence[str | Model]:
        """What was given; may be set, as tests do with a scripted model.

        Raises ValueError for an empty list, and TypeError for what is neither a name nor a model.
        """
        return self._model

    @model.setter
    def model(self, model: str | Model | Sequence[str | Model]) -> None:
        """Set what calls of the model go to from now on; see the getter for what is raised."""
        models = _models(model)
        if not models:
            raise ValueError("an agent has at least one model")
        for one in models:
            fault = model_fault(one)
            if fault is not None:
                raise TypeError(f"agent {self.name!r}: {fault}")
        self._model = model
        self.models: tuple[str | Model, ...] = models

    @property
    def input_hash(self) -> str:
        """What a model call depends on besides the conversation."""
        names = ", ".join([str(getattr(one, "name", one)) for one in self.models])
        parts = (self.name, self.version, names, self.instructions)
        if self._hashed is None or self._hashed[0] != parts:
            # Asked for with each model call, of instructions that may be long.
            self._hashed = (parts, digest(canonical(parts)))
        return self._hashed[1]

    def as_tool(self, name: str | None = None, description: str | None = None) -> Tool:
        """This agent as a tool of another: each call is a run of its own, whose result is the call's.

        `name` is the agent's by default, `description` what the calling model reads. The run has its own conversation
        and budgets. Raises ValueError for a name that is not a tool's.
        """
        return child_tool(self, name, description)

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, tools={sorted(self.tools)})"


def _models(given: str | Model | Sequence[str | Model]) -> tuple[str | Model, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        return (given,)
    return tuple(given)


def _check_whole(where: str, name: str, value: object, least: int, *, or_none: bool = True) -> None:
    """Raises ValueError, also for what compares like a number and is none that could bound anything."""
    if value is None and or_none:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{where}: {name} is a whole number, at least {least}, not {value!r}")


def _check_positive(where: str, name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise ValueError(f"{where}: {name} is a positive number, or left out for no bound, not {value!r}")
