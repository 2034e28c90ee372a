"""A program that closes surefoot has nothing of it left on its loop."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from surefoot import Agent, Operation, Receipt, Surefoot, Undetermined, effects, tool
from surefoot.errors import StoreClosed, StoreUnavailable
from surefoot.runtime.execute import Call
from surefoot.store.port import Append
from surefoot.testing import FakeModel
from tests.support import eventually


@tool(effect=effects.opaque, approval="always")
async def send(op: Operation) -> Receipt:
    """Send something."""
    return Receipt(resource_id="1")


def _rests(ours: set[asyncio.Task[object]]) -> bool:
    """Whether something on the loop waits for an event, as a worker does that has nothing to do."""
    return any("Event.wait" in repr(task.get_coro()) for task in asyncio.all_tasks() - ours)


async def test_closing_leaves_no_task_behind(store_url: str) -> None:
    """A task that nobody ended is destroyed with its worker, and the loop complains to whoever runs the program."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["message"]))
    ours = asyncio.all_tasks()
    agent = Agent("sender", FakeModel([[("send", {})], "sent"]), "", [send])
    for number in range(6):
        async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
            run = await sf.start("sender", "Send it.", key=str(number))
            await sf.wait(run.id)
            worker = sf.worker
            assert worker is not None
            await eventually(lambda worker=worker: not worker.drivers and _rests(ours), "a worker with nothing to do")  # type: ignore[misc]  # the loop's own
        del worker
        del sf
        gc.collect()
        await eventually(lambda: asyncio.all_tasks() <= ours, "the end of every task", seconds_max=2.0)
    assert not complaints


async def test_an_end_that_could_not_be_written_is_left_where_the_store_is_closed(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be written to it any more: whoever takes the run up finds a call that may have been sent."""
    ours = asyncio.all_tasks()
    began, may_end = asyncio.Event(), asyncio.Event()
    logged: list[str] = []

    @tool(effect=effects.opaque)
    async def post(op: Operation) -> Receipt:
        """Post something, for a while."""
        began.set()
        await may_end.wait()
        return Receipt(resource_id="1")

    agent = Agent("poster", FakeModel([[("post", {})], "posted"]), "", [post])
    sf = await Surefoot(store_url, [agent], worker=True, log=logged.append).__aenter__()
    run = await sf.start("poster", "Post it.")
    await asyncio.wait_for(began.wait(), 20)

    async def full(append: Append) -> None:
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(sf.store, "append", full)
        may_end.set()
        await eventually(lambda: any("is not recorded yet" in line for line in logged), "a try to record the end")
        await sf.close(grace_seconds=0.1)
    await eventually(lambda: asyncio.all_tasks() <= ours, "the end of every task", seconds_max=15.0)
    async with Surefoot(store_url, [agent], log=lambda line: None) as later:
        assert (await later.snapshot(run.id)).steps[-1].status == "running"


async def test_a_drive_that_another_one_has_followed_ends_with_its_worker(store_url: str) -> None:
    """It waits for a thread that nobody can stop; who closes surefoot does not."""
    ours = asyncio.all_tasks()
    may_end = threading.Event()

    def find(op: Operation) -> Undetermined:
        return Undetermined("it is under way")

    @tool(effect=effects.lookup(find, settle=0.1), timeout=0.2)
    def post(op: Operation) -> Receipt:
        """Post something, for longer than it may take."""
        may_end.wait(60)
        return Receipt(resource_id="1")

    agent = Agent("poster", FakeModel([[("post", {})], "posted"]), "", [post])
    sf = await Surefoot(store_url, [agent], worker=True, log=lambda line: None).__aenter__()
    try:
        run = await sf.start("poster", "Post it.")
        worker = sf.worker
        assert worker is not None
        await eventually(lambda: run.id in worker.drivers and worker.drivers[run.id].stuck, "a call that goes on")
        first = worker.drivers[run.id]
        assert first.handle.token is not None
        await sf.store.release(sf.tenant, run.id, first.handle.token)
        claimed = await sf.store.claim_one(sf.tenant, run.id, worker.id, 30.0)
        assert claimed is not None
        await worker.adopt(claimed)
        assert worker.drivers[run.id] is not first
        await sf.close(grace_seconds=0.2)
        await eventually(lambda: asyncio.all_tasks() <= ours, "the end of every task", seconds_max=5.0)
    finally:
        may_end.set()


async def test_a_call_whose_end_nobody_waits_for_any_more_complains_to_nobody() -> None:
    """Its worker has lost the run, or is stopping; what the call raises behind that is no error of the program's."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["message"]))
    may_end = threading.Event()

    def work() -> None:
        may_end.wait(20)
        raise TimeoutError("timed out")

    call = Call(work, is_async=False)
    may_end.set()
    await eventually(call.done.done, "the end of the call")
    del call
    gc.collect()
    assert not complaints


@pytest.mark.parametrize("where", ["calls", "store"])
async def test_a_closing_that_is_cut_off_closes_the_store_all_the_same(
    store_url: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Nobody closes it a second time: its connection was left open, and what drove the run went on with it."""
    ours = asyncio.all_tasks()
    began, reached = asyncio.Event(), asyncio.Event()

    @tool(effect=effects.opaque)
    async def post(op: Operation) -> Receipt:
        """Post something, for ever."""
        began.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def waits(*args: object) -> None:
        reached.set()
        await asyncio.get_running_loop().create_future()

    agent = Agent("poster", FakeModel([[("post", {})], "posted"]), "", [post])
    sf = await Surefoot(store_url, [agent], worker=True, log=lambda line: None).__aenter__()
    run, store = await sf.start("poster", "Post it."), sf.store
    await asyncio.wait_for(began.wait(), 20)
    with monkeypatch.context() as patched:
        if where == "calls":
            patched.setattr(sf.worker, "_wait_drives", waits)
        else:
            patched.setattr(getattr(store, "_writer"), "drain", waits)  # noqa: B009 - both stores have one
        closing = asyncio.ensure_future(sf.close(grace_seconds=0.1))
        await asyncio.wait_for(reached.wait(), 20)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    with pytest.raises(StoreClosed):
        await store.run("default", run.id)
    await eventually(lambda: asyncio.all_tasks() <= ours, "the end of every task", seconds_max=15.0)
    async with Surefoot(store_url, [agent], log=lambda line: None) as later:
        assert (await later.snapshot(run.id)).steps[-1].status in ("running", "outcome_unknown")
