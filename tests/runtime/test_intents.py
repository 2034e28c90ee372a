"""An intent whose commit is being acknowledged belongs to whoever decided it, whoever looks at the run meanwhile."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from surefoot import Agent, Operation, Receipt, Surefoot, effects, tool
from surefoot.core.events import StepStarted
from surefoot.core.state import Run
from surefoot.store.port import Append
from surefoot.testing import FakeModel

NEWS_SECONDS_MAX = 20.0
QUIET_SECONDS = 0.3
"""Longer than a look at a run takes, for somebody who must not come through."""


async def test_a_look_between_a_commit_and_its_acknowledgement_sends_nothing_twice(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    @tool(effect=effects.opaque)
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append(op.attempt)
        return Receipt(resource_id=str(len(sent)))

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    async with (
        Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf,
        Surefoot(store_url, [agent], log=lambda line: None) as other,
    ):
        append, looked = sf.store.append, asyncio.Event()

        async def slow(decided: Append) -> None:
            """The server has committed, and its answer is on the way while another process says something."""
            await append(decided)
            if not any(isinstance(e, StepStarted) and e.step_id.endswith("_00002") for e in decided.events):
                return
            assert sf.worker is not None
            driver = sf.worker.drivers[decided.after.id]
            load, poke, poked = sf.store.load, driver.poke, asyncio.Event()

            async def noted(tenant_id: str, run_id: str, step_id: str | None = None) -> Run:
                try:
                    return await load(tenant_id, run_id, step_id)
                finally:
                    looked.set()

            def told() -> None:
                poke()
                poked.set()

            with monkeypatch.context() as patched:
                patched.setattr(sf.store, "load", noted)
                patched.setattr(driver, "poke", told)
                assert await other.message(decided.after.id, "And be quick.")
                await asyncio.wait_for(poked.wait(), NEWS_SECONDS_MAX)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(looked.wait(), QUIET_SECONDS)

        monkeypatch.setattr(sf.store, "append", slow)
        run = await sf.wait((await sf.start(agent, "Pay 81.")).id, timeout=20.0)
    assert run.status == "completed"
    assert sent == [1], "a call whose intent was acknowledged was begun again"
