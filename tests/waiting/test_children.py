"""Agents as tools: one run for one call, whose end is the call's; asked about and stopped with its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from surefoot import Agent, Approval, Surefoot, ask_person, sleep
from surefoot.agent.model import ToolResultMessage
from surefoot.agent.tools import Tool
from surefoot.core.decide import ask_approval, cancel_run
from surefoot.core.draft import Draft
from surefoot.core.events import StepDeferred
from surefoot.core.payloads import Ask
from surefoot.core.state import Run
from surefoot.errors import InvalidInput, NotFound, RunEnded, StoreUnavailable, Unreadable, WaitTimeout
from surefoot.runtime import children
from surefoot.runtime.context import Context
from surefoot.runtime.deciding import handle_of
from surefoot.snapshot import RunSnapshot
from surefoot.store.port import Append, Create
from surefoot.testing import faults as f
from surefoot.testing.machine import Process, When, unobserved
from surefoot.testing.model import FakeModel, ScriptedCall, Step
from tests.cases.rig import Sim, all_events, comment, ended, post_comment, story

WAIT_SECONDS = 3_600.0
CALL: ScriptedCall = ("writer", {"task": "Write it."})


def named(sim: Sim, name: str, script: Sequence[Step], *tools: Tool | Agent, turns: int = 100) -> Agent:
    model = FakeModel(script)
    sim.models.append(model)
    return Agent(name=name, model=model, instructions="Help.", tools=tools, turns=turns)


def boss(sim: Sim, writer: Agent, script: Sequence[Step] = ([CALL], "thank you")) -> Agent:
    return named(sim, "boss", script, writer)


def results(agent: Agent) -> list[str]:
    """What the agent's model was told by its tools, in order."""
    model = agent.models[0]
    assert isinstance(model, FakeModel)
    return [message.content for message in model.requests[-1].messages if isinstance(message, ToolResultMessage)]


async def children_of(sf: Surefoot, run_id: str) -> list[RunSnapshot]:
    return [await sf.snapshot(run.id) for run in await sf.store.children(sf.tenant, run_id)]


@story
async def test_the_result_of_its_run_is_the_result_of_the_call(sim: Sim) -> None:
    writer = named(sim, "writer", [[("sleep", {"seconds": 600})], "a poem"], sleep)
    agent = boss(sim, writer)
    async with sim.surefoot(agent) as sf:
        run = await sf.start("boss", "go")
        await sim.pass_time(60.0)
        under_way = await sf.snapshot(run.id)
        assert under_way.next is not None and under_way.next.what == "run"
        assert under_way.steps[1].display.code == "tool_waiting_for_run"
        assert sf.worker is not None and not sf.worker.drivers, "neither of the two holds a lease"
        last = await sf.wait(run.id, timeout=WAIT_SECONDS)
        (child,) = await children_of(sf, run.id)
        assert last.status == child.status == "completed"
        assert results(agent) == ["a poem"]
        assert (child.agent, child.parent_step_id, child.created_by) == ("writer", last.steps[1].id, run.id)
        assert child.conversation_id != run.conversation_id
        assert last.steps[1].child_run_id == child.id and last.steps[1].attempt == 0
        deferred = [e for e in await all_events(sf, run.id) if e.type == "step_deferred"]
        assert len(deferred) < 12, "the longer a run works, the more rarely it is looked after"


@story
async def test_a_run_that_has_no_result_is_an_error_for_the_calling_model(sim: Sim) -> None:
    asks: Step = [("ask_person", {"question": "Which?"})]
    fails = named(sim, "writer", [asks, asks, "never"], ask_person, turns=1)
    agent = boss(sim, fails, [[CALL], [CALL], "thank you"])
    async with sim.surefoot(agent) as sf:
        run = await sf.start("boss", "go")
        asked = await sf.wait(run.id, timeout=WAIT_SECONDS)
        await sf.answer(asked.pending_actions[0].id, "this one", by="ann")
        asked = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert asked.steps[1].error_code == "run_failed"
        (question,) = asked.pending_actions
        await sf.cancel(question.run_id)
        last = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert last.status == "completed", "its own budget of turns was not used by others"
        assert [s.error_code for s in last.steps if s.type == "tool_call"] == ["run_failed", "run_cancelled"]
        assert "turns_used_up" in results(agent)[0] and "was cancelled" in results(agent)[1]


@story
async def test_what_waits_for_a_person_stands_in_the_inbox_of_the_caller(sim: Sim) -> None:
    writer = named(sim, "writer", [[comment("Hello.")], "written"], post_comment(gated=True))
    middle = named(sim, "middle", [[CALL], "passed on"], writer)
    agent = named(sim, "boss", [[("middle", {"task": "Have it written."})], "thank you"], middle)
    async with sim.surefoot(agent) as sf:
        run = await sf.start("boss", "go")
        asked = await sf.wait(run.id, timeout=WAIT_SECONDS)
        (action,) = asked.pending_actions
        assert asked.waits_for_person and asked.next is not None and asked.next.what == "person"
        assert action.kind == "approve" and action.run_id not in (run.id, asked.steps[1].child_run_id)
        assert [row.action.id for row in await sf.actions(run_id=run.id)] == [action.id]
        await sf.approve(action.id, by="ann")
        last = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert last.status == "completed" and results(agent) == ["passed on"]
        assert sim.bodies() == ["Hello."]
        owner = await sf.store.step_by_key(sf.tenant, sim.world.comments("acme/app", 128)[0].body.split("operation:")[1]
                                           .split(" ")[0])  # fmt: skip
        assert owner is not None and owner.run_id == action.run_id
        for snapshot in (last, *await children_of(sf, run.id)):
            assert all(s.external_resource_id is None for s in snapshot.steps), "no effect is attributed to a caller"


@story
async def test_a_person_may_have_to_approve_that_an_agent_is_called(sim: Sim) -> None:
    writer = named(sim, "writer", ["a poem"])
    agent = named(sim, "boss", [[CALL], [CALL], "thank you"], writer.as_tool().using(approval="always"))
    async with sim.surefoot(agent) as sf:
        run = await sf.start("boss", "go")
        asked = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert not await children_of(sf, run.id)
        await sf.approve(asked.pending_actions[0].id, by="ann")
        asked = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert len(await children_of(sf, run.id)) == 1
        await sf.reject(asked.pending_actions[0].id, by="ann")
        last = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert last.status == "completed" and results(agent)[0] == "a poem" and "refused" in results(agent)[1]
        assert len(await children_of(sf, run.id)) == 1


@story
async def test_nobody_is_asked_again_about_a_call_whose_run_is_at_work(sim: Sim) -> None:
    """The approval let the run begin; that it is over meanwhile, or that the code has changed, is no question then."""
    writer = named(sim, "writer", [[("sleep", {"seconds": 7_200})], "a poem"], sleep)
    gated = writer.as_tool().using(approval=Approval(expires=600.0))
    agent = named(sim, "boss", [[CALL], "thank you"], gated)
    async with sim.surefoot(agent) as sf:
        run = await sf.start("boss", "go")
        asked = await sf.wait(run.id, timeout=WAIT_SECONDS)
        await sf.approve(asked.pending_actions[0].id, by="ann")
        await sim.pass_time(3_000.0)
        assert len(await children_of(sf, run.id)) == 1 and not (await sf.snapshot(run.id)).pending_actions
    changed = named(sim, "boss", [[CALL], "thank you"], gated.using(version="changed"))
    async with sim.surefoot(changed) as sf:
        await sim.pass_time(1_000.0)
        assert not (await sf.snapshot(run.id)).pending_actions
        last = await sf.wait(run.id, timeout=3 * WAIT_SECONDS)
        assert last.status == "completed" and results(changed) == ["a poem"]


@story
async def test_a_question_of_an_older_version_about_a_call_at_work_ends_and_the_call_goes_on(sim: Sim) -> None:
    """It said that the call had not been executed, beside the run that was at work on it."""
    writer = named(sim, "writer", [[("sleep", {"seconds": 1_200})], "a poem"], sleep)
    gated = writer.as_tool().using(approval=Approval(expires=600.0))
    agent = named(sim, "boss", [[CALL], "thank you"], gated)
    async with sim.surefoot(agent, worker=False) as person:
        async with sim.surefoot(agent) as sf:
            run = await sf.start("boss", "go")
            asked = await sf.wait(run.id, timeout=WAIT_SECONDS)
            await sf.approve(asked.pending_actions[0].id, by="ann")
            await sf.wait(run.id, until=lambda s: s.steps[1].child_run_id is not None, timeout=WAIT_SECONDS)
            await sim.pass_time(60.0)
        handle = await handle_of(person.context, run.id)
        ask = Ask("act_01hf7yat008tmjm0bv8wjpkrte", b"{}", b"{}", expires_s=300.0)
        await handle.decide(lambda d: ask_approval(d, asked.steps[1].id, ask))
        async with sim.surefoot(agent) as sf:
            last = await sf.wait(run.id, until=ended, timeout=3 * WAIT_SECONDS)
    assert last.status == "completed" and results(agent) == ["a poem"]


@story
async def test_a_call_whose_run_has_begun_is_not_asked_about_though_that_was_not_written_down(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker was cut off until the approval was over: asked again and not answered, the call would end beside."""
    writer = named(sim, "writer", [[("sleep", {"seconds": 1_200})], "a poem"], sleep)
    gated = writer.as_tool().using(approval=Approval(expires=600.0))
    agent = named(sim, "boss", [[CALL], "thank you"], gated)
    async with sim.surefoot(agent) as sf:
        append = sf.store.append

        async def cut_off(what: Append) -> None:
            if any(isinstance(event, StepDeferred) and event.code == "waits_for_run" for event in what.events):
                raise StoreUnavailable("the store is away")
            await append(what)

        monkeypatch.setattr(sf.store, "append", cut_off)
        run = await sf.start("boss", "go")
        asked = await sf.wait(run.id, timeout=WAIT_SECONDS)
        await sf.approve(asked.pending_actions[0].id, by="ann")
        await sf.wait(run.id, until=lambda s: s.steps[1].child_run_id is not None, timeout=WAIT_SECONDS)
        await sim.pass_time(1_000.0)
        assert (await sf.snapshot(run.id)).pending_actions == []
    async with sim.surefoot(agent) as sf:
        last = await sf.wait(run.id, until=ended, timeout=3 * WAIT_SECONDS)
    assert last.status == "completed" and results(agent) == ["a poem"]


@story
async def test_a_run_that_comes_when_its_caller_has_another_worker_does_not_begin(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its making was on its way until the lease was over: a person was asked anew, refused, and it went to work."""
    writer = named(sim, "writer", [[comment("Hello.")], "a poem"], post_comment())
    gated = writer.as_tool().using(approval=Approval(expires=600.0))
    agent = named(sim, "boss", [[CALL], "thank you"], gated)
    on_its_way: list[asyncio.Future[Run]] = []
    arrives = asyncio.Event()
    async with sim.surefoot(agent) as first, sim.surefoot(agent, worker=False) as person:
        create, ours = first.store.create, first.store

        async def slowly(what: Create) -> Run:
            if what.after.parent_step_id is None:
                return await create(what)

            async def later() -> Run:
                await arrives.wait()
                return await create(what)

            on_its_way.append(asyncio.ensure_future(later()))
            return await asyncio.shield(on_its_way[0])

        async def away(*args: object) -> None:
            raise StoreUnavailable("the store is away")

        run = await first.start("boss", "go")
        asked = await first.wait(run.id, timeout=WAIT_SECONDS)
        monkeypatch.setattr(ours, "create", slowly)
        await first.approve(asked.pending_actions[0].id, by="ann")
        await sim.until(lambda: on_its_way)
        for method in ("renew", "claim", "claim_one", "release"):
            monkeypatch.setattr(ours, method, away)
        await sim.pass_time(700.0)
        other = sim.worker(agent, name="other")
        again = await person.wait(run.id, timeout=WAIT_SECONDS)
        await person.reject(again.pending_actions[0].id, by="ann")
        arrives.set()
        await asyncio.wait(on_its_way)
        last = await person.wait(run.id, until=ended, timeout=WAIT_SECONDS)
        await sim.pass_time(600.0)
        other.kill()
        assert last.status == "completed" and "refused" in results(agent)[0]
        assert sim.posts() == [] and [child.status for child in await children_of(person, run.id)] == []


@story
async def test_who_refuses_a_call_at_work_stops_the_run_that_works_on_it_and_no_other(sim: Sim) -> None:
    """A question of an older version: the call had not been executed, it said, and its run went on by itself."""
    writer = named(
        sim, "writer", [[("sleep", {"seconds": 1_200})], [comment("Hello.")], "a poem"], sleep, post_comment()
    )
    gated = writer.as_tool().using(approval=Approval(expires=600.0))
    agent = named(sim, "boss", [[CALL, ("writer", {"task": "Write another."})], "thank you"], gated)
    async with sim.surefoot(agent, worker=False) as person:
        async with sim.surefoot(agent) as sf:
            run = await sf.start("boss", "go")
            asked = await sf.wait(run.id, timeout=WAIT_SECONDS)
            for action in asked.pending_actions:
                await sf.approve(action.id, by="ann")
            await sf.wait(run.id, until=lambda s: all(c.child_run_id for c in s.steps[1:]), timeout=WAIT_SECONDS)
            await sim.pass_time(60.0)
        handle = await handle_of(person.context, run.id)
        ask = Ask("act_01hf7yat008tmjm0bv8wjpkrte", b"{}", b"{}", expires_s=300.0)
        await handle.decide(lambda d: ask_approval(d, asked.steps[1].id, ask))
        await person.reject(ask.action_id, by="ann")
        async with sim.surefoot(agent) as sf:
            last = await sf.wait(run.id, until=ended, timeout=3 * WAIT_SECONDS)
            below = {one.parent_step_id: one.status for one in await children_of(sf, run.id)}
    assert below == {last.steps[1].id: "cancelled", last.steps[2].id: "completed"}
    refused, written = results(agent)
    assert "refused" in refused and "stays done" in refused and written == "a poem" and len(sim.posts()) == 1


@story
async def test_a_cancel_stops_those_who_work_for_the_run_and_tells_what_they_sent(sim: Sim) -> None:
    writer = named(sim, "writer", [[comment("Hello.")], "written"], post_comment())
    middle = named(sim, "middle", [[CALL], "passed on"], writer)
    agent = named(sim, "boss", [[("middle", {"task": "a"}), ("middle", {"task": "b"})], "thank you"], middle)
    sim.fault(f.LostReply("hang"), times=None)
    async with sim.surefoot(agent) as sf:
        run = await sf.start("boss", "go")
        await sim.until(lambda: len(sim.posts()) == 2)
        sent = await sf.cancel(run.id)
        below = await children_of(sf, run.id)
        writers = [one for child in below for one in await children_of(sf, child.id)]
        assert len(below) == len(writers) == 2
        assert {one.status for one in (await sf.snapshot(run.id), *below, *writers)} == {"cancelled"}
        assert sorted(sent) == sorted(one.steps[1].id for one in writers)
        for one in writers:
            await sf.wait(one.id, until=lambda s: s.steps[1].status == "succeeded", timeout=WAIT_SECONDS)
        assert len(sim.bodies()) == 2 and len(sim.posts()) == 2, "what was sent is found, and nothing is sent"


@story
async def test_a_cancel_that_was_cut_off_is_finished_by_a_worker(sim: Sim) -> None:
    writer = named(sim, "writer", [[("ask_person", {"question": "Which?"})], "written"], ask_person)
    middle = named(sim, "middle", [[CALL], "passed on"], writer)
    agent = named(sim, "boss", [[("middle", {"task": "a"})], "thank you"], middle)
    sim.worker(agent)
    async with sim.surefoot(agent, worker=False) as sf:
        run = await sf.start("boss", "go")
        await sf.wait(run.id, timeout=WAIT_SECONDS)
        handle = await handle_of(sf.context, run.id)
        await handle.decide(_cancelled)
        (child,) = await children_of(sf, run.id)
        (writing,) = await children_of(sf, child.id)
        for one in (child, writing):
            assert (await sf.wait(one.id, until=ended, timeout=WAIT_SECONDS)).status == "cancelled"
        assert not await sf.actions(status="waiting")
        with pytest.raises(RunEnded):
            await sf.cancel(run.id)
        await sf.wait(run.id, until=lambda s: s.next is None, timeout=WAIT_SECONDS)


def _cancelled(d: Draft) -> None:
    cancel_run(d, "ann")


@story
async def test_nothing_is_started_for_a_run_that_has_ended(sim: Sim) -> None:
    """The cancel comes between the read that finds the run open and the commit of the run that would work for it."""
    writer = named(sim, "writer", ["written"])
    agent = boss(sim, writer)
    async with sim.surefoot(agent) as sf:
        create = sf.store.create
        held: list[str] = []

        async def slowly(what: object) -> object:
            parent = getattr(what, "after").parent_step_id  # noqa: B009 - any Create
            if parent is not None:
                held.append(parent)
                await sf.cancel(run.id)
            return await create(what)  # type: ignore[arg-type]  # passed on as it came

        vars(sf.store)["create"] = slowly
        run = await sf.start("boss", "go")
        await sf.wait(run.id, timeout=WAIT_SECONDS)
        await sim.pass_time(60.0)
        assert len(held) == 1 and not await children_of(sf, run.id)


@story
async def test_agents_call_agents_only_so_deep(sim: Sim) -> None:
    agent = named(sim, "last", ["never"])
    for number in range(children.DEPTH_MAX + 1):
        agent = named(sim, f"agent{number}", [[CALL], "passed on"], agent.as_tool("writer"))
    async with sim.surefoot(agent) as sf:
        run = await sf.start(agent.name, "go")
        last = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert last.status == "completed"
        codes = []
        while below := await children_of(sf, last.id):
            (last,) = below
            codes.append(last.steps[1].error_code)
        assert codes == [None] * (children.DEPTH_MAX - 1) + ["too_deep"]


@story
async def test_whichever_commit_is_a_workers_last_one_run_works_for_one_call(sim: Sim) -> None:
    for commits in range(1, 16):
        writer = named(sim, "writer", [[comment(f"Hello {commits}.")], "written"], post_comment(settle=1))
        agent = boss(sim, writer)
        run_id = await _killed_after(sim, agent, commits)
        async with sim.surefoot(agent) as sf:
            last = await sf.wait(run_id, timeout=WAIT_SECONDS)
            assert last.status == "completed"
            assert len(await children_of(sf, run_id)) == 1
            assert sim.bodies().count(f"Hello {commits}.") == 1


async def _killed_after(sim: Sim, agent: Agent, commits: int) -> str:
    worker, seen = sim.worker(agent, name=f"worker {commits}"), 0

    def observe(process: Process, name: str, when: When) -> None:
        nonlocal seen
        if process is worker and name == "commit" and when == "after":
            seen += 1
            if seen == commits:
                process.kill_here()

    async with sim.surefoot(agent, worker=False) as sf:
        sim.machine.observe = observe
        run = await sf.start("boss", f"go {commits}")
        await sim.until(lambda: worker.dead or (seen >= 10 and worker.machine.quiet_seconds > 30))
        sim.machine.observe = unobserved
    worker.kill()
    return run.id


@story
async def test_an_agent_is_known_with_those_among_its_tools(sim: Sim) -> None:
    writer = named(sim, "writer.v2", ["written"])
    agent = named(sim, "boss", ["done"], writer, writer.as_tool("second", "Another hand."))
    assert sorted(agent.tools) == ["second", "writer_v2"] and agent.tools["second"].description == "Another hand."
    async with sim.surefoot(agent, writer) as sf:
        assert sorted(sf.agents) == ["boss", "writer.v2"]
        with pytest.raises(InvalidInput):
            await sf.perform(writer.as_tool().call(task="Write."))
        with pytest.raises(NotFound):
            await sf.cancel("run_none")
    with pytest.raises(InvalidInput):
        sim.surefoot(agent, named(sim, "writer.v2", ["other"]))


@story
@pytest.mark.parametrize("dies", [True, False])
async def test_a_call_hears_soon_of_an_end_that_nobody_told_it(
    sim: Sim, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """The worker died between the end and the telling, or could not tell: the call slept on until its own next look."""
    long = 820.0  # its caller has looked just before
    writer = named(sim, "writer", [[("sleep", {"seconds": long})], "a poem"], sleep)
    agent = boss(sim, writer)
    told: list[float] = []

    async def cut_off(ctx: Context, child: Run) -> str | None:
        if child.parent_step_id is None or not child.ended:
            return None
        told.append(sim.machine.clock.elapsed)
        if dies:
            first.kill_here()
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr("surefoot.runtime.worker.tell_parent", cut_off)
    first = sim.worker(agent, writer, name="first")
    async with sim.surefoot(agent, writer, worker=False) as sf:
        run = await sf.start("boss", "go")
        await sim.pass_time(long - 5.0)
        await sim.until(lambda: told)
        ended_at = told[0]
        if dies:
            sim.worker(agent, writer, name="second")
        run = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert (run.status, results(agent)) == ("completed", ["a poem"])
        assert sim.machine.clock.elapsed - ended_at < 30.0


DAMAGE = "UPDATE run SET limits = '{' WHERE id = ?"


@story
async def test_a_run_that_cannot_be_read_holds_up_its_call_alone(sim: Sim) -> None:
    """The calling run was set aside whole, with all that it could have gone on with, and none said why."""
    writer = named(sim, "writer", [[("ask_person", {"question": "Which?"})], "a poem"], ask_person)
    calls: Step = [CALL, ("sleep", {"seconds": 1_000})]
    agent = named(sim, "boss", [calls, "thank you"], writer, sleep)
    async with sim.surefoot(agent) as sf:
        run = await sf.start("boss", "go")
        asked = await sf.wait(run.id, until=lambda r: bool(r.pending_actions), timeout=WAIT_SECONDS)
        (child,) = await children_of(sf, run.id)
        ((limits,),) = sim.place.query(f"SELECT limits FROM run WHERE id = '{child.id}'")
        assert sim.place.execute(DAMAGE, child.id) == 1
        await sim.pass_time(1_200.0)
        stands = await sf.snapshot(run.id)
        assert (await sf.store.run(sf.tenant, run.id)).blocked_code is None and stands.status == "running"
        assert [step.status for step in stands.steps if step.type == "tool_call"] == ["pending", "succeeded"]
        assert stands.steps[1].error_code == "run_unreadable" and [bad.id for bad in stands.unreadable] == [child.id]
        assert any(child.id in line and "cannot be read" in line for line in sim.lines)
        with pytest.raises(WaitTimeout, match=child.id) as late:
            await sf.wait(run.id, timeout=10.0)
        assert late.value.details["blocked"] == "unreadable"
        deferred = [e for e in await all_events(sf, run.id) if e.type == "step_deferred"]
        assert len(deferred) < 20, "the longer it cannot be read, the more rarely it is looked after"
        assert sim.place.execute("UPDATE run SET limits = ? WHERE id = ?", limits, child.id) == 1
        await sf.answer(asked.pending_actions[0].id, "this one", by="ann")
        assert (await sf.wait(run.id, until=ended, timeout=WAIT_SECONDS)).status == "completed"
        assert results(agent)[0] == "a poem"


@story
async def test_a_result_that_cannot_be_read_holds_up_its_call_alone(sim: Sim) -> None:
    writer = named(sim, "writer", ["a poem"])
    agent = boss(sim, writer)
    async with sim.surefoot(agent) as sf, sim.surefoot(agent, worker=False) as person:
        told: list[str] = []

        async def damaged(ctx: Context, child: Run) -> str | None:
            if not told and child.parent_step_id is not None:
                told.append(child.id)
                sim.place.execute("UPDATE run SET result = '1e999' WHERE id = ?", child.id)
            return None

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("surefoot.runtime.worker.tell_parent", damaged)
            run = await sf.start("boss", "go")
            await sim.pass_time(600.0)
        stands = await person.snapshot(run.id)
        assert (stands.status, stands.steps[1].error_code, stands.error_code) == ("running", "run_unreadable", None)
        assert sim.place.execute("UPDATE run SET result = ? WHERE id = ?", '{"text":"a poem"}', told[0]) == 1
        assert (await sf.wait(run.id, until=ended, timeout=WAIT_SECONDS)).status == "completed"
    assert results(agent) == ["a poem"]


@story
async def test_a_run_that_could_not_be_read_when_its_caller_was_cancelled_is_stopped_later(sim: Sim) -> None:
    """The calling run was set aside, and with it all that it had left to look up."""
    writer = named(sim, "writer", [[("ask_person", {"question": "Which?"})], "a poem"], ask_person)
    agent = boss(sim, writer)
    async with sim.surefoot(agent) as sf:
        run = await sf.start("boss", "go")
        await sf.wait(run.id, until=lambda r: bool(r.pending_actions), timeout=WAIT_SECONDS)
        (child,) = await children_of(sf, run.id)
        ((limits,),) = sim.place.query(f"SELECT limits FROM run WHERE id = '{child.id}'")
        assert sim.place.execute(DAMAGE, child.id) == 1
        with pytest.raises(Unreadable, match=child.id):
            await sf.cancel(run.id, by="ann")
        await sim.pass_time(600.0)
        assert (await sf.store.run(sf.tenant, run.id)).blocked_code is None
        assert sim.place.execute("UPDATE run SET limits = ? WHERE id = ?", limits, child.id) == 1
        await sim.pass_time(600.0)
        assert (await sf.snapshot(child.id)).status == "cancelled"
