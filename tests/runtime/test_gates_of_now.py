"""Who has to be asked about a call is what the more careful of two says: the code that proposed it, and that of now."""

from __future__ import annotations

from typing import Any

import pytest

from surefoot import Absent, Agent, Approval, Operation, Receipt, Surefoot, effects, tool
from surefoot.agent.tools import Tool
from surefoot.snapshot import RunSnapshot
from surefoot.testing.model import FakeModel
from tests.cases.rig import calls_of

SECONDS = 20


def clerk(pay: Tool) -> Agent:
    """The agent that pays once."""
    return Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])


def goes_on(snapshot: RunSnapshot) -> bool:
    """It has ended, or asks something."""
    return snapshot.status == "completed" or bool(snapshot.pending_actions)


async def waiting_call(store_url: str, pay: Tool, status: str = "pending") -> RunSnapshot:
    """A run whose call nobody was asked about, left by a worker that has stopped."""
    agent = clerk(pay)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.start(agent, "Pay.")
        return await sf.wait(
            run.id, until=lambda r: any(s.status == status and s.attempt for s in calls_of(r)), timeout=SECONDS
        )


@pytest.mark.parametrize("asks", [True, False])
async def test_a_call_that_waits_is_asked_about_where_its_tool_asks_now(store_url: str, asks: bool) -> None:
    sent: list[str] = []

    @tool(effect=effects.opaque)
    async def pay(op: Operation) -> Receipt:
        """Pay, not at once."""
        sent.append(op.key)
        if len(sent) == 1:
            raise effects.Refused("not now", retry_after=1.0)
        return Receipt(resource_id="p-1")

    run = await waiting_call(store_url, pay)
    gated = clerk(pay.using(approval=Approval(when=lambda: asks, permission="billing")))
    async with Surefoot(store_url, [gated], worker=True, log=lambda line: None) as sf:
        run = await sf.wait(run.id, until=goes_on, timeout=SECONDS)
        if asks:
            (question,) = run.pending_actions
            assert len(sent) == 1, "it was sent without the question that its tool asks"
            assert (question.kind, question.permission) == ("approve", "billing")
            await sf.approve(question.id, by="ann")
        run = await sf.wait(run.id, timeout=SECONDS)
    assert (run.status, len(sent)) == ("completed", 2)


async def test_a_call_in_doubt_is_not_sent_again_by_its_key_where_its_tool_asks_now(store_url: str) -> None:
    sent: list[str] = []

    @tool(effect=effects.idempotent(key_lifetime=None))
    async def pay(op: Operation) -> Receipt:
        """Pay; replies are lost."""
        sent.append(op.key)
        if op.attempt < 3:
            raise effects.InDoubt("the connection broke")
        return Receipt(resource_id="p-1")

    run = await waiting_call(store_url, pay.using(timeout=5), "outcome_unknown")
    before = len(sent)
    async with Surefoot(store_url, [clerk(pay.using(approval="always"))], worker=True, log=lambda line: None) as sf:
        run = await sf.wait(run.id, until=goes_on, timeout=SECONDS)
        assert [action.kind for action in run.pending_actions] == ["resolve"] and len(sent) == before


async def test_a_call_that_is_not_found_is_asked_about_where_its_tool_asks_now(store_url: str) -> None:
    sent: list[str] = []

    async def find(op: Operation) -> Absent:
        return Absent(coverage="everything")

    @tool(effect=effects.lookup(find, settle=1.0))
    async def pay(op: Operation) -> Receipt:
        """Pay; the first reply is lost."""
        sent.append(op.key)
        if len(sent) == 1:
            raise effects.InDoubt("the connection broke")
        return Receipt(resource_id="p-1")

    run = await waiting_call(store_url, pay, "outcome_unknown")
    async with Surefoot(store_url, [clerk(pay.using(approval="always"))], worker=True, log=lambda line: None) as sf:
        run = await sf.wait(run.id, until=goes_on, timeout=SECONDS)
        (question,) = run.pending_actions
        assert (question.kind, len(sent)) == ("approve", 1)
        await sf.approve(question.id, by="ann")
        run = await sf.wait(run.id, timeout=SECONDS)
    assert (run.status, len(sent)) == ("completed", 2)


def _to_another_place(arguments: object) -> str:
    return "another account"


CHANGES: dict[str, dict[str, Any]] = {
    "credential": {"credential": "OTHER"},
    "target": {"target": _to_another_place},
    "all": {"credential": "OTHER", "target": _to_another_place, "version": "2"},
}
SHOWN = {"credential": "OTHER", "target": "another account", "version": "2"}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_call_that_would_be_another_one_by_now_is_asked_about_once(store_url: str, change: str) -> None:
    """The person has approved it to its target, under its credential.

    One question shows all that differs: asked about one after the other, each answer would forget the one before.
    """
    sent: list[str] = []

    @tool(effect=effects.opaque, approval=Approval(permission="billing"), credential="PAY_TOKEN")
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append(op.key)
        return Receipt(resource_id="p-1")

    agent = clerk(pay)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, timeout=SECONDS)
        (first,) = run.pending_actions
    # It asks nobody any more; whoever had to be asked then is asked.
    other = clerk(pay.using(**CHANGES[change], approval="never"))
    async with Surefoot(store_url, [other], worker=True, log=lambda line: None) as sf:
        await sf.approve(first.id, by="ann")
        run = await sf.wait(
            run.id, until=lambda r: r.status == "completed" or any(a.id != first.id for a in r.pending_actions),
            timeout=SECONDS,
        )  # fmt: skip
        (second,) = run.pending_actions
        assert sent == [] and isinstance(second.preview, dict)
        for name in CHANGES[change]:
            assert second.preview["tool_version" if name == "version" else name] == SHOWN[name]
        if change == "all":
            (why,) = second.preview["warnings"]
            assert all(word in why for word in ("version 1 to 2", "PAY_TOKEN", "another account")), why
        assert (second.kind, second.permission) == ("approve", "billing")
        await sf.approve(second.id, by="ann")
        run = await sf.wait(run.id, timeout=SECONDS)
    assert (run.status, len(sent)) == ("completed", 1), run.pending_actions


async def test_a_question_asked_for_another_reason_shows_under_what_and_to_what_it_would_be_made(
    store_url: str,
) -> None:
    """What was approved of the code of now holds also behind a later question, about what else has changed."""
    sent: list[str] = []
    heads = ["a"]

    async def head(op: Operation) -> str:
        return heads[-1]

    @tool(effect=effects.opaque, approval="always", credential="PAY_TOKEN", precondition=head)
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append(op.key)
        return Receipt(resource_id="p-1")

    agent = clerk(pay)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, timeout=SECONDS)
    asked: list[str] = []
    async with Surefoot(store_url, [clerk(pay.using(credential="OTHER"))], worker=True, log=lambda line: None) as sf:
        while run.status != "completed":
            (question,) = [action for action in run.pending_actions if action.id not in asked]
            asked.append(question.id)
            if len(asked) == 2:
                heads.append("b")
            await sf.approve(question.id, by="ann")
            run = await sf.wait(
                run.id,
                until=lambda r: r.status == "completed" or any(a.id not in asked for a in r.pending_actions),
                timeout=SECONDS,
            )
    assert (len(asked), len(sent)) == (3, 1), "asked again about what had been approved"
