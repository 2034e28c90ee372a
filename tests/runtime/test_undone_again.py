"""What stands under a key after several decisions about it: the last one counts, and each undoes what it showed."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from surefoot import Absent, Approval, Found, Operation, Receipt, Surefoot, ToolCall, effects, tool
from surefoot.agent import undoing
from surefoot.agent.tools import Tool
from surefoot.core.people import Decision
from surefoot.errors import OutcomeUnknown, PerformFailed
from surefoot.runtime.deciding import decide_about


class Bank:
    """What it was sent and what was given back, in order; so many refunds are refused."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.undone: list[str] = []
        self.refuses = 0

    def tools(self, name: str = "refund") -> tuple[Tool, Tool]:
        def find(op: Operation) -> Absent:
            return Absent(coverage="nobody looks")

        @tool(effect=effects.opaque, name=name)
        async def refund(op: Operation, payment: str) -> Receipt:
            """Give it back."""
            if self.refuses:
                self.refuses -= 1
                raise effects.Refused("not today")
            self.undone.append(payment)
            return Receipt(resource_id=f"refund of {payment}")

        def undo(receipt: Receipt) -> ToolCall:
            return refund.call(payment=str(receipt.resource_id))

        @tool(effect=effects.lookup(find, settle=0.1), compensate=undo)
        async def pay(op: Operation) -> Receipt:
            """Pay; the first one is refused."""
            self.sent.append(op.step_id)
            if len(self.sent) == 1:
                raise effects.Refused("no")
            return Receipt(resource_id="new")

        return pay, refund


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undoing, "LOOK_SECONDS", 0.1)


async def _found(sf: Surefoot, payment: str) -> str:
    """The question about a payment that came to light."""
    await sf.report("pay:81", Found(Receipt(resource_id=payment)))
    (asked,) = await sf.actions(status="waiting")
    return asked.action.id


async def _done(sf: Surefoot) -> None:
    async with asyncio.timeout(20):
        while await sf.store.marks(sf.tenant, "undo", 10):
            await sf.store.changed(sf.store.change_count(), 0.1)


@pytest.mark.parametrize("first", ["reject", "approve"])
async def test_the_last_decision_about_a_failed_call_says_whether_its_key_is_free(store_url: str, first: str) -> None:
    """Left or not undone at first, and undone with the next double: the key was held by what stood nowhere any more."""
    bank = Bank()
    pay, refund = bank.tools()
    async with Surefoot(store_url, tools=[pay, refund], worker=True, log=lambda line: None) as sf:
        with pytest.raises(PerformFailed):
            await sf.perform(pay.call(), key="81")
        bank.refuses = 1 if first == "approve" else 0
        await (sf.approve if first == "approve" else sf.reject)(await _found(sf, "p1"), by="anna")
        await _done(sf)
        assert bank.undone == []
        await sf.approve(await _found(sf, "p2"), by="anna")
        await _done(sf)
        assert sorted(bank.undone) == ["p1", "p2"]
        receipt = await sf.perform(pay.call(), key="81")
    assert (receipt.resource_id, len(bank.sent)) == ("new", 2)


async def test_a_decision_undoes_what_its_question_showed_and_nothing_found_since(store_url: str) -> None:
    """Undone late, what a person had decided to leave went with it."""
    bank = Bank()
    pay, refund = bank.tools()
    async with Surefoot(store_url, tools=[pay, refund], log=lambda line: None) as sf:
        with pytest.raises(PerformFailed):
            await sf.perform(pay.call(), key="81")
        await decide_about(sf.context, await _found(sf, "p1"), Decision("approve", "anna"))
        await sf.reject(await _found(sf, "p2"), by="anna")
    async with Surefoot(store_url, tools=[pay, refund], worker=True, log=lambda line: None) as sf:
        await _done(sf)
        assert bank.undone == ["p1"]
        receipt = await sf.perform(pay.call(), key="81")
    assert (receipt.resource_id, len(bank.sent)) == ("p2", 1)


@pytest.mark.parametrize("change", ["renamed", "pruned"])
async def test_what_is_undone_is_not_undone_again_by_other_code_or_later(
    store_url: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Its undoing was known by the name of the tool that did it, and was forgotten with that one's run."""
    bank = Bank()
    tools = bank.tools()
    async with Surefoot(store_url, tools=tools, worker=True, log=lambda line: None) as sf:
        with pytest.raises(PerformFailed):
            await sf.perform(tools[0].call(), key="81")
        await sf.approve(await _found(sf, "p1"), by="anna")
        await _done(sf)
        asked = await _found(sf, "p2")
        if change == "pruned":
            wall = sf.store.now().wall + 1_000.0
            assert (await sf.store.prune(sf.tenant, wall, blobs_before=wall))["runs"] == 1
    monkeypatch.setattr("surefoot.app.DECLARED", {})
    tools = bank.tools("give_back" if change == "renamed" else "refund")
    async with Surefoot(store_url, tools=tools, worker=True, log=lambda line: None) as sf:
        await sf.approve(asked, by="anna")
        await _done(sf)
    assert bank.undone == ["p1", "p2"]


@pytest.mark.parametrize("by_hand", [True, False])
async def test_the_question_says_who_undoes_and_not_the_code_that_comes_later(
    store_url: str, monkeypatch: pytest.MonkeyPatch, by_hand: bool
) -> None:
    """Other code gave back again what a person had; or took for done by a person what nobody had been told to do."""
    bank = Bank()
    pay, refund = bank.tools()
    bare = pay.using(compensate=None)
    asks, decides = (bare, pay) if by_hand else (pay, bare)
    async with Surefoot(store_url, tools=[asks, refund], log=lambda line: None) as sf:
        with pytest.raises(PerformFailed):
            await sf.perform(asks.call(), key="81")
        asked = await _found(sf, "p1")
    monkeypatch.setattr("surefoot.app.DECLARED", {})
    async with Surefoot(store_url, tools=[decides, refund], worker=True, log=lambda line: None) as sf:
        await sf.approve(asked, by="anna")
        with contextlib.suppress(PerformFailed, TimeoutError):
            await _done(sf) if by_hand else None
        left = await sf.store.marks(sf.tenant, "undo", 10)
    assert (bank.undone, left) == ([], [] if by_hand else [asked])


async def test_an_undoing_that_was_cancelled_is_begun_anew_by_a_later_decision_whatever_the_code_does(
    store_url: str,
) -> None:
    """The run that was to undo it was the key's answer for ever, and other code was refused its arguments."""
    bank = Bank()
    tools = bank.tools()
    gated = tools[1].using(approval=Approval(), name="gated")
    ways = [gated]

    def undo(receipt: Receipt) -> ToolCall:
        return ways[-1].call(payment=str(receipt.resource_id))

    pay = tools[0].using(compensate=undo)
    async with Surefoot(store_url, tools=[pay, gated, tools[1]], worker=True, log=lambda line: None) as sf:
        with pytest.raises(PerformFailed):
            await sf.perform(pay.call(), key="81")
        await sf.approve(await _found(sf, "p1"), by="anna")
        async with asyncio.timeout(20):
            while not (gates := await sf.actions(status="waiting")):
                await sf.store.changed(sf.store.change_count(), 0.1)
        await sf.cancel(gates[0].run_id, by="anna")
        await _done(sf)
        assert len(await sf.store.marks(sf.tenant, "not_undone", 10)) == 1 and bank.undone == []
        ways.append(tools[1])
        await sf.approve(await _found(sf, "p2"), by="anna")
        await _done(sf)
    assert sorted(bank.undone) == ["p1", "p2"]


async def test_a_key_whose_undoing_is_given_up_says_so(store_url: str) -> None:
    """It said for ever that it had not begun, and nobody was asked about anything any more."""
    bank = Bank()
    pay, _ = bank.tools()

    @tool(effect=effects.opaque)
    async def give_back(op: Operation, payment: str) -> Receipt:
        """Give it back; whether that was done nobody hears."""
        raise effects.InDoubt("the connection broke")

    pay = pay.using(compensate=lambda receipt: give_back.call(payment=str(receipt.resource_id)))
    async with Surefoot(store_url, tools=[pay, give_back], worker=True, log=lambda line: None) as sf:
        with pytest.raises(PerformFailed):
            await sf.perform(pay.call(), key="81")
        await sf.approve(await _found(sf, "p1"), by="ann")
        async with asyncio.timeout(20):
            while not (asked := await sf.actions(status="waiting")):
                await sf.store.changed(sf.store.change_count(), 0.1)
        await sf.resolve(asked[0].action.id, "give_up", by="ann")
        with pytest.raises(OutcomeUnknown, match="given up"):
            await sf.perform(pay.call(), key="81", timeout=20)
    assert len(bank.sent) == 1
