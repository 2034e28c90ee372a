"""Tools of one name: what runs is the function that was proposed, shown and approved, never another agent's."""

from __future__ import annotations

import pytest

from surefoot import Agent, Approval, Operation, Receipt, Surefoot, Undetermined, effects, tool
from surefoot.agent.tools import Tool
from surefoot.errors import ApprovalPending, InvalidInput, WaitTimeout
from surefoot.snapshot import RunSnapshot
from surefoot.testing import FakeModel

Sent = list[tuple[str, str]]


def mailing(sent: Sent) -> Tool:
    """One function that is called send."""

    @tool(effect=effects.opaque)
    async def send(op: Operation, text: str) -> Receipt:
        """Send a mail."""
        sent.append(("mail", text))
        return Receipt(resource_id="mail")

    return send


def paying(sent: Sent) -> Tool:
    """Another one."""

    @tool(effect=effects.opaque)
    async def send(op: Operation, text: str) -> Receipt:
        """Send money."""
        sent.append(("money", text))
        return Receipt(resource_id="money")

    return send


def calling(name: str, send: Tool) -> Agent:
    """An agent that calls it once."""
    return Agent(name, FakeModel([[("send", {"text": f"from {name}"})], "Done."]), tools=[send])


async def test_two_agents_with_tools_of_one_name_each_run_their_own(store_url: str) -> None:
    sent: Sent = []
    agents = [calling("writer", mailing(sent)), calling("payer", paying(sent))]
    async with Surefoot(store_url, agents, worker=True, log=lambda line: None) as sf:
        for agent in agents:
            await sf.wait((await sf.start(agent, "Send it.")).id, timeout=20.0)
    assert sent == [("mail", "from writer"), ("money", "from payer")]


async def test_an_agents_copy_of_a_tool_keeps_its_own_settings(store_url: str) -> None:
    async def cannot_tell(op: Operation) -> Undetermined:
        return Undetermined("the list cannot be read")

    @tool(effect=effects.lookup(cannot_tell, settle=0.0), approval=Approval(permission="billing"), timeout=20.0)
    async def send(op: Operation, text: str) -> Receipt:
        """Send it, and hear nothing."""
        raise effects.InDoubt("no answer")

    agents = [calling("writer", send), calling("payer", send.using(approval="always", timeout=5.0))]
    async with Surefoot(store_url, agents, worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start("writer", "Send it.")).id, timeout=20.0)
        await sf.approve(run.pending_actions[0].id, by="test")

        def asked(now: RunSnapshot) -> bool:
            return any(a.kind == "resolve" and a.status == "waiting" for a in now.pending_actions)

        run = await sf.wait(run.id, until=asked, timeout=30.0)
        (question,) = [a for a in run.pending_actions if a.kind == "resolve"]
        row = await sf.store.action(sf.tenant, question.id)
    assert row.action.permission == "billing", "who may say what became of it is said by another agent's copy"


async def test_a_performed_call_runs_its_own_function_beside_an_agents_of_that_name(store_url: str) -> None:
    sent: Sent = []
    async with Surefoot(store_url, [calling("payer", paying(sent))], log=lambda line: None) as sf:
        await sf.perform(mailing(sent).call(text="hello"), key="1")
    assert sent == [("mail", "hello")]


async def test_a_second_function_under_the_name_of_one_that_was_performed_is_refused(store_url: str) -> None:
    sent: Sent = []
    async with Surefoot(store_url, log=lambda line: None) as sf:
        await sf.perform(mailing(sent).call(text="hello"), key="1")
        with pytest.raises(InvalidInput, match=r"two tools are called 'send'.*using\(name=…\)"):
            await sf.perform(paying(sent).call(text="100"), key="2")
        await sf.perform(paying(sent).using(name="pay").call(text="100"), key="3")
    assert sent == [("mail", "hello"), ("money", "100")]


async def test_a_worker_that_knows_two_functions_of_a_performed_name_runs_neither(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.snapshot.NO_WORKER_SECONDS", 0.5)
    sent: Sent = []
    gated = mailing(sent).using(approval="always")
    async with Surefoot(store_url, log=lambda line: None) as sf:
        with pytest.raises(ApprovalPending) as asked:
            await sf.perform(gated.call(text="hello"), key="1")
        action_id = str(asked.value.details["action_id"])
    agents = [calling("payer", paying(sent)), calling("writer", mailing(sent))]
    async with Surefoot(store_url, agents, worker=True, log=lambda line: None) as sf:
        await sf.approve(action_id, by="test")
        run = await sf.wait((await sf.start("writer", "Send it.")).id, timeout=20.0)
        assert run.status == "completed"
        performed = (await sf.store.action(sf.tenant, action_id)).run_id
        with pytest.raises(WaitTimeout) as waited:
            await sf.wait(performed, timeout=3.0)
    assert waited.value.details["blocked"] == "no_worker"
    assert sent == [("mail", "from writer")]
