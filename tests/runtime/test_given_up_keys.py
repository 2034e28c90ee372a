"""A business key whose call was given up: later calls under it are not sent, and wait for nobody."""

from __future__ import annotations

import pytest

from surefoot import Agent, Operation, Receipt, Surefoot, effects, tool
from surefoot.errors import OutcomeUnknown
from surefoot.store.port import Append, KeyOwner
from surefoot.testing.model import FakeModel
from tests.cases.rig import Sim, story
from tests.runtime.mailing import clerk


async def test_a_call_under_a_key_that_was_given_up_ends_without_being_sent(store_url: str) -> None:
    sent: list[str] = []
    agent = clerk(sent)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        first = await sf.wait((await sf.start(agent, "Mail it.")).id, timeout=20)
        second = await sf.start(agent, "Mail it too.")
        (question,) = first.pending_actions
        await sf.resolve(question.id, "give_up", by="ann")
        first = await sf.wait(first.id, timeout=20)
        assert (first.status, first.steps[1].status, first.steps[1].resolution) == (
            "completed",
            "outcome_unknown",
            "given_up",
        )
        second = await sf.wait(second.id, timeout=20)
        assert (second.status, second.steps[1].error_code) == ("completed", "owner_given_up")
        with pytest.raises(OutcomeUnknown):
            await sf.perform(agent.tools["mail"].call(invoice="81"), timeout=20)
        assert not await sf.store.runs(sf.tenant, status="running", agent=None, before=None, limit=9), (
            "the performed run has ended too"
        )
    assert sent == ["mail:81"]


@story
async def test_the_longer_a_call_waits_for_another_under_its_key_the_more_rarely_it_looks(sim: Sim) -> None:
    """It looked, and wrote a commit, each second for as long as a person thought about the other one."""
    sim.broken.add("I1")  # this target stands outside of the World
    sent: list[str] = []
    agent = clerk(sent)
    async with sim.surefoot(agent) as sf:
        first = await sf.wait((await sf.start(agent, "Mail it.")).id, timeout=60.0)
        second = await sf.start(agent, "Mail it too.")
        await sim.pass_time(4.0)
        soon = await sf.snapshot(second.id)
        await sim.pass_time(7_200.0)
        late = await sf.snapshot(second.id)
        (question,) = first.pending_actions
        await sf.resolve(question.id, "happened", external_resource_id="m-1", by="ann")
        second = await sf.wait(second.id, timeout=61.0)
    assert (second.status, second.steps[1].external_resource_id, sent) == ("completed", "m-1", ["mail:81"])
    assert soon.version >= 5, "it looks often at first"
    assert late.version - soon.version < 160


async def test_a_key_that_another_run_takes_first_is_answered_from_there_at_once(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken between the look for its holder and the commit of the answer that proposes the call."""
    sent: list[str] = []

    @tool(effect=effects.opaque, key=lambda invoice: invoice)
    async def mail(op: Operation, invoice: str) -> Receipt:
        """Mail an invoice."""
        sent.append(op.key)
        return Receipt(resource_id="m-1")

    model = FakeModel([[("mail", {"invoice": "81"})], "Done."])
    agent = Agent("clerk", model, tools=[mail])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        assert await sf.perform(mail.call(invoice="81"), timeout=20) == Receipt(resource_id="m-1")
        asked: list[str] = []
        appended: list[Append] = []
        owner, append = sf.store.key_owner, sf.store.append

        async def late(tenant_id: str, key: str) -> KeyOwner | None:
            asked.append(key)
            return None if len(asked) == 1 else await owner(tenant_id, key)

        async def counted(what: Append) -> None:
            appended.append(what)
            await append(what)

        monkeypatch.setattr(sf.store, "key_owner", late)
        monkeypatch.setattr(sf.store, "append", counted)
        run = await sf.wait((await sf.start(agent, "Mail it.")).id, timeout=20)
    assert (run.status, run.steps[1].external_resource_id) == ("completed", "m-1")
    assert sent == ["mail:81"]
    assert len(asked) == 2 and len(appended) < 10
