"""Calls of one answer, or of two runs at once, that have the same business key: one effect, and each has its result."""

from __future__ import annotations

from surefoot import Agent, Operation, Receipt, Surefoot, effects, tool
from surefoot.testing.model import FakeModel


async def test_two_calls_of_one_answer_under_one_key_are_one_effect(store_url: str) -> None:
    sent: list[str] = []

    @tool(effect=effects.opaque, key=lambda invoice: invoice)
    async def mail(op: Operation, invoice: str) -> Receipt:
        """Mail an invoice."""
        sent.append(op.key)
        return Receipt(resource_id="m1")

    twice = [("mail", {"invoice": "81"}), ("mail", {"invoice": "81"})]
    agent = Agent("clerk", FakeModel([twice, "Done."]), tools=[mail])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Mail it twice.")).id, timeout=20)
    assert run.status == "completed"
    assert sent == ["mail:81"]
    assert [step.external_resource_id for step in run.steps if step.tool_name == "mail"] == ["m1", "m1"]
