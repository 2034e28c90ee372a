"""Structured output: the built-in tool `final_result`, by which a model gives the value that the run ends with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from surefoot.agent.model import ToolSpec
from surefoot.agent.schema import Parameters, flat_schema, own_check, read_parameters
from surefoot.core.values import check_plain, parse_arguments
from surefoot.errors import InvalidInput
from surefoot.runtime.background import in_place

FINAL_RESULT = "final_result"
DESCRIPTION = "Give the final result and end the task. Call it once, when everything else is done."
REMINDER = f"A text does not end this task. Call the tool {FINAL_RESULT} with the result."
VALUE = "value"


class _PydanticModel(Protocol):
    """What is used of a pydantic model's class."""

    def model_json_schema(self) -> dict[str, object]: ...

    def model_validate(self, value: object) -> _PydanticValue: ...


class _PydanticValue(Protocol):
    def model_dump(self, *, mode: str) -> object: ...


class Output:
    """The type of a run's result: what the model is told of it, and the check of what the model gives.

    A dataclass, TypedDict, msgspec.Struct, Literal, Enum, union, list, number or text, or a pydantic model.

    Raises TypeError for a type that has no JSON schema.
    """

    def __init__(self, kind: object) -> None:
        schema, self._normal = _of_pydantic(kind) if hasattr(kind, "model_json_schema") else _of_type(kind)
        self._wrapped = "properties" not in schema
        if self._wrapped:
            # Providers take objects only.
            properties = {VALUE: schema}
            schema = {"type": "object", "properties": properties, "required": [VALUE], "additionalProperties": False}
        self.spec = ToolSpec(FINAL_RESULT, DESCRIPTION, schema)

    def check(self, raw: str) -> object:
        """The value JSON-ready, defaults filled in. Raises InvalidInput with a text that the model can use."""
        try:
            given = check_plain(parse_arguments(raw))
            if self._wrapped and (VALUE not in given or len(given) > 1):
                raise InvalidInput(f"it takes one argument, {VALUE!r}")
            return self._normal(given[VALUE] if self._wrapped else given)
        except InvalidInput as problem:
            raise InvalidInput(f"{FINAL_RESULT}: {problem}") from None


_Checked = tuple[dict[str, object], Callable[[object], object]]


def _of_type(kind: object) -> _Checked:
    parameters = _parameters(kind)
    properties = parameters.schema["properties"]
    assert isinstance(properties, dict)

    def normal(value: object) -> object:
        try:
            return parameters.normal({VALUE: value})[VALUE]
        except InvalidInput as problem:
            raise InvalidInput(str(problem).replace(f"argument {VALUE}.", "argument ", 1)) from None

    return properties[VALUE], normal


def _parameters(kind: object) -> Parameters:
    def final_result(value: object) -> None: ...

    final_result.__annotations__[VALUE] = kind
    return read_parameters(final_result)


def _of_pydantic(kind: object) -> _Checked:
    model: _PydanticModel = kind  # type: ignore[assignment]  # looked at by the caller

    def normal(value: object) -> object:
        try:
            return in_place(lambda: model.model_validate(value).model_dump(mode="json"))
        except ValueError as problem:  # pydantic's ValidationError is one
            raise InvalidInput(_told(problem)) from None
        except Exception as problem:
            raise InvalidInput(own_check(problem)) from None

    return flat_schema(model.model_json_schema(), FINAL_RESULT), normal


def _told(problem: ValueError) -> str:
    """The first fault with its place. Not pydantic's own text, which has several lines and a link."""
    if not hasattr(problem, "errors"):
        return str(problem)
    first = problem.errors()[0]
    place = first.get("loc")
    where = ".".join(str(part) for part in place) if isinstance(place, tuple) else ""
    return f"argument {where}: {first.get('msg')}. Call it again with arguments that fit its schema"
