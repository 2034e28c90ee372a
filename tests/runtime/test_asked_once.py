"""A call that is to be sent again under a new approval: a person is asked once, and shown all that counts."""

from __future__ import annotations

from surefoot import Absent, Approval, Operation, Receipt, effects, tool
from tests.cases.rig import Sim, ended, story

EXPIRES_SECONDS = 10.0


@story
async def test_an_approval_that_ended_during_a_doubt_is_asked_for_once(sim: Sim) -> None:
    """The question behind the absence did not show what has to hold, so that its answer was asked for a second time."""
    sim.broken.add("I1")  # this target stands outside of the World
    sent: list[int] = []

    def find(op: Operation) -> Absent:
        return Absent(coverage="everything")

    @tool(
        effect=effects.lookup(find, settle=2 * EXPIRES_SECONDS),
        approval=Approval(expires=EXPIRES_SECONDS),
        precondition=lambda op: "the head is f00",
    )
    async def publish(op: Operation) -> Receipt:
        """Publish; the first reply is lost."""
        sent.append(op.attempt)
        if len(sent) == 1:
            raise effects.InDoubt("the connection broke")
        return Receipt(resource_id="p-1")

    agent = sim.agent([[("publish", {})], "Published."], publish)
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start(agent, "Publish it.")).id)
        await sf.approve(run.pending_actions[0].id, by="ann")
        await sim.until(lambda: sent)
        run = await sf.wait(run.id, until=lambda r: any(a.kind == "approve" for a in r.pending_actions))
        assert sent == [1]
        (asked,) = [action for action in run.pending_actions if action.kind == "approve"]
        await sf.approve(asked.id, by="ann")
        run = await sf.wait(run.id, until=lambda r: ended(r) or bool(r.pending_actions))
    assert (run.status, sent) == ("completed", [1, 2])
