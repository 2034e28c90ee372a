"""How fast calls may begin and how many may be under way at once: what is declared, and the arithmetic of its tokens.

A token is a place in time, handed out in the order of asking: the next is `spacing` later. Nobody counts what happened,
so tokens that several workers took in blocks never add up to more than was declared.
"""

from __future__ import annotations

import math
import re
import sys

import msgspec

from surefoot.core.facts import NAME_CHARACTERS_MAX, is_one_line
from surefoot.errors import InvalidInput

AHEAD_SECONDS = 5.0
"""Tokens are taken no further ahead than this: what is taken and not used is lost."""
SPACING_SECONDS_MIN = 1e-6
COUNT_MAX = 1_000_000_000
"""What is beyond bounds nothing."""
TENANT = "*"
"""The name of a tenant's own throttle, which every tool call of it passes."""
_PART = re.compile(r"(rate|per|burst|at_once)=([0-9.]+)")


class Throttle(msgspec.Struct, frozen=True, kw_only=True):
    """A bound on attempts of tool calls that holds over all workers of a tenant. Retries count, lookups do not.

    `rate`: so many begin in each `per` seconds, spaced evenly; in any T seconds at most `burst + 1 + T * rate / per`;
    of more than `10 * burst` a second as many as T and a tenth allow.
    `burst`: how many may begin at once after a quiet time. `at_once`: so many are under way at most. Tools that give
    the same `name` share one throttle; without it the tool's own name counts.

    Raises ValueError for numbers that bound nothing.
    """

    rate: float | None = None
    per: float = 1.0
    burst: int = 1
    at_once: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        """Refuse what could not be kept."""
        if self.rate is None and self.at_once is None:
            raise ValueError("Throttle(rate=…, per=…) or Throttle(at_once=…): give one of them")
        numbers = (1.0 if self.rate is None else self.rate, self.per)
        counts = (1 if self.at_once is None else self.at_once, self.burst)
        whole = all(isinstance(count, int) and not isinstance(count, bool) and count >= 1 for count in counts)
        if not whole or not all(_is_positive(number) for number in numbers):
            raise ValueError("Throttle: rate and per are positive, burst and at_once at least 1")
        if max(counts) > COUNT_MAX or (self.rate is not None and self.per / self.rate < SPACING_SECONDS_MIN):
            raise ValueError("Throttle: more than a million a second, or burst or at_once above a thousand million")
        if self.name is not None:
            if not isinstance(self.name, str) or not self.name.strip() or self.name == TENANT:
                raise ValueError(f"Throttle(name=…): a text that is not blank, and not {TENANT!r}")
            if len(self.name) > NAME_CHARACTERS_MAX or not is_one_line(self.name):
                raise ValueError(f"Throttle(name=…): at most {NAME_CHARACTERS_MAX} characters, on one line")
            msgspec.structs.force_setattr(self, "name", str.__str__(self.name))

    @property
    def spacing_s(self) -> float | None:
        """Seconds between two tokens; None where there is no rate."""
        return None if self.rate is None else self.per / self.rate


def _is_positive(number: object) -> bool:
    """A number above 0 that a float can hold."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    return 0 < number <= sys.float_info.max


class Tokens(msgspec.Struct, frozen=True):
    """A block of tokens: `count` places in time from `first_at` (the store's mono) on."""

    first_at: float
    count: int
    spacing_s: float

    def times(self) -> list[float]:
        """When each may be used, in order."""
        return [self.first_at + number * self.spacing_s for number in range(self.count)]


NO_TOKENS = Tokens(0.0, 0, 0.0)


def take_tokens(throttle: Throttle, next_at: float, now: float, wanted: int) -> tuple[Tokens, float]:
    """Up to `wanted` tokens, where `next_at` is the next that nobody has; and what is the next then."""
    spacing = throttle.spacing_s
    if spacing is None or wanted <= 0:
        return NO_TOKENS, next_at
    first = max(next_at, now - (throttle.burst - 1) * spacing)
    count = min(wanted, math.floor((now + AHEAD_SECONDS - first) / spacing) + 1)
    if count <= 0:
        return Tokens(first, 0, spacing), next_at
    return Tokens(first, count, spacing), first + count * spacing


def read_throttle(text: str) -> Throttle:
    """The throttle of a setting, such as "rate=100 per=60 at_once=20". Raises InvalidInput."""
    parts = text.replace(",", " ").split()
    found = [match for part in parts if (match := _PART.fullmatch(part)) is not None]
    numbers = {match[1]: match[2] for match in found}
    if not parts or len(found) != len(parts) or len(numbers) != len(parts):
        raise InvalidInput(f"{text!r} is no throttle: write rate=100 per=60 burst=1 at_once=20, or some of them")
    try:
        return Throttle(
            rate=float(numbers["rate"]) if "rate" in numbers else None,
            per=float(numbers.get("per", "1")),
            burst=int(numbers.get("burst", "1")),
            at_once=int(numbers["at_once"]) if "at_once" in numbers else None,
        )
    except ValueError as problem:
        raise InvalidInput(f"{text!r} is no throttle: {problem}") from None
