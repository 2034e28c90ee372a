"""A Surefoot belongs to the process and the event loop that opened it: anywhere else it says so and writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from surefoot import Agent, Surefoot
from surefoot.errors import InvalidInput, SurefootError
from surefoot.testing import FakeModel
from tests.support import in_a_forked_child

WRITER = Agent("writer", FakeModel(["Written."]))

_Use = Callable[[], Coroutine[object, object, object]]


async def _said(use: _Use) -> str:
    try:
        await use()
    except SurefootError as error:
        return f"{error.code}: {error}"
    return "nothing"


def _in_a_forked_child(use: _Use) -> str:
    def work() -> str:
        asyncio.set_event_loop(None)
        return asyncio.run(asyncio.wait_for(_said(use), 20))

    return in_a_forked_child(work)


async def test_a_forked_child_is_refused_and_harms_nothing(store_url: str) -> None:
    async with Surefoot(store_url, [WRITER], worker=True) as sf:
        run = await sf.start("writer", "Write.")
        for use in (lambda: sf.start("writer", "From the child."), lambda: sf.snapshot(run.id)):
            assert "opened before the fork" in _in_a_forked_child(use)
        assert _in_a_forked_child(sf.close) == "nothing", "a child that goes through the end of the block"
        assert (await sf.wait(run.id)).status == "completed"
        another = await sf.wait((await sf.start("writer", "Write again.")).id)
        assert another.status == "completed"


@pytest.mark.sqlite_only("a SQLite file has locks, which a child does not inherit")
async def test_a_forked_child_commits_nothing_whatever_it_calls(store_url: str) -> None:
    async with Surefoot(store_url, [WRITER]) as sf:
        store = sf.store
        assert "opened before the fork" in _in_a_forked_child(lambda: store.register_worker("w"))


async def test_another_thread_is_told_where_to_call(store_url: str) -> None:
    async with Surefoot(store_url, [WRITER], worker=True) as sf:
        loop = asyncio.get_running_loop()
        told = await asyncio.to_thread(lambda: asyncio.run(_said(lambda: sf.start("writer", "From a thread."))))
        assert told.startswith("invalid_input") and "run_coroutine_threadsafe" in told
        right = sf.start("writer", "From a thread.")
        run = await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(right, loop).result(20))
        assert (await sf.wait(run.id)).status == "completed"


async def test_it_is_opened_once_at_a_time(store_url: str) -> None:
    sf = Surefoot(store_url, [WRITER])
    async with sf:
        with pytest.raises(InvalidInput, match="open already"):
            await sf.__aenter__()
        run = await sf.start("writer", "Write.")
    async with sf:
        assert (await sf.snapshot(run.id)).id == run.id
