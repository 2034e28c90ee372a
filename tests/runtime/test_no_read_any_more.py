"""A call whose tool was declared a read when it was tried, and is none by the code of now."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Agent, Approval, Operation, Receipt, effects, tool
from surefoot.agent.tools import Tool
from surefoot.snapshot import RunSnapshot
from surefoot.testing.model import FakeModel
from tests.cases.rig import Sim, calls_of, ended, story

SECONDS = 3_600.0


async def _pay(op: Operation) -> Receipt:
    """Pay; the first time the connection breaks."""
    SENT.append(op.attempt)
    if len(SENT) == 1:
        raise effects.InDoubt("the connection broke")
    return Receipt(resource_id="p-1")


SENT: list[int] = []
READ = tool(effect=effects.read, name="pay")(_pay)
KEYED = tool(effect=effects.idempotent(key_lifetime=None), name="pay")(_pay)
OPAQUE = tool(effect=effects.opaque, name="pay")(_pay)


def clerk(pay: Tool) -> Agent:
    return Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])


async def _tried(sim: Sim) -> str:
    """The run, once its call was tried as a read and is to be tried again."""
    SENT.clear()
    sim.broken.add("I1")  # this target stands outside of the World
    async with sim.surefoot(clerk(READ)) as sf:
        run = await sf.start("clerk", "Pay.")
        await sf.wait(run.id, until=lambda r: any(s.attempt and s.status == "pending" for s in calls_of(r)))
    return run.id


def moved(run: RunSnapshot) -> bool:
    return ended(run) or bool(run.pending_actions)


@pytest.mark.parametrize("now", [OPAQUE, KEYED, OPAQUE.using(approval=Approval()), OPAQUE.using(version="2")])
@story
async def test_a_person_is_asked_what_it_did(sim: Sim, now: Tool) -> None:
    """Every worker failed on it, and the run was set aside for good."""
    run_id = await _tried(sim)
    async with sim.surefoot(clerk(now)) as sf:
        run = await sf.wait(run_id, until=moved, timeout=SECONDS)
        (asked,) = run.pending_actions
        assert (asked.kind, SENT) == ("resolve", [1])
        await sf.resolve(asked.id, "happened", by="ann", external_resource_id="p-1")
        run = await sf.wait(run_id, until=moved, timeout=SECONDS)
    assert (run.status, SENT) == ("completed", [1])


@story
async def test_a_key_is_no_reason_to_send_what_died_as_a_read(sim: Sim) -> None:
    """The code of then may not have sent it."""
    SENT.clear()
    sim.broken.add("I1")

    async def dies(op: Operation) -> Receipt:
        """Pay; the worker dies."""
        SENT.append(op.attempt)
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    worker = sim.worker(clerk(tool(effect=effects.read, name="pay")(dies)))
    async with sim.surefoot(clerk(KEYED), worker=False) as person:
        run_id = (await person.start("clerk", "Pay.")).id
        await sim.until(lambda: SENT)
        worker.kill()
        async with sim.surefoot(clerk(KEYED)) as sf:
            run = await sf.wait(run_id, until=moved, timeout=SECONDS)
            (asked,) = run.pending_actions
            assert (asked.kind, SENT) == ("resolve", [1])
            await sf.resolve(asked.id, "did_not_happen", by="ann")
            run = await sf.wait(run_id, until=moved, timeout=SECONDS)
    assert (run.status, SENT) == ("completed", [1, 2])


@story
async def test_it_can_be_cancelled(sim: Sim) -> None:
    run_id = await _tried(sim)
    async with sim.surefoot(clerk(OPAQUE), worker=False) as sf:
        await sf.cancel(run_id, by="ann")
        run = await sf.snapshot(run_id)
    (step,) = calls_of(run)
    assert (run.status, step.status, step.error_code) == ("cancelled", "failed", "cancelled")
