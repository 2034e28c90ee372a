"""A call that is made by one state of the code, tried by another, and taken over by the first."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Absent, Agent, Approval, Found, Operation, Receipt, effects, tool
from surefoot.agent.tools import Tool
from surefoot.snapshot import RunSnapshot
from surefoot.testing.model import FakeModel
from tests.cases.rig import Sim, ended, story

SECONDS = 3_600.0
SENT: list[str] = []


def clerk(pay: Tool) -> Agent:
    """The agent that pays once."""
    script = FakeModel([[("pay", {})], "Paid."])
    return Agent("clerk", script, tools=[pay])


async def _hangs(op: Operation) -> Receipt:
    """Pay, without a key; the reply does not come before the worker dies."""
    SENT.append("by the other code")
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def _pays(op: Operation) -> Receipt:
    """Pay; the first time the target is busy."""
    SENT.append("by this code")
    if len(SENT) == 1:
        raise effects.Refused("busy", retry_after=30.0)
    return Receipt(resource_id="p-1")


KEYED = effects.idempotent(key_lifetime=None)


def moved(run: RunSnapshot) -> bool:
    return ended(run) or bool(run.pending_actions)


@pytest.mark.parametrize("this", [KEYED, effects.read])
@story
async def test_what_the_other_code_may_have_done_counts_as_what_it_was_there(sim: Sim, this: effects.Effect) -> None:
    """Its call had no key, and was sent again by the key of the first one; or it was no read, and was forgotten."""
    SENT.clear()
    sim.broken.add("I1")  # this target stands outside of the World
    mine = clerk(tool(effect=this, name="pay")(_pays))
    async with sim.surefoot(mine) as sf:
        run_id = (await sf.start("clerk", "Pay.")).id
        await sim.until(lambda: SENT)
        await sim.pass_time(5.0)
    other = sim.worker(clerk(tool(effect=effects.opaque, name="pay")(_hangs)))
    await sim.until(lambda: len(SENT) == 2)
    other.kill()
    async with sim.surefoot(mine) as sf:
        run = await sf.wait(run_id, until=moved, timeout=SECONDS)
        assert SENT == ["by this code", "by the other code"]
        (asked,) = run.pending_actions
        assert asked.kind == "resolve"
        await sf.resolve(asked.id, "happened", by="ann", external_resource_id="p-2")
        run = await sf.wait(run_id, until=moved, timeout=SECONDS)
    assert (run.status, len(SENT)) == ("completed", 2)


@story
async def test_what_is_ended_by_a_process_that_cannot_look_is_looked_up_later_all_the_same(sim: Sim) -> None:
    """A call that was not found is rejected by a process whose code has no lookup: what came later was not seen."""
    sim.broken.add("I1")  # this target stands outside of the World
    made: list[str] = []

    async def find(op: Operation) -> Found | Absent:
        return Found(Receipt(resource_id=made[0])) if made else Absent(coverage="everything")

    async def post(op: Operation) -> Receipt:
        """Post; the connection breaks, and the request is on its way for long."""
        raise effects.InDoubt("the connection broke")

    gate = Approval(expires=20.0)
    mine = clerk(tool(effect=effects.lookup(find, settle=30.0), name="pay", approval=gate)(post))
    other = clerk(tool(effect=effects.opaque, name="pay", approval=gate)(post))
    async with sim.surefoot(mine) as sf, sim.surefoot(other, worker=False) as person:
        run = await sf.wait((await sf.start("clerk", "Pay.")).id, until=moved)
        await person.approve(run.pending_actions[0].id, by="ann")
        run = await sf.wait(run.id, until=lambda r: [a.kind for a in r.pending_actions] == ["approve"], timeout=SECONDS)
        await person.reject(run.pending_actions[0].id, by="ann")
        made.append("p-1")
        run = await sf.wait(run.id, until=lambda r: ended(r) and bool(r.pending_actions), timeout=SECONDS)
    assert [action.kind for action in run.pending_actions] == ["duplicate"]
    assert run.steps[1].external_resource_id == "p-1"
