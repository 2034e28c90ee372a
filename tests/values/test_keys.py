"""One rule for every key: of a run, of `perform`, of a signal, of a decision, and what a tool's function returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from surefoot import Agent, Approval, Operation, Receipt, Surefoot, effects, tool, wait_for_signal
from surefoot.core.canonical import KEY_CHARACTERS_MAX
from surefoot.errors import InvalidInput, KeyReused
from surefoot.testing.model import FakeModel

GOOD = ("k", "k" * KEY_CHARACTERS_MAX, "schlüssel-密钥-🔑", " kept ")
BAD = ("", "  ", "k" * (KEY_CHARACTERS_MAX + 1), "a\x00b", "a\ud800b")


@tool(effect=effects.opaque)
async def plain(op: Operation, number: int) -> Receipt:
    """Act."""
    return Receipt(resource_id=f"{number}")


@tool(effect=effects.opaque, key=lambda said: said)
async def keyed(op: Operation, said: str) -> Receipt:
    """Act under a key of its own."""
    return Receipt(resource_id="1")


@tool(effect=effects.opaque, approval=Approval())
async def gated(op: Operation) -> Receipt:
    """Wait for a person."""
    return Receipt(resource_id="1")


def _agents() -> list[Agent]:
    model = FakeModel([[("wait_for_signal", {"name": "news"})], "end"])
    return [
        Agent("waits", model, tools=[wait_for_signal]),
        Agent("asks", FakeModel([[("gated", {})], "end"]), tools=[gated]),
    ]


async def _start(sf: Surefoot, key: str) -> object:
    return await sf.start("waits", "go", key=key)


async def _perform(sf: Surefoot, key: str) -> object:
    return await sf.perform(plain.call(number=1), key=key)


async def _tool(sf: Surefoot, key: str) -> object:
    return keyed.operation_key({"said": key})


async def _signal(sf: Surefoot, key: str) -> object:
    run = await sf.start("waits", "go")
    await sf.signal(run.id, "news", 1, key=key)
    return True


async def _decision(sf: Surefoot, key: str) -> object:
    run = await sf.wait((await sf.start("asks", "go")).id, timeout=30)
    return await sf.approve(run.pending_actions[0].id, by="ann", key=key)


@pytest.mark.parametrize("key", BAD, ids=[repr(key)[:12] for key in BAD])
@pytest.mark.parametrize("door", [_start, _perform, _tool, _signal, _decision])
async def test_no_door_takes_a_key_that_is_none(
    store_url: str, door: Callable[[Surefoot, object], Awaitable[object]], key: object
) -> None:
    async with Surefoot(store_url, _agents(), worker=True, log=lambda line: None) as sf:
        with pytest.raises(InvalidInput):
            await door(sf, key)


@pytest.mark.parametrize("door", [_start, _perform, _tool, _signal, _decision])
async def test_every_door_takes_the_same_keys(
    store_url: str, door: Callable[[Surefoot, str], Awaitable[object]]
) -> None:
    async with Surefoot(store_url, _agents(), worker=True, log=lambda line: None) as sf:
        for key in GOOD:
            assert await door(sf, key)


async def test_a_key_that_an_agents_call_took_answers_a_performed_one(store_url: str) -> None:
    sent: list[str] = []

    @tool(effect=effects.opaque, key=lambda invoice, text: invoice)
    async def pay(op: Operation, invoice: str, text: str) -> Receipt:
        """Pay an invoice once."""
        sent.append(text)
        return Receipt(resource_id=f"payment of {invoice}")

    model = FakeModel([[("pay", {"invoice": "7", "text": "first"})], "end"])
    async with Surefoot(store_url, [Agent("pays", model, tools=[pay])], worker=True, log=lambda line: None) as sf:
        await sf.wait((await sf.start("pays", "go")).id, timeout=30)
        receipt = await sf.perform(pay.call(invoice="7", text="first"), timeout=30)
        assert (receipt.resource_id, sent) == ("payment of 7", ["first"])
        with pytest.raises(KeyReused):
            await sf.perform(pay.call(invoice="7", text="second"), timeout=30)
        assert sent == ["first"]
