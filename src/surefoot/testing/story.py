"""The standard story of every proof: model, reading tool, gated write, ungated write, final answer."""

from __future__ import annotations

from collections.abc import Callable

from surefoot import effects
from surefoot.agent.agent import Agent
from surefoot.agent.tools import tool
from surefoot.connectors.github import create_issue_comment, read_pull_request
from surefoot.effects import InDoubt, Operation, Receipt
from surefoot.http import Response, client
from surefoot.testing.crash import Scenario
from surefoot.testing.model import FakeModel, Step
from surefoot.testing.world import World

REPO = "acme/app"
NUMBER = 128
API_URL = "https://api.github.com"
TIMEOUT_SECONDS = 15.0
HEADERS = {"Authorization": "Bearer world-token"}


@tool(effect=effects.idempotent(key_lifetime=86_400.0), timeout=TIMEOUT_SECONDS)
async def charge(op: Operation, invoice: str, amount_cents: int) -> Receipt:
    """Charge an invoice. The target drops repeats of the key for a day."""
    async with client(op, base_url=API_URL, headers={**HEADERS, "Idempotency-Key": op.key}) as http:
        body = {"invoice": invoice, "amount_cents": amount_cents}
        return _receipt(await http.post("/billing/charges", json=body))


@tool(effect=effects.opaque, timeout=TIMEOUT_SECONDS)
async def send_mail(op: Operation, to: str, text: str) -> Receipt:
    """Send a mail. Nobody can ask the target about it afterwards; the text carries the key for the judge alone."""
    async with client(op, base_url=API_URL, headers=HEADERS) as http:
        return _receipt(await http.post("/mail/messages", json={"to": to, "text": op.sign(text, place=to)}))


def _receipt(reply: Response) -> Receipt:
    made = reply.json()
    number = made.get("id") if isinstance(made, dict) else None
    if number is None:
        raise InDoubt(f"the target answered {reply.status} without an id", status=reply.status)
    return Receipt(resource_id=str(number), output={"id": number})


def world_with_pull() -> World:
    """A World with the pull request that the story is about, and older comments of other people."""
    world = World()
    world.add_pull(REPO, NUMBER, title="Handle None", body="It crashed.")
    world.add_comments(REPO, NUMBER, 3)
    return world


STORY: tuple[Step, ...] = (
    [("read_pull_request", {"repo": REPO, "number": NUMBER})],
    [("create_issue_comment", {"repo": REPO, "issue_number": NUMBER, "body": "Looks good."})],
    [("note", {"repo": REPO, "issue_number": NUMBER, "body": "Reviewed by an agent."})],
    "The review is posted.",
)


def standard_agents() -> list[Agent]:
    """The reviewer with a scripted model: `create_issue_comment` needs an approval, `note` does not."""
    gated = create_issue_comment.using(approval="always")
    note = create_issue_comment.using(name="note")
    return [Agent("reviewer", FakeModel(STORY), "Review the pull request.", [read_pull_request, gated, note])]


def standard_scenario(*, proven: bool = True, store: Callable[[], str] | None = None) -> Scenario:
    """The standard story as a Scenario for `crash_points`."""
    return Scenario(standard_agents, world_with_pull, input=f"Review {REPO}#{NUMBER}", proven=proven, store=store)
