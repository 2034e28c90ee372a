"""What a refusal says of when it may be tried again: in its headers, or in words alone."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

RETRY_AFTER_SECONDS_MAX = 86_400.0
RETRY_AFTER_SECONDS_DEFAULT = 60.0
"""What a rate limit that names no time means."""


def retry_after_seconds(status: int, headers: Mapping[str, str], wall: float) -> float | None:
    """After how many seconds a 403, 429 or 503 may be tried again, or None where it speaks of no limit.

    Retry-After (seconds or a date) comes first, then x-ratelimit-reset where nothing remains; `wall` is the time now.
    A limit that names no readable time means a minute, as GitHub documents.
    """
    if status not in (403, 429, 503):
        return None
    after = headers.get("retry-after")
    if after is not None:
        seconds = _seconds_until(after, wall)
    elif headers.get("x-ratelimit-remaining") == "0":
        reset = _number(headers.get("x-ratelimit-reset", ""))
        seconds = None if reset is None else max(reset - wall, 1.0)
    elif status == 429:
        seconds = None
    else:
        return None
    return RETRY_AFTER_SECONDS_DEFAULT if seconds is None else min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX)


def _seconds_until(text: str, wall: float) -> float | None:
    if (number := _number(text)) is not None:
        return number
    try:
        # Loaded late, as urllib below: both cost more at the start of a process than our whole core.
        from email.utils import parsedate_to_datetime as parsed

        return parsed(text).timestamp() - wall
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text[:15]) if text.isascii() and text.isdigit() else None


class _Told(msgspec.Struct):
    message: str


def tells_of_limit(body: bytes) -> bool:
    """True for the body of a 403 by which GitHub names its secondary limit: not every such answer has a header too."""
    try:
        message = msgspec.json.decode(body, type=_Told).message
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return "secondary rate limit" in message.lower()
