"""What the declaration of a tool is made of besides its types: texts for people, and functions that are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from surefoot.core.facts import is_one_line
from surefoot.core.text import clean_text
from surefoot.errors import InvalidInput
from surefoot.runtime.background import in_place
from surefoot.runtime.execute import is_async

T = TypeVar("T")

TARGET_CHARACTERS_MAX = 1_000
"""What of a target's name is shown and kept."""
_DISPLAY_KEYS = ("doing", "checking")

Display = Mapping[str, Mapping[str, str]]
"""Texts for `doing` and `checking` by language: {"doing": {"en": "Sending the invoice", "zh-CN": "…"}}."""


def plain_text(where: str, name: str, value: object, like: str) -> str:
    """A name of the declaration as it is written down with every run or call: a plain text.

    Raises TypeError for what is no text: an event that held it could not be read again. Raises ValueError for one that
    is blank, longer than TARGET_CHARACTERS_MAX, or holds control characters.
    """
    if not isinstance(value, str):
        raise TypeError(f"{where}: {name} is {like}, not {value!r}")
    if not value.strip() or len(value) > TARGET_CHARACTERS_MAX or not is_one_line(value):
        raise ValueError(f"{where}: {name} is {like}: 1 to {TARGET_CHARACTERS_MAX} characters on one line, not blank")
    return str.__str__(value)


def words(where: str, name: str, value: object) -> str:
    """A text of the declaration that a model reads, under the value rule. Raises TypeError for what is none."""
    if not isinstance(value, str):
        raise TypeError(f"{where}: {name} is a text, not {value!r}")
    return clean_text(value)


_NAMES = {
    "name": 'a text such as "send_invoice"',
    "version": 'a text such as "1"',
    "credential": 'the name of a secret, such as "PAY_TOKEN"',
}


class Named(Protocol):
    """What of a tool is text."""

    @property
    def name(self) -> str:
        """The model's word for it."""
        ...

    @property
    def version(self) -> str:
        """Of its code."""
        ...

    @property
    def credential(self) -> str | None:
        """The name of the secret that it acts with."""
        ...

    @property
    def description(self) -> str:
        """What the model reads."""
        ...


def plain_texts(where: str, tool: Named) -> dict[str, str]:
    """The texts of a tool, by field, as `plain_text` and `words` have them. Raises as they do."""
    given = {name: getattr(tool, name) for name in _NAMES if name != "credential" or tool.credential is not None}
    texts = {name: plain_text(where, name, value, _NAMES[name]) for name, value in given.items()}
    return {**texts, "description": words(where, "description", tool.description)}


def check_display(where: str, display: Display) -> None:
    """Raises TypeError, naming `where`, for texts of another shape."""
    for key, texts in display.items():
        if key not in _DISPLAY_KEYS or not _by_language(texts):
            raise TypeError(
                f'{where}: display is {{"doing": {{"en": …, "zh-CN": …}}, "checking": {{…}}}}, "en" at least'
            )


def _by_language(texts: object) -> bool:
    return isinstance(texts, Mapping) and "en" in texts and all(isinstance(text, str) for text in texts.values())


def asked(function: Callable[..., T], *args: object, **kwargs: object) -> T:
    """What a function of the declaration answers; an exception in it refuses the call."""
    try:
        return in_place(function, *args, **kwargs)
    except InvalidInput:
        raise
    except Exception as problem:
        name = getattr(function, "__name__", "a function of the declaration")
        raise InvalidInput(f"{name} could not judge these arguments ({type(problem).__name__})") from problem


def check_in_place(where: str, functions: Mapping[str, object]) -> None:
    """Raises TypeError for what is no function, or is an async one: where it is called, nobody awaits its answer."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{where}: {name} is a function, not {function!r}")
        if is_async(function):
            raise TypeError(f"{where}: {name} is called in place: write it with `def`, not with `async def`")


def prepared(function: Callable[[Mapping[str, object]], object], arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments in the form that the tool's `prepare` gives them. Raises InvalidInput for another answer."""
    form = asked(function, arguments)
    if not isinstance(form, Mapping):
        raise InvalidInput(f"its prepare answered {type(form).__name__}, not the arguments")
    return dict(form)


def refused_by(
    function: Callable[[Mapping[str, object]], object], arguments: Mapping[str, object], name: str
) -> str | None:
    """Why the limits of the tool `name` refuse these arguments, or None. Whatever they answer, this never raises."""
    try:
        refusal = in_place(function, arguments)
    except Exception as problem:
        return f"{name}: its limits could not be checked ({type(problem).__name__})"
    if refusal is None:
        return None
    if not isinstance(refusal, str):
        return f"{name}: its limits answered {type(refusal).__name__}, not a text or None"
    return clean_text(refusal) if refusal.strip() else f"{name}: its limits refuse these arguments"


def holds(condition: Callable[[], object]) -> bool:
    """Whether a condition holds; an exception in it means yes."""
    try:
        return in_place(lambda: bool(condition()))
    except Exception:
        return True


def aimed_at(function: Callable[[Mapping[str, object]], object], arguments: Mapping[str, object]) -> str:
    """What `function` calls the target of a call: a short text, '' where it raises or answers none."""
    try:
        target = in_place(function, arguments)
    except Exception:
        return ""
    return clean_text(str(target))[:TARGET_CHARACTERS_MAX] if isinstance(target, str | int) else ""
