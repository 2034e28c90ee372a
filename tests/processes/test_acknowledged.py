"""What was said to be done is done after a failover too, also where a repeat is answered from what is known already.

The wait for the standby is cancelled, so that what was written can be read but stands on the primary alone: whoever
asks for the same again must not be told that it is done, for the primary then dies.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack

import msgspec
import pytest

from surefoot import Agent, Approval, Found, Operation, Receipt, Surefoot, Undetermined, effects, tool, wait_for_signal
from surefoot.errors import OutcomeUnknown, StoreError
from surefoot.http import system_doors
from surefoot.server.tokens import Tokens
from surefoot.store.postgres import PostgresStore
from surefoot.testing.model import FakeModel
from tests.places import Place
from tests.processes.servers import Pair, pair
from tests.support import eventually

pytestmark = pytest.mark.postgres_only("SQLite has one writer and no standby")

SECONDS = 60.0


class Act(msgspec.Struct):
    """Something that a caller asks for under a key of theirs, or that can be done once only."""

    ask: Callable[[Surefoot], Awaitable[object]]
    stands: Callable[[Surefoot], Awaitable[bool]]


@pytest.fixture
def servers() -> Iterator[Pair]:
    """A primary with a synchronous standby."""
    with pair() as made:
        yield made


async def cannot_tell(op: Operation) -> Undetermined:
    return Undetermined("no answer")


@tool(effect=effects.opaque, approval=Approval(expires=3_600))
async def publish(op: Operation) -> Receipt:
    """Publish it."""
    return Receipt(resource_id="1")


@tool(effect=effects.lookup(cannot_tell, settle=0.1))
async def invoice(op: Operation) -> Receipt:
    """Send it, and hear nothing of it."""
    raise effects.InDoubt("no reply")


class Slow:
    """A tool that returns when it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_end = asyncio.Event()

        @tool(effect=effects.opaque, timeout=SECONDS)
        async def transfer(op: Operation) -> Receipt:
            """Send some money."""
            self.calls += 1
            await self.may_end.wait()
            return Receipt(resource_id="one transfer")

        self.call = transfer.call()


def agents() -> list[Agent]:
    waiting = FakeModel([[("wait_for_signal", {"name": "go"})], "done"])
    asking = FakeModel([[("publish", {})], "done"])
    return [
        Agent(name="waiting", model=waiting, instructions="Wait.", tools=[wait_for_signal]),
        Agent(name="asking", model=asking, instructions="Ask.", tools=[publish]),
    ]


async def opened(stack: AsyncExitStack, servers: Pair, *, worker: bool = False) -> Surefoot:
    sf = Surefoot(servers.url, agents(), tools=[invoice], worker=worker, log=lambda line: None)
    return await stack.enter_async_context(sf)


async def acts_of(sf: Surefoot) -> dict[str, Act]:
    """One of each kind, on runs that have come to where it can be asked for."""

    async def rests(agent: str) -> str:
        return (await sf.wait((await sf.start(agent, "Go.")).id, timeout=SECONDS)).id

    said, signalled, stopped, failed = [await rests("waiting") for _ in range(4)]
    await sf.cancel(failed)
    (asked,) = (await sf.snapshot(await rests("asking"))).pending_actions
    with pytest.raises(OutcomeUnknown) as unknown:
        await sf.perform(invoice.call(), key="may", timeout=2.0)
    step_id = str(unknown.value.details["step_id"])
    tokens = Tokens(sf.store, sf.doors.clock, sf.doors.entropy)
    token, _ = await tokens.create(sf.tenant, "ann", ("read",))
    found = Found(Receipt(resource_id="81"))

    async def made(sf: Surefoot, key: str) -> bool:
        return await sf.store.run_of_key(sf.tenant, key) is not None

    async def is_said(sf: Surefoot) -> bool:
        conversation = (await sf.store.run(sf.tenant, said)).run.conversation_id
        return [b"Hurry." in row.body for row in await sf.store.queued(sf.tenant, conversation)] == [True]

    async def is_signalled(sf: Surefoot) -> bool:
        return not (await sf.snapshot(signalled)).pending_actions

    async def is_stopped(sf: Surefoot) -> bool:
        return (await sf.snapshot(stopped)).status == "cancelled"

    async def is_decided(sf: Surefoot) -> bool:
        return (await sf.store.action(sf.tenant, asked.id)).action.decided_by == "ann"

    async def is_settled(sf: Surefoot) -> bool:
        return (await sf.store.step(sf.tenant, step_id)).step.external_resource_id == "81"

    async def is_revoked(sf: Surefoot) -> bool:
        row = await sf.store.credential(sf.tenant, token.id)
        return row is not None and row.revoked_at is not None

    async def stop(sf: Surefoot) -> None:
        # Said again it is refused, which says as well that the run is over.
        if not await is_ended_by(sf.cancel(stopped)):
            raise AssertionError("the run is neither cancelled nor was it")

    return {
        "start": Act(lambda sf: sf.start("waiting", "Go.", key="k"), lambda sf: made(sf, "k")),
        "retry": Act(lambda sf: sf.retry(failed), lambda sf: made(sf, f"retry:{failed}")),
        "message": Act(lambda sf: sf.message(said, "Hurry.", key="k"), is_said),
        "signal": Act(lambda sf: sf.signal(signalled, "go", key="k"), is_signalled),
        "cancel": Act(stop, is_stopped),
        "decision": Act(lambda sf: sf.approve(asked.id, by="ann", key="k"), is_decided),
        "report": Act(lambda sf: sf.report("invoice:may", found), is_settled),
        "revoke": Act(lambda sf: sf.store.revoke_credential(sf.tenant, token.id), is_revoked),
    }


async def listens(sf: Surefoot) -> None:
    """Its session is known: else its worker's row would be written anew behind the cut, and one more commit waits."""
    store = sf.store
    assert isinstance(store, PostgresStore)
    with contextlib.closing(store.follow("run_that_is_not")) as following:
        waiting = asyncio.ensure_future(following.changed(SECONDS))
        await eventually(lambda: store._workers._session, "a session that listens", seconds_max=SECONDS)
        waiting.cancel()


async def is_ended_by(cancelling: Awaitable[object]) -> bool:
    try:
        await cancelling
    except StoreError:
        raise
    except Exception as refusal:
        return getattr(refusal, "code", None) == "run_ended"
    return True


async def test_a_repeat_is_acknowledged_once_the_standby_has_what_was_written(servers: Pair, place: Place) -> None:
    slow = Slow()
    async with AsyncExitStack() as stack:
        async with AsyncExitStack() as preparing:
            acts = await acts_of(await opened(preparing, servers, worker=True))
        acts["perform"] = Act(lambda sf: sf.perform(slow.call, key="once"), lambda sf: made_once(slow))
        first = {name: await opened(stack, servers) for name in acts}
        again = {name: await opened(stack, servers) for name in acts}
        for sf in (first["perform"], again["perform"]):
            await listens(sf)
        performing = asyncio.ensure_future(acts["perform"].ask(first["perform"]))
        await eventually(lambda: slow.calls, "the call", seconds_max=SECONDS)
        repeats = {"perform": asyncio.ensure_future(acts["perform"].ask(again["perform"]))}
        store = again["perform"].store
        assert isinstance(store, PostgresStore)
        await eventually(lambda: store._watch._followers, "the other caller waits for it", seconds_max=SECONDS)

        await asyncio.to_thread(servers.cut_off)
        slow.may_end.set()
        began = {name: asyncio.ensure_future(act.ask(first[name])) for name, act in acts.items() if name != "perform"}
        began["perform"] = performing
        await eventually(lambda: servers.waits() == len(acts), "every commit waits", seconds_max=SECONDS)
        assert servers.cancel_waits() == len(acts)
        # Each is made sure of by another commit; a revocation just says that it is not known.
        await eventually(lambda: servers.waits() + ended(began) == len(acts), "their ends", seconds_max=SECONDS)
        assert acknowledged(began) == []
        repeats |= {
            name: asyncio.ensure_future(act.ask(again[name])) for name, act in acts.items() if name != "perform"
        }
        asked = [*began.values(), *repeats.values()]
        await eventually(
            lambda: servers.waits() + ended(began, repeats) == len(asked), "the repeats", seconds_max=SECONDS
        )
        assert acknowledged(began, repeats) == [], "the standby has nothing of it"

        await asyncio.to_thread(servers.fail_over)
        ends = await asyncio.gather(*repeats.values(), return_exceptions=True)
        assert all(isinstance(end, StoreError) for end in ends), ends
        await asyncio.gather(*(until_acknowledged(act, again[name]) for name, act in acts.items()))
        await asyncio.gather(*began.values(), return_exceptions=True)
        last = await opened(stack, servers)
        assert [name for name, act in acts.items() if not await act.stands(last)] == []


def ended(*asked: Mapping[str, asyncio.Future[object]]) -> int:
    return sum(task.done() for tasks in asked for task in tasks.values())


def acknowledged(*asked: Mapping[str, asyncio.Future[object]]) -> list[str]:
    tasks = [(name, task) for tasks in asked for name, task in tasks.items()]
    return [name for name, task in tasks if task.done() and task.exception() is None]


async def made_once(slow: Slow) -> bool:
    return slow.calls == 1


async def until_acknowledged(act: Act, sf: Surefoot) -> None:
    """A caller who asks until the answer is there."""
    while True:
        try:
            await act.ask(sf)
            return
        except StoreError:
            await sf.doors.clock.sleep(0.1)


async def test_what_is_asked_for_the_first_time_costs_no_commit_more(place: Place) -> None:
    commits = 0

    def count(name: str, moment: str) -> None:
        nonlocal commits
        commits += (name, moment) == ("commit", "after")

    doors = msgspec.structs.replace(system_doors(), hook=count)
    async with AsyncExitStack() as stack:
        preparing = await stack.enter_async_context(Surefoot(place.url, agents(), tools=[invoice], worker=True))
        acts = await acts_of(preparing)
        sf = await stack.enter_async_context(Surefoot(place.url, agents(), doors=doors))
        slow = Slow()
        slow.may_end.set()
        await sf.perform(slow.call, key="the worker is written down")
        acts["perform"] = Act(lambda sf: sf.perform(slow.call, key="once"), lambda sf: made_once(slow))
        costs = {}
        for name, act in acts.items():
            before = commits
            await act.ask(sf)
            costs[name] = commits - before
    assert costs == dict.fromkeys(acts, 1) | {"perform": 3}
