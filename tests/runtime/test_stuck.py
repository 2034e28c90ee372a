"""A call that does not end keeps its run's lease, also where driving the run has failed: it may still act."""

from __future__ import annotations

import threading

import pytest

from surefoot import Agent, Surefoot, effects, tool
from surefoot.core.state import Step
from surefoot.runtime.doubt import settle_step
from surefoot.runtime.held import Held
from surefoot.testing.model import FakeModel
from tests.support import eventually

_release = threading.Event()


@tool(effect=effects.opaque, timeout=0.2)
def stubborn() -> str:
    """Do not end."""
    _release.wait(60)
    return "done"


async def test_a_failed_drive_keeps_the_lease_of_a_call_that_still_runs(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _release.clear()
    failures = 0

    async def broken(held: Held, step: Step) -> list[str]:
        nonlocal failures
        failures += 1
        raise RuntimeError("a bug")

    monkeypatch.setattr("surefoot.runtime.drive.settle_step", broken)
    agent = Agent("a", FakeModel([[("stubborn", {})], "end"]), "", [stubborn])
    async with Surefoot(store_url, [agent], worker=True, lease_seconds=1.5) as sf:
        run = await sf.start("a", "go")
        await eventually(lambda: failures > 0, "the drive fails")
        assert sf.worker is not None
        held = sf.worker.drivers[run.id].held
        first = held.lease_until
        await eventually(lambda: held.lease_until > first + 1.0, "the lease goes on being renewed")
        assert failures == 1, "nobody else drove the run"
        monkeypatch.setattr("surefoot.runtime.drive.settle_step", settle_step)
        _release.set()
        ended = await sf.wait(run.id, timeout=30)
    assert (ended.status, ended.steps[1].status) == ("completed", "succeeded"), "what it came to is written down"
