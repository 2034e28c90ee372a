"""The OpenAPI document: FastAPI knows the paths and parameters, msgspec the shapes of bodies and answers."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from importlib.metadata import version
from typing import TypedDict

import msgspec
from fastapi import FastAPI

from surefoot.server.problems import MEDIA_TYPE, ProblemDocument

REF = "#/components/schemas/{name}"
NEEDED = "x-needed"
"""Marks a header without which we refuse a request ourselves."""
ALWAYS = (400, 401, 403, 431, 503)
"""Any request may be answered so."""

BODY_BYTES_MAX = 2_097_152
"""Of a body, unless its endpoint takes less."""
Security = list[dict[str, list[str]]]
OPEN: Security = []
"""Anybody may ask."""
BY_TOKEN = {"bearer": list[str]()}
BY_SESSION = {"session": list[str]()}
BY_PAGE = {"session": list[str](), "csrf": list[str]()}
"""A session that changes something sends its csrf too."""
BY_GITHUB = {"github_signature": list[str]()}
BY_STANDARD = {"webhook_id": list[str](), "webhook_timestamp": list[str](), "webhook_signature": list[str]()}


def _header(name: str, text: str) -> dict[str, str]:
    return {"type": "apiKey", "in": "header", "name": name, "description": text}


SCHEMES: dict[str, dict[str, str]] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API token. A server without tokens asks for none.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "surefoot_session",
        "description": "The cookie of `POST /v1/session`, for pages of this server: the Origin is checked.",
    },
    "csrf": _header("X-CSRF-Token", "The `csrf` of `GET /v1/session`, with a session that changes something."),
    "github_signature": _header("X-Hub-Signature-256", "HMAC-SHA256 of the body under SUREFOOT_GITHUB_WEBHOOK_SECRET."),
    "webhook_id": _header("webhook-id", "Of Standard Webhooks: the same with every repeat."),
    "webhook_timestamp": _header("webhook-timestamp", "Of Standard Webhooks: seconds since 1970."),
    "webhook_signature": _header("webhook-signature", "Of Standard Webhooks, under SUREFOOT_EVIDENCE_SECRET."),
}
_shapes: dict[str, type[msgspec.Struct]] = {"ProblemDocument": ProblemDocument}


class Described(TypedDict, total=False):
    """What a route says of itself beside its path and parameters."""

    response_model: None
    responses: dict[int | str, dict[str, object]]
    openapi_extra: dict[str, object]


class _Parameter(TypedDict, total=False):
    required: bool
    schema: dict[str, object]


class _Operation(TypedDict, total=False):
    responses: dict[str, object]
    parameters: list[_Parameter]


def described(
    gives: Mapping[int, type[msgspec.Struct] | None],
    *problems: int,
    reads: type[msgspec.Struct] | None = None,
    bytes_max: int = BODY_BYTES_MAX,
    security: Security | None = None,
    media: Mapping[int, Mapping[str, object]] | None = None,
) -> Described:
    """What a route answers by status, the statuses of its problems, what its body is, and who may ask.

    Without `security` it is whoever has a token or a session.
    """
    responses: dict[int | str, dict[str, object]] = {}
    for status, shape in gives.items():
        answer: dict[str, object] = {"description": HTTPStatus(status).phrase}
        content: dict[str, object] = dict((media or {}).get(status, {}))
        if shape is not None:
            content["application/json"] = {"schema": _ref(shape)}
        if content:
            answer["content"] = content
        responses[status] = answer
    body_problems = () if reads is None else (408, 413, 415, 422)
    for status in sorted({*ALWAYS, *problems, *body_problems}):
        content = {MEDIA_TYPE: {"schema": _ref(ProblemDocument)}}
        responses[status] = {"description": HTTPStatus(status).phrase, "content": content}
    extra: dict[str, object] = {}
    if reads is not None:
        content = {"application/json": {"schema": _ref(reads)}}
        extra["requestBody"] = {"required": True, "description": f"At most {bytes_max:,} bytes.", "content": content}
    if security is not None:
        extra["security"] = security
    return {"response_model": None, "responses": responses, "openapi_extra": extra}


def _ref(shape: type[msgspec.Struct]) -> dict[str, str]:
    name = shape.__name__
    assert _shapes.setdefault(name, shape) is shape, f"two shapes are called {name}"
    return {"$ref": REF.format(name=name)}


def components() -> dict[str, object]:
    """The shapes that the routes named, as JSON schemas."""
    return msgspec.json.schema_components(_shapes.values(), schema_hook=_anything, ref_template=REF)[1]


def _anything(kind: type) -> dict[str, object]:
    if kind is not object:
        raise NotImplementedError
    return {"description": "Any JSON value."}


def install(app: FastAPI) -> None:
    """Let the app's document hold the shapes of bodies and answers."""
    made = app.openapi

    def document() -> dict[str, object]:
        found = made()
        for methods in found["paths"].values():
            for method, operation in methods.items():
                _mend(operation)
                operation.setdefault("security", [BY_TOKEN, BY_SESSION if method == "get" else BY_PAGE])
        held = found.setdefault("components", {}).setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            held.pop(name, None)
        held.update(components())
        found["components"]["securitySchemes"] = SCHEMES
        return found

    app.openapi = document  # type: ignore[method-assign]  # FastAPI documents this as the way


def _mend(operation: _Operation) -> None:
    """What FastAPI adds and is not so: a 422 of its own, and that a header which we ask for may be left out."""
    if "HTTPValidationError" in str(operation["responses"].get("422", "")):
        del operation["responses"]["422"]
    for parameter in operation.get("parameters", ()):
        if parameter["schema"].pop(NEEDED, False):
            parameter["required"] = True
            parameter["schema"] = {"type": "string", "minLength": 1, **parameter["schema"]}
            parameter["schema"].pop("anyOf", None)


def package_version() -> str:
    """The version of surefoot."""
    return version("surefoot")
