"""surefoot's kill test: an agent whose last call posts a comment. The target keeps no keys, so the tool can look.

Started again it asks for the same run by its key, and its worker takes up what the dead one left.
"""

from __future__ import annotations

import asyncio
import sys

from benchmarks.programs.comment import SECONDS_MAX, TEXT, Story, ended
from surefoot import Absent, Agent, Found, Operation, Receipt, Surefoot, Undetermined, effects, tool
from surefoot.agent.model import AssistantMessage, CallPart, ModelRequest, ModelResponse
from surefoot.http import client

STORY = Story(sys.argv[1:])
SETTLE_SECONDS = 0.2


async def find_comment(op: Operation) -> Found | Absent | Undetermined:
    """All comments there are, searched for our key."""
    async with client(op, base_url=STORY.url) as http:
        listed = (await http.get("/comments")).json()
    if not isinstance(listed, list):
        return Undetermined("not a list")
    for comment in listed:
        if op.key in comment["text"]:
            return Found(Receipt(resource_id=str(comment["id"])))
    return Absent(coverage={"comments": len(listed)})


@tool(effect=effects.lookup(find_comment, settle=SETTLE_SECONDS))
async def post_comment(op: Operation) -> Receipt:
    """Post the comment."""
    async with client(op, base_url=STORY.url) as http:
        STORY.about_to_post()
        created = (await http.post("/comments", json={"text": f"hello {op.key}"})).json()
    if not isinstance(created, dict):
        raise effects.InDoubt("the target answered without a comment")
    return Receipt(resource_id=str(created["id"]))


@tool(effect=effects.read)
async def read_page(number: int) -> str:
    """Read a page."""
    return TEXT


class Scripted:
    """Reads so many pages, one in each turn, then posts, then is done."""

    name = "scripted"

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The next answer."""
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
        pages = STORY.steps // 2
        if turn < pages:
            return ModelResponse("", (CallPart(f"call_{turn}", "read_page", f'{{"number": {turn}}}'),))
        return ModelResponse("", (CallPart("call_post", "post_comment", "{}"),)) if turn == pages else ModelResponse("")


async def run() -> str:
    """Start the run, or go on with it, until it has ended. Raises WaitTimeout."""
    agent = Agent("commenter", Scripted(), tools=[read_page, post_comment], turns=STORY.steps + 2)
    url = STORY.database or f"sqlite:///{STORY.folder.resolve() / 'app.db'}"
    async with Surefoot(url, [agent], worker=True) as sf:
        started = await sf.start(agent, "Comment.", key="the-one")
        ended = await sf.wait(started.id, timeout=SECONDS_MAX)
        return ended.status


if __name__ == "__main__":
    ended(lambda: asyncio.run(run()))
