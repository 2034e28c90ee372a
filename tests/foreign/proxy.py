"""A proxy in front of a service that is not ours: it forwards, and misbehaves once where it is told to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal

import httpx
import msgspec

from surefoot.testing.faults import path_matches
from surefoot.testing.sockets import HttpServer
from surefoot.testing.wire import Close, Outcome, Reply, WireRequest, json_reply

Mishap = Literal["lost_request", "lost_reply", "502_before", "502_after", "hang_before", "hang_after", "late"]
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding", "host"}
TIMEOUT_SECONDS = 20.0


class Seen(msgspec.Struct, frozen=True):
    """One request that passed, or did not."""

    method: str
    path: str
    status: int | None
    """What the service answered; None where it never saw the request."""


class Trap(msgspec.Struct):
    """What happens to the next request that fits."""

    method: str
    path: str
    mishap: Mishap
    late_seconds: float = 0.3
    after: Callable[[], None] | None = None
    """Called once the service has answered, before anybody hears of it."""


class Proxy(HttpServer):
    """Stands before `upstream`; `async with Proxy(url) as url`."""

    def __init__(self, upstream: str) -> None:
        super().__init__(self._serve)
        self._client = httpx.AsyncClient(base_url=upstream, timeout=TIMEOUT_SECONDS)
        self._late: set[asyncio.Task[Reply]] = set()
        self.traps: list[Trap] = []
        self.seen: list[Seen] = []

    def requests(self, method: str, path: str) -> list[Seen]:
        """What passed, by method and by a path pattern as in Rule."""
        return [one for one in self.seen if one.method == method and path_matches(path, one.path)]

    async def stop(self) -> None:
        """Stop; what is late arrives first."""
        if self._late:
            await asyncio.wait(self._late)
        await super().stop()
        await self._client.aclose()

    async def settle(self) -> None:
        """Wait until nothing is on its way any more."""
        while self._late:
            await asyncio.wait(self._late)

    async def _serve(self, request: WireRequest) -> Outcome:
        trap = next((t for t in self.traps if t.method == request.method and path_matches(t.path, request.path)), None)
        if trap is None:
            return Outcome(0, await self._forward(request), time.time())
        self.traps.remove(trap)
        return await self._mishap(request, trap)

    async def _mishap(self, request: WireRequest, trap: Trap) -> Outcome:
        if trap.mishap == "late":
            task = asyncio.ensure_future(self._forward(request, after_seconds=trap.late_seconds))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            return Outcome(0, None, time.time(), "reset")
        if trap.mishap in ("lost_request", "502_before", "hang_before"):
            self.seen.append(Seen(request.method, request.path, None))
        else:
            await self._forward(request)
        if trap.after is not None:
            trap.after()
        if trap.mishap in ("502_before", "502_after"):
            return Outcome(0, json_reply(502, {"message": "Bad Gateway"}), time.time())
        close: Close = "hang" if trap.mishap in ("hang_before", "hang_after") else "reset"
        return Outcome(0, None, None if close == "hang" else time.time(), close)

    async def _forward(self, request: WireRequest, *, after_seconds: float = 0.0) -> Reply:
        if after_seconds:
            loop = asyncio.get_running_loop()
            over: asyncio.Future[None] = loop.create_future()
            loop.call_later(after_seconds, over.set_result, None)
            await over
        headers = {name: value for name, value in request.headers.items() if name not in HOP_BY_HOP}
        answer = await self._client.request(request.method, request.target, headers=headers, content=request.body)
        self.seen.append(Seen(request.method, request.path, answer.status_code))
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
        return Reply(answer.status_code, kept, answer.content)
