"""The same through crashes and doubt: one order, whatever happens between its commit and the worker's note of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from surefoot import Operation, Receipt, effects, sql, tool
from surefoot.agent.tools import Tool
from surefoot.effects import Verdict
from surefoot.snapshot import RunSnapshot
from surefoot.testing.machine import Process
from tests.cases.rig import calls_of
from tests.connectors.databases import Database
from tests.connectors.rig import ToolSim

SETTLE = 5.0
Mishap = Callable[[Operation, Callable[[], Receipt]], Receipt]


def ordering(database: Database, mishap: Mishap) -> Tool:
    """A user's tool: the order and its key in one transaction. `mishap` is what goes wrong around it."""

    def place(op: Operation, article: str) -> Receipt:
        with database.transaction() as conn:
            number = database.order(conn, article)  # type: ignore[arg-type]  # the database's own kind
            receipt = Receipt(resource_id=str(number))
            sql.record(conn, op, receipt)
        return receipt

    async def find_order(op: Operation) -> Verdict:
        with closing(database.connect()) as conn:
            return sql.find(conn, op)

    @tool(effect=effects.lookup(find_order, settle=SETTLE), timeout=15)
    async def place_order(op: Operation, article: str) -> Receipt:
        """Order an article."""
        done = mishap(op, lambda: place(op, article))
        if done.error == "hangs":
            await asyncio.get_running_loop().create_future()
        return done

    return place_order


def play(sim: ToolSim, database: Database, mishap: Mishap, kill: tuple[str, str] | None = None) -> RunSnapshot:
    """One order by one of two workers; one of them dies at a passage of the tool, if `kill` says so."""
    killed: list[str] = []
    ends: list[RunSnapshot] = []

    def observe(process: Process, name: str, when: str) -> None:
        if not killed and (name, when) == kill:
            killed.append(process.name)
            process.kill_here()

    async def story() -> None:
        tool = ordering(database, mishap)
        for name in ("one", "two"):
            sim.worker(sim.agent([[("place_order", {"article": "A1"})], "done"], tool), name=name)
        agent = sim.agent([[("place_order", {"article": "A1"})], "done"], tool)
        async with sim.surefoot(agent, worker=False) as sf:
            run = await sf.wait((await sf.start("reviewer", "Order it.")).id)
            await sim.pass_time(120)
            ends.append(await sf.snapshot(run.id))

    sim.machine.observe = observe
    sim.play(story)
    assert bool(killed) == (kill is not None)
    return ends[0]


def judge(database: Database, run: RunSnapshot, *, attempts: int) -> None:
    """One order, and the step has its number."""
    assert database.orders() == ["A1"]
    (step,) = calls_of(run)
    assert (run.status, step.status, step.attempt) == ("completed", "succeeded", attempts)
    assert step.external_resource_id is not None and step.external_resource_id.isdecimal()


def well(op: Operation, place: Callable[[], Receipt]) -> Receipt:
    return place()


def lost_reply(op: Operation, place: Callable[[], Receipt]) -> Receipt:
    place()
    raise ConnectionResetError("the server went away after COMMIT")


def lost_request(op: Operation, place: Callable[[], Receipt]) -> Receipt:
    if op.attempt == 1:
        raise ConnectionResetError("the server went away before COMMIT")
    return place()


def hangs(op: Operation, place: Callable[[], Receipt]) -> Receipt:
    place()
    return Receipt(error="hangs")


def late(seconds: float) -> Mishap:
    """The first attempt's transaction commits only after its caller has given up."""

    def mishap(op: Operation, place: Callable[[], Receipt]) -> Receipt:
        if op.attempt > 1:
            return place()

        def commit() -> None:
            with suppress(sql.AlreadyRecorded):
                place()

        asyncio.get_running_loop().call_later(seconds, commit)
        raise TimeoutError("no answer from the server")

    return mishap


def test_killed_before_the_tool_began(sim: ToolSim, database: Database) -> None:
    judge(database, play(sim, database, well, ("tool", "before")), attempts=2)


def test_killed_after_the_commit(sim: ToolSim, database: Database) -> None:
    judge(database, play(sim, database, well, ("tool", "after")), attempts=1)


@pytest.mark.parametrize("mishap", [lost_reply, hangs])
def test_committed_and_not_told(sim: ToolSim, database: Database, mishap: Mishap) -> None:
    judge(database, play(sim, database, mishap), attempts=1)


def test_not_committed_and_not_told(sim: ToolSim, database: Database) -> None:
    judge(database, play(sim, database, lost_request), attempts=2)


def test_late_within_the_settle_time(sim: ToolSim, database: Database) -> None:
    judge(database, play(sim, database, late(3)), attempts=1)


def test_late_beyond_the_settle_time_makes_no_second_order(sim: ToolSim, database: Database) -> None:
    """What no lookup could exclude, the primary key does."""
    judge(database, play(sim, database, late(60)), attempts=2)


def test_what_was_recorded_outside_of_a_transaction_is_not_made_again(sim: ToolSim, database: Database) -> None:
    def carelessly(op: Operation, place: Callable[[], Receipt]) -> Receipt:
        with closing(database.autocommit()) as conn:
            receipt = Receipt(resource_id=str(database.order(conn, "A1")))  # type: ignore[arg-type]  # the database's own kind
            sql.record(conn, op, receipt)
        return receipt

    run = play(sim, database, carelessly)
    (step,) = calls_of(run)
    assert database.orders() == ["A1"]
    assert (run.status, step.status, step.attempt) == ("waiting_for_user", "outcome_unknown", 1)
    assert [action.kind for action in run.pending_actions] == ["resolve"]
    assert {line.reason for line in step.evidence} >= {"not_in_transaction"}
