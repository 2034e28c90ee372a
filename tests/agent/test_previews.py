"""What a person is shown of a call: what only looks like a secret is hidden in the view, and flagged beside it."""

from __future__ import annotations

import msgspec

from surefoot import Agent, Surefoot, effects, tool
from surefoot.testing.model import FakeModel

TOKEN = "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789"


@tool(effect=effects.opaque, approval="always")
async def publish(body: str) -> str:
    """Publish a text."""
    return body


async def test_what_looks_like_a_secret_is_flagged_in_the_preview(store_url: str) -> None:
    agent = Agent("a", FakeModel([[("publish", {"body": f"see {TOKEN}"})], "end"]), "", [publish])
    async with Surefoot(store_url, [agent], worker=True) as sf:
        run = await sf.start("a", "go")
        asked = (await sf.wait(run.id, timeout=30)).pending_actions[0]
        preview = msgspec.json.encode(asked.preview).decode()
        assert TOKEN not in preview and "[redacted:pattern:github_token]" in preview
        assert "The arguments hold what looks like a secret (github_token)." in preview
