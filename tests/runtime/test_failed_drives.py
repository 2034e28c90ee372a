"""A drive that fails while calls are under way keeps their lease until they have ended, and begins nothing more."""

from __future__ import annotations

import asyncio
import threading

import pytest

from surefoot import Absent, Agent, Found, Operation, Receipt, Surefoot, effects, tool
from surefoot.core import policy
from surefoot.core.state import Run, Step
from surefoot.errors import StoreUnavailable
from surefoot.runtime.doubt import settle_step
from surefoot.runtime.failures import DRIVES_FAILED_MAX, STORE_PAUSE_SECONDS_MAX
from surefoot.runtime.held import Held
from surefoot.testing.model import FakeModel
from tests.support import eventually

LATER_SECONDS = 3.0
"""Longer than the pause behind a failed drive, the call's time-out and its settle time together."""
OUTAGE_DRIVES = 2 * DRIVES_FAILED_MAX
"""So many drives fail while the store is away: more than a bug may make fail."""


async def test_a_thread_is_not_forgotten_where_a_look_at_its_run_fails(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[int] = []
    made: list[int] = []
    release = threading.Event()

    async def find(op: Operation) -> Absent:
        return Absent(coverage="everything: the effect is still to come")

    @tool(effect=effects.lookup(find, settle=0.1), timeout=0.5)
    def pay(op: Operation) -> Receipt:
        """Pay, in a thread that nobody can stop."""
        began.append(op.attempt)
        release.wait(60)
        made.append(op.attempt)
        return Receipt(resource_id=str(op.attempt))

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, lease_seconds=1.5, log=lambda line: None) as sf:
        run = await sf.start(agent, "Pay 81.")
        await eventually(lambda: bool(began), "the call has begun")
        assert sf.worker is not None
        held = sf.worker.drivers[run.id].held
        await _one_look_fails(sf, run.id, monkeypatch)
        failed_at = held.lease_until
        try:
            await eventually(lambda: held.lease_until > failed_at + LATER_SECONDS, "the lease goes on being renewed")
            assert began == [1], "it was sent again while the first attempt was still under way"
        finally:
            release.set()
        run = await sf.wait(run.id, timeout=30)
    assert run.status == "completed"
    assert made == [1]


async def test_a_call_goes_on_to_its_end_where_the_work_on_another_fails(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that nobody can look for would be a question, and for no reason."""
    mailed, failed = asyncio.Event(), asyncio.Event()

    async def find(op: Operation) -> Absent:
        return Absent(coverage="everything")

    @tool(effect=effects.lookup(find, settle=0.1))
    async def pay(op: Operation) -> Receipt:
        """Pay; the first reply is lost."""
        if op.attempt == 1:
            raise effects.InDoubt("the connection broke")
        return Receipt(resource_id=str(op.attempt))

    @tool(effect=effects.opaque)
    async def mail(op: Operation) -> Receipt:
        """Mail, for a while."""
        await mailed.wait()
        return Receipt(resource_id="m-1")

    async def once(held: Held, step: Step) -> list[str]:
        if failed.is_set():
            return await settle_step(held, step)
        failed.set()
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("surefoot.runtime.drive.settle_step", once)
    agent = Agent("clerk", FakeModel([[("pay", {}), ("mail", {})], "Done."]), tools=[pay, mail])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.start(agent, "Pay and mail.")
        await asyncio.wait_for(failed.wait(), 20)
        await eventually(lambda: sf.worker is None or sf.worker.drivers[run.id].failure is not None, "it is known")
        mailed.set()
        run = await sf.wait(run.id, timeout=30)
    assert (run.status, [step.status for step in run.steps[1:3]]) == ("completed", ["succeeded", "succeeded"])
    assert [step.external_resource_id for step in run.steps[1:3]] == ["2", "m-1"]


async def _one_look_fails(sf: Surefoot, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is out of reach just when somebody else has written to the run."""
    assert sf.worker is not None
    load, failed = sf.store.load, asyncio.Event()

    async def away(tenant_id: str, wanted: str, step_id: str | None = None) -> Run:
        if failed.is_set():
            return await load(tenant_id, wanted, step_id)
        failed.set()
        raise StoreUnavailable("the store is away for a moment")

    monkeypatch.setattr(sf.store, "load", away)
    sf.worker.drivers[run_id].poke()
    await asyncio.wait_for(failed.wait(), 20)


async def test_a_run_goes_on_soon_behind_a_long_outage_of_the_store(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each drive of a long outage fails. That says nothing about the run: neither rests it long, nor is it set aside
    by the first bug behind the outage.
    """
    pauses: list[float] = []
    backoff, drives, away = policy.backoff, 0, True

    def short(count: int, jitter: float, **bounds: float) -> float:
        full_s = backoff(count, jitter, **bounds)
        if away:
            pauses.append(full_s)
        return min(full_s, 0.005)

    async def fails(held: Held, step: Step) -> list[str]:
        nonlocal drives, away
        drives += 1
        if drives <= OUTAGE_DRIVES:
            raise StoreUnavailable("the store is away for long")
        away = False
        if drives == OUTAGE_DRIVES + 1:
            raise RuntimeError("a bug of ours")
        return await settle_step(held, step)

    async def find(op: Operation) -> Found:
        return Found(Receipt(resource_id="p-1"))

    @tool(effect=effects.lookup(find, settle=0.1))
    async def pay(op: Operation) -> Receipt:
        """Pay; the reply is lost."""
        raise effects.InDoubt("the connection broke")

    monkeypatch.setattr(policy, "backoff", short)
    monkeypatch.setattr("surefoot.runtime.drive.settle_step", fails)
    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.start(agent, "Pay 81.")
        run = await sf.wait(run.id, timeout=30)
    assert run.status == "completed" and drives == OUTAGE_DRIVES + 2
    assert len(pauses) >= OUTAGE_DRIVES and max(pauses) <= STORE_PAUSE_SECONDS_MAX
