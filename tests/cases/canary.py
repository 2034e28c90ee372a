"""A process whose run meets secrets everywhere: `python -m tests.cases.canary STORE`. It tells all that it may tell.

GITHUB_TOKEN is known from the start; CRM_TOKEN is known once a tool has asked for it.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from urllib.parse import quote

import msgspec

from surefoot import Agent, Operation, Receipt, Surefoot, effects, http, tool
from surefoot.agent.tools import Tool
from surefoot.testing.model import FakeModel, ScriptedCall
from tests.cases.rig import READ, post_comment, read_pull

TURNS = 10
TOKENS = ("GITHUB_TOKEN", "CRM_TOKEN")


def forms(token: str) -> list[str]:
    """What a careless server, library or person makes of a token."""
    raw = token.encode()
    basic = base64.b64encode(b"bot:" + raw).decode()
    return [token, base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), quote(token, safe=""), basic]


@tool(effect=effects.read)
async def echo(op: Operation, number: int) -> dict[str, object]:
    """Answer with every form of both tokens, as key and as value."""
    every = [form for name in TOKENS for form in forms(op.secret(name) or "")]
    return {"number": number, "seen": every, every[number % len(every)]: "as a key", "url": f"https://x/?t={every[3]}"}


@tool(effect=effects.opaque, timeout=10)
async def send(op: Operation, number: int) -> Receipt:
    """Send with the token in a header; the server echoes it in its errors."""
    token = op.secret("CRM_TOKEN") or ""
    headers = {"Authorization": f"Bearer {token}", "X-Token": token, "Idempotency-Key": op.key}
    async with http.client(op, base_url=os.environ["GITHUB_API_URL"], headers=headers) as client:
        reply = await client.post("/mail/messages", json={"to": "x", "text": f"{number}"}, allow=(429, 500))
    return Receipt(resource_id=f"{reply.status} {reply.text}", url=f"https://x/{token}", error=reply.text)


@tool(effect=effects.read)
async def fail(op: Operation, number: int) -> str:
    """Raise with a token in the text, chained."""
    try:
        raise ValueError(f"first {op.secret('CRM_TOKEN')}")
    except ValueError as error:
        raise RuntimeError(f"{op.secret('GITHUB_TOKEN')} and {forms(op.secret('CRM_TOKEN') or '')}") from error


async def main(store: str) -> None:
    """One run of twenty steps and more."""
    github, crm = (os.environ[name] for name in TOKENS)
    calls: list[ScriptedCall] = [("echo", {"number": 1}), ("send", {"number": 2}), ("fail", {"number": 3}), READ]
    calls += [("create_issue_comment", {"repo": "acme/app", "issue_number": 128, "body": f"The token is {github}."})]
    calls += [("fail", f'{{"number": "{crm}"}}'), (f"no_tool_{github}", "{}"), ("send", {"number": 8})]
    calls += [("echo", {"number": 9}), ("send", {"number": 10})]
    script: list[str | list[ScriptedCall]] = [[call] for call in calls]
    script += [f"The token is {github}, or {forms(crm)}."]
    tools: list[Tool] = [echo, send, fail, read_pull, post_comment(gated=True)]
    agent = Agent(name="reviewer", model=FakeModel(script), instructions=f"Use {github}.", tools=tools)
    async with Surefoot(store, [agent], worker=True) as sf:
        for name in TOKENS:
            sf.context.secrets.get(name)
        context = {"token": github, "headers": {"Authorization": forms(github)}, crm: 1}
        run = await sf.start("reviewer", f"My token is {github} {crm}.", metadata=context, key=github, by=github)
        await sf.message(run.id, f"Again: {forms(github)}")
        done = await sf.wait(run.id, timeout=60)
        told = [done, [e async for e in sf.events(run.id)], await sf.messages(run.id), await sf.actions()]
        print(msgspec.json.encode(told).decode())
        sf.context.log(f"a log line with {github} and {forms(crm)}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
