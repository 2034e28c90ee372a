from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, Optional, TypedDict

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from surefoot import effects
from surefoot.agent.schema import Parameters, read_parameters, split_docstring
from surefoot.agent.tools import Tool, tool
from surefoot.core.values import canonical
from surefoot.effects import Operation
from surefoot.errors import InvalidInput

if TYPE_CHECKING:
    from surefoot.effects import Receipt as OnlyForTypes


class Priority(enum.Enum):
    LOW = "low"
    HIGH = "high"


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


class Address(TypedDict):
    city: str


class Customer(msgspec.Struct):
    id: int
    address: Address


class Tree(msgspec.Struct):
    children: list[Tree]


@tool(effect=effects.read)
def everything(
    op: Operation,
    customer: Customer,
    lines: list[Line],
    kind: Literal["a", "b"],
    at: datetime.datetime,
    amount: decimal.Decimal,
    ratio: float,
    tags: set[str],
    note: str | None = None,
    priority: Priority = Priority.LOW,
    labels: list[str] = [],  # noqa: B006  # what users write
    extra: object = None,
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="how many")] = 10,
) -> OnlyForTypes:
    """Do everything.

    Second paragraph.

    Args:
        customer: who it is for,
            over two lines
        kind (str): what kind
        limit: not taken, the annotation says it

    Returns:
        A receipt.
    """
    raise NotImplementedError


GIVEN = {
    "customer": {"id": 2512292042121000001, "address": {"city": "Ulm"}},
    "lines": [{"sku": "x"}, {"sku": "y", "count": 2}],
    "kind": "a",
    "at": "2027-01-01T00:00:00+09:00",
    "amount": "1.10",
    "ratio": 1,
    "tags": ["b", "a"],
}


def _refs(node: object) -> list[str]:
    if isinstance(node, dict):
        return [key for key in node if key in ("$ref", "$defs")] + [
            ref for item in node.values() for ref in _refs(item)
        ]
    return [ref for item in node for ref in _refs(item)] if isinstance(node, list) else []


def _properties(tool: Tool) -> dict[str, dict[str, object]]:
    found = tool.parameters_schema["properties"]
    assert isinstance(found, dict)
    return found


def test_the_schema_comes_from_the_signature() -> None:
    schema = everything.parameters_schema
    properties = _properties(everything)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["customer", "lines", "kind", "at", "amount", "ratio", "tags"]
    assert "op" not in properties
    assert _refs(schema) == []
    assert properties["kind"] == {"enum": ["a", "b"], "description": "what kind"}
    assert properties["customer"]["description"] == "who it is for, over two lines"
    assert properties["customer"]["additionalProperties"] is False
    assert properties["limit"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 100,
        "description": "how many",
        "default": 10,
    }
    assert properties["priority"]["default"] == "low"
    assert properties["labels"]["default"] == []
    assert properties["note"]["default"] is None
    assert everything.description == "Do everything.\n\nSecond paragraph.\n\nReturns:\n    A receipt."
    json.dumps(schema)


def test_checked_arguments_are_json_ready_with_defaults_and_stable() -> None:
    checked = everything.check_arguments(GIVEN)
    assert checked["lines"] == [{"sku": "x", "count": 1}, {"sku": "y", "count": 2}]
    assert checked["tags"] == ["a", "b"]
    assert checked["priority"] == "low"
    assert checked["limit"] == 10
    assert canonical(everything.check_arguments(json.dumps(GIVEN))) == canonical(checked)
    assert everything.check_arguments(checked) == checked
    assert list(checked) == list(everything.parameters.names)


def test_bound_values_are_what_the_function_declares() -> None:
    bound = everything.bind(everything.check_arguments(GIVEN))
    assert bound["lines"] == [Line("x"), Line("y", 2)]
    assert bound["customer"] == Customer(2512292042121000001, {"city": "Ulm"})
    assert bound["priority"] is Priority.LOW
    assert bound["amount"] == decimal.Decimal("1.10")
    assert bound["tags"] == {"a", "b"}


def test_defaults_are_not_shared_between_calls() -> None:
    first = everything.bind(everything.check_arguments(GIVEN))["labels"]
    assert isinstance(first, list)
    first.append("x")
    assert everything.bind(everything.check_arguments(GIVEN))["labels"] == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"customer": {"id": "7", "address": {"city": "x"}}}, "argument customer.id: Expected `int`, got `str`"),
        ({"customer": {"id": 7, "address": {"city": "x", "zip": 1}}}, "argument customer.address has no field 'zip'"),
        ({"lines": [{"sku": "x", "colour": "red"}]}, r"argument lines\[0\] has no field 'colour'"),
        ({"kind": "c"}, "argument kind"),
        ({"limit": 0}, "argument limit: Expected `int` >= 1"),
        ({"limit": 2512292042121000001.0}, "argument limit: Expected `int`, got `float`"),
        ({"ratio": 2512292042121000001}, "argument ratio: the integer 2512292042121000001 would be rounded"),
        ({"ratio": True}, "argument ratio"),
        ({"at": "yesterday"}, "argument at"),
        ({"priority": "urgent"}, "argument priority"),
        ({"surprise": 1}, "no parameter 'surprise'; the tool takes customer, lines"),
        ({"note": "a\x00"}, "holds the character NUL"),
        ({"note": "\ud800"}, "lone surrogate"),
        ({"extra": float("nan")}, "not a finite number"),
    ],
)
def test_c049_arguments_that_do_not_fit_are_refused_and_never_changed(change: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidInput, match=f"^everything: .*{says}"):
        everything.check_arguments({**GIVEN, **change})


def test_c049_an_integer_above_2_to_the_53_keeps_its_digits_from_text_to_call() -> None:
    seen: list[int] = []

    @tool(effect=effects.opaque)
    def delete(id: int) -> None:
        seen.append(id)

    checked = delete.check_arguments('{"id": 2512292042121000001}')
    assert canonical(checked) == b'{"id":2512292042121000001}'
    delete.make_call(None, checked)()  # type: ignore[arg-type]  # this tool takes no operation
    assert seen == [2512292042121000001]


@pytest.mark.parametrize("raw", ["", " ", "null", "{}", None, {}])
def test_c050_a_tool_without_parameters_takes_nothing_in_any_spelling(raw: str | None) -> None:
    @tool(effect=effects.read)
    def ping() -> str:
        """Answer."""
        return "pong"

    assert ping.check_arguments(raw) == {}
    assert ping.parameters_schema == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert ping.make_call(None, {})() == "pong"  # type: ignore[arg-type]  # this tool takes no operation


@pytest.mark.parametrize("raw", ["[]", '"x"', "[1]", "7"])
def test_c050_arguments_that_are_no_object_are_told_to_the_model(raw: str) -> None:
    with pytest.raises(InvalidInput, match=r"^everything: the arguments must be a JSON object"):
        everything.check_arguments(raw)


def test_c046_a_refused_argument_names_its_place() -> None:
    with pytest.raises(InvalidInput) as refused:
        everything.check_arguments({**GIVEN, "labels": ["ok", "a\x00"]})
    assert refused.value.details == {"path": "$.labels[1]"}
    assert "\x00" not in str(refused.value)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: tool(effect=effects.read)(_untyped), "parameter 'x' has no type"),
        (lambda: tool(effect=effects.read)(_many), "any number of arguments"),
        (lambda: tool(effect=effects.read)(_named), "any number of arguments"),
        (lambda: tool(effect=effects.read)(_positional), "positional-only"),
        (lambda: tool(effect=effects.read)(_recursive), "Tree contains itself"),
        (lambda: tool(effect=effects.read)(_no_json), "cannot be described as JSON"),
        (lambda: tool(effect=effects.read)(_bad_default), "the default of parameter 'x' does not fit its type"),
        (lambda: tool(effect=effects.read)(_unknown_name), "the type of parameter 'x' cannot be read"),
    ],
)
def test_what_cannot_become_a_schema_is_refused_at_definition(make: Callable[[], object], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        make()


def _untyped(op, x): ...  # type: ignore[no-untyped-def]  # the point of the test
def _many(*args: str) -> None: ...
def _named(**kwargs: str) -> None: ...
def _positional(x: str, /) -> None: ...
def _recursive(x: Tree) -> None: ...
def _no_json(x: Callable[[], None]) -> None: ...
def _bad_default(x: str = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013  # the point of the test
def _unknown_name(x: OnlyForTypes) -> None: ...


def _kept(
    text: str,
    number: int,
    flag: bool,
    choice: Literal["a", "b", 1],
    several: list[str],
    short: Annotated[str, msgspec.Meta(max_length=3)] = "x",
    maybe: Optional[int] = None,  # noqa: UP045 - another spelling of a union
    either: int | str | None = 2,
    inner: list[list[bool] | None] = [],  # noqa: B006 - a default is copied for each call
) -> None: ...


_PLACES = ("text", "number", "flag", "choice", "several", "short", "maybe", "either", "inner", "unknown")
_ITEMS = st.sampled_from(
    [None, True, False, 0, 1, 2**70, 1.0, 1.5, "", "a", "b", "long text", [], ["a"], [1], [[True]]]
)
_NORMAL = {"text": "t", "number": 1, "flag": True, "choice": "a", "several": ["s"]}


def _normal(parameters: Parameters, arguments: dict[str, object]) -> tuple[object, str]:
    try:
        # As text: 1, 1.0 and True differ, and so does the order of names.
        return repr(parameters.normal(arguments)), ""
    except InvalidInput as refusal:
        return None, str(refusal)


@settings(max_examples=1_000, deadline=None)
@given(st.dictionaries(st.sampled_from(_PLACES), _ITEMS, max_size=4), st.booleans())
def test_types_that_leave_values_as_they_are_come_to_what_others_come_to(given: dict[str, object], only: bool) -> None:
    parameters = read_parameters(_kept)
    assert parameters.kept
    arguments = given if only else {**_NORMAL, **given}
    assert _normal(parameters, arguments) == _normal(msgspec.structs.replace(parameters, kept=False), arguments)


@pytest.mark.parametrize("kind", [float, int | float, list[float], dict[str, str], tuple[str, str], set[str], object])
def test_types_that_may_change_a_value_are_compared(kind: object) -> None:
    def takes(value: object) -> None: ...

    takes.__annotations__["value"] = kind
    assert not read_parameters(takes).kept
    assert not everything.parameters.kept


def test_types_that_are_local_to_the_caller_are_found() -> None:
    class Local(msgspec.Struct):
        x: int

    @tool(effect=effects.read)
    def use(local: Local) -> None: ...

    assert use.bind({"local": {"x": 1}}) == {"local": Local(1)}


def test_a_docstring_without_arguments_is_the_description() -> None:
    assert split_docstring("One line.") == ("One line.", {})
    assert split_docstring("") == ("", {})
    assert split_docstring("A.\n\nArgs:\n  x: first\n  y (int): second\n    more\n\nRaises:\n  Z: never") == (
        "A.\n\nRaises:\n  Z: never",
        {"x": "first", "y": "second more"},
    )
