"""A double of the billing service in examples/billing.py: it keeps a reference and loses messages as told."""

from __future__ import annotations

import time
from datetime import datetime

import msgspec

from surefoot.testing.sockets import HttpServer
from surefoot.testing.wire import Outcome, WireRequest, json_reply

PAGE = 2
TOKEN = "billing-token-of-the-test"


class Billing:
    """The service: `async with HttpServer(billing.serve)`. Of the POSTs, the first ones are lost as told.

    `lost_requests` are lost on their way there, then `lost_replies` on the way back; `refused_looks` listings get 403.
    """

    def __init__(self, *, lost_requests: int = 0, lost_replies: int = 0, refused_looks: int = 0) -> None:
        self.invoices: list[dict[str, object]] = []
        self.posts = 0
        self.looks = 0
        self._lost_requests = lost_requests
        self._lost_replies = lost_replies
        self._refused_looks = refused_looks

    def server(self) -> HttpServer:
        """The service on a port of the loopback interface."""
        return HttpServer(self.serve)

    async def serve(self, request: WireRequest) -> Outcome:
        """One request."""
        now = time.time()
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Outcome(1, json_reply(401, {"message": "who are you?"}), now)
        if request.method == "POST":
            return self._create(msgspec.json.decode(request.body, type=dict[str, object]), now)
        self.looks += 1
        if self.looks <= self._refused_looks:
            return Outcome(1, json_reply(403, {"message": "not now"}), now)
        return Outcome(1, json_reply(200, self._page(request)), now)

    def _create(self, order: dict[str, object], now: float) -> Outcome:
        self.posts += 1
        if self.posts <= self._lost_requests:
            return Outcome(1, None, now, close="reset")
        number = f"inv_{len(self.invoices) + 1}"
        made = {**order, "id": number, "url": f"https://billing.example.com/{number}", "status": "sent", "at": now}
        self.invoices.append(made)
        if self.posts <= self._lost_requests + self._lost_replies:
            return Outcome(1, None, now, close="reset")
        return Outcome(1, json_reply(201, made), now)

    def _page(self, request: WireRequest) -> list[dict[str, object]]:
        since = datetime.fromisoformat(request.query["since"]).timestamp()
        first = (int(request.query["page"]) - 1) * PAGE
        return [i for i in self.invoices if float(str(i["at"])) >= since][first : first + PAGE]
