"""A process that only performs calls hears of what others say about them, as a worker does."""

from __future__ import annotations

import asyncio

from surefoot import Found, Operation, Receipt, Undetermined, effects, tool
from tests.cases.rig import Sim, story

LONG_SECONDS = 3_000.0
SOON_SECONDS = 30.0


@story
async def test_a_performed_call_ends_soon_after_another_process_says_what_became_of_it(sim: Sim) -> None:
    """It slept on until its own next look, a quarter of an hour later."""
    sim.broken.add("I1")  # this target stands outside of the World

    async def find(op: Operation) -> Undetermined:
        return Undetermined("the target cannot be read")

    @tool(effect=effects.lookup(find, settle=3 * LONG_SECONDS))
    async def pay(op: Operation) -> Receipt:
        """Pay; the reply is lost."""
        raise effects.InDoubt("the connection broke")

    async with sim.surefoot(tools=[pay], worker=False) as sf, sim.surefoot(tools=[pay], worker=False) as other:
        performing = asyncio.ensure_future(sf.perform(pay.call(), key="81", timeout=3 * LONG_SECONDS))
        await sim.pass_time(LONG_SECONDS)
        (run_id,) = await other.store.run_ids(other.tenant)
        assert sf.worker is not None and run_id in sf.worker.drivers
        told_at = sim.machine.clock.elapsed
        await other.report("pay:81", Found(Receipt(resource_id="p-1")))
        receipt = await performing
        took_s = sim.machine.clock.elapsed - told_at
    assert receipt.resource_id == "p-1" and took_s < SOON_SECONDS
