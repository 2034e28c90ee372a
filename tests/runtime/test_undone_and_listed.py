"""A target goes on listing what was undone: under the key that another call has by now."""

from __future__ import annotations

import pytest

from surefoot import Absent, Found, Operation, Receipt, Surefoot, ToolCall, Undetermined, effects, tool
from surefoot.agent.tools import Tool
from surefoot.errors import OutcomeUnknown, PerformFailed
from tests.cases.rig import DAY, Sim, story

SECONDS = 60.0


class Bank:
    """It lists refunded payments with the others. The first payment arrives late; `lost` says what of which is lost."""

    def __init__(self, lost: str) -> None:
        self.lost = lost
        self.sent: list[str] = []
        self.listed: list[str] = []
        self.refunded: list[str] = []

    @property
    def stands(self) -> list[str]:
        return [one for one in self.listed if one not in self.refunded]

    def tools(self) -> tuple[Tool, Tool]:
        async def find(op: Operation) -> Found | Absent | Undetermined:
            hits = [Receipt(resource_id=one, output=f"all about {one}") for one in self.listed]
            return Found(hits[0], also=tuple(hits[1:])) if hits else Absent(coverage="all")

        @tool(effect=effects.opaque)
        async def refund(op: Operation, payment: str) -> Receipt:
            """Give it back."""
            self.refunded.append(payment)
            return Receipt(resource_id=f"refund of {payment}")

        def undo(receipt: Receipt) -> ToolCall:
            return refund.call(payment=str(receipt.resource_id))

        @tool(effect=effects.lookup(find, settle=1.0), attempts=2, compensate=undo)
        async def pay(op: Operation) -> Receipt:
            """Pay."""
            self.sent.append(op.step_id)
            made = f"p-{len(self.sent)}"
            if len(self.sent) <= 2:
                raise effects.InDoubt("the connection broke")
            if self.lost == "request" and len(self.sent) == 3:
                raise effects.InDoubt("the connection broke")
            self.listed.append(made)
            if self.lost == "reply":
                raise effects.InDoubt("the connection broke")
            return Receipt(resource_id=made)

        return pay, refund


async def _undone(sim: Sim, sf: Surefoot, bank: Bank, pay: Tool) -> None:
    """The first call had failed, was found to have been applied after all, and what it made is refunded."""
    with pytest.raises(PerformFailed):
        await sf.perform(pay.call(), key="81", timeout=SECONDS)
    bank.listed.append("p-1")
    await sim.pass_time(DAY / 2)
    (asked,) = await sf.actions(status="waiting")
    await sf.approve(asked.action.id, by="ann")
    await sim.pass_time(120.0)
    assert bank.refunded == ["p-1"]


@story
async def test_what_was_undone_is_not_taken_for_what_a_later_call_made(sim: Sim) -> None:
    """Its request was lost; said to have made what was refunded, it was never made."""
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank("request")
    pay, refund = bank.tools()
    async with sim.surefoot(tools=[pay, refund]) as sf:
        await _undone(sim, sf, bank, pay)
        with pytest.raises(OutcomeUnknown):
            await sf.perform(pay.call(), key="81", timeout=SECONDS)
        assert not await sf.report("pay:81", Found(Receipt("p-1"))), "known, and nothing of the call that has the key"
        await sim.pass_time(600.0)
        (asked,) = await sf.actions(status="waiting")
        await sf.resolve(asked.action.id, "did_not_happen", by="ann")
        await sim.pass_time(600.0)
        receipt = await sf.perform(pay.call(), key="81", timeout=SECONDS)
        await sim.pass_time(2 * DAY)
        assert [*await sf.actions(status="waiting")] == []
    assert (receipt.resource_id, bank.stands, bank.refunded) == ("p-4", ["p-4"], ["p-1"])


@story
async def test_what_a_later_call_made_is_found_beside_what_was_undone(sim: Sim) -> None:
    """Its reply was lost: it was said to have made what was refunded, and what it had made to be one too many."""
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank("reply")
    pay, refund = bank.tools()
    async with sim.surefoot(tools=[pay, refund]) as sf:
        await _undone(sim, sf, bank, pay)
        receipt = await sf.perform(pay.call(), key="81", timeout=SECONDS)
        await sim.pass_time(2 * DAY)
        assert [*await sf.actions(status="waiting")] == []
    assert (receipt.resource_id, bank.stands, bank.refunded) == ("p-3", ["p-3"], ["p-1"])
    assert "p-1" not in str(receipt.output)
