"""What was to be done is not to be done any more: the call has ended meanwhile, or the tool has lost its lookup."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Absent, Agent, Found, Operation, Receipt, Surefoot, Throttle, ask_person, effects, tool
from surefoot.agent.tools import Tool
from surefoot.core import ends, policy
from surefoot.core.state import StepStatus
from surefoot.doctor import examine
from surefoot.effects import Effect
from surefoot.snapshot import RunSnapshot
from surefoot.testing.model import FakeModel
from tests.support import eventually

WAIT_SECONDS = 30.0


def _post(effect: Effect, sent: list[str]) -> Tool:
    @tool(effect=effect, name="post")
    async def post(op: Operation) -> Receipt:
        """Post it; the first reply is lost."""
        sent.append(op.key)
        if len(sent) == 1:
            raise effects.InDoubt("the connection broke")
        return Receipt(resource_id="p-1")

    return post


def _all_passed_over(run: RunSnapshot) -> bool:
    return [line.reason for line in run.steps[1].evidence].count("no_lookup") == len(policy.SWEEP_SECONDS)


async def test_later_looks_are_passed_over_where_the_tool_has_lost_its_lookup(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that was found absent and sent again is looked up later. The run that made it is still under way then."""
    monkeypatch.setattr(ends, "SWEEP_SECONDS", (1.0,))
    monkeypatch.setattr(policy, "SWEEP_SECONDS", (1.0, 0.1, 0.1))
    sent: list[str] = []
    looks: list[str] = []
    lines: list[str] = []

    async def find(op: Operation) -> Absent:
        looks.append(op.key)
        if len(looks) > 1:
            await asyncio.Event().wait()  # a later look of the old code has no answer while that code is there
        return Absent(coverage="all of it")

    model = FakeModel([[("post", {})], [("ask_person", {"question": "Go on?"})], "Done."])
    then = Agent("clerk", model, tools=[_post(effects.lookup(find, settle=0), sent), ask_person])
    async with Surefoot(store_url, [then], worker=True, log=lines.append) as sf:
        run = await sf.wait((await sf.start(then, "Post it.")).id, timeout=WAIT_SECONDS)
    (question,) = run.pending_actions
    assert (run.steps[1].status, run.steps[1].attempt) == ("succeeded", 2)

    now = Agent("clerk", model, tools=[_post(effects.opaque, sent), ask_person])
    async with Surefoot(store_url, [now], worker=True, log=lines.append) as sf:
        await sf.wait(run.id, until=_all_passed_over, timeout=WAIT_SECONDS)
        await sf.answer(question.id, "yes", by="ann")
        run = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert run.status == "completed"
        assert (await examine(sf.store, sf.tenant)).findings == []
    assert len(sent) == 2
    assert not [line for line in lines if "failed" in line]


async def _absent(op: Operation) -> Absent:
    return Absent(coverage="all of it")


@pytest.mark.parametrize(
    ("effect", "then"),
    [
        (effects.idempotent(key_lifetime=None), "outcome_unknown"),
        (effects.lookup(_absent, settle=0), "pending"),  # found absent: it is to be sent again
    ],
    ids=["to be sent under its key", "to be sent again"],
)
async def test_a_call_that_is_reported_while_its_next_attempt_waits_for_a_throttle_is_over(
    store_url: str, effect: Effect, then: str
) -> None:
    lines: list[str] = []
    sent: list[int] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect=effect, throttle=Throttle(at_once=1))
    async def pay(op: Operation, number: int) -> Receipt:
        """Pay; the replies to the first one are lost, and the second one is slow."""
        if number == 1:
            sent.append(op.attempt)
            raise effects.InDoubt("the connection broke")
        begun.set()
        await go_on.wait()
        return Receipt(resource_id="p-2")

    agent = Agent("clerk", FakeModel([[("pay", {"number": 1}), ("pay", {"number": 2})], "Done."]), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, log=lines.append) as sf:
        run = await sf.start(agent, "Pay both.")
        await asyncio.wait_for(begun.wait(), WAIT_SECONDS)
        run = await sf.wait(run.id, until=lambda s: s.steps[1].status == then, timeout=WAIT_SECONDS)
        attempts = len(sent)
        assert await sf.report(run.steps[1].operation_key or "", Found(Receipt(resource_id="p-1")))
        assert sf.worker is not None
        handle, step_id = sf.worker.drivers[run.id].handle, run.steps[1].id

        def known() -> bool:
            step = handle.run.steps.get(step_id)
            return step is None or step.status is StepStatus.succeeded

        await eventually(known, "the driver knows it")
        go_on.set()
        run = await sf.wait(run.id, timeout=WAIT_SECONDS)
    assert (run.status, [step.external_resource_id for step in run.steps[1:3]]) == ("completed", ["p-1", "p-2"])
    assert len(sent) == attempts
    assert not [line for line in lines if "failed" in line]


async def test_a_call_that_is_cancelled_while_its_account_is_asked_for_is_left_alone(store_url: str) -> None:
    lines: list[str] = []
    asked: list[str] = []
    sent: list[str] = []

    async def account(op: Operation) -> str:
        asked.append(op.key)
        async with Surefoot(store_url, log=lines.append) as person:
            assert await person.cancel(op.run_id) == ()
        raise OSError("the target is away")

    @tool(effect=effects.opaque, credential="PAY_TOKEN", account=account)
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append(op.key)
        return Receipt(resource_id="p-1")

    agent = Agent("clerk", FakeModel([[("pay", {})], "Done."]), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, log=lines.append) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, timeout=WAIT_SECONDS)
    assert (run.status, run.steps[1].error_code, len(asked), sent) == ("cancelled", "cancelled", 1, [])
    assert not [line for line in lines if "failed" in line]
