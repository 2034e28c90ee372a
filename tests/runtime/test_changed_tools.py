"""The code of now is not the code that a call was approved for, or made under: what is asked again, and how often."""

from __future__ import annotations

import msgspec

from surefoot import Absent, Agent, Approval, Operation, Receipt, Surefoot, ask_person, effects, tool
from surefoot.agent.tools import Tool
from surefoot.snapshot import RunSnapshot
from surefoot.testing.model import FakeModel
from tests.cases.rig import DAY, Script, Sim, story

SECONDS = 20


def clerk(pay: Tool) -> Agent:
    """The agent that pays once."""
    return Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])


def goes_on(snapshot: RunSnapshot, *answered: str) -> bool:
    """It has ended, or asks something that nobody has answered yet."""
    return snapshot.status == "completed" or any(a.id not in answered for a in snapshot.pending_actions)


async def test_a_changed_tool_is_asked_about_once(store_url: str) -> None:
    sent: list[str] = []

    @tool(effect=effects.opaque, approval=Approval())
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append(op.key)
        return Receipt(resource_id="p-1")

    agent = clerk(pay)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, timeout=SECONDS)
        (first,) = run.pending_actions
    async with Surefoot(store_url, [clerk(pay.using(version="2"))], worker=True, log=lambda line: None) as sf:
        await sf.approve(first.id, by="ann")
        run = await sf.wait(run.id, until=lambda r: goes_on(r, first.id), timeout=SECONDS)
        (second,) = run.pending_actions
        assert second.id != first.id and sent == []
        assert isinstance(second.preview, dict) and second.preview["tool_version"] == "2"
        await sf.approve(second.id, by="ann")
        run = await sf.wait(run.id, until=lambda r: goes_on(r, first.id, second.id), timeout=SECONDS)
    assert (run.status, len(sent)) == ("completed", 1)


async def test_a_changed_tool_is_asked_about_where_a_look_finds_nothing(store_url: str) -> None:
    sent: list[str] = []

    async def find(op: Operation) -> Absent:
        return Absent(coverage="everything")

    @tool(effect=effects.lookup(find, settle=1.0), approval=Approval())
    async def pay(op: Operation) -> Receipt:
        """Pay; the reply is lost."""
        sent.append(op.key)
        if len(sent) == 1:
            raise effects.InDoubt("the connection broke")
        return Receipt(resource_id="p-1")

    agent = clerk(pay)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, timeout=SECONDS)
        await sf.approve(run.pending_actions[0].id, by="ann")
        await sf.wait(run.id, until=lambda r: r.status == "reconciling", timeout=SECONDS)
    async with Surefoot(store_url, [clerk(pay.using(version="2"))], worker=True, log=lambda line: None) as sf:
        run = await sf.wait(run.id, until=goes_on, timeout=SECONDS)
        assert len(sent) == 1, "it was sent by code that nobody has approved"
        (question,) = run.pending_actions
        assert question.kind == "approve"
        await sf.approve(question.id, by="ann")
        run = await sf.wait(run.id, until=lambda r: goes_on(r, question.id), timeout=SECONDS)
    assert (run.status, len(sent)) == ("completed", 2)


async def test_a_call_is_sorted_by_what_its_tool_is_now(store_url: str) -> None:
    """It waited as a read, and is one no more: an exception leaves a doubt."""

    @tool(effect=effects.read, approval=Approval())
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        raise RuntimeError(f"the connection broke, and this is of class {op.effect}")

    agent = clerk(pay)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, timeout=SECONDS)
        (first,) = run.pending_actions
    mended = msgspec.structs.replace(pay, effect=effects.opaque)
    async with Surefoot(store_url, [clerk(mended)], worker=True, log=lambda line: None) as sf:
        await sf.approve(first.id, by="ann")
        run = await sf.wait(run.id, timeout=SECONDS)
    assert (run.status, run.steps[1].status) == ("waiting_for_user", "outcome_unknown")
    assert [action.kind for action in run.pending_actions] == ["resolve"]


@story
async def test_a_later_look_that_nobody_can_make_any_more_does_not_stop_its_run(sim: Sim) -> None:
    sent: list[int] = []
    sim.broken.add("I1")  # this target stands outside of the World

    async def find(op: Operation) -> Absent:
        return Absent(coverage="everything")

    @tool(effect=effects.lookup(find, settle=1.0))
    async def pay(op: Operation) -> Receipt:
        """Pay; the first reply is lost."""
        sent.append(op.attempt)
        if len(sent) == 1:
            raise effects.InDoubt("the connection broke")
        return Receipt(resource_id="p-1")

    script: Script = [[("pay", {})], [("ask_person", {"question": "Enough?"})], "Paid."]
    agent = Agent("clerk", FakeModel(script), tools=[pay, ask_person])
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, timeout=SECONDS)
        assert (run.status, sent) == ("waiting_for_user", [1, 2])
    without = Agent("clerk", FakeModel(script), tools=[msgspec.structs.replace(pay, effect=effects.opaque), ask_person])
    async with sim.surefoot(without) as sf:
        await sim.pass_time(2 * DAY)
        await sf.answer(run.pending_actions[0].id, "yes", by="ann")
        run = await sf.wait(run.id, timeout=SECONDS)
    assert (run.status, sent) == ("completed", [1, 2])
    assert [line for line in sim.lines if "failed" in line] == []


async def test_a_key_that_older_code_has_used_is_answered_from_there(store_url: str) -> None:
    """The same arguments under the same key are the same effect, whatever the version of the tool."""
    sent: list[str] = []

    @tool(effect=effects.opaque, key=lambda invoice, cents: invoice)
    async def pay(op: Operation, invoice: str, cents: int) -> Receipt:
        """Pay an invoice."""
        sent.append(op.key)
        return Receipt(resource_id="p-1")

    def payer(version: str, cents: int) -> Agent:
        calls = [("pay", {"invoice": "81", "cents": cents})]
        return Agent("payer", FakeModel([calls, "Paid."]), tools=[pay.using(version=version)])

    found: list[tuple[str | None, str | None]] = []
    for version, cents in (("1", 900), ("2", 900), ("2", 901)):
        async with Surefoot(store_url, [payer(version, cents)], worker=True, log=lambda line: None) as sf:
            run = await sf.wait((await sf.start("payer", "Pay it.")).id, timeout=SECONDS)
            found.append((run.steps[1].external_resource_id, run.steps[1].error_code))
    assert found == [("p-1", None), ("p-1", None), (None, "key_reused")]
    async with Surefoot(store_url, log=lambda line: None) as sf:
        receipt = await sf.perform(pay.using(version="3").call(invoice="81", cents=900), timeout=SECONDS)
    assert receipt.resource_id == "p-1"
    assert sent == ["pay:81"]


async def test_a_tool_that_is_back_at_its_first_version_is_asked_about_again(store_url: str) -> None:
    """The last approval was of the version between the two: it says nothing about this one."""
    sent: list[str] = []

    @tool(effect=effects.opaque, approval=Approval())
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append(op.key)
        return Receipt(resource_id="p-1")

    asked: list[str] = []
    run_id = ""
    for version in ("1", "2", "1"):
        agent = clerk(pay.using(version=version))
        async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
            run_id = run_id or (await sf.start(agent, "Pay.")).id
            if asked:
                await sf.approve(asked[-1], by="ann")
            run = await sf.wait(run_id, until=lambda r: goes_on(r, *asked), timeout=SECONDS)
            assert sent == []
            (question,) = run.pending_actions
            assert isinstance(question.preview, dict) and question.preview["tool_version"] == version
            asked.append(question.id)
    async with Surefoot(store_url, [clerk(pay)], worker=True, log=lambda line: None) as sf:
        await sf.approve(asked[-1], by="ann")
        run = await sf.wait(run_id, timeout=SECONDS)
    assert (run.status, len(sent)) == ("completed", 1)


@story
async def test_a_key_is_no_reason_to_send_by_code_that_nobody_has_approved(sim: Sim) -> None:
    """The target drops repeats of the key; what the new code sends under it, nobody has seen."""
    sent: list[str] = []
    sim.broken.add("I1")  # this target stands outside of the World

    def clerk_of(version: str) -> Agent:
        @tool(effect=effects.idempotent(key_lifetime=None), approval=Approval(), version=version)
        async def pay(op: Operation) -> Receipt:
            """Pay; the first reply never comes."""
            sent.append(version)
            if len(sent) == 1:
                await sim.pass_time(DAY)
            return Receipt(resource_id="p-1")

        return clerk(pay)

    first = sim.worker(clerk_of("1"))
    async with sim.surefoot(clerk_of("1"), worker=False) as sf:
        run = await sf.wait((await sf.start("clerk", "Pay.")).id, timeout=SECONDS)
        await sf.approve(run.pending_actions[0].id, by="ann")
        await sim.until(lambda: sent)
        first.kill()
    async with sim.surefoot(clerk_of("2")) as sf:
        run = await sf.wait(run.id, until=goes_on, timeout=SECONDS)
        (question,) = run.pending_actions
        assert (question.kind, sent) == ("resolve", ["1"])
        await sf.resolve(question.id, "did_not_happen", by="ann")
        run = await sf.wait(run.id, until=lambda r: goes_on(r, question.id), timeout=200)
        (again,) = run.pending_actions
        assert (again.kind, sent) == ("approve", ["1"])
        await sf.approve(again.id, by="ann")
        run = await sf.wait(run.id, until=lambda r: goes_on(r, question.id, again.id), timeout=SECONDS)
    assert (run.status, sent) == ("completed", ["1", "2"])
