"""User code that ends by a CancelledError of its own, though nobody told it to stop: a pool that was closed, say."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Agent, Operation, Receipt, Surefoot, effects, tool
from surefoot.agent.model import ModelRequest
from surefoot.snapshot import RunSnapshot
from surefoot.testing.model import FakeModel
from tests.cases.rig import ended

SECONDS = 20


def moved(run: RunSnapshot) -> bool:
    return ended(run) or bool(run.pending_actions)


@pytest.mark.parametrize("odd", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
async def test_a_model_that_is_stopped_from_inside_is_asked_again(store_url: str, odd: type[BaseException]) -> None:
    asked: list[int] = []

    async def answer(request: ModelRequest) -> str:
        asked.append(len(asked))
        if len(asked) == 1:
            raise odd
        return "Done."

    agent = Agent("clerk", FakeModel([answer, answer], by="call"))
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Go.")).id, until=moved, timeout=SECONDS)
    assert (run.status, len(asked)) == ("completed", 2)


@pytest.mark.parametrize("odd", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
async def test_an_account_that_is_stopped_from_inside_is_not_known_yet(
    store_url: str, odd: type[BaseException]
) -> None:
    asked, lines = list[int](), list[str]()

    async def whose(op: Operation) -> str:
        asked.append(len(asked))
        if len(asked) == 1:
            raise odd
        return "ann"

    @tool(effect=effects.opaque, account=whose, credential="TOKEN")
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        return Receipt(resource_id="p-1")

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, log=lines.append) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, until=moved, timeout=SECONDS)
    assert (run.status, len(asked)) == ("completed", 2)
    assert [line for line in lines if "the account is not known yet" in line]


@pytest.mark.parametrize("odd", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
async def test_a_precondition_that_is_stopped_from_inside_is_unreadable(
    store_url: str, odd: type[BaseException]
) -> None:
    async def holds(op: Operation) -> str:
        raise odd

    @tool(effect=effects.opaque, approval="always", precondition=holds)
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        return Receipt(resource_id="p-1")

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, until=moved, timeout=SECONDS)
    (asked,) = run.pending_actions
    assert "unreadable" in str(asked.preview)
