"""When a worker asks the store what it could take: not while it has no room, nor because a run is over for good."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Operation, Receipt, effects, tool
from tests.cases.rig import Sim, calls_of, story


@story
async def test_a_full_worker_does_not_ask_again_and_again_what_it_could_take(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked fifty times a second, as long as a run waited that it had no room for."""
    sim.broken.add("I1")  # this target stands outside of the World
    began, asked, sent = asyncio.Event(), list[float](), list[str]()

    @tool(effect=effects.opaque, timeout=600)
    async def send(op: Operation) -> Receipt:
        """Send something; the first time slowly."""
        sent.append(op.key)
        if len(sent) == 1:
            began.set()
            await sim.pass_time(60.0)
        return Receipt(resource_id=str(len(sent)))

    agent = sim.agent([[("send", {})], "Sent.", [("send", {})], "Sent."], send)
    async with sim.surefoot(agent, capacity=1) as sf:
        first = await sf.start(agent, "Send it.")
        await began.wait()
        second = await sf.start(agent, "Send that.")
        next_wake = sf.store.next_wake

        async def counted(tenant_id: str, agents: object = None) -> tuple[float | None, float | None]:
            asked.append(sf.store.now().mono)
            return await next_wake(tenant_id)

        monkeypatch.setattr(sf.store, "next_wake", counted)
        await sim.pass_time(50.0)
        assert len(sent) == 1 and len(asked) < 10
        runs = [await sf.wait(run.id, timeout=60.0) for run in (first, second)]
    assert [(run.status, *(step.status for step in calls_of(run))) for run in runs] == [("completed", "succeeded")] * 2


@story
async def test_a_run_that_leaves_nothing_to_do_is_no_reason_to_ask(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asked behind each run, though nothing could be there that was not before."""
    agent = sim.agent(["Done."] * 20)
    async with sim.surefoot(agent) as sf:
        await sf.wait((await sf.start(agent, "Do it.")).id, timeout=60.0)
        await sim.pass_time(0.5)
        claim, asked, before = sf.store.claim, list[float](), sf.store.now().mono

        async def counted(*given: object) -> object:
            asked.append(sf.store.now().mono)
            return await claim(*given)  # type: ignore[arg-type]  # as the worker has it

        monkeypatch.setattr(sf.store, "claim", counted)
        for _ in range(19):
            run = await sf.wait((await sf.start(agent, "Do it.")).id, timeout=60.0)
            assert run.status == "completed"
        assert len(asked) <= 1 + (sf.store.now().mono - before) / 0.5
