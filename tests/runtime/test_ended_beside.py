"""A performed call that somebody else ends at the very commit of its driver: its run ends too."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Approval, Operation, Receipt, effects, tool
from surefoot.core.events import ActionDecided, ActionExpired
from surefoot.errors import ApprovalPending
from surefoot.store.port import Append
from tests.cases.rig import Sim, ended, story

EXPIRES_SECONDS = 10.0


@story
async def test_a_call_that_is_rejected_while_its_question_expires_ends_with_its_run(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver learned of it by a conflict, and nobody told it again: it looked at a run without a step for ever."""

    @tool(effect=effects.opaque, approval=Approval(expires=EXPIRES_SECONDS))
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        return Receipt(resource_id="p-1")

    decided, expires, written = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with sim.surefoot(tools=[pay]) as sf, sim.surefoot(worker=False) as person:
        with pytest.raises(ApprovalPending) as pending:
            await sf.perform(pay.call(), key="81")
        expire, decide = sf.store.append, person.store.append

        async def expiring(what: Append) -> None:
            if any(isinstance(event, ActionExpired) for event in what.events) and not written.is_set():
                expires.set()
                await written.wait()
            await expire(what)

        async def rejecting(what: Append) -> None:
            assert any(isinstance(event, ActionDecided) for event in what.events)
            decided.set()
            await expires.wait()
            await decide(what)
            written.set()

        monkeypatch.setattr(sf.store, "append", expiring)
        monkeypatch.setattr(person.store, "append", rejecting)
        await sim.pass_time(EXPIRES_SECONDS - 1.0)
        await person.reject(str(pending.value.details["action_id"]), by="ann")
        assert decided.is_set()
        run = await sf.wait(str(pending.value.details["run_id"]), until=ended, timeout=60.0)
    assert (run.status, run.steps[0].error_code) == ("failed", "rejected")
