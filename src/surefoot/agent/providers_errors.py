"""What goes wrong in a provider's library, in the errors of the model port. Loaded with providers_pydantic.py only."""

from __future__ import annotations

import contextlib
import math
import traceback
from collections.abc import Mapping
from typing import Literal

from pydantic_ai import exceptions as failures

from surefoot.agent.model import ModelError, ModelNeedsPerson, ModelRefused, ModelRetryable
from surefoot.core.values import clean_text, cut

SAID_CHARACTERS_MAX = 200
"""What an error keeps of the provider's own message."""

Kind = Literal["quota", "key", "unknown", "rejected", "again"]

_CATEGORIES: tuple[tuple[type[Exception], Kind], ...] = (
    (failures.ModelQuotaExceededError, "quota"),
    (failures.ModelAuthenticationError, "key"),
    (failures.ModelNotFoundError, "unknown"),
    (failures.ModelRequestRejectedError, "rejected"),
    (failures.ModelRateLimitError, "again"),
)
_STATUSES: Mapping[int, Kind] = {401: "key", 402: "quota", 403: "key", 404: "unknown"}
_STATUSES_AGAIN = (408, 409, 425, 429)


def sort_error(error: Exception, name: str, key_name: str, key: str | None) -> ModelError:
    """The port's error for one of the library. Its text holds the provider's short message at most, and never `key`."""
    status = error.status_code if isinstance(error, failures.ModelHTTPError) else None
    if isinstance(error, failures.UserError):
        return ModelNeedsPerson(f"{name}: {shortened(str(error), key)}")
    if isinstance(error, failures.UnexpectedModelBehavior):
        return ModelRetryable(f"{name}: the provider's answer could not be read")
    if not isinstance(error, failures.ModelAPIError):
        return ModelRetryable(f"{name}: the provider's library failed with {type(error).__name__} in {_place(error)}")
    said = _said(error, key)
    match _kind(error, status):
        case "quota":
            text = f"{name}: the account's quota or credit is used up; raise it, then try again{said}"
            return ModelNeedsPerson(text, status=status)
        case "key":
            # Not the provider's words, which often quote a part of the key.
            text = f"{name}: the provider does not take the key; check {key_name} and what it may use"
            return ModelNeedsPerson(text, status=status)
        case "unknown":
            text = f"{name}: the provider knows no such model; check its name and the base URL{said}"
            return ModelNeedsPerson(text, status=status)
        case "rejected":
            return ModelRefused(f"{name}: the provider refused the request{said}", status=status)
        case "again":
            wait = _retry_after(error)
            return ModelRetryable(f"{name}: {_trouble(error)}{said}", retry_after=wait, status=status)


def _kind(error: failures.ModelAPIError, status: int | None) -> Kind:
    for category, kind in _CATEGORIES:
        if isinstance(error, category):
            return kind
    if status is None or status >= 500 or status in _STATUSES_AGAIN:
        return "again"
    return _STATUSES.get(status, "rejected")


def _trouble(error: failures.ModelAPIError) -> str:
    match error:
        case failures.ModelTimeoutError() | failures.ModelRequestTimeout():
            return "the provider did not answer in time"
        case failures.ModelConnectionError():
            return "the connection to the provider failed"
        case failures.ModelHTTPError():
            return f"the provider cannot answer now (status {error.status_code})"
        case _:
            return "the provider cannot answer now"


def _place(error: Exception) -> str:
    """Where an exception arose, which helps without showing what its text may hold."""
    frames = list(traceback.walk_tb(error.__traceback__))
    frame, line = frames[-1]
    return f"{frame.f_globals.get('__name__')}:{line}"


def _retry_after(error: failures.ModelAPIError) -> float | None:
    """Seconds. None for a date, which would need a clock that agrees with the provider's."""
    headers = error.headers or {} if isinstance(error, failures.ModelHTTPError) else {}
    for header, per_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        with contextlib.suppress(KeyError, ValueError):
            seconds = float(headers[header]) / per_second
            if math.isfinite(seconds) and seconds >= 0:
                return seconds
    return None if "retry-after" in headers else error.retry_after


def _said(error: failures.ModelAPIError, key: str | None) -> str:
    """The provider's short message, if its body has one in the usual place."""
    body = error.body
    inner = body.get("error", body) if isinstance(body, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else None
    return f": {shortened(message, key)}" if isinstance(message, str) and message else ""


def shortened(text: str, key: str | None) -> str:
    """A provider's words on one line, cut, without the key."""
    if key:
        text = text.replace(key, "[redacted]")
    return cut(" ".join(clean_text(text).split()), SAID_CHARACTERS_MAX)[0]
