"""What is found under the key of a call that has not begun is its receipt: it is not made a second time."""

from __future__ import annotations

import pytest

from surefoot import Agent, Approval, Found, Operation, Receipt, Surefoot, effects, tool
from surefoot.testing.model import FakeModel

SECONDS = 20


@pytest.mark.parametrize("key", [None, "81"])
async def test_a_call_that_waits_is_not_sent_once_its_effect_was_found(store_url: str, key: str | None) -> None:
    """As after a copy of the store was put back, in which the call had not begun; or under a key that came again."""
    sent: list[str] = []

    @tool(effect=effects.opaque, approval=Approval(), key=None if key is None else lambda: key)
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append(op.key)
        return Receipt(resource_id="p-2")

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, timeout=SECONDS)
        (question,) = run.pending_actions
        operation_key = run.steps[1].operation_key
        assert operation_key is not None
        assert await sf.report(operation_key, Found(Receipt(resource_id="p-1")))
        run = await sf.wait(run.id, timeout=SECONDS)
        assert not await sf.report(operation_key, Found(Receipt(resource_id="p-1")))
    assert (run.status, run.steps[1].status, run.steps[1].external_resource_id) == ("completed", "succeeded", "p-1")
    assert sent == [] and run.pending_actions == [], question.id
