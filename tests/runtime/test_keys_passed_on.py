"""A business key that another call took after the first had failed: what is found under it is the other one's."""

from __future__ import annotations

import pytest

from surefoot import Absent, Found, Operation, Receipt, effects, tool
from surefoot.errors import PerformFailed
from tests.cases.rig import DAY, Sim, story


@story
@pytest.mark.parametrize("doubled", [False, True])
async def test_what_a_later_call_made_under_the_same_key_is_not_taken_for_the_failed_one(
    sim: Sim, doubled: bool
) -> None:
    """A person was told that it was applied after all, and asked whether to undo what the other call had made."""
    sim.broken.add("I1")  # this target stands outside of the World
    there: dict[str, list[str]] = {}
    attempts: list[str] = []

    async def find(op: Operation) -> Found | Absent:
        made = there.get(op.key, [])
        if not made:
            return Absent(coverage="everything")
        return Found(Receipt(resource_id=made[0]), also=tuple(Receipt(resource_id=one) for one in made[1:]))

    @tool(effect=effects.lookup(find, settle=1.0), attempts=1)
    async def pay(op: Operation) -> Receipt:
        """Pay; the first request is lost, or seems to be."""
        attempts.append(op.step_id)
        if len(attempts) == 1:
            raise effects.InDoubt("the connection broke")
        there[op.key] = ["p-2"]
        return Receipt(resource_id="p-2")

    async with sim.surefoot(tools=[pay]) as sf:
        with pytest.raises(PerformFailed):
            await sf.perform(pay.call(), key="invoice-81", timeout=60.0)
        receipt = await sf.perform(pay.call(), key="invoice-81")
        assert receipt.resource_id == "p-2" and len(set(attempts)) == 2
        if doubled:
            # The first request was on its way for so long, and no settle time helps.
            there["pay:invoice-81"].insert(0, "p-1")
        await sim.pass_time(2 * DAY)
        (first, second) = await sf.store.run_ids(sf.tenant)
        told, other = await sf.snapshot(first), await sf.snapshot(second)
    assert [action.kind for action in told.pending_actions] == (["duplicate"] if doubled else [])
    assert told.steps[0].external_resource_id == ("p-1" if doubled else None)
    assert (other.steps[0].external_resource_id, other.pending_actions) == ("p-2", [])
