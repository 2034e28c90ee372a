"""A server whose clock is another one, or is set while runs go on: no worker believes more than it may."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import asyncpg
import pytest

from surefoot import Absent, Agent, Operation, Receipt, Surefoot, effects, tool
from surefoot.doors import SystemClock
from surefoot.store.postgres import PostgresStore
from surefoot.testing import FakeModel
from tests.places import Place

pytestmark = pytest.mark.postgres_only("on SQLite the process's clock is the store's")

TIMEOUT_SECONDS = 9.0
SKEWED = """
CREATE SCHEMA skew;
CREATE TABLE skew.amount (seconds double precision NOT NULL);
INSERT INTO skew.amount VALUES ({seconds});
CREATE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT pg_catalog.clock_timestamp() + make_interval(secs => (SELECT seconds FROM skew.amount))
$$;
"""
"""A clock_timestamp() that stands before the server's own in the search path."""

DEADLINES: list[tuple[float, float, float]] = []
"""(first byte, last byte, local time when the tool was called), boot clock."""


@tool(effect=effects.idempotent(key_lifetime=None), timeout=TIMEOUT_SECONDS)
async def ring(op: Operation) -> Receipt:
    """Notes what it may believe."""
    DEADLINES.append((op.first_byte_before, op.last_byte_before, SystemClock().now().mono))
    return Receipt(resource_id="1")


@pytest.fixture(autouse=True)
def nothing_noted() -> Iterator[None]:
    DEADLINES.clear()
    yield


async def skewed(place: Place, seconds: float) -> str:
    """The URL of a database whose clock is so many seconds ahead."""
    url = place.empty()
    connection = await asyncpg.connect(url)
    await connection.execute(SKEWED.format(seconds=seconds))
    await connection.close()
    return f"{url}&options={quote('-csearch_path=skew,pg_catalog,public')}"


async def set_clock(url: str, seconds: float) -> None:
    """Somebody sets the server's clock."""
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE skew.amount SET seconds = $1", seconds)
    await connection.close()


def believed() -> None:
    """Each call: what was believed is no more than the time-out, and what is left is enough to work with."""
    for first, last, at in DEADLINES:
        assert first <= last <= at + TIMEOUT_SECONDS
        assert last > at + TIMEOUT_SECONDS / 2


@pytest.mark.parametrize("seconds", [-86_400.0, -3.0, 0.0, 3.0, 86_400.0])
async def test_a_skewed_server_lengthens_nothing(place: Place, seconds: float) -> None:
    url = await skewed(place, seconds)
    async with Surefoot(url, tools=[ring]) as sf:
        assert abs(sf.store.now().wall - SystemClock().now().wall - seconds) < 2.0
        for number in range(3):
            await sf.perform(ring.call(), key=f"call-{number}")
    assert len(DEADLINES) == 3
    believed()


@pytest.mark.parametrize("step", [-5.0, 20.0])
async def test_a_server_that_is_set_lengthens_nothing(place: Place, step: float) -> None:
    url = await skewed(place, 0.0)
    async with Surefoot(url, tools=[ring], lease_seconds=120) as sf:
        await sf.perform(ring.call(), key="before")
        await set_clock(url, step)
        await sf.perform(ring.call(), key="between")
        await sf.perform(ring.call(), key="after")
    assert len(DEADLINES) == 3
    for first, last, at in DEADLINES:
        assert first <= last <= at + TIMEOUT_SECONDS


async def test_a_lease_is_not_believed_for_longer_where_the_clock_is_set_back(place: Place) -> None:
    url = await skewed(place, 0.0)
    store = PostgresStore(url, SystemClock())
    await store.open()
    end = store.now().mono + 30.0
    before = store.local(end)
    await set_clock(url, -600.0)
    await store.check_writable()
    await store.next_wake("t")
    assert store.local(end) <= before + 0.1
    await store.close()


async def test_a_wait_that_the_servers_clock_jumped_over_proves_no_absence(place: Place) -> None:
    sent: list[int] = []

    async def look(op: Operation) -> Absent:
        return Absent(coverage="everything")

    @tool(effect=effects.lookup(look, settle=60.0), timeout=TIMEOUT_SECONDS)
    async def order(op: Operation) -> Receipt:
        """It may arrive within the settle time."""
        sent.append(op.attempt)
        raise effects.InDoubt("no answer")

    url = await skewed(place, 0.0)
    agent = Agent("buyer", FakeModel([[("order", {})], "Ordered."]), tools=[order])
    async with Surefoot(url, [agent], worker=True) as sf:
        run_id = (await sf.start(agent, "Order it.")).id
        await sf.wait(run_id, until=lambda run: run.status == "reconciling", timeout=20.0)
        await set_clock(url, 3_600.0)
        run = await sf.wait(run_id, timeout=60.0)
        assert run.status == "waiting_for_user"
        assert [e.reason for e in run.steps[1].evidence][-1] == "clocks_drifted"
    assert sent == [1], "an absence was believed before the settle time had passed"


async def test_what_is_sent_after_the_jump_is_looked_up_as_ever(place: Place) -> None:
    sent: list[int] = []

    async def look(op: Operation) -> Absent:
        return Absent(coverage="everything")

    @tool(effect=effects.lookup(look, settle=0.1), timeout=TIMEOUT_SECONDS)
    async def order(op: Operation) -> Receipt:
        """The first request is lost."""
        sent.append(op.attempt)
        if len(sent) == 1:
            raise effects.InDoubt("no answer")
        return Receipt(resource_id="1")

    url = await skewed(place, 0.0)
    async with Surefoot(url, tools=[ring, order]) as sf:
        await sf.perform(ring.call(), key="before")
        await set_clock(url, 3_600.0)
        await sf.perform(ring.call(), key="after")
        receipt = await sf.perform(order.call(), key="order", timeout=30.0)
    assert (receipt.resource_id, sent) == ("1", [1, 2])
