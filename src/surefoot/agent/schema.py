"""What a tool takes, read from its function: types, JSON schema, descriptions, and whether it wants an Operation.

The schema is what the model sees; the same types check its arguments, so that the two cannot disagree.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

import msgspec

from surefoot.effects import Operation
from surefoot.errors import InvalidInput
from surefoot.runtime.background import in_place

Function = Callable[..., object]

_NOTHING: Mapping[str, object] = MappingProxyType({})

OWN_CHECK_CHARACTERS_MAX = 200
"""Of what a check said."""


class Parameters(msgspec.Struct, frozen=True, eq=False):
    """The parameters of one function, without its Operation."""

    function_name: str
    takes_operation: bool
    names: tuple[str, ...]
    model: type[msgspec.Struct]
    schema: dict[str, object]
    """JSON schema of the arguments: an object, closed, without `$ref`."""
    description: str
    """The docstring without its `Args:` section, which went into the schema."""
    kept: bool = False
    """The types leave each JSON value that they take as it is."""

    def convert(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """JSON-ready arguments as the Python values that the function declares, defaults filled in.

        Raises InvalidInput with a text for the model that names the parameter.
        """
        try:
            return msgspec.structs.asdict(in_place(msgspec.convert, dict(arguments), self.model))
        except (msgspec.ValidationError, OverflowError) as problem:
            unknown = [name for name in arguments if name not in self.names]
            if unknown:
                takes = ", ".join(self.names) or "no arguments"
                raise InvalidInput(f"there is no parameter {unknown[0]!r}; the tool takes {takes}") from None
            raise InvalidInput(_readable(str(problem))) from None
        except Exception as problem:
            raise InvalidInput(own_check(problem)) from None

    def normal(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """The arguments JSON-ready, in declared order, defaults filled in: the bytes that are hashed, shown and bound.

        Raises InvalidInput also where a value would be changed by its type: an unknown field inside an object, an
        integer that a float parameter would round.
        """
        bound = self.convert(arguments)
        if self.kept:
            return bound
        plain = _builtins(bound)
        for name, given in arguments.items():
            fault = _changed(given, plain[name], name)
            if fault:
                raise InvalidInput(fault)
        return plain


def own_check(problem: Exception) -> str:
    """What the model is told where a type's own code (`__post_init__`, a validator) raises whatever it likes."""
    return f"a check of their type refuses them ({type(problem).__name__}: {str(problem)[:OWN_CHECK_CHARACTERS_MAX]})"


def read_parameters(function: Function, local_names: Mapping[str, object] = _NOTHING) -> Parameters:
    """Read the signature of `function`. `local_names` helps with annotations of names local to the caller.

    Raises TypeError, naming function and parameter, for what cannot become a schema: no annotation, `*args`,
    `**kwargs`, positional-only parameters, a type without JSON form, a default that does not fit its type.
    """
    name = getattr(function, "__name__", type(function).__name__)
    given = list(inspect.signature(function).parameters.values())
    takes_operation = bool(given) and _is_operation(given[0])
    wanted = given[1:] if takes_operation else given
    for parameter in wanted:
        _check_parameter(name, parameter)
    summary, texts = split_docstring(inspect.getdoc(function) or "")
    hints = _resolve(name, function, wanted, local_names)
    described = {key: _described(hint, texts.get(key)) for key, hint in hints.items()}
    model = _model(name, wanted, described)
    return Parameters(
        function_name=name,
        takes_operation=takes_operation,
        names=tuple(parameter.name for parameter in wanted),
        model=model,
        schema=_schema(name, model),
        description=summary,
        kept=all(_is_kept(hint) for hint in hints.values()),
    )


def split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """A Google-style docstring as the text without its `Args:` section, and the description of each argument."""
    match = re.search(r"(?m)^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]+\S.*(?:\n|\Z)|[ \t]*\n)+)", text + "\n")
    if match is None:
        return text.strip(), {}
    texts: dict[str, str] = {}
    current, margin = "", 0
    for line in match[1].splitlines():
        entry = re.match(r"([ \t]+)\*{0,2}(\w+)(?:[ \t]*\([^)]*\))?:[ \t]*(.*)$", line)
        if entry and (not margin or len(entry[1]) <= margin):
            current, margin = entry[2], len(entry[1])
            texts[current] = entry[3].strip()
        elif current and line.strip():
            texts[current] = f"{texts[current]} {line.strip()}".strip()
    rest = f"{text[: match.start()].rstrip()}\n\n{text[match.end() :].lstrip()}"
    return rest.strip(), {key: value for key, value in texts.items() if value}


# ---- helper functions of a tool: lookup, precondition, key, when


def check_names(
    where: str,
    what: str,
    function: Callable[..., object] | None,
    names: tuple[str, ...],
    skip: int = 0,
    first: str = "Operation",
) -> None:
    """Refuse a helper function that asks for what the tool does not have; `skip` counts what it gets `first`.

    It may ask for any of `names`, for anything with a default, and for everything by `**`. Raises TypeError.
    """
    if function is None:
        return
    if not callable(function):
        raise TypeError(f"{where}: {what} is a function, not a {type(function).__name__}")
    given = list(inspect.signature(function).parameters.values())
    if len([one for one in given if one.kind is not one.KEYWORD_ONLY and one.kind is not one.VAR_KEYWORD]) < skip:
        raise TypeError(f"{where}: its {what} takes the {first} as its first parameter")
    for parameter in given[skip:]:
        optional = parameter.default is not parameter.empty
        by_any_name = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if parameter.name not in names and not optional and not by_any_name:
            has = ", ".join(names) or "none"
            raise TypeError(
                f"{where}: its {what} asks for {parameter.name!r}, which the tool does not have (it has {has})"
            )


def accepted(function: Callable[..., object], values: Mapping[str, object], skip: int = 0) -> dict[str, object]:
    """Those of `values` that `function` takes by name."""
    given = list(inspect.signature(function).parameters.values())[skip:]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in given):
        return dict(values)
    return {parameter.name: values[parameter.name] for parameter in given if parameter.name in values}


# ---- signature


def _is_operation(parameter: inspect.Parameter) -> bool:
    hint = parameter.annotation
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        return False
    if hint is inspect.Parameter.empty:
        return parameter.name == "op"
    if isinstance(hint, str):
        return hint.strip("'\" ").split("|")[0].strip().rpartition(".")[2] == "Operation"
    return hint is Operation or Operation in get_args(hint)


def _check_parameter(function_name: str, parameter: inspect.Parameter) -> None:
    where = f"tool {function_name!r}: parameter {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise TypeError(f"{where} takes any number of arguments; name each parameter, the model needs a schema")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"{where} is positional-only; only an Operation may be, arguments are passed by name")
    if parameter.annotation is inspect.Parameter.empty:
        raise TypeError(f"{where} has no type; annotate it, the schema for the model comes from the types")


def _resolve(
    name: str, function: Function, wanted: list[inspect.Parameter], local_names: Mapping[str, object]
) -> dict[str, object]:
    # Only the parameters that the model sees: Operation and the return type may be known to type checkers alone.
    inner = inspect.unwrap(function)
    spaces: dict[str, object] = {**getattr(inner, "__globals__", {}), **local_names}
    out: dict[str, object] = {}
    for parameter in wanted:
        holder = type("Holder", (), {"__annotations__": {parameter.name: parameter.annotation}})
        try:
            out[parameter.name] = typing.get_type_hints(holder, spaces, {}, include_extras=True)[parameter.name]
        except NameError as problem:
            raise TypeError(
                f"tool {name!r}: the type of parameter {parameter.name!r} cannot be read ({problem}); "
                "import it outside of `if TYPE_CHECKING`"
            ) from None
    return out


def _is_kept(hint: object) -> bool:
    """Whether each JSON value that fits the type stays as it is, of the same type and with nothing filled in."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _is_kept(parts[0])
    if origin is list or origin is Union or origin is UnionType:
        return all(_is_kept(part) for part in parts)
    return origin is Literal or any(hint is kind for kind in (str, int, bool, NoneType))


def _described(hint: object, text: str | None) -> object:
    if text is None or (get_origin(hint) is Annotated and any(_has_description(extra) for extra in get_args(hint)[1:])):
        return hint
    return Annotated[hint, msgspec.Meta(description=text)]


def _has_description(extra: object) -> bool:
    return isinstance(extra, msgspec.Meta) and extra.description is not None


def _model(name: str, wanted: list[inspect.Parameter], hints: Mapping[str, object]) -> type[msgspec.Struct]:
    fields: list[tuple[str, type, object]] = []
    for parameter in wanted:
        hint = typing.cast(type, hints[parameter.name])
        fields.append((parameter.name, hint, _default(name, parameter, hint)))
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def _default(name: str, parameter: inspect.Parameter, hint: type) -> object:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return msgspec.NODEFAULT
    try:
        plain = msgspec.to_builtins(default)
        msgspec.convert(plain, hint)
    except (msgspec.ValidationError, TypeError) as problem:
        raise TypeError(
            f"tool {name!r}: the default of parameter {parameter.name!r} does not fit its type ({problem})"
        ) from None
    return msgspec.field(default_factory=lambda: msgspec.convert(plain, hint))


# ---- schema


def _schema(name: str, model: type[msgspec.Struct]) -> dict[str, object]:
    try:
        raw = msgspec.json.schema(model, schema_hook=_any_schema)
    except (TypeError, NotImplementedError) as problem:
        raise TypeError(
            f"tool {name!r}: its parameters cannot be described as JSON ({' '.join(str(problem).split())}); use texts, "
            "numbers, booleans, lists, dicts, Literal, Enum, dataclasses, TypedDict or msgspec.Struct"
        ) from None
    inlined = flat_schema(raw, name)
    properties = inlined["properties"]
    assert isinstance(properties, dict)
    for field in msgspec.structs.fields(model):
        if field.default_factory is not msgspec.NODEFAULT:
            properties[field.encode_name]["default"] = msgspec.to_builtins(field.default_factory(), str_keys=True)
    return inlined


def flat_schema(raw: Mapping[str, object], name: str) -> dict[str, object]:
    """A JSON schema without `$ref` and title, its objects closed. Raises TypeError for a type that contains itself."""
    definitions = raw.get("$defs", {})
    flat = _inline({key: item for key, item in raw.items() if key != "$defs"}, _as_dict(definitions), (), name)
    return {key: item for key, item in _as_dict(flat).items() if key != "title"}


def _any_schema(kind: type) -> dict[str, object]:
    if kind is object:
        return {"description": "any JSON value"}
    raise NotImplementedError


def _inline(node: object, definitions: Mapping[str, object], inside: tuple[str, ...], name: str) -> object:
    """`node` with each `$ref` replaced by what it names, and every object with named fields closed."""
    if isinstance(node, list):
        return [_inline(item, definitions, inside, name) for item in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str):
        target = reference.rpartition("/")[2]
        if target in inside:
            raise TypeError(f"tool {name!r}: the type {target} contains itself; the model needs a flat schema")
        merged = {**_as_dict(definitions[target]), **{key: item for key, item in node.items() if key != "$ref"}}
        return _inline(merged, definitions, (*inside, target), name)
    out = {key: _inline(item, definitions, inside, name) for key, item in node.items()}
    if isinstance(out.get("properties"), dict):
        out.setdefault("additionalProperties", False)
    return out


def _as_dict(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


# ---- checks


def _builtins(bound: Mapping[str, object]) -> dict[str, object]:
    for value in bound.values():
        _complete(value)
    out = msgspec.to_builtins(dict(bound), str_keys=True, order="deterministic")
    assert isinstance(out, dict)
    return {name: out[name] for name in bound}


def _complete(value: object) -> None:
    """Write the defaults of dataclasses into their instances, in which msgspec leaves them out.

    Otherwise they would be missing from what is approved, and a default changed later would change what runs.
    """
    if isinstance(value, dict):
        parts: list[object] = [*value, *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
    elif isinstance(value, msgspec.Struct):
        parts = [getattr(value, name) for name in value.__struct_fields__]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        getattr(value, "__dict__", {}).update(fields)
        parts = list(fields.values())
    else:
        return
    for part in parts:
        _complete(part)


def _readable(problem: str) -> str:
    """msgspec's message with the path in front: "repo: Expected `str`, got `int`"."""
    text, found, path = problem.partition(" - at `$")
    if not found:
        return f"{problem}. Call it again with arguments that fit its schema"
    return f"argument {path.rstrip('`').lstrip('.')}: {text}. Call it again with arguments that fit its schema"


def _changed(given: object, kept: object, path: str) -> str | None:
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, item in given.items():
            if key not in kept:
                return f"argument {path} has no field {key!r}; leave it out"
            fault = _changed(item, kept[key], f"{path}.{key}")
            if fault:
                return fault
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        faults = (_changed(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(given, kept, strict=True)))
        return next((fault for fault in faults if fault), None)
    elif type(given) is int and type(kept) is float and given != kept and float(given) == kept:
        return f"argument {path}: the integer {given} would be rounded to {kept!r}"
    return None
