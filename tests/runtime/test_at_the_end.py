"""What happens just when a call ends: the store cannot be read for a moment, or the lease is given up."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Agent, Operation, Receipt, Surefoot, effects, tool
from surefoot.agent.model import ModelRequest
from surefoot.core.events import StepStarted
from surefoot.errors import StoreUnavailable
from surefoot.snapshot import RunSnapshot
from surefoot.store.port import Append, KeyOwner, StepRow
from surefoot.testing.model import FakeModel
from tests.cases.rig import ended

SECONDS = 20


def moved(run: RunSnapshot) -> bool:
    return ended(run) or bool(run.pending_actions)


async def test_a_call_that_has_ended_is_written_down_though_the_store_cannot_be_read_just_then(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its view is read for a question that may be asked: the receipt was forgotten, and a person was asked."""
    sent, away = list[str](), list[str]()

    @tool(effect=effects.opaque, approval="always")
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append(op.key)
        return Receipt(resource_id="p-1")

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, until=moved, timeout=SECONDS)
        read = sf.store.step

        async def flaky(tenant_id: str, step_id: str) -> StepRow:
            if sent and not away:
                away.append(step_id)
                raise StoreUnavailable("the store is away for a moment")
            return await read(tenant_id, step_id)

        monkeypatch.setattr(sf.store, "step", flaky)
        await sf.approve(run.pending_actions[0].id, by="ann")
        run = await sf.wait(run.id, until=moved, timeout=SECONDS)
    assert away, "the story has come to its point"
    assert (run.status, run.steps[1].external_resource_id, len(sent)) == ("completed", "p-1", 1)


async def test_an_answer_of_the_model_is_written_down_though_the_store_cannot_be_read_just_then(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds the key of a call is read before the answer is written: it was thrown away, and paid for once more."""
    asked, away = list[int](), list[str]()

    @tool(effect=effects.opaque, key=lambda: "81")
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        return Receipt(resource_id="p-1")

    async def answer(request: ModelRequest) -> list[tuple[str, dict[str, object]]] | str:
        asked.append(len(asked))
        return [("pay", {})] if len(asked) == 1 else "Paid."

    agent = Agent("clerk", FakeModel([answer, answer], by="call"), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        read = sf.store.key_owner

        async def flaky(tenant_id: str, operation_key: str) -> KeyOwner | None:
            if not away:
                away.append(operation_key)
                raise StoreUnavailable("the store is away for a moment")
            return await read(tenant_id, operation_key)

        monkeypatch.setattr(sf.store, "key_owner", flaky)
        run = await sf.wait((await sf.start(agent, "Pay.")).id, until=moved, timeout=SECONDS)
    assert away, "the story has come to its point"
    assert (run.status, len(asked), run.steps[0].attempt) == ("completed", 2, 1)


async def test_what_was_begun_with_an_end_is_not_gone_on_with_where_the_lease_was_given_up_meanwhile(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit that wrote the end was on its way: nobody told what it began to stop, and two asked the model."""
    asked: list[int] = []
    given_up = asyncio.Event()

    @tool(effect=effects.opaque)
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        return Receipt(resource_id="p-1")

    async def answer(request: ModelRequest) -> str:
        asked.append(len(asked))
        return "Paid."

    agent = Agent("clerk", FakeModel([[("pay", {})], answer]), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        append = sf.store.append

        async def slowly(what: Append) -> None:
            await append(what)
            begun = [event.step_id for event in what.events if isinstance(event, StepStarted)]
            if begun and begun[0].endswith("3") and not given_up.is_set():
                given_up.set()
                assert sf.worker is not None
                sf.worker.drivers[what.after.id].lose()

        monkeypatch.setattr(sf.store, "append", slowly)
        run = await sf.wait((await sf.start(agent, "Pay.")).id, until=ended, timeout=SECONDS)
    assert given_up.is_set(), "the story has come to its point"
    assert (run.status, len(asked), run.steps[2].attempt) == ("completed", 1, 2)
