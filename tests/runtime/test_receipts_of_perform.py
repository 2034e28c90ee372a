"""What `perform` gives back is what the tool said: its receipt whole, its value as it was, its refusal with why."""

from __future__ import annotations

import pytest

from surefoot import Agent, Operation, Receipt, Surefoot, Tool, effects, tool
from surefoot.errors import ApprovalPending, PerformFailed
from surefoot.testing.model import FakeModel

LINK = "https://billing.example/81"
SAID: list[tuple[object, Receipt]] = [
    (Receipt("81", LINK, {"paid": 1}, "the bank is slow"), Receipt("81", LINK, {"paid": 1}, "the bank is slow")),
    (Receipt("81", error="the bank is slow"), Receipt("81", error="the bank is slow")),
    (Receipt(error="the bank is slow"), Receipt(error="the bank is slow")),
    (Receipt(output=5, error="the bank is slow"), Receipt(output=5, error="the bank is slow")),
    (Receipt(url=LINK, output={"paid": 1}), Receipt(url=LINK, output={"paid": 1})),
    (Receipt(" ", " ", 5), Receipt(output=5)),
    (Receipt("81", output={"error": "of its own"}), Receipt("81", output={"error": "of its own"})),
    ({"resource_id": "81", "paid": 1}, Receipt(output={"resource_id": "81", "paid": 1})),
    ({"url": LINK, "paid": 1}, Receipt(output={"url": LINK, "paid": 1})),
    ({"error": "none"}, Receipt(output={"error": "none"})),
    ({"output": 5}, Receipt(output={"output": 5})),
    ({}, Receipt(output={})),
    (None, Receipt()),
]


def _saying(value: object) -> Tool:
    @tool(effect=effects.opaque, key=lambda: "81")
    async def charge(op: Operation) -> object:
        """Charge."""
        return value

    return charge


@pytest.mark.parametrize(("said", "got"), SAID)
async def test_a_receipt_comes_back_whole_now_and_under_its_key_again(
    store_url: str, said: object, got: Receipt
) -> None:
    charge = _saying(said)
    async with Surefoot(store_url, log=lambda line: None) as sf:
        assert await sf.perform(charge.call(), key="1", timeout=20.0) == got
        assert await sf.perform(charge.call(), key="1", timeout=20.0) == got
    async with Surefoot(store_url, log=lambda line: None) as sf:
        assert await sf.perform(charge.call(), key="1", timeout=20.0) == got


async def test_a_key_that_an_agents_call_has_answers_with_its_whole_receipt(store_url: str) -> None:
    said = Receipt("81", LINK, {"paid": 1}, "the bank is slow")
    charge = _saying(said)
    agent = Agent("clerk", FakeModel([[("charge", {})], "Charged."]), "Charge.", [charge])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Charge 81.")).id, timeout=20.0)
        assert run.status == "completed"
        assert await sf.perform(charge.call(), timeout=20.0) == said


async def test_bad_news_of_a_receipt_stays_bad_news_for_the_next_call_under_its_key(store_url: str) -> None:
    charge = _saying(Receipt("81", error="the bank is slow"))
    model = FakeModel([[("charge", {})], "Charged."])
    agent = Agent("clerk", model, "Charge.", [charge])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        told = []
        for _ in range(2):
            run = await sf.wait((await sf.start(agent, "Charge 81.")).id, timeout=20.0)
            told += [m.body for m in await sf.messages(run.id) if m.role == "tool_result"]
        assert len(told) == 2
        assert told[0] == told[1]


async def test_a_call_that_was_refused_says_why(store_url: str) -> None:
    @tool(effect=effects.opaque)
    async def charge(op: Operation) -> None:
        """Charge."""
        raise effects.Refused("no such customer", status=404)

    @tool(effect=effects.read)
    async def price(op: Operation) -> None:
        """Look up a price."""
        raise KeyError("A1")

    async with Surefoot(store_url, log=lambda line: None) as sf:
        for of, code, why in ((charge, "refused", "no such customer"), (price, "tool_error", "KeyError: 'A1'")):
            with pytest.raises(PerformFailed) as failed:
                await sf.perform(of.call(), key="1", timeout=20.0)
            assert failed.value.details["error_code"] == code
            assert why in str(failed.value)
            assert why in str(failed.value.details["reason"])
            shown = await sf.snapshot(str(failed.value.details["run_id"]))
            assert why in str(shown.steps[0].output)


async def test_a_call_that_a_person_refused_says_why(store_url: str) -> None:
    @tool(effect=effects.opaque, approval="always")
    async def charge(op: Operation) -> None:
        """Charge."""

    async with Surefoot(store_url, log=lambda line: None) as sf:
        with pytest.raises(ApprovalPending) as pending:
            await sf.perform(charge.call(), key="1", timeout=20.0)
        await sf.reject(str(pending.value.details["action_id"]), by="ann", reason="the wrong customer")
        with pytest.raises(PerformFailed, match="the wrong customer"):
            await sf.perform(charge.call(), key="1", timeout=20.0)
