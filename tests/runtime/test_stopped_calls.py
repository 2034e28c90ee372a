"""A worker stops while a call runs: what the call did is recorded where it still says so, else it is in doubt."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from surefoot import Operation, Receipt, Surefoot, effects, tool
from surefoot.agent.tools import Tool
from surefoot.errors import OutcomeUnknown, SurefootError
from surefoot.runtime.execute import Call
from surefoot.snapshot import StepView
from tests.support import eventually

DONE = Receipt(resource_id="81")


class Told:
    """Tools whose calls are under way when the worker stops."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_end = threading.Event()

        @tool(effect=effects.opaque)
        def in_a_thread(op: Operation) -> Receipt:
            """Send it; nobody can tell a thread to stop."""
            self.calls += 1
            self.may_end.wait(20.0)
            return DONE

        @tool(effect=effects.opaque)
        async def finishes(op: Operation) -> Receipt:
            """Send it, and read the reply that is there already."""
            with contextlib.suppress(asyncio.CancelledError):
                await self._begun()
            return DONE

        @tool(effect=effects.opaque)
        async def refused(op: Operation) -> Receipt:
            """Ask for it, and read that it is refused."""
            with contextlib.suppress(asyncio.CancelledError):
                await self._begun()
            raise effects.Refused("no such account")

        @tool(effect=effects.opaque)
        async def breaks(op: Operation) -> Receipt:
            """Send it, and fail in an odd way."""
            with contextlib.suppress(asyncio.CancelledError):
                await self._begun()
            raise RuntimeError("the session is closed")

        @tool(effect=effects.opaque)
        async def stops(op: Operation) -> Receipt:
            """Send it, and hear nothing."""
            await self._begun()
            return DONE

        self.tools = {one.name: one for one in (in_a_thread, finishes, refused, breaks, stops)}

    async def _begun(self) -> None:
        self.calls += 1
        await asyncio.get_running_loop().create_future()


async def stopped(store_url: str, told: Told, called: Tool) -> StepView:
    """The step of a call that was under way when its worker was told to stop, as the next process finds it."""
    async with Surefoot(store_url, log=lambda line: None) as sf:
        performing = asyncio.ensure_future(sf.perform(called.call(), key="81", timeout=20.0))
        await eventually(lambda: told.calls, "the call")
        closing = asyncio.ensure_future(sf.close(grace_seconds=1.0))
        assert sf.worker is not None
        (driver,) = sf.worker.drivers.values()
        await eventually(
            lambda: any(task.cancelling() for task in driver._tasks.values()) or closing.done(), "the stop"
        )
        told.may_end.set()
        await closing
        performing.cancel()
        with contextlib.suppress(asyncio.CancelledError, SurefootError):
            await performing
    async with Surefoot(store_url, log=lambda line: None) as sf:
        (run,) = await sf.store.runs(sf.tenant, status=None, agent=None, before=None, limit=10)
        (step,) = (await sf.snapshot(run.run.id)).steps
    assert told.calls == 1
    return step


@pytest.mark.parametrize("name", ["in_a_thread", "finishes"])
async def test_a_call_that_ends_as_it_is_told_to_stop_has_its_receipt(store_url: str, name: str) -> None:
    step = await stopped(store_url, told := Told(), told.tools[name])
    assert (step.status, step.external_resource_id, step.attempt) == ("succeeded", "81", 1)


async def test_a_refusal_that_comes_as_it_is_told_to_stop_counts(store_url: str) -> None:
    step = await stopped(store_url, told := Told(), told.tools["refused"])
    assert (step.status, step.error_code) == ("failed", "refused")


@pytest.mark.parametrize("name", ["breaks", "stops"])
async def test_what_it_does_not_say_stays_in_doubt(store_url: str, name: str) -> None:
    step = await stopped(store_url, told := Told(), told.tools[name])
    assert step.status in ("outcome_unknown", "running") and step.external_resource_id is None


async def test_a_thread_that_is_told_to_stop_behind_its_time_out_is_not_forgotten(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgotten, its run would be given back, while it may still act."""
    may_end, told = threading.Event(), asyncio.Event()
    cancel = Call.cancel

    def noted(call: Call) -> None:
        cancel(call)
        told.set()

    @tool(effect=effects.opaque, timeout=0.2)
    def stubborn(op: Operation) -> Receipt:
        """Send it, and do not end."""
        may_end.wait(20.0)
        return DONE

    monkeypatch.setattr(Call, "cancel", noted)
    async with Surefoot(store_url, log=lambda line: None) as sf:
        performing = asyncio.ensure_future(sf.perform(stubborn.call(), key="81", timeout=20.0))
        await asyncio.wait_for(told.wait(), 20.0)
        assert sf.worker is not None
        (driver,) = sf.worker.drivers.values()
        driver.stop()
        driver.cancel()
        try:
            await eventually(lambda: driver.stuck or not driver._tasks, "the call is in doubt")
            assert driver.stuck
        finally:
            may_end.set()
        with contextlib.suppress(OutcomeUnknown):
            await performing
        await eventually(lambda: not driver._tasks, "its end is written down")
        assert await sf.perform(stubborn.call(), key="81", timeout=20.0) == DONE
