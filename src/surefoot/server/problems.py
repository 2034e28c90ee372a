"""Errors on the wire: application/problem+json (RFC 9457), each with a stable `code`."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from http import HTTPStatus

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from surefoot.core.redact import Redactor
from surefoot.core.text import clean_text, cut
from surefoot.errors import (
    CommitUnknown,
    Conflict,
    InvalidInput,
    KeyReused,
    NotAllowed,
    NotFound,
    StoreUnavailable,
    SurefootError,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1
DETAIL_CHARACTERS_MAX = 2_000
"""A detail may show what was sent, which may be anything."""


class ProblemDocument(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    """An error. `code` is stable, `detail` is for people and names the next action."""

    title: str
    status: int
    code: str
    detail: str
    kind: str = "about:blank"
    details: dict[str, object] = {}
    """What the code's page in docs/errors.md says: what was decided, which member is wrong."""


class Problem(Exception):
    """Ends a request with an error: `raise Problem(403, "foreign_host", "…")`."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        details: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.details = dict(details or {})
        self.headers = dict(headers or {})

    @property
    def phrase(self) -> str:
        """The status in words."""
        return HTTPStatus(self.status).phrase

    def response(self) -> Response:
        """The error as an answer."""
        detail = cut(clean_text(self.detail), DETAIL_CHARACTERS_MAX)[0]
        document = ProblemDocument(self.phrase, self.status, self.code, detail, details=self.details)
        return Response(msgspec.json.encode(document), self.status, self.headers, MEDIA_TYPE)


def bad_cursor() -> Problem:
    """For a cursor that no page has given."""
    return Problem(422, "bad_cursor", "cursor is no next_cursor of this list; begin without it")


STATUS_OF: tuple[tuple[type[SurefootError], int], ...] = (
    (KeyReused, 422),
    (NotAllowed, 409),
    (Conflict, 409),
    (NotFound, 404),
    (InvalidInput, 422),
    (StoreUnavailable, 503),
    (CommitUnknown, 503),
    (SurefootError, 500),
)
"""The first class that fits gives the status."""
CODE_OF = {400: "bad_request", 404: "no_such_path", 405: "method_not_allowed", 413: "body_too_large"}


def problem_of(error: SurefootError) -> Problem:
    """An error of surefoot as a problem, with its own code."""
    status = next(status for kind, status in STATUS_OF if isinstance(error, kind))
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if status == 503 else None
    return Problem(status, error.code, str(error), details=error.details, headers=headers)


def install(app: FastAPI, log: Callable[[str], None]) -> None:
    """Let every error of the app, the framework's own too, be a problem. Bugs are told to `log`, redacted."""

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return error.response()

    async def surefoots(request: Request, error: Exception) -> Response:
        assert isinstance(error, SurefootError)
        return problem_of(error).response()

    async def frameworks(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(_methods_of(app, request.url.path)) or headers.get("Allow", "GET")
        code = CODE_OF.get(error.status_code, "http_error")
        return Problem(error.status_code, code, _advice(request, error, headers), headers=headers).response()

    async def parameters(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _bad_parameter(error).response()

    async def bugs(request: Request, error: Exception) -> Response:
        trace = "".join(traceback.format_exception(error))
        log(Redactor().patterns(f"{request.method} {request.url.path}: {trace}")[0])
        return Problem(500, "internal_error", "a bug of surefoot; its traceback is in the server's log").response()

    app.add_exception_handler(Exception, bugs)
    app.add_exception_handler(Problem, ours)
    app.add_exception_handler(SurefootError, surefoots)
    app.add_exception_handler(HTTPException, frameworks)
    app.add_exception_handler(RequestValidationError, parameters)


def _methods_of(app: FastAPI, path: str) -> list[str]:
    """The methods of a path: the framework names those of its first route only."""
    paths: Mapping[str, Mapping[str, object]] = app.openapi()["paths"]
    found = {
        method.upper()
        for template, methods in paths.items()
        if re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", template), path)
        for method in methods
    }
    return sorted(found | ({"HEAD"} if "GET" in found else set()))


def _advice(request: Request, error: HTTPException, headers: Mapping[str, str]) -> str:
    if error.status_code == 404:
        return f"there is nothing at {request.url.path}; /openapi.json lists what there is"
    if error.status_code == 405:
        return f"{request.method} is not for {request.url.path}; use {headers['Allow']}"
    return str(error.detail)


def _bad_parameter(error: RequestValidationError) -> Problem:
    first = error.errors()[0]
    place, name = (*map(str, first["loc"]), "")[:2]
    if name == "cursor":
        return bad_cursor()
    return Problem(422, "invalid_input", f"{place} {name}: {first['msg']}", details={"in": place, "name": name})
