"""What comes in is one clear request or none: what is said twice is refused, and HEAD is GET without its body.

Two readers of the same request (a proxy and this server, two parsers of JSON) must not read two things in it.
"""

from __future__ import annotations

import asyncio
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surefoot.server.problems import Problem

ONCE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"last-event-id",
        b"origin",
        b"transfer-encoding",
        b"webhook-id",
        b"webhook-signature",
        b"webhook-timestamp",
        b"x-csrf-token",
        b"x-github-event",
        b"x-hub-signature-256",
    }
)
"""Headers with one value: of two, one reader takes the first and another the last."""
PLACED = ("route", "endpoint", "path_params")
"""What the router writes down beside a request."""


class Strict:
    """An ASGI middleware: refuses what is said twice, and answers HEAD as GET."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = refusal(scope)
        if refused is not None:
            await refused.response()(scope, receive, send)
        elif scope["method"] == "HEAD":
            await self._head(scope, send)
        else:
            await self._app(scope, receive, send)

    async def _head(self, scope: Scope, send: Send) -> None:
        """The answer's status and headers, without its body. A stream ends where it begins."""
        asked = {**scope, "method": "GET"}
        told = asyncio.Event()

        async def leave_once_told() -> Message:
            await told.wait()
            return {"type": "http.disconnect"}

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope.update({name: asked[name] for name in PLACED if name in asked})
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                told.set()

        await self._app(asked, leave_once_told, without_body)


def refusal(scope: Scope) -> Problem | None:
    """Why this is no clear request, or None."""
    names = [name for name, _ in scope["headers"] if name in ONCE]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1).decode()
        return Problem(400, "repeated_header", f"the header {twice} came more than once; send it once")
    query: bytes = scope["query_string"]
    given = [part.partition(b"=")[0] for part in query.split(b"&") if part]
    if len(set(given)) < len(given):
        shown = next(name for name in given if given.count(name) > 1).decode("ascii", "replace")[:100]
        return Problem(400, "repeated_parameter", f"the parameter {shown} came more than once; send it once")
    if b"\0" in unquote_to_bytes(query) or "\0" in scope["path"]:
        return Problem(400, "bad_request", "an address holds no NUL")
    return None
