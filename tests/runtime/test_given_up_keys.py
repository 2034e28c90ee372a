"""A business key whose call was given up: later calls under it are not sent, and wait for nobody."""

from __future__ import annotations

import pytest

from surefoot import Agent, Operation, Receipt, Surefoot, effects, tool
from surefoot.errors import OutcomeUnknown
from surefoot.testing.model import FakeModel


async def test_a_call_under_a_key_that_was_given_up_ends_without_being_sent(store_url: str) -> None:
    sent: list[str] = []

    @tool(effect=effects.opaque, key=lambda invoice: invoice)
    async def mail(op: Operation, invoice: str) -> Receipt:
        """Mail an invoice."""
        sent.append(op.key)
        raise effects.InDoubt("the connection broke")

    agent = Agent("clerk", FakeModel([[("mail", {"invoice": "81"})], "Done."]), tools=[mail])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        first = await sf.wait((await sf.start(agent, "Mail it.")).id, timeout=20)
        second = await sf.start(agent, "Mail it too.")
        (question,) = first.pending_actions
        await sf.resolve(question.id, "give_up", by="ann")
        first = await sf.wait(first.id, timeout=20)
        assert (first.status, first.steps[1].status, first.steps[1].resolution) == (
            "completed",
            "outcome_unknown",
            "given_up",
        )
        second = await sf.wait(second.id, timeout=20)
        assert (second.status, second.steps[1].error_code) == ("completed", "owner_given_up")
        with pytest.raises(OutcomeUnknown):
            await sf.perform(mail.call(invoice="81"), timeout=20)
        assert not await sf.store.runs(sf.tenant, status="running", agent=None, before=None, limit=9), (
            "the performed run has ended too"
        )
    assert sent == ["mail:81"]
