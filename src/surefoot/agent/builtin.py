"""Built-in tools: ask a person, wait for a signal of a program, and sleep, all of them through restarts."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from surefoot import effects
from surefoot.agent.answers import schema_fault
from surefoot.agent.tools import DECLARED, Arguments, Tool, tool
from surefoot.core.state import WaitsFor
from surefoot.runtime.questions import SIGNAL_NAME_CHARACTERS_MAX, signal_name, signal_seconds, signal_shown
from surefoot.runtime.registry import rules_of

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
    return schema_fault(arguments.get("answer_schema"))


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


def _wait_fault(arguments: Arguments) -> str | None:
    name, seconds = arguments["name"], arguments.get("timeout_seconds")
    if not isinstance(name, str) or not 0 < len(name.strip()) <= SIGNAL_NAME_CHARACTERS_MAX:
        return f"name is a text of 1 to {SIGNAL_NAME_CHARACTERS_MAX} characters"
    if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds <= SLEEP_SECONDS_MAX):
        return f"timeout_seconds is above 0 and at most {SLEEP_SECONDS_MAX:g}, or left out for 7 days"
    return None


@tool(
    effect=effects.read,
    limits=_wait_fault,
    prepare=lambda arguments: {**arguments, "name": signal_name(str(arguments["name"]))},
    target=lambda arguments: str(arguments["name"]),
    display={
        "doing": {"en": "Waiting for a signal", "zh-CN": "正在等待信号"},
        "checking": {"en": "Waiting for a signal", "zh-CN": "正在等待信号"},
    },
)
def wait_for_signal(name: str, timeout_seconds: float | None = None) -> object:
    """Wait until a program sends the signal, and get its value. The wait survives restarts; nothing is held meanwhile.

    Args:
        name: The name of the signal.
        timeout_seconds: For how long at most; without it for 7 days.
    """
    raise AssertionError("a signal answers this, not a function")


wait_for_signal = msgspec.structs.replace(wait_for_signal, waits_for=WaitsFor.signal)
DECLARED[wait_for_signal.name, wait_for_signal.place] = wait_for_signal


def is_question(candidate: Tool) -> bool:
    """True for `ask_person` and `wait_for_signal`, also for configured copies of them."""
    return candidate.function is ask_person.function or candidate.waits_for is WaitsFor.signal


def delay_of(candidate: Tool, arguments: Arguments) -> float | None:
    """How many seconds a call begins later; None for at once."""
    seconds = arguments.get("seconds")
    if candidate.function is not sleep.function or not isinstance(seconds, int | float):
        return None
    return float(seconds)


def question_seconds(candidate: Tool, arguments: Arguments) -> float:
    """For how long the question is open."""
    rules = rules_of(candidate)
    return signal_seconds(rules, arguments) if rules.waits_for is WaitsFor.signal else rules.approval_expires_s


def question_shown(candidate: Tool, arguments: Mapping[str, object]) -> dict[str, object]:
    """What a person is shown of a question, with the schema that the answer has to fit; a signal has none."""
    if candidate.waits_for is WaitsFor.signal:
        return signal_shown(str(arguments["name"]))
    choices = arguments.get("choices")
    schema = arguments.get("answer_schema") or ({"enum": choices} if choices is not None else {"type": "string"})
    return {"text": arguments["question"], "choices": choices, "schema": schema}
