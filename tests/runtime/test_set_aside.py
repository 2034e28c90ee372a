"""Workers of two states of the code side by side: a run that one of them cannot go on with is the other one's."""

from __future__ import annotations

from surefoot import Agent, Operation, Receipt, Tool, ask_person, effects, tool
from surefoot.testing.model import FakeModel
from tests.cases.rig import Sim, story


@story
async def test_a_run_goes_on_though_a_worker_without_its_tool_has_set_it_aside(sim: Sim) -> None:
    """It stood still until some worker was started anew, whoever knew its tool meanwhile."""
    sim.broken.add("I1")  # this target stands outside of the World
    sent: list[str] = []

    @tool(effect=effects.opaque)
    async def send(op: Operation) -> Receipt:
        """Send something, in a while."""
        sent.append(op.key)
        if len(sent) == 1:
            raise effects.Refused("not now", retry_after=30.0)
        return Receipt(resource_id="1")

    def clerk(*tools: Tool) -> Agent:
        return Agent("clerk", FakeModel([[("send", {})], "Sent."]), tools=tools)

    async with sim.surefoot(clerk(send, ask_person)) as old, sim.surefoot(clerk(ask_person)) as new:
        run = await old.start("clerk", "Send it.")
        await sim.until(lambda: sent)
        assert new.worker is not None and old.worker is not None
        held = old.worker
        await sim.until(lambda: run.id not in held.drivers, 20.0)
        claimed = await new.store.claim_one(new.tenant, run.id, new.worker.id, 10.0)
        assert claimed is not None
        await new.worker.adopt(claimed)
        assert (await new.store.run(new.tenant, run.id)).blocked_code == "unknown_tool"
        run = await old.wait(run.id, timeout=60.0)
    assert (run.status, len(sent)) == ("completed", 2)
