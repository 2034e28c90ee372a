"""A call that is made by one state of the code, tried by another, and taken over by the first."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Agent, Operation, Receipt, effects, tool
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
