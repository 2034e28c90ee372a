"""What a call did that ended late is evidence, whatever has become of its worker's lease meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

import pytest

from surefoot import Absent, Agent, Found, Operation, Receipt, Surefoot, effects, tool
from surefoot.testing.model import FakeModel
from tests.cases.rig import calls_of, ended
from tests.support import eventually

SECONDS = 30


async def every_lease_lost(tenant_id: str, tokens: Mapping[str, int], lease_s: float) -> Mapping[str, float]:
    """What a renewal answers that comes too late."""
    return {}


async def test_the_late_end_of_a_call_counts_though_its_lease_was_lost_meanwhile(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had not ended in its time, then the lease was lost: what it came to was waited for by nobody any more."""
    began, release = threading.Event(), threading.Event()

    @tool(effect=effects.opaque, timeout=0.5)
    def pay(op: Operation) -> Receipt:
        """Pay, in a thread that nobody can stop."""
        began.set()
        release.wait(60)
        return Receipt(resource_id="p-1")

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    try:
        async with Surefoot(store_url, [agent], worker=True, lease_seconds=1.5, log=lambda line: None) as sf:
            run = await sf.start(agent, "Pay 81.")
            await eventually(began.is_set, "the call has begun")
            assert sf.worker is not None
            driver = sf.worker.drivers[run.id]
            await eventually(lambda: driver.stuck, "it does not end in its time")
            monkeypatch.setattr(sf.store, "renew", every_lease_lost)
            await eventually(lambda: driver.held.lost, "the lease is lost")
            release.set()
            async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as other:
                run = await other.wait(run.id, until=ended, timeout=SECONDS)
    finally:
        release.set()
    (step,) = calls_of(run)
    assert (run.status, step.external_resource_id) == ("completed", "p-1")


async def test_what_a_call_awaits_may_go_on_though_the_call_was_told_to_stop(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the tool's own: the end of the coroutine that awaits it is not its end, and the time-out is."""
    began, release, made = threading.Event(), threading.Event(), list[int]()

    async def find(op: Operation) -> Found | Absent:
        return Found(Receipt(resource_id="p-1")) if made else Absent(coverage="everything")

    def blocking(attempt: int) -> str:
        began.set()
        if attempt == 1:
            release.wait(20)
        made.append(attempt)
        return f"p-{attempt}"

    @tool(effect=effects.lookup(find, settle=0.2), timeout=9.0)
    async def pay(op: Operation) -> Receipt:
        """Pay, by a client that blocks."""
        return Receipt(resource_id=await asyncio.to_thread(blocking, op.attempt))

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    try:
        async with Surefoot(store_url, [agent], worker=True, lease_seconds=1.5, log=lambda line: None) as sf:
            run = await sf.start(agent, "Pay 81.")
            await eventually(began.is_set, "the call has begun")
            monkeypatch.setattr(sf.store, "renew", every_lease_lost)
            async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as other:
                await other.wait(run.id, until=lambda r: bool(calls_of(r)[0].evidence), timeout=SECONDS)
                await other.wait(run.id, until=lambda r: len(calls_of(r)[0].evidence) > 2, timeout=SECONDS)
                assert made == [], "it was sent again while the first request may still go out"
                release.set()
                run = await other.wait(run.id, until=ended, timeout=SECONDS)
    finally:
        release.set()
    assert (run.status, made) == ("completed", [1])
