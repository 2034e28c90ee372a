"""A program that only performs drives its own calls, and hears what others say of them meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Approval, Operation, Receipt, Surefoot, effects, errors, tool

SECONDS_MAX = 60.0


@tool(effect=effects.opaque, approval=Approval())
async def pay(op: Operation) -> Receipt:
    """Pay what was approved."""
    return Receipt(resource_id=op.key)


@pytest.mark.parametrize("asked", [1, 2, 3])
async def test_a_call_that_was_performed_again_while_it_waited_goes_on_once_it_is_approved(
    store_url: str, asked: int
) -> None:
    async with Surefoot(store_url, log=lambda line: None) as sf, Surefoot(store_url, log=lambda line: None) as person:
        for _ in range(asked):
            with pytest.raises(errors.ApprovalPending) as pending:
                await sf.perform(pay.call(), key="one")
        await person.approve(str(pending.value.details["action_id"]), by="ann")
        receipt = await asyncio.wait_for(sf.perform(pay.call(), key="one"), SECONDS_MAX)
    assert receipt.resource_id is not None
