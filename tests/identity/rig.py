"""A Surefoot with the World as its GitHub, and its app asked without sockets."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx
import pytest

from surefoot import Agent, Approval, Surefoot
from surefoot.agent.tools import ApprovalChoice, Tool
from surefoot.connectors import github
from surefoot.doors import SystemClock
from surefoot.server.callers import Doorman
from surefoot.server.doorman import TokenDoorman
from surefoot.server.factory import create_app
from surefoot.server.options import Options
from surefoot.server.tokens import Tokens, read_given
from surefoot.snapshot import RunSnapshot
from surefoot.testing import faults as f
from surefoot.testing.github_state import Account, Comment, comment_view
from surefoot.testing.model import FakeModel, ScriptedCall
from surefoot.testing.world import BOT, TOKEN, World
from surefoot.testing.world_server import WorldServer
from tests.github.rig import BODY, COMMENTS, NUMBER, REPO, forget_accounts, make_world
from tests.places import Place

SECRET = "the keyring of these tests is known to the tests"
GITHUB_SECRET = "what GitHub signs with, in these tests"
EVIDENCE_SECRET = "what programs sign with, in these tests"
PERMISSIONS = ("read", "start", "approve", "resolve", "evidence", "admin")
WEBHOOK = "/v1/webhooks/github"
HOST = "http://127.0.0.1"
STRANGER = Account("somebody", 77, "User")


def token_of(permission: str) -> str:
    """The token that has this permission alone."""
    return f"{permission}-" + "q7w8" * 8


SETTING = "; ".join(f"{p}-holder {p} {token_of(p)}" for p in PERMISSIONS)


def signed(raw: bytes, event: str = "issue_comment", secret: str = GITHUB_SECRET) -> dict[str, str]:
    """The headers of a delivery, signed as GitHub signs."""
    signature = "sha256=" + hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()
    return {"X-GitHub-Event": event, "X-Hub-Signature-256": signature, "Content-Type": "application/json"}


class Rig:
    """A run that comments, and the app."""

    def __init__(self, sf: Surefoot, world: World, http: httpx.AsyncClient) -> None:
        self.sf = sf
        self.world = world
        self.http = http

    @property
    def comment(self) -> Comment:
        """Our one comment."""
        (made,) = self.world.comments(REPO, NUMBER, author=BOT.login)
        return made

    async def step(self, run_id: str) -> object:
        """The status of the call, and what it was settled by."""
        (step,) = [s for s in (await self.sf.snapshot(run_id)).steps if s.type == "tool_call"]
        return step.status, step.resolution, step.external_resource_id

    async def in_doubt(self, method: str = "POST", path: str = COMMENTS, looks: str = COMMENTS) -> str:
        """A run whose comment (or what is made at `path`) was made, whose reply was lost, and whose looks all fail."""
        self.world.faults.add(f.Rule(f.LostReply(), method=method, path=path))
        self.world.faults.add(f.Rule(f.StatusBefore(500), method="GET", path=looks, times=None))
        run = await self.sf.start("reviewer", "Review it")

        def looked(snapshot: RunSnapshot) -> bool:
            asked = bool(snapshot.pending_actions)
            return any(s.status == "outcome_unknown" and (s.evidence or asked) for s in snapshot.steps)

        await self.sf.wait(run.id, until=looked, timeout=20)
        return run.id

    def delivery(self, comment: Comment | None = None, **changes: object) -> bytes:
        """What GitHub sends when a comment was created."""
        repo = self.world.repos[REPO]
        issue = repo.issues[NUMBER]
        view = comment_view(repo, issue, comment or self.comment, "https://api.github.com")
        told = {
            "action": "created",
            "issue": {"number": NUMBER, "title": "Handle None"},
            "comment": view,
            "repository": {"id": repo.id, "full_name": REPO},
            "sender": view["user"],
        }
        return json.dumps({**told, **changes}).encode()

    async def deliver(self, raw: bytes, *, event: str = "issue_comment", secret: str = GITHUB_SECRET) -> httpx.Response:
        """POST a delivery, signed as GitHub signs."""
        return await self.http.post(WEBHOOK, content=raw, headers=signed(raw, event, secret))

    async def ask(
        self, method: str, path: str, body: object = None, *, token: str | None = None, headers: Mapping[str, str] = {}
    ) -> httpx.Response:
        """One request under a token."""
        own = {} if token is None else {"Authorization": f"Bearer {token_of(token)}"}
        return await self.http.request(method, path, json=body, headers={**own, **headers})


@asynccontextmanager
async def rig_of(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    *,
    gated: bool = False,
    options: Options | None = None,
    doorman: Doorman | None = None,
    body: str = BODY,
    lookup_waits_s: float = 60.0,
    act: tuple[Tool, dict[str, object]] | None = None,
) -> AsyncIterator[Rig]:
    """The rig, over a World on a socket."""
    forget_accounts()
    world = make_world(now=SystemClock().now().wall)
    call: ScriptedCall = ("create_issue_comment", {"repo": REPO, "issue_number": NUMBER, "body": body})
    approval: ApprovalChoice = Approval(expires=3_600) if gated else "never"
    tool: Tool = github.create_issue_comment.using(approval=approval, settle=lookup_waits_s, timeout=5)
    if act is not None:
        tool, call = act[0], (act[0].name, act[1])
    agent = Agent(name="reviewer", model=FakeModel([[call], "Done."]), instructions="Review.", tools=[tool])
    async with WorldServer(world) as url:
        monkeypatch.setenv("GITHUB_API_URL", url)
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        async with Surefoot(place.url, [agent], worker=True, secret=SECRET) as sf:
            tokens = Tokens(sf.store, sf.doors.clock, sf.doors.entropy, read_given(SETTING, "default"))
            made = options or Options(github_secrets=(GITHUB_SECRET,), evidence_secrets=("old", EVIDENCE_SECRET))
            app = create_app(sf, doorman or TokenDoorman(tokens, []), options=made)
            transport = httpx.ASGITransport(app, client=("203.0.113.7", 4242))
            async with httpx.AsyncClient(transport=transport, base_url=HOST) as http:
                yield Rig(sf, world, http)
