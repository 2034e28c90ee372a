"""From a JSON schema of an object to the parameters of a tool: types that check what the schema says.

Understood: type (also a list with "null"), properties, required, items, enum, const, the limits of numbers, texts and
lists, pattern, description, default. An object with properties is closed. Anything else that would have to be checked
($ref, oneOf, …) is refused when the tool is declared: write a function signature then.
"""

from __future__ import annotations

import functools
import inspect
import keyword
import operator
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, cast

import msgspec

DEPTH_MAX = 20
_KNOWN = {"type", "properties", "required", "items", "enum", "const", "additionalProperties", "default"}
_SAID_ONLY = {"title", "description", "examples", "format", "$schema", "$id", "$comment", "deprecated"}
_LIMITS = {
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
    "pattern": "pattern",
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}
_PLAIN: dict[str, object] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": type(None)}


def parameters_of(name: str, schema: Mapping[str, object]) -> tuple[list[inspect.Parameter], frozenset[str]]:
    """The parameters of a tool with this schema, and which of them may be left out of the body.

    Raises TypeError, naming tool and place, for a schema that is no object or cannot be checked.
    """
    if schema.get("type") != "object" or schema.get("additionalProperties", False) is not False:
        raise TypeError(f"{name}: the schema is of a closed object: type object, with properties")
    _check_keywords(schema, name)
    required = schema.get("required", [])
    properties = _object(schema.get("properties", {}), name)
    missing = sorted(set(cast(list[str], required)) - set(properties))
    if missing:
        raise TypeError(f"{name}: {missing[0]!r} is required and not among the properties")
    found, optional = [], set()
    for key, value in properties.items():
        node = _object(value, f"{name}.{key}")
        if not key.isidentifier() or keyword.iskeyword(key):
            raise TypeError(
                f"{name}: {key!r} cannot be the name of a parameter; write a function that returns the body"
            )
        kind = _type(node, f"{name}.{key}", 1)
        default: object = inspect.Parameter.empty
        if "default" in node:
            default = node["default"]
        elif key not in cast(list[str], required):
            optional.add(key)
            kind, default = _or_none(kind), None
        found.append(inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default))
    return found, frozenset(optional)


def _type(node: Mapping[str, object], place: str, depth: int) -> object:
    if depth > DEPTH_MAX:
        raise TypeError(f"{place}: the schema is deeper than {DEPTH_MAX}")
    _check_keywords(node, place)
    if "enum" in node or "const" in node:
        values = node["enum"] if "enum" in node else [node["const"]]
        if not isinstance(values, list) or not all(isinstance(one, str | int | None) for one in values):
            raise TypeError(f"{place}: enum and const are of texts, integers and null")
        kind: object = Literal[tuple(values)]
    else:
        kind = _union([_named(one, node, place, depth) for one in _types(node, place)])
    limits = {ours: node[theirs] for theirs, ours in _LIMITS.items() if theirs in node}
    text = node.get("description")
    if text is not None:
        limits["description"] = text
    meta = cast(Callable[..., object], msgspec.Meta)(**limits)
    return Annotated[kind, meta] if limits else kind


def _types(node: Mapping[str, object], place: str) -> list[str]:
    given = node.get("type", "any")
    names = [one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str)]
    if not names:
        raise TypeError(f"{place}: type is a name or a list of names")
    return names


def _named(kind: str, node: Mapping[str, object], place: str, depth: int) -> object:
    if kind == "any":
        return object
    if kind == "array":
        item = _type(_object(node.get("items", {}), place), f"{place}[]", depth + 1)
        return list[item]  # type: ignore[valid-type]  # a type that was made here
    if kind == "object":
        return _struct(node, place, depth)
    if kind not in _PLAIN:
        raise TypeError(f"{place}: there is no type {kind!r}")
    return _PLAIN[kind]


def _struct(node: Mapping[str, object], place: str, depth: int) -> object:
    properties = _object(node.get("properties", {}), place)
    if not properties:
        values = node.get("additionalProperties", True)
        inner = _type(values, f"{place}.*", depth + 1) if isinstance(values, dict) else object
        return dict[str, inner]  # type: ignore[valid-type]  # a type that was made here
    required = node.get("required", [])
    assert isinstance(required, list)
    fields: list[tuple[str, type, object]] = []
    names = {}
    for number, (key, value) in enumerate(properties.items()):
        kind = _type(_object(value, f"{place}.{key}"), f"{place}.{key}", depth + 1)
        names[f"field_{number}"] = key
        if key in required:
            fields.append((f"field_{number}", cast(type, kind), msgspec.NODEFAULT))
        else:
            fields.append((f"field_{number}", cast(type, _union([kind, msgspec.UnsetType])), msgspec.UNSET))
    return msgspec.defstruct("Fields", fields, kw_only=True, forbid_unknown_fields=True, rename=names)


def _check_keywords(node: Mapping[str, object], place: str) -> None:
    unknown = sorted(set(node) - _KNOWN - _SAID_ONLY - set(_LIMITS))
    if unknown:
        raise TypeError(f"{place}: {unknown[0]!r} cannot be checked here; write a function signature instead")


def _object(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{place}: a schema is an object")
    return value


def _or_none(kind: object) -> object:
    return _union([kind, type(None)])


def _union(kinds: list[object]) -> object:
    return functools.reduce(operator.or_, kinds)
