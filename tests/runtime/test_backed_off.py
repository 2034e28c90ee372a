"""A worker that cannot claim backs off, however much others write, and still hears what they write about its runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from surefoot import Agent, Operation, Receipt, Surefoot, effects, tool
from surefoot.core import policy
from surefoot.errors import StoreUnavailable
from surefoot.testing.model import FakeModel
from tests.support import eventually

WRITES = 5


def _noticed_by(sf: Surefoot) -> Callable[[], bool]:
    seen = sf.store.foreign_count()
    return lambda: sf.store.foreign_count() > seen


async def test_what_others_write_is_no_reason_to_claim_sooner(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @tool(effect=effects.read, timeout=60)
    async def wait(op: Operation) -> Receipt:
        """Wait until told to stop."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return Receipt()

    agent = Agent("waiter", FakeModel([[("wait", {})], "Done."]), tools=[wait])
    failed: list[str] = []

    async def no_claim(*given: Any, **named: Any) -> Any:
        raise StoreUnavailable("not now")

    async with (
        Surefoot(store_url, [agent], worker=True, log=failed.append) as sf,
        Surefoot(store_url, [agent], log=lambda line: None) as other,
    ):
        run = await sf.start(agent, "go")
        await begun.wait()
        monkeypatch.setattr(policy, "backoff", lambda *given, **named: 3_600.0)
        monkeypatch.setattr(sf.store, "claim", no_claim)
        ready = await other.start(agent, "another")
        await eventually(lambda: failed, "the first failure")
        for number in range(WRITES):
            noticed = _noticed_by(sf)
            await other.message(ready.id, f"and {number}")
            await eventually(noticed, "the write to be noticed")
        await other.cancel(run.id)
        await asyncio.wait_for(stopped.wait(), 20)
        assert len(failed) == 1 and "claiming failed" in failed[0], failed
        monkeypatch.undo()
