"""Schemas that a model writes for the answer of a person: data of a stranger, which is applied in our own process.

A reference would be fetched from wherever it points, and can go round for ever; a pattern can take for ever on a short
answer. The model is told to write its schema without them.
"""

from __future__ import annotations

from collections.abc import Iterator

from surefoot.errors import InvalidInput

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_PATTERNS = ("pattern", "patternProperties")
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value has schemas under names of the writer's own."""
_DATA = frozenset({"enum", "const", "default", "examples"})


def schema_fault(schema: object) -> str | None:
    """Why a schema cannot be that of an answer, in words for the model; None if it can."""
    if schema is None:
        return None
    if not isinstance(schema, dict):
        return "answer_schema is a JSON schema: an object"
    from jsonschema import Draft202012Validator, SchemaError  # loaded with the first schema, not with the package

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as problem:
        return f"answer_schema is not a JSON schema: {problem.message}"
    for keyword in _keywords(schema):
        if keyword in _REFERENCES:
            return f"answer_schema is written out in full, without {keyword!r}"
        if keyword in _PATTERNS:
            return f"answer_schema has no {keyword!r}: say in the question what the text looks like"
    return None


def check_answer(schema: object, value: object) -> None:
    """Raises InvalidInput (`answer_does_not_fit`) for an answer that does not fit the question's schema."""
    from jsonschema import Draft202012Validator
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import EMPTY_REGISTRY

    assert isinstance(schema, dict), "checked when the question was asked"
    try:
        # Without the registry a reference in a question of an older version would be fetched.
        problem = next(iter(Draft202012Validator(schema, registry=EMPTY_REGISTRY).iter_errors(value)), None)
    except (Unresolvable, RecursionError) as fault:
        raise InvalidInput(
            f"no answer can be judged by the schema of this question ({type(fault).__name__}): cancel the run",
            code="answer_does_not_fit",
        ) from None
    except OverflowError:
        raise InvalidInput(
            "the answer has a number that the schema of this question cannot judge: give a smaller one",
            code="answer_does_not_fit",
        ) from None
    if problem is not None:
        raise InvalidInput(
            f"the answer does not fit the question: {problem.message}; look at the schema in its preview",
            code="answer_does_not_fit",
        )


def _keywords(schema: object) -> Iterator[str]:
    """The keywords of a schema and of those inside it, names that its writer chose and plain data aside."""
    if isinstance(schema, list):
        for item in schema:
            yield from _keywords(item)
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        yield keyword
        if keyword in _NAMED and isinstance(value, dict):
            for inner in value.values():
                yield from _keywords(inner)
        elif keyword not in _DATA:
            yield from _keywords(value)
