"""A performed call in doubt, and workers that do not know its tool: they leave it to those that do."""

from __future__ import annotations

import pytest

from surefoot import Agent, Found, Operation, Receipt, Surefoot, Tool, Undetermined, effects, tool
from surefoot.errors import OutcomeUnknown
from surefoot.testing.model import FakeModel


class Bank:
    """Takes money; for a while it cannot say what became of it."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.knows = False

    def tool(self) -> Tool:
        """As a program that starts anew declares it."""

        async def find(op: Operation) -> Found | Undetermined:
            return Found(Receipt(resource_id="pay_1")) if self.knows else Undetermined("it is closed")

        @tool(effect=effects.lookup(find, settle=0.1))
        async def pay(op: Operation) -> Receipt:
            """Pay; the reply is lost."""
            self.sent.append(op.key)
            raise effects.InDoubt("the connection broke")

        return pay


async def _in_doubt(store_url: str, bank: Bank) -> str:
    async with Surefoot(store_url, log=lambda line: None) as sf:
        with pytest.raises(OutcomeUnknown) as unknown:
            await sf.perform(bank.tool().call(), key="81", timeout=1.0)
    return str(unknown.value.details["run_id"])


async def test_a_worker_without_the_tool_leaves_it_to_one_that_has_it(store_url: str) -> None:
    bank = Bank()
    run_id = await _in_doubt(store_url, bank)
    bank.knows = True
    talker = Agent("talker", FakeModel(["Hello."]))
    async with Surefoot(store_url, [talker], worker=True, log=lambda line: None) as other:
        assert (await other.wait((await other.start(talker, "Hi.")).id, timeout=20)).status == "completed"
        row = await other.store.run(other.tenant, run_id)
        assert (row.blocked_code, row.run.status.value) == (None, "reconciling")
        async with Surefoot(store_url, tools=[bank.tool()], worker=True, log=lambda line: None) as sf:
            done = await sf.wait(run_id, timeout=20)
    assert (done.status, done.steps[0].external_resource_id) == ("completed", "pay_1")
    assert bank.sent == ["pay:81"]


async def test_who_performs_it_again_goes_on_though_a_worker_has_blocked_it(store_url: str) -> None:
    bank = Bank()
    run_id = await _in_doubt(store_url, bank)
    bank.knows = True
    async with Surefoot(store_url, log=lambda line: None) as sf:
        await sf.store.block(sf.tenant, run_id, None, "unknown_tool")
        assert (await sf.perform(bank.tool().call(), key="81", timeout=20)).resource_id == "pay_1"
    assert bank.sent == ["pay:81"]
