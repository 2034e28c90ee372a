"""A refusal that may be the echo of an earlier attempt is doubt, also where a look had concluded that one absent."""

from __future__ import annotations

import pytest

from surefoot import Absent, Found, Operation, Receipt, Surefoot, effects, tool

SECONDS = 20


@pytest.mark.parametrize("status", [409, 412, 422])
async def test_an_echo_of_a_request_that_came_after_all_is_looked_up(store_url: str, status: int) -> None:
    """The first request is under way for longer than the settle time, and comes just before the second."""
    orders: list[str] = []
    sends: list[int] = []

    def find(op: Operation) -> Found | Absent:
        return Found(Receipt(resource_id="o-1")) if op.key in orders else Absent(coverage="all orders")

    @tool(effect=effects.lookup(find, settle=0.1))
    async def order(op: Operation) -> Receipt:
        """Order."""
        sends.append(op.attempt)
        if op.attempt == 1:
            raise effects.InDoubt("no answer")
        orders.append(op.key)
        raise effects.Refused("there is an order of this number", status=status)

    async with Surefoot(store_url, log=lambda line: None) as sf:
        receipt = await sf.perform(order.call(), key="81", timeout=SECONDS)
    assert receipt.resource_id == "o-1" and sends == [1, 2]


async def test_an_attempt_that_certainly_did_nothing_has_no_echo(store_url: str) -> None:
    said: list[bool] = []

    @tool(effect=effects.opaque)
    async def order(op: Operation) -> Receipt:
        """Order."""
        said.append(op.earlier_may_be_sent)
        if op.attempt == 1:
            raise effects.Refused("too many", retry_after=0.1)
        return Receipt(resource_id="o-1")

    async with Surefoot(store_url, log=lambda line: None) as sf:
        await sf.perform(order.call(), key="81", timeout=SECONDS)
    assert said == [False, False]
