"""Signals: each is handed to one call, whichever comes first, the signal or the call; the same key is one signal."""

from __future__ import annotations

import json

import pytest

from surefoot import Agent, Surefoot, wait_for_signal
from surefoot.agent.model import ToolResultMessage
from surefoot.core.waiting import UNREAD_SIGNALS_MAX
from surefoot.errors import InvalidInput, KeyReused, NotAllowed, RunEnded
from surefoot.snapshot import RunSnapshot
from surefoot.testing.machine import Process, unobserved
from surefoot.testing.model import ScriptedCall, Step
from tests.cases.rig import Sim, all_events, ended, story

DONE = "thank you"


def wait(name: str = "built", **more: object) -> ScriptedCall:
    return "wait_for_signal", {"name": name, **more}


def waiting_agent(sim: Sim, *script: Step) -> Agent:
    return sim.agent(script, wait_for_signal)


def results(sim: Sim) -> list[str]:
    """What the model was told by its tools, in order."""
    return [
        message.content for message in sim.models[0].requests[-1].messages if isinstance(message, ToolResultMessage)
    ]


async def started(sf: Surefoot) -> RunSnapshot:
    return await sf.wait((await sf.start("reviewer", "go")).id, timeout=60.0)


@story
async def test_a_signal_is_the_result_of_the_call_that_waits_for_it(sim: Sim) -> None:
    async with sim.surefoot(waiting_agent(sim, [wait()], DONE)) as sf:
        asked = await started(sf)
        assert asked.status == "waiting_for_user" and asked.next is not None and asked.next.what == "signal"
        (listed,) = await sf.runs()
        assert asked.display == listed.display and asked.display.code == "run_waiting_for_signal"
        assert asked.display.text == "Waiting for a signal"
        action = asked.pending_actions[0]
        assert action.kind == "ask" and isinstance(action.preview, dict) and action.preview["signal"] == "built"
        assert asked.steps[1].display.code == "tool_waiting_for_signal"
        await sim.pass_time(0.1)
        assert sf.worker is not None and not sf.worker.drivers, "no lease is held by a wait"
        assert await sf.signal(asked.id, "another", 1)
        assert await sf.signal(asked.id, " built ", {"ok": True}, by="ci")
        last = await sf.wait(asked.id, timeout=60.0)
        assert last.status == "completed" and last.steps[1].attempt == 0
        assert [json.loads(text) for text in results(sim)] == [{"ok": True}]
        decided = (await sf.actions(run_id=asked.id))[0]
        assert decided.action.decided_by == "ci" and decided.action.decision == "answer"


@story
async def test_a_signal_that_comes_first_is_kept_for_the_call(sim: Sim) -> None:
    agent = waiting_agent(sim, [("wait_for_signal", {"name": "go on"})], [wait()], [wait()], DONE)
    async with sim.surefoot(agent) as sf:
        run = await started(sf)
        for number in range(2):
            assert await sf.signal(run.id, "built", number)
        assert (await sf.store.run(sf.tenant, run.id)).run.signals.unread[1].name == "built"
    # A new process takes both, in the order in which they came, and asks nobody.
    async with sim.surefoot(agent) as sf:
        await sf.signal(run.id, "go on")
        last = await sf.wait(run.id, timeout=60.0)
        assert last.status == "completed"
        assert results(sim) == ["null", "0", "1"]
        assert len(await sf.actions(run_id=run.id)) == 1
        assert (await sf.store.run(sf.tenant, run.id)).run.signals.unread == ()


@story
async def test_one_signal_answers_one_wait(sim: Sim) -> None:
    agent = waiting_agent(sim, [wait("go on")], [wait(), wait(), wait("go on", timeout_seconds=1)], DONE)
    async with sim.surefoot(agent) as sf:
        run = await started(sf)
        await sf.signal(run.id, "built", "first")
        await sf.signal(run.id, "go on")
        await sim.pass_time(5.0)
        asked = await sf.snapshot(run.id)
        assert [step.status for step in asked.steps[3:]] == ["succeeded", "waiting_for_approval", "failed"]
        await sf.signal(run.id, "built", "second")
        assert (await sf.wait(run.id, timeout=60.0)).status == "completed"
        assert results(sim)[1:3] == ["first", "second"]


@story
async def test_a_wait_whose_time_is_over_is_told_to_the_model(sim: Sim) -> None:
    async with sim.surefoot(waiting_agent(sim, [wait(timeout_seconds=60)], DONE)) as sf:
        run = await started(sf)
        await sim.pass_time(60.5)
        await sf.signal(run.id, "built", "too late")
        last = await sf.wait(run.id, until=ended, timeout=60.0)
        assert last.steps[1].error_code == "expired"
        assert results(sim) == ["The signal built did not come in time."]


@story
async def test_the_same_key_is_one_signal_for_ever(sim: Sim) -> None:
    async with sim.surefoot(waiting_agent(sim, [wait()], [wait(timeout_seconds=5)], DONE)) as sf:
        run = await started(sf)
        assert await sf.signal(run.id, "built", 1, key="k")
        assert not await sf.signal(run.id, "built", 1, key="k"), "also after a call has taken it"
        with pytest.raises(KeyReused):
            await sf.signal(run.id, "built", 2, key="k")
        with pytest.raises(KeyReused):
            await sf.signal(run.id, "other", 1, key="k")
        await sim.pass_time(6.0)
        last = await sf.wait(run.id, timeout=60.0)
        assert last.status == "completed" and last.steps[3].error_code == "expired"
        assert not await sf.signal(run.id, "built", 1, key="k"), "its reply was lost, and the run ended meanwhile"
        with pytest.raises(RunEnded):
            await sf.signal(run.id, "built", 1, key="new")
        assert len([e for e in await all_events(sf, run.id) if e.type == "signal_received"]) == 1


@story
async def test_what_is_no_signal_is_refused(sim: Sim) -> None:
    async with sim.surefoot(waiting_agent(sim, [wait("go on")], [wait("")], DONE)) as sf:
        run = await started(sf)
        for name, value in (
            ("", 1),
            ("x" * 201, 1),
            ("built", "x" * 300_000),
            ("built", float("nan")),
            ("b", object()),
        ):
            with pytest.raises(InvalidInput):
                await sf.signal(run.id, name, value)
        for number in range(UNREAD_SIGNALS_MAX):
            await sf.signal(run.id, "built", number)
        with pytest.raises(NotAllowed) as refused:
            await sf.signal(run.id, "go on")
        assert refused.value.code == "too_many_signals"
        await sf.cancel(run.id)
        with pytest.raises(RunEnded):
            await sf.signal(run.id, "go on")


@story
async def test_a_known_secret_in_a_signal_is_not_stored(sim: Sim) -> None:
    async with sim.surefoot(waiting_agent(sim, [wait()], DONE)) as sf:
        run = await started(sf)
        sf.redactor.add("DEPLOY_KEY", "s3cr3t-of-the-deployment")
        await sf.signal(run.id, "built", {"log": "key is s3cr3t-of-the-deployment"})
        await sf.wait(run.id, timeout=60.0)
        assert "s3cr3t" not in results(sim)[0] and "key is" in results(sim)[0]
        held = b"".join(sim.place.held().values())
        assert b"s3cr3t" not in held and b"key is" in held


@story
async def test_a_person_may_answer_in_place_of_the_program(sim: Sim) -> None:
    async with sim.surefoot(waiting_agent(sim, [wait()], DONE)) as sf:
        run = await started(sf)
        await sf.answer(run.pending_actions[0].id, {"by": "hand"}, by="ann")
        assert (await sf.wait(run.id, timeout=60.0)).status == "completed"
        assert [json.loads(text) for text in results(sim)] == [{"by": "hand"}]


@story
async def test_a_signal_and_a_worker_that_dies_at_once(sim: Sim) -> None:
    """Whichever commit is the last of the dead worker's, the signal is taken once."""
    for commits in range(1, 7):
        agent = waiting_agent(sim, [wait("go on")], [wait()], DONE)
        run_id = await _killed_after(sim, agent, commits)
        async with sim.surefoot(agent) as sf:
            assert (await sf.wait(run_id, timeout=120.0)).status == "completed"
            events = [e.type for e in await all_events(sf, run_id)]
            assert events.count("signal_taken") == events.count("signal_received") == 2


async def _killed_after(sim: Sim, agent: Agent, commits: int) -> str:
    """A run with both signals sent; its worker dies behind so many commits since the last one."""
    worker, seen = sim.worker(agent, name=f"worker {commits}"), 0

    def observe(process: Process, name: str, when: str) -> None:
        nonlocal seen
        if process is worker and name == "commit" and when == "after":
            seen += 1
            if seen == commits:
                process.kill_here()

    async with sim.surefoot(agent, worker=False) as sf:
        run = await sf.start("reviewer", f"go {commits}")
        await sf.wait(run.id, timeout=60.0)
        await sf.signal(run.id, "built", commits)
        sim.machine.observe = observe
        await sf.signal(run.id, "go on")
        await sim.until(lambda: worker.dead or seen >= 5)
        sim.machine.observe = unobserved
    worker.kill()
    return run.id
