"""Built-in tools: ask a person a question that is a unit of work of its own, and sleep through restarts."""

from __future__ import annotations

from collections.abc import Mapping

from surefoot import effects
from surefoot.agent.tools import Arguments, Tool, tool
from surefoot.errors import InvalidInput

SLEEP_SECONDS_MAX = 366 * 86_400.0
QUESTION_CHARACTERS_MAX = 4_000
CHOICES_MAX = 50


def _question_fault(arguments: Arguments) -> str | None:
    if not 0 < len(str(arguments["question"])) <= QUESTION_CHARACTERS_MAX:
        return f"question is a text of 1 to {QUESTION_CHARACTERS_MAX} characters"
    choices = arguments.get("choices")
    if choices is not None and not (isinstance(choices, list) and 0 < len(choices) <= CHOICES_MAX):
        return f"choices are 1 to {CHOICES_MAX} texts, or left out"
    if choices is not None and arguments.get("answer_schema") is not None:
        return "give either choices or answer_schema, not both"
    return _schema_fault(arguments.get("answer_schema"))


def _schema_fault(schema: object) -> str | None:
    if schema is None:
        return None
    from jsonschema import Draft202012Validator, SchemaError  # loaded with the first schema, not with the package

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as problem:
        return f"answer_schema is not a JSON schema: {problem.message}"
    return None


@tool(
    effect=effects.read,
    limits=_question_fault,
    display={
        "doing": {"en": "Asking a person", "zh-CN": "正在询问"},
        "checking": {"en": "Asking a person", "zh-CN": "正在询问"},
    },
)
def ask_person(
    question: str, choices: list[str] | None = None, answer_schema: dict[str, object] | None = None
) -> object:
    """Ask the person for a decision, a confirmation or a missing fact, and wait for the answer.

    Args:
        question: The question, complete in itself.
        choices: The possible answers, if there are only these.
        answer_schema: A JSON schema that the answer has to fit. Without it and without choices the answer is a text.
    """
    raise AssertionError("a person answers this, not a function")


def _sleep_fault(arguments: Arguments) -> str | None:
    seconds = arguments["seconds"]
    if not isinstance(seconds, int | float) or not 0 <= seconds <= SLEEP_SECONDS_MAX:
        return f"seconds is from 0 to {SLEEP_SECONDS_MAX:g}"
    return None


@tool(
    effect=effects.read,
    limits=_sleep_fault,
    display={
        "doing": {"en": "Waiting", "zh-CN": "正在等待"},
        "checking": {"en": "Waiting", "zh-CN": "正在等待"},
    },
)
def sleep(seconds: float) -> str:
    """Wait for some time before going on. The wait survives restarts; nothing is held meanwhile.

    Args:
        seconds: How long.
    """
    return f"{seconds:g} seconds are over"


def is_question(candidate: Tool) -> bool:
    """True for `ask_person`, also a configured copy of it."""
    return candidate.function is ask_person.function


def delay_of(candidate: Tool, arguments: Arguments) -> float | None:
    """How many seconds a call begins later; None for at once."""
    seconds = arguments.get("seconds")
    if candidate.function is not sleep.function or not isinstance(seconds, int | float):
        return None
    return float(seconds)


def question_shown(arguments: Mapping[str, object]) -> dict[str, object]:
    """What a person is shown of `ask_person`, with the schema that the answer has to fit."""
    choices = arguments.get("choices")
    schema = arguments.get("answer_schema") or ({"enum": choices} if choices is not None else {"type": "string"})
    return {"text": arguments["question"], "choices": choices, "schema": schema}


def check_answer(schema: object, value: object) -> None:
    """Raises InvalidInput (`answer_does_not_fit`) for an answer that does not fit the question's schema."""
    from jsonschema import Draft202012Validator

    problem = next(iter(Draft202012Validator(schema).iter_errors(value)), None)
    if problem is not None:
        raise InvalidInput(
            f"the answer does not fit the question: {problem.message}; look at the schema in its preview",
            code="answer_does_not_fit",
        )
