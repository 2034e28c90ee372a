"""An answer of server-sent events: writes what a reader has, keeps the connection alive, and lets slow clients go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from surefoot.errors import SurefootError
from surefoot.server.problems import Problem
from surefoot.server.streams import Reader, control_frame

MEDIA_TYPE = "text/event-stream"
RETRY_MILLISECONDS = 1_000
ALLOWED_SECONDS = 1.0
"""For so long an answer that the caller may read is believed: a revoked token's stream ends with its next frame."""
HEADERS = {
    "Content-Type": f"{MEDIA_TYPE}; charset=utf-8",
    "Cache-Control": "no-store",
    # nginx would hold events back.
    "X-Accel-Buffering": "no",
}


class EventStream(Response):
    """Events to one client until the run is over, the client leaves, is too slow, or the server stops."""

    def __init__(self, reading: AbstractContextManager[Reader], still_allowed: Callable[[], Awaitable[object]]) -> None:
        """`still_allowed` raises where the caller may not read any more: asked again before what is written."""
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._reading = reading
        self._still_allowed = still_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the stream."""
        with self._reading as reader:
            writing = asyncio.current_task()
            assert writing is not None
            reader.let_go = writing.cancel
            leaving = asyncio.ensure_future(_notice_leaving(receive, reader))
            try:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await _write(send, b"retry: %d\n\n" % RETRY_MILLISECONDS)
                await _frames(reader, send, self._still_allowed)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            except OSError:
                return  # gone
            except asyncio.CancelledError:
                # Too slow: nothing more can be said. Uvicorn closes a connection whose answer is not complete.
                if not reader.slow or writing.uncancel():
                    raise
            finally:
                leaving.cancel()


async def _frames(reader: Reader, send: Send, still_allowed: Callable[[], Awaitable[object]]) -> None:
    clock = asyncio.get_running_loop().time
    asked = clock()
    try:
        while (chunk := await reader.next()) is not None:
            if clock() - asked >= ALLOWED_SECONDS:
                await still_allowed()
                asked = clock()
            await _write(send, chunk or b": alive\n\n")
    except (SurefootError, Problem):
        return  # it cannot be read just now, or not by this caller: the client comes again and is told why
    if reader.over:
        await _write(send, control_frame("end", {"last_event_sequence": reader.after}))


async def _write(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _notice_leaving(receive: Receive, reader: Reader) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.leave()
