"""Every effectful tool with what it is called with, what its effect looks like in the World's log, and its grade."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from surefoot import Operation, Receipt, effects, tool
from surefoot.agent.tools import Tool
from surefoot.connectors import github, http
from surefoot.http import client
from surefoot.testing.faults import path_matches
from surefoot.testing.github_state import Review
from surefoot.testing.machine import Process
from surefoot.testing.virtual import Network, Trip
from surefoot.testing.wire import Applied, Received, WireRequest
from surefoot.testing.world import BOT, World
from tests.cases.rig import DAY, NUMBER, REPO, Sim

Grade = Literal["searched", "repeated", "blind"]
"""After doubt: looked for and never blindly sent again; sent again, and the target drops it; a person is asked."""
TRACKER = "acme/tracker"
SETTLE = 5.0
CHARGES = "https://api.github.com/billing/charges"


class Probe(msgspec.Struct, frozen=True):
    """One tool."""

    tool: Tool
    arguments: Callable[[World], Mapping[str, object]]
    method: str
    path: str
    kind: str
    grade: Grade
    once: bool = False
    """However late a request arrives: the target itself makes sure that there is one effect."""

    def requests(self, world: World) -> list[Received]:
        """The requests that wanted the effect, as they arrived."""
        return world.requests(self.method, self.path)

    def made(self, world: World) -> list[Applied]:
        """What came of them."""
        return [e for e in world.log if isinstance(e, Applied) and e.request and e.kind == self.kind]

    def wants(self, wire: WireRequest) -> bool:
        """Whether a request is the effect's own."""
        return wire.method == self.method and path_matches(self.path, wire.path)


@tool(effect=effects.opaque, credential="GITHUB_TOKEN", timeout=15)
async def send_mail(op: Operation, to: str, text: str) -> Receipt:
    """Send a mail through a service that keeps no keys and cannot be searched."""
    headers = {"Authorization": f"Bearer {op.secret('GITHUB_TOKEN')}"}
    async with client(op, base_url="https://api.github.com", headers=headers) as mail:
        made = (await mail.post("/mail/messages", json={"to": to, "text": text})).json()
    return Receipt(resource_id=str(made["id"]) if isinstance(made, dict) else None)


def charge(amount_cents: int, customer: str) -> dict[str, object]:
    """Charge a customer."""
    return {"amount": amount_cents, "customer": customer}


def charging(**options: object) -> Tool:
    """The World's billing service, which keeps keys for a day."""
    fixed: dict[str, object] = {"url": CHARGES, "key_lifetime": DAY, "credential": "GITHUB_TOKEN", "timeout": 15.0}
    settings = {**fixed, **options}
    return http.post("charge", parameters=charge, **settings)  # type: ignore[arg-type]  # as given


def tracker(world: World) -> None:
    """A repository with a history: an issue from the day before."""
    world.now -= DAY
    world.add_issue(TRACKER, 1, title="An old one")
    world.now += DAY


def _pull(world: World) -> dict[str, object]:
    return {"repo": REPO, "number": NUMBER}


def _review(world: World) -> dict[str, object]:
    return {**_pull(world), "body": "Please change `None`.", "event": "REQUEST_CHANGES"}


def _merge(world: World) -> dict[str, object]:
    pull = world.repos[REPO].issues[NUMBER].pull
    assert pull is not None
    return {**_pull(world), "head_sha": pull.head_sha}


def _issue(world: World) -> dict[str, object]:
    tracker(world)
    return {"repo": TRACKER, "title": "It crashes", "body": "With `None`."}


def _on_issue(world: World) -> dict[str, object]:
    return {"repo": REPO, "issue_number": NUMBER}


def _comment_id(world: World) -> dict[str, object]:
    return {"repo": REPO, "comment_id": world.add_comment(REPO, NUMBER, "Twice.", author=BOT.login).id}


def _review_id(world: World) -> dict[str, object]:
    pull = world.repos[REPO].issues[NUMBER].pull
    assert pull is not None
    pull.reviews.append(Review(world.new_id(), BOT, "Fine.", "APPROVED", world.now))
    return {**_pull(world), "review_id": pull.reviews[-1].id, "message": "Twice."}


PROBES = [
    Probe(
        github.create_issue_comment.using(settle=SETTLE), lambda w: {**_on_issue(w), "body": "Looks good."},
        "POST", "**/issues/*/comments", "comment", "searched",
    ),
    Probe(github.create_review.using(settle=SETTLE), _review, "POST", "**/pulls/*/reviews", "review", "searched"),
    Probe(github.create_issue.using(settle=SETTLE), _issue, "POST", f"/repos/{TRACKER}/issues", "issue", "searched"),
    Probe(
        github.merge_pull_request.using(settle=SETTLE), _merge, "PUT", "**/merge", "merge", "searched", once=True
    ),
    Probe(
        github.add_labels, lambda w: {**_on_issue(w), "labels": ["bug", "crash"]},
        "POST", "**/labels", "labels", "repeated", once=True,
    ),
    Probe(github.close_issue, _on_issue, "PATCH", "**/issues/*", "issue_closed", "repeated", once=True),
    Probe(
        github.delete_issue_comment, _comment_id, "DELETE", "**/issues/comments/*", "comment_deleted", "repeated",
        once=True,
    ),
    Probe(
        github.dismiss_review, _review_id, "PUT", "**/dismissals", "review_dismissed", "repeated", once=True
    ),
    Probe(
        charging(), lambda w: {"amount_cents": 900, "customer": "C1"},
        "POST", "/billing/charges", "charge", "repeated", once=True,
    ),
    Probe(send_mail, lambda w: {"to": "a@example.com", "text": "Hello"}, "POST", "/mail/messages", "mail", "blind"),
]  # fmt: skip


class Killing:
    """Kills whoever sends the effect's own request, once, at one passage of it."""

    def __init__(self, sim: Sim, probe: Probe, at: tuple[str, str]) -> None:
        self._probe = probe
        self._at = at
        self._last: dict[str, WireRequest] = {}
        self.killed: list[str] = []
        sim.machine.network = Network(self._trip)
        sim.machine.observe = self._observe

    def _trip(self, wire: WireRequest, process_name: str) -> Trip:
        self._last[process_name] = wire
        return Trip()

    def _observe(self, process: Process, name: str, when: str) -> None:
        wire = self._last.get(process.name)
        if self.killed or wire is None or (name, when) != self._at or not self._probe.wants(wire):
            return
        self.killed.append(process.name)
        process.kill_here()
