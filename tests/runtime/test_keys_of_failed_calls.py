"""A business key whose call had failed and was found to have been applied after all is not free for another call."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from surefoot import Absent, Agent, Approval, Found, Operation, Receipt, Surefoot, ToolCall, effects, tool
from surefoot.agent.tools import Tool
from surefoot.core.people import Decision
from surefoot.errors import PerformFailed, WaitTimeout
from surefoot.runtime.deciding import decide_about
from surefoot.store.port import ActionRow
from surefoot.testing.model import FakeModel
from tests.cases.rig import DAY, Sim, ended, story

SECONDS = 60.0


class Bank:
    """A target that shows the first payment late, far behind its settle time."""

    def __init__(self) -> None:
        self.there: list[str] = []
        self.sent: list[str] = []
        self.undone: list[str] = []
        self.has_ids, self.keeps = True, False
        """Whether it names what it has made, and whether that can be given back."""
        self.lost = 1
        """So many replies are."""
        self.refund: Tool | None = None
        """Instead of the one that `tools` gives."""

    def tools(self, key: Callable[[], str] | None = None) -> tuple[Tool, Tool]:
        async def find(op: Operation) -> Found | Absent:
            if not self.there:
                return Absent(coverage="everything")
            return Found(Receipt(resource_id=self.there[0] if self.has_ids else None, url="https://bank.example/p-1"))

        @tool(effect=effects.opaque)
        async def refund(op: Operation, payment: str) -> Receipt:
            """Give it back."""
            self.undone.append(payment)
            self.there.remove(payment)
            return Receipt(resource_id=f"refund of {payment}")

        def undo(receipt: Receipt) -> ToolCall | None:
            return None if self.keeps else (self.refund or refund).call(payment=str(receipt.resource_id))

        @tool(effect=effects.lookup(find, settle=1.0), attempts=1, compensate=undo, key=key)
        async def pay(op: Operation) -> Receipt:
            """Pay; the first replies are lost."""
            self.sent.append(op.step_id)
            if len(self.sent) <= self.lost:
                raise effects.InDoubt("the connection broke")
            self.there.append("p-2")
            return Receipt(resource_id="p-2")

        return pay, refund


async def _leave(sf: Surefoot, action_id: str) -> None:
    await sf.reject(action_id, by="ann")


async def _undo(sf: Surefoot, action_id: str) -> None:
    await sf.approve(action_id, by="ann")


async def _found_late(sim: Sim, sf: Surefoot, bank: Bank, pay: Tool) -> ActionRow:
    """The open question about a payment that had counted as failed."""
    with pytest.raises(PerformFailed):
        await sf.perform(pay.call(), key="81", timeout=SECONDS)
    bank.there.append("p-1")
    await sim.pass_time(DAY / 2)
    (asked,) = await sf.actions(status="waiting")
    return asked


@story
@pytest.mark.parametrize(("decide", "sent", "came"), [(_leave, 1, "p-1"), (_undo, 2, "p-2")])
async def test_a_key_that_was_found_after_all_is_not_performed_again_unless_it_is_undone(
    sim: Sim, decide: Callable[[Surefoot, str], Awaitable[None]], sent: int, came: str
) -> None:
    """The failure was its last word: performed again, the payment was made a second time, under the question."""
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank()
    pay, refund = bank.tools()
    async with sim.surefoot(tools=[pay, refund]) as sf:
        asked = await _found_late(sim, sf, bank, pay)
        with pytest.raises(WaitTimeout) as waits:
            await sf.perform(pay.call(), key="81", timeout=SECONDS)
        assert (waits.value.code, len(bank.sent)) == ("not_sent_yet", 1)
        assert waits.value.details["action_id"] == asked.action.id, "whoever asks again is told what it waits for"
        assert f"answer {asked.action.id}, then perform again" in str(waits.value)
        await decide(sf, asked.action.id)
        await sim.pass_time(DAY)
        try:
            receipt = await sf.perform(pay.call(), key="81", timeout=SECONDS)
        except PerformFailed:
            receipt = await sf.perform(pay.call(), key="81", timeout=SECONDS)
    assert (receipt.resource_id, len(bank.sent)) == (came, sent)
    assert bank.there == [came]


@story
async def test_where_the_tool_cannot_undo_it_the_question_asks_whether_a_person_has(sim: Sim) -> None:
    """It asked "Undo it?" of a tool that cannot: a yes freed the key, and the payment stood beside the second one."""
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank()
    pay = bank.tools()[0].using(compensate=None)
    async with sim.surefoot(tools=[pay]) as sf:
        asked = await _found_late(sim, sf, bank, pay)
        with pytest.raises(WaitTimeout):
            await sf.perform(pay.call(), key="81", timeout=SECONDS)
        text = msgspec.json.decode(asked.preview)["text"]
        assert "cannot undo it" in text and "undo it yourself, then approve" in text and "Undo it?" not in text
        bank.there.remove("p-1")
        await sf.approve(asked.action.id, by="ann")
        with pytest.raises(PerformFailed):
            await sf.perform(pay.call(), key="81", timeout=SECONDS)
        receipt = await sf.perform(pay.call(), key="81", timeout=SECONDS)
    assert (receipt.resource_id, bank.there) == ("p-2", ["p-2"])


@story
async def test_a_model_that_calls_again_is_answered_from_what_was_found(sim: Sim) -> None:
    """It takes the tool's own key; a person has decided to leave what was found."""
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank()
    pay, refund = bank.tools(key=lambda: "81")
    agent = Agent("clerk", FakeModel([[("pay", {})], "It failed.", [("pay", {})], "Paid."], by="call"), tools=[pay])
    async with sim.surefoot(agent, tools=[refund]) as sf:
        first = await sf.wait((await sf.start(agent, "Pay.")).id, until=ended, timeout=SECONDS)
        bank.there.append("p-1")
        await sim.pass_time(DAY / 2)
        (asked,) = await sf.actions(status="waiting")
        await sf.reject(asked.action.id, by="ann")
        run = await sf.start(agent, "Pay.", conversation_id=first.conversation_id)
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    (again,) = [step for step in run.steps if step.tool_name == "pay"]
    assert (first.steps[1].status, again.status, again.resolution) == ("failed", "succeeded", "answered_by")
    assert (again.external_resource_id, bank.there, len(bank.sent)) == ("p-1", ["p-1"], 1)


@story
@pytest.mark.parametrize(("has_id", "undone"), [(True, False), (True, True), (False, False)])
async def test_the_same_action_again_is_asked_about_where_the_first_was_found_after_all(
    sim: Sim, has_id: bool, undone: bool
) -> None:
    """Without a key: the first call had failed, and the second was sent without a word to anybody, whether or not the
    target gives ids. Nobody is told that it stands where it was undone.
    """
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank()
    bank.has_ids = has_id
    pay, refund = bank.tools()
    agent = Agent("clerk", FakeModel([[("pay", {})], "It failed.", [("pay", {})], "Paid."], by="call"), tools=[pay])
    async with sim.surefoot(agent, tools=[refund]) as sf:
        first = await sf.wait((await sf.start(agent, "Pay.")).id, until=ended, timeout=SECONDS)
        bank.there.append("p-1")
        await sim.pass_time(DAY / 2)
        if undone:
            (found,) = await sf.actions(status="waiting")
            await sf.approve(found.action.id, by="ann")
            await sim.pass_time(120.0)
        run = await sf.start(agent, "Pay.", conversation_id=first.conversation_id)
        run = await sf.wait(run.id, until=lambda r: ended(r) or bool(r.pending_actions), timeout=SECONDS)
        (asked,) = run.pending_actions
        assert (asked.kind, len(bank.sent)) == ("approve", 1)
        assert "https://bank.example/p-1" in str(asked.preview)
        assert ("was undone since" in str(asked.preview)) == undone
        await sf.reject(asked.id, by="ann")
        await sf.wait(run.id, until=ended, timeout=SECONDS)
    assert bank.there == ([] if undone else ["p-1"])


@story
@pytest.mark.parametrize(("undone", "came", "sent"), [(True, "p-2", 3), (False, "p-1", 1)])
async def test_a_key_is_not_free_before_what_was_found_is_undone(sim: Sim, undone: bool, came: str, sent: int) -> None:
    """A person had decided so, and the refund waited for another one: performed again, and its reply lost, the call was
    said to have made what was refunded then, and nothing was there.
    """
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank()
    bank.lost = 2
    pay, refund = bank.tools()
    refund = refund.using(approval=Approval())
    bank.refund = refund
    async with sim.surefoot(tools=[pay, refund]) as sf:
        asked = await _found_late(sim, sf, bank, pay)
        await sf.approve(asked.action.id, by="ann")
        await sim.pass_time(120.0)
        with pytest.raises(WaitTimeout) as waits:
            await sf.perform(pay.call(), key="81", timeout=SECONDS)
        assert (waits.value.code, len(bank.sent)) == ("not_sent_yet", 1)
        (gate,) = await sf.actions(status="waiting")
        await (_undo if undone else _leave)(sf, gate.action.id)
        await sim.pass_time(300.0)
        for _ in range(4):
            with contextlib.suppress(PerformFailed):
                receipt = await sf.perform(pay.call(), key="81", timeout=SECONDS)
                break
    assert (receipt.resource_id, bank.there, len(bank.sent)) == (came, [came], sent)


@story
@pytest.mark.parametrize("has_id", [True, False])
async def test_a_key_is_not_free_where_a_yes_undid_nothing_unless_a_person_was_told_to(sim: Sim, has_id: bool) -> None:
    """The tool gave no call for what stood, and the key was free. What has no id nobody but a person can give back."""
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank()
    bank.has_ids, bank.keeps = has_id, has_id
    pay, refund = bank.tools()
    async with sim.surefoot(tools=[pay, refund]) as sf:
        asked = await _found_late(sim, sf, bank, pay)
        assert (b"undo it yourself before you approve" in asked.preview) != has_id
        if not has_id:
            bank.there.clear()
        await sf.approve(asked.action.id, by="ann")
        await sim.pass_time(300.0)
        receipt = await sf.perform(pay.call(), key="81", timeout=SECONDS)
    assert any("not undone" in line for line in sim.lines) == has_id
    if has_id:
        assert (receipt.url, bank.there, len(bank.sent)) == ("https://bank.example/p-1", ["p-1"], 1)
    else:
        assert (receipt.resource_id, bank.there, len(bank.sent)) == ("p-2", ["p-2"], 2)


@story
@pytest.mark.parametrize(("table", "column"), [("run", "limits"), ("step", "rules")])
async def test_a_call_whose_key_is_another_ones_that_cannot_be_read_waits_alone(
    sim: Sim, table: str, column: str
) -> None:
    """The run that had proposed it was set aside whole, and what stood beside the call was not done."""
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank()
    pay, refund = bank.tools(key=lambda: "81")
    done: list[str] = []

    @tool(effect=effects.opaque)
    async def file(op: Operation) -> Receipt:
        """File it."""
        done.append("filed")
        return Receipt(resource_id="f-1")

    agent = Agent("clerk", FakeModel([[("pay", {})], "It failed."], by="call"), tools=[pay])
    other = Agent("other", FakeModel([[("pay", {}), ("file", {})], "Well."], by="call"), tools=[pay, file])
    async with sim.surefoot(agent, other, tools=[refund]) as sf:
        first = await sf.wait((await sf.start(agent, "Pay.")).id, until=ended, timeout=SECONDS)
        damaged = first.id if table == "run" else first.steps[1].id
        ((whole,),) = sim.place.query(f"SELECT {column} FROM {table} WHERE id = '{damaged}'")
        damage = f"UPDATE {table} SET {column} = ? WHERE id = ?"
        assert sim.place.execute(damage, "{", damaged) == 1
        run = await sf.start(other, "Pay.")
        await sim.pass_time(120.0)
        row = await sf.store.run(sf.tenant, run.id)
        stands = await sf.snapshot(run.id)
        assert (row.blocked_code, done) == (None, ["filed"])
        assert [step.status for step in stands.steps[1:]] == ["pending", "succeeded"]
        assert sim.place.execute(damage, whole, damaged) == 1
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    assert (run.status, run.steps[1].error_code, len(bank.sent)) == ("completed", "owner_failed", 1)


@story
async def test_a_key_with_other_bytes_is_refused_once_the_call_that_has_it_can_be_read(sim: Sim) -> None:
    """It could not be compared when it was proposed, and is not answered from what was done with other arguments."""
    sim.broken.add("I1")  # this target stands outside of the World
    sent: list[int] = []

    @tool(effect=effects.opaque, key=lambda: "81")
    async def pay(op: Operation, cents: int) -> Receipt:
        """Pay."""
        sent.append(cents)
        return Receipt(resource_id=f"p-{cents}")

    agents = [Agent(f"clerk{n}", FakeModel([[("pay", {"cents": n})], "Paid."], by="call"), tools=[pay]) for n in (1, 2)]
    async with sim.surefoot(*agents) as sf:
        first = await sf.wait((await sf.start("clerk1", "Pay.")).id, until=ended, timeout=SECONDS)
        ((whole,),) = sim.place.query(f"SELECT rules FROM step WHERE id = '{first.steps[1].id}'")
        damage = "UPDATE step SET rules = ? WHERE id = ?"
        assert sim.place.execute(damage, "{", first.steps[1].id) == 1
        run = await sf.start("clerk2", "Pay.")
        await sim.pass_time(60.0)
        assert (await sf.snapshot(run.id)).steps[1].status == "pending"
        assert sim.place.execute(damage, whole, first.steps[1].id) == 1
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    assert (run.steps[1].status, run.steps[1].error_code, sent) == ("failed", "key_reused", [1])


@story
@pytest.mark.parametrize("compensates", [False, True])
async def test_who_performs_again_undoes_what_was_decided_where_the_code_is_not(sim: Sim, compensates: bool) -> None:
    """No worker lives that would: the key stayed held for ever."""
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank()
    pay, refund = bank.tools()
    pay = pay if compensates else pay.using(compensate=None)
    async with sim.surefoot(tools=[pay, refund]) as sf:
        asked = await _found_late(sim, sf, bank, pay)
    async with sim.surefoot(tools=[pay, refund], worker=False) as sf:
        await decide_about(sf.context, asked.action.id, Decision("approve", "ann"))
        if not compensates:
            bank.there.remove("p-1")
        for _ in range(2):
            with contextlib.suppress(PerformFailed):
                receipt = await sf.perform(pay.call(), key="81", timeout=10 * SECONDS)
        assert (receipt.resource_id, bank.there) == ("p-2", ["p-2"])
        assert bank.undone == (["p-1"] if compensates else [])


async def _found_too(sim: Sim, sf: Surefoot, bank: Bank, name: str) -> ActionRow:
    """The question about a further payment of the same call, which somebody has seen."""
    row = await sf.store.step_by_key(sf.tenant, "pay:81")
    assert row is not None and row.step.operation_key is not None
    bank.there.append(name)
    await sf.report(row.step.operation_key, Found(Receipt(resource_id=name)), source="ann")
    (asked,) = await sf.actions(status="waiting")
    return asked


@story
@pytest.mark.parametrize("left", ["refused", "rejected"])
async def test_what_stood_is_no_answer_any_more_once_a_later_decision_has_undone_it(sim: Sim, left: str) -> None:
    """The key was answered for ever with a payment that had been given back: nothing was paid."""
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank()
    refused: list[str] = []

    @tool(effect=effects.opaque)
    async def refund(op: Operation, payment: str) -> Receipt:
        """Give it back; the first time the bank refuses."""
        if left == "refused" and not refused:
            refused.append(payment)
            raise effects.Refused("not today")
        bank.there.remove(payment)
        return Receipt(resource_id=f"refund of {payment}")

    bank.refund = refund
    pay, _ = bank.tools()
    async with sim.surefoot(tools=[pay, refund]) as sf:
        asked = await _found_late(sim, sf, bank, pay)
        await (_undo if left == "refused" else _leave)(sf, asked.action.id)
        await sim.pass_time(300.0)
        await _undo(sf, (await _found_too(sim, sf, bank, "p-3")).action.id)
        await sim.pass_time(300.0)
        assert bank.there == []
        receipt = await sf.perform(pay.call(), key="81", timeout=SECONDS)
    assert (receipt.resource_id, bank.there, len(bank.sent)) == ("p-2", ["p-2"], 2)


@story
async def test_the_question_shows_all_that_a_yes_would_undo(sim: Sim) -> None:
    """A second payment came to light while a person was asked about the first, and was undone unseen."""
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank()
    pay, refund = bank.tools()
    async with sim.surefoot(tools=[pay, refund]) as sf:
        first = await _found_late(sim, sf, bank, pay)
        asked = await _found_too(sim, sf, bank, "p-3")
        shown = msgspec.json.decode(asked.preview)["effects"]
        assert (asked.action.id != first.action.id, [one["id"] for one in shown]) == (True, ["p-1", "p-3"])
        await _undo(sf, asked.action.id)
        await sim.pass_time(300.0)
    assert (bank.there, sorted(bank.undone)) == ([], ["p-1", "p-3"])
