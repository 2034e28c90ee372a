"""Secrets: C055."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from surefoot.testing import faults as f
from surefoot.testing.world import BOT
from tests.cases.canary import TURNS, forms
from tests.cases.rig import Live

CANARY = "CANARY-1/7f3a9b+c4e2d8==&x y"
OTHER = "CANARY-2/b81c55+d09fe3==&x y"


async def test_c055_a_token_in_the_context_of_a_run_is_kept_nowhere(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", CANARY)
    monkeypatch.setenv("CRM_TOKEN", OTHER)
    for token in (CANARY, OTHER):
        live.world.accounts[token] = BOT
    live.broken = {"I1"}  # the tool invents ids that hold the token
    echoed = f.StatusAfter(500, echo_authorization=True)
    live.fault(echoed, path="/mail/messages")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.cases.canary", live.url,
        env=live.environment, cwd=live.folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(child.communicate(), 60)
    assert child.returncode == 0, err.decode()[-3000:]
    snapshot, events, messages, _ = json.loads(out)
    assert snapshot["status"] == "completed" and len(snapshot["steps"]) >= 2 * TURNS and len(events) > 60
    assert len(live.posts("/mail/messages")) == 3 and len(messages) >= 2 * TURNS
    monkeypatch.setenv("CRM_TOKEN", "")
    shown = [
        await live.shell("runs", "show", snapshot["id"], "--messages"),
        await live.shell("runs", "watch", snapshot["id"]),
        await live.shell("actions", "list"),
        await live.shell("runs", "list"),
    ]
    exits = {"stdout": out, "stderr": err, "command line": json.dumps(shown).encode()}
    held = live.place.held()
    assert sum(map(len, held.values())) > 10_000
    exits |= held
    found = [
        (where, form)
        for token in (CANARY, OTHER)
        for form in forms(token)
        for where, data in exits.items()
        if form.encode() in data or json.dumps(form)[1:-1].encode() in data
    ]
    assert not found, found
