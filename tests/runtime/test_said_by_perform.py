"""What `perform` says of a call whose outcome is not known is true, and names what to do next."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Absent, Found, Operation, Surefoot, Tool, Undetermined, effects, tool
from surefoot.errors import ApprovalPending, OutcomeUnknown, PerformFailed


def _find(op: Operation) -> Found | Absent | Undetermined:
    return Undetermined("the service is down")


async def _doubtful(op: Operation) -> None:
    """Do something, and never learn whether it was done."""
    raise effects.InDoubt("no echo")


async def _slow(op: Operation) -> None:
    """Take long."""
    await asyncio.Event().wait()


blind = tool(effect=effects.opaque)(_doubtful)
looked_up = tool(effect=effects.lookup(_find, settle=0.1))(_doubtful)
slow = tool(effect=effects.opaque, timeout=60)(_slow)


async def _told(sf: Surefoot, of: Tool, timeout: float) -> OutcomeUnknown:
    with pytest.raises(OutcomeUnknown) as told:
        await sf.perform(of.call(), key="1", timeout=timeout)
    return told.value


async def test_nobody_looks_for_a_call_that_nobody_can_look_up(store_url: str) -> None:
    async with Surefoot(store_url, log=lambda line: None) as sf:
        told = await _told(sf, blind, 20.0)
        asked = told.details["action_id"]
        assert str(told).endswith(
            f"so a person is asked what happened: answer {asked}, then perform again with its key"
        )
        await sf.resolve(str(asked), "give_up", by="ann")
        assert "a person has given up finding out; use a new key" in str(await _told(sf, blind, 20.0))


async def test_a_call_that_is_looked_up_or_under_way_says_so(store_url: str) -> None:
    async with Surefoot(store_url, log=lambda line: None) as sf:
        assert "is being looked up; perform again with its key" in str(await _told(sf, looked_up, 1.0))
    other = Surefoot(store_url, log=lambda line: None)
    async with other as sf:
        assert "is still under way; perform again with its key" in str(await _told(sf, slow, 1.0))
        await sf.close(grace_seconds=0.0)


async def test_a_key_whose_run_was_cancelled_stays_failed_and_a_new_one_is_another_call(store_url: str) -> None:
    """Whoever stopped it meant that key: the job that comes again must not begin what was stopped."""
    gated = tool(effect=effects.opaque, approval="always")(_doubtful)
    async with Surefoot(store_url, log=lambda line: None) as sf:
        with pytest.raises(ApprovalPending) as pending:
            await sf.perform(gated.call(), key="1", timeout=20.0)
        run_id = str(pending.value.details["run_id"])
        await sf.cancel(run_id, by="ann")
        for _ in range(2):
            with pytest.raises(PerformFailed) as failed:
                await sf.perform(gated.call(), key="1", timeout=20.0)
            assert (failed.value.details["run_id"], failed.value.details["error_code"]) == (run_id, "cancelled")
        with pytest.raises(ApprovalPending) as another:
            await sf.perform(gated.call(), key="2", timeout=20.0)
        assert another.value.details["run_id"] != run_id
