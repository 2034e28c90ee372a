"""Throttles: so many calls begin in a time and are under way at once, over all workers of a tenant, whoever dies."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Agent, Receipt, Surefoot, effects, tool
from surefoot.agent.tools import Tool
from surefoot.core.events import StepStarted
from surefoot.core.throttle import Throttle, read_throttle
from surefoot.errors import InvalidInput
from surefoot.store.access import Share, Wish
from surefoot.store.port import Append
from surefoot.testing.machine import Process
from surefoot.testing.model import FakeModel
from surefoot.testing.stage import abandon
from tests.cases.rig import SECRET, Script, Sim, story

DURATION = 3.0
RUNS = 12


class Watched:
    """A tool that takes a while, and when its calls began and ended, in the machine's time."""

    def __init__(self, sim: Sim, **declared: object) -> None:
        self.sim = sim
        self.began: list[float] = []
        self.under_way = 0
        self.most = 0

        async def post(number: int) -> Receipt:
            """Post it."""
            self.began.append(sim.machine.clock.elapsed)
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                await self.sim.pass_time(DURATION)
            finally:
                self.under_way -= 1
            return Receipt(resource_id=str(number))

        made: Tool = tool(effect=effects.read)(post)
        self.tool = made.using(**declared)  # type: ignore[arg-type]  # what each test declares

    def agents(self, count: int = 1) -> list[Agent]:
        """The same agent, as each process has it."""
        script: Script = [[("post", {"number": 1})], "done"]
        models = [FakeModel(script) for _ in range(count)]
        self.sim.models.extend(models)
        return [Agent(name="poster", model=model, tools=[self.tool]) for model in models]


async def start_all(sim: Sim, sf: Surefoot, count: int = RUNS) -> list[str]:
    return [(await sf.start("poster", f"post {n}")).id for n in range(count)]


async def end_all(sf: Surefoot, runs: list[str]) -> None:
    for run in runs:
        assert (await sf.wait(run, timeout=3_600.0)).status == "completed"


@story
async def test_so_many_are_under_way_at_once_over_all_workers(sim: Sim) -> None:
    watched = Watched(sim, throttle=Throttle(at_once=2))
    ours, *theirs = watched.agents(4)
    for number, agent in enumerate(theirs):
        sim.worker(agent, name=f"worker-{number}")
    async with sim.surefoot(ours, worker=False) as sf:
        began = sim.machine.clock.elapsed
        await end_all(sf, await start_all(sim, sf))
        took = sim.machine.clock.elapsed - began
    assert len(watched.began) == RUNS and watched.most == 2
    assert took < RUNS / 2 * DURATION * 2, "and what is free is used"


@story
async def test_so_many_begin_in_a_time_over_all_workers(sim: Sim) -> None:
    watched = Watched(sim, throttle=Throttle(rate=30, per=60.0))
    ours, *theirs = watched.agents(4)
    for number, agent in enumerate(theirs):
        sim.worker(agent, name=f"worker-{number}")
    async with sim.surefoot(ours, worker=False) as sf:
        await end_all(sf, await start_all(sim, sf))
    began = sorted(watched.began)
    for index, first in enumerate(began):
        for count, last in enumerate(began[index:], 1):
            assert count <= 2 + (last - first) / 2.0 + 0.01, "burst + 1 + T * rate / per"
    assert began[-1] - began[0] < RUNS * 2.0 * 1.5, "and not much slower than it may be"


@story
async def test_a_dead_worker_gives_back_what_it_had(sim: Sim) -> None:
    watched = Watched(sim, throttle=Throttle(at_once=1))
    first, second, ours = watched.agents(3)
    dying = sim.worker(first, name="dying")
    async with sim.surefoot(ours, worker=False) as sf:
        runs = await start_all(sim, sf, 3)
        await sim.until(lambda: watched.under_way == 1)
        dying.kill()
        watched.under_way = 0  # its call died with it
        sim.worker(second, name="living")
        await end_all(sf, runs)
    assert watched.most == 1


@story
async def test_a_tenants_own_throttle_holds_for_every_tool(sim: Sim) -> None:
    watched = Watched(sim)
    (agent,) = watched.agents()
    assert sim.person is not None
    async with Surefoot(
        sim.url, [agent], worker=True, throttle=Throttle(at_once=3), doors=sim.person.doors, lease_seconds=10.0,
        secret=SECRET, log=sim.lines.append,
    ) as sf:  # fmt: skip
        await end_all(sf, await start_all(sim, sf))
    assert watched.most == 3


@story
async def test_what_waited_for_another_throttle_does_not_begin_together(sim: Sim) -> None:
    """Each had its time by the tool's own throttle, and then all waited for a place among the tenant's calls."""
    watched = Watched(sim, throttle=Throttle(rate=1, per=1.0))
    (poster,) = watched.agents()
    held: list[int] = []

    @tool(effect=effects.read)
    async def hold() -> str:
        """Hold a place for a while."""
        held.append(1)
        await sim.pass_time(8.0)
        return "held"

    holder = Agent(name="holder", model=FakeModel([[("hold", {})], "done"]), tools=[hold])
    assert sim.person is not None
    async with Surefoot(
        sim.url, [poster, holder], worker=True, throttle=Throttle(at_once=3), doors=sim.person.doors,
        lease_seconds=10.0, secret=SECRET, log=sim.lines.append,
    ) as sf:  # fmt: skip
        runs = [(await sf.start("holder", f"hold {n}")).id for n in range(3)]
        await sim.until(lambda: len(held) == 3)
        await end_all(sf, [*runs, *(await start_all(sim, sf, 3))])
    first, second, third = sorted(watched.began)
    assert second - first > 0.9 and third - second > 0.9, watched.began


@story
async def test_what_waited_for_a_slow_commit_does_not_begin_together(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of one run: each had its time, and then all waited until the intent of the first one was written."""
    watched = Watched(sim, throttle=Throttle(rate=1, per=1.0))
    script: Script = [[("post", {"number": n}) for n in range(4)], "done"]
    model = FakeModel(script)
    sim.models.append(model)
    agent = Agent(name="poster", model=model, tools=[watched.tool])
    async with sim.surefoot(agent) as sf:
        append = sf.store.append
        slow: list[Append] = []

        async def once_slowly(wanted: Append) -> None:
            if not slow and any(isinstance(event, StepStarted) and "post" in str(wanted) for event in wanted.events):
                slow.append(wanted)
                await sim.pass_time(5.0)
            await append(wanted)

        monkeypatch.setattr(sf.store, "append", once_slowly)
        await end_all(sf, [(await sf.start("poster", "post")).id])
    _, second, third, fourth = sorted(watched.began)
    assert slow and third - second > 0.9 and fourth - third > 0.9, watched.began


@story
async def test_a_fast_throttle_lets_calls_begin_though_the_store_is_slower(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each token was too late once the store had answered, and so was the next: the calls waited for ever."""
    watched = Watched(sim, throttle=Throttle(rate=1_000))
    (agent,) = watched.agents()
    async with sim.surefoot(agent) as sf:
        share = sf.store.share

        async def slowly(tenant_id: str, wish: Wish) -> Share:
            answer = await share(tenant_id, wish)
            await sim.pass_time(0.03)
            return answer

        monkeypatch.setattr(sf.store, "share", slowly)
        began = sim.machine.clock.elapsed
        await end_all(sf, await start_all(sim, sf, 3))
    assert sim.machine.clock.elapsed - began < 2 * DURATION


@story
async def test_what_waits_too_long_gives_its_lease_back_and_may_be_cancelled(sim: Sim) -> None:
    watched = Watched(sim, throttle=Throttle(rate=1, per=300.0))
    (agent,) = watched.agents()
    async with sim.surefoot(agent) as sf:
        runs = await start_all(sim, sf, 3)
        await sim.pass_time(60.0)
        assert len(watched.began) == 1
        waiting = [step for run in runs for step in (await sf.snapshot(run)).steps if step.status == "pending"]
        assert {step.error_code for step in waiting} == {"throttled"} and len(waiting) == 2
        assert await sf.cancel(runs[2]) == (), "nothing of it was sent"
        await end_all(sf, runs[:2])
    assert len(watched.began) == 2


@story
async def test_a_performed_call_and_a_stopping_worker(sim: Sim) -> None:
    watched = Watched(sim, throttle=Throttle(at_once=1))
    async with sim.surefoot(worker=False) as sf:
        calls = [sf.perform(watched.tool.call(number=n), key=str(n)) for n in range(4)]
        receipts = await asyncio.gather(*calls)
    assert [receipt.resource_id for receipt in receipts] == ["0", "1", "2", "3"]
    assert watched.most == 1


def test_what_bounds_nothing_is_refused() -> None:
    for wrong in ({}, {"rate": 0.0}, {"rate": 1.0, "per": 0.0}, {"at_once": 0}, {"rate": 1.0, "burst": 0},
                  {"at_once": 1, "name": "*"}, {"rate": float("inf")}):  # fmt: skip
        with pytest.raises(ValueError, match="Throttle"):
            Throttle(**wrong)
    assert read_throttle("rate=100 per=60, at_once=20") == Throttle(rate=100.0, per=60.0, at_once=20)
    for text in ("", "rate", "rate=x", "rate=1 rate=2", "speed=3", "at_once=1.5", "rate=0"):
        with pytest.raises(InvalidInput):
            read_throttle(text)


@story
async def test_the_more_urgent_run_is_claimed_first(sim: Sim) -> None:
    watched = Watched(sim)
    ours, theirs = watched.agents(2)
    order: list[str] = []
    async with sim.surefoot(ours, worker=False) as sf:
        runs = [(await sf.start("poster", "x", priority=priority)).id for priority in (0, 2, -1, 1)]
        with pytest.raises(InvalidInput):
            await sf.start("poster", "x", priority=101)
        process = sim.machine.start("slow", lambda process: _one_by_one(sim, theirs, process, order))
        await end_all(sf, runs)
        process.kill()
    assert order == [runs[1], runs[3], runs[0], runs[2]]


async def _one_by_one(sim: Sim, agent: Agent, process: Process, order: list[str]) -> None:
    """A worker that drives one run at a time."""
    sf = Surefoot(
        sim.url, [agent], worker=True, capacity=1, doors=process.doors, lease_seconds=10.0,
        secret=SECRET, log=sim.lines.append,
    )  # fmt: skip
    process.on_death.append(lambda: abandon(sf))
    async with sf:
        assert sf.worker is not None
        sf.worker.on_drive = order.append
        await asyncio.get_running_loop().create_future()
