"""What the declaration of a tool is made of besides its types: texts for people, and functions that are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from surefoot.errors import InvalidInput

T = TypeVar("T")

_DISPLAY_KEYS = ("doing", "checking")

Display = Mapping[str, Mapping[str, str]]
"""Texts for `doing` and `checking` by language: {"doing": {"en": "Sending the invoice", "zh-CN": "…"}}."""


def check_display(where: str, display: Display) -> None:
    """Raises TypeError, naming `where`, for texts of another shape."""
    for key, texts in display.items():
        if key not in _DISPLAY_KEYS or not isinstance(texts, Mapping) or "en" not in texts:
            raise TypeError(
                f'{where}: display is {{"doing": {{"en": …, "zh-CN": …}}, "checking": {{…}}}}, "en" at least'
            )


def asked(function: Callable[..., T], *args: object, **kwargs: object) -> T:
    """What a function of the declaration answers; an exception in it refuses the call."""
    try:
        return function(*args, **kwargs)
    except InvalidInput:
        raise
    except Exception as problem:
        name = getattr(function, "__name__", "a function of the declaration")
        raise InvalidInput(f"{name} could not judge these arguments ({type(problem).__name__})") from problem
