"""A copy of the store is put back that shows a call in doubt: what became of it since, the copy does not know."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Absent, Agent, Found, Operation, Receipt, Undetermined, effects, tool
from surefoot.agent.tools import Tool
from surefoot.runtime.restored import RESTORED, count_all_as_sent
from surefoot.testing.model import FakeModel
from tests.cases.rig import Sim, calls_of, ended, story

SETTLE = 60.0
SECONDS = 5 * SETTLE


class Bank:
    """A target in which the second payment comes to light near the end of its settle time."""

    def __init__(self, *, hangs: bool) -> None:
        self.sent: list[float] = []
        self.blind = True
        """Nothing can be said of it just now."""
        self.hangs = hangs

    def pay(self, sim: Sim) -> Tool:
        def now() -> float:
            return sim.machine.clock.elapsed

        async def find(op: Operation) -> Found | Absent | Undetermined:
            if self.blind:
                return Undetermined("the target is down")
            come = len(self.sent) > 1 and now() >= self.sent[1] + 0.9 * SETTLE
            return Found(Receipt(resource_id="p-2")) if come else Absent(coverage="everything")

        @tool(effect=effects.lookup(find, settle=SETTLE), timeout=9.0)
        async def pay(op: Operation) -> Receipt:
            """Pay; the replies are lost."""
            self.sent.append(now())
            if self.hangs and len(self.sent) == 1:
                await asyncio.get_running_loop().create_future()
            raise effects.InDoubt("the connection broke")

        return pay


@story
@pytest.mark.parametrize("hangs", [False, True])
async def test_a_call_in_doubt_settles_anew_behind_the_copy(sim: Sim, hangs: bool) -> None:
    """It was found absent and sent again behind the copy, which knew of the first request alone: sent a third time."""
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank(hangs=hangs)
    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."], by="call"), tools=[bank.pay(sim)])
    async with sim.surefoot(agent) as sf:
        run_id = (await sf.start("clerk", "Pay.")).id
        await sim.until(lambda: bank.sent)
        if not hangs:
            await sim.pass_time(SETTLE / 2)
        sim.place.save()
    bank.blind = False
    async with sim.surefoot(agent):
        await sim.until(lambda: len(bank.sent) == 2)
        await sim.pass_time(5.0)
    sim.place.put_back()
    async with sim.surefoot(agent, worker=False) as sf:
        await sim.pass_time(12.0)  # the lease that stands in the copy
        told = await count_all_as_sent(sf.context, "wrk_put_back")
        again = await count_all_as_sent(sf.context, "wrk_put_back")
        (step,) = calls_of(await sf.snapshot(run_id))
        assert (told.counted_as_sent, again.counted_as_sent) == ([step.id], [])
        assert (step.status, step.error_code) == ("outcome_unknown", RESTORED)
    async with sim.surefoot(agent) as sf:
        run = await sf.wait(run_id, until=ended, timeout=SECONDS)
    assert (run.status, calls_of(run)[0].external_resource_id, len(bank.sent)) == ("completed", "p-2", 2)


async def _counted(sim: Sim, agent: Agent) -> list[list[str]]:
    """What is counted once a copy is put back, and what is counted when it is said again."""
    async with sim.surefoot(agent, worker=False) as sf:
        await sim.pass_time(12.0)  # the lease that stands in the copy
        return [(await count_all_as_sent(sf.context, "wrk_put_back")).counted_as_sent for _ in range(2)]


@story
async def test_a_copy_that_was_made_behind_another_one_settles_anew_too(sim: Sim) -> None:
    """It still showed the mark of the first time, whose settle time was over: sent a third time."""
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank(hangs=False)
    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."], by="call"), tools=[bank.pay(sim)])
    async with sim.surefoot(agent) as sf:
        run_id = (await sf.start("clerk", "Pay.")).id
        await sim.until(lambda: bank.sent)
        sim.place.save()
    sim.place.put_back()
    first = await _counted(sim, agent)
    async with sim.surefoot(agent):
        await sim.pass_time(2 * SETTLE)
        sim.place.save()
    bank.blind = False
    async with sim.surefoot(agent):
        await sim.until(lambda: len(bank.sent) == 2)
        await sim.pass_time(5.0)
    sim.place.put_back()
    second = await _counted(sim, agent)
    async with sim.surefoot(agent) as sf:
        run = await sf.wait(run_id, until=ended, timeout=SECONDS)
    (step,) = calls_of(run)
    assert (run.status, step.external_resource_id, len(bank.sent)) == ("completed", "p-2", 2)
    assert first == second == [[step.id], []], "said again, it changes nothing"


@story
@pytest.mark.parametrize("code", ["drive_failed", "unknown_agent", "unreadable"])
async def test_a_run_that_was_set_aside_counts_like_any_other(sim: Sim, code: str) -> None:
    """It was said to be held by a worker, however often one asked; and what came behind it was never counted."""
    sim.broken.add("I1")  # this target stands outside of the World
    bank = Bank(hangs=False)
    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[bank.pay(sim)])
    async with sim.surefoot(agent) as sf:
        runs = [(await sf.start("clerk", "Pay.")).id for _ in range(2)]
        await sim.until(lambda: len(bank.sent) == 2)
    async with sim.surefoot(agent, worker=False) as sf:
        await sim.pass_time(12.0)
        await sf.store.block(sf.tenant, runs[0], None, code)
        told = await count_all_as_sent(sf.context, "wrk_put_back")
        assert (set(told.runs_under_way), len(told.counted_as_sent)) == (set(runs), 2)
        rows = [await sf.store.run(sf.tenant, run_id) for run_id in runs]
        assert [(row.blocked_code, row.lease_owner) for row in rows] == [(code, None), (None, None)]
    sim.may_run.update(runs)
