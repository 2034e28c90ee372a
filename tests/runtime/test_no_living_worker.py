"""The doctor names runs whose agent no living worker has in their version, from the first moment on."""

from __future__ import annotations

import asyncio

from surefoot import Agent, Surefoot, ask_person
from surefoot.doctor import Finding, examine
from surefoot.testing.model import FakeModel


def _asker(version: str, name: str = "asker") -> Agent:
    script = FakeModel([[("ask_person", {"question": "Which day?"})], "Done."])
    return Agent(name, script, tools=[ask_person], version=version)


def _surefoot(url: str, *agents: Agent, worker: bool = True) -> Surefoot:
    return Surefoot(url, agents, worker=worker, log=lambda line: None)


async def _findings(sf: Surefoot) -> list[Finding]:
    return (await examine(sf.store, sf.tenant)).findings


async def _alive(sf: Surefoot, count: int) -> None:
    async with asyncio.timeout(20):
        while len(await sf.store.workers_take(sf.tenant)) != count:
            await sf.store.changed(sf.store.change_count(), 0.05)


async def test_a_run_whose_version_no_living_worker_has_is_named_at_once(store_url: str) -> None:
    async with _surefoot(store_url, _asker("1")) as old:
        run = await old.wait((await old.start("asker", "Ask.")).id)
        assert run.status == "waiting_for_user" and await _findings(old) == []
    async with _surefoot(store_url, _asker("2"), _asker("7", "other")) as new:
        await _alive(new, 1)
        (finding,) = await _findings(new)
        assert (finding.code, finding.run_id) == ("no_worker", run.id)
        for named in ("asker", "version 1", "version 2"):
            assert named in finding.text
        assert "surefoot worker" in finding.next and "asker" in finding.next and "version 1" in finding.next
        async with _surefoot(store_url, _asker("1")) as old:
            await _alive(new, 2)
            assert await _findings(new) == []
            await old.answer(run.pending_actions[0].id, "Friday", by="ann")
            await old.wait(run.id, until="completed", timeout=20)
        assert await _findings(new) == [], "it has ended"


async def test_an_agent_that_no_living_worker_knows_is_named(store_url: str) -> None:
    async with _surefoot(store_url, _asker("1")) as old:
        run = await old.wait((await old.start("asker", "Ask.")).id)
    async with _surefoot(store_url, _asker("7", "other")) as new:
        await _alive(new, 1)
        (finding,) = await _findings(new)
        assert (finding.code, finding.run_id) == ("no_worker", run.id)
        assert "asker" in finding.text and "version 1" in finding.text


async def test_where_no_worker_lives_a_run_that_waits_is_information(store_url: str) -> None:
    """Whoever opens the store to ask is no worker, and says nothing about those that will come."""
    async with _surefoot(store_url, _asker("1")) as old:
        run = await old.wait((await old.start("asker", "Ask.")).id)
    async with _surefoot(store_url, _asker("2"), worker=False) as reader:
        begun = await reader.start("asker", "Another.")
        report = await examine(reader.store, reader.tenant)
        assert report.findings == [] and {run.id, begun.id} <= set(report.information.live)
