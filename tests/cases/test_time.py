"""Time: C060."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import msgspec

from surefoot import Surefoot
from surefoot.doors import Instant
from surefoot.testing.clock import ManualClock
from surefoot.testing.wire import LogEntry, Received
from tests.cases.rig import SECRET, Script, Sim, all_events, calls_of, comment, ended, post_comment, story

LEASE_SECONDS = 10.0
PAUSE_SECONDS = 20.0


class PausingClock:
    """The machine's clock for one worker; the process is paused directly behind its reading number `at`."""

    def __init__(self, machine: ManualClock, at: int | None) -> None:
        self.readings = 0
        self._machine = machine
        self._at = at

    def now(self) -> Instant:
        now = self._machine.now()
        self.readings += 1
        if self.readings == self._at:
            self._machine.advance(PAUSE_SECONDS)
        return now

    def boot_id(self) -> str:
        return self._machine.boot_id()

    async def sleep(self, seconds: float) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(seconds, over.set_result, None)
        try:
            await over
        finally:
            timer.cancel()


class Judge:
    """Looks at the lease in the very moment in which a POST arrives."""

    def __init__(self, sim: Sim) -> None:
        self.wrong: list[str] = []
        self._sim = sim
        sim.world.on_log = self

    def __call__(self, entry: LogEntry) -> None:
        if not isinstance(entry, Received) or entry.method != "POST":
            return
        key = entry.body.split("agent-operation:")[1].split(" ")[0]
        run_id, step_id = key.split(":")
        with closing(sqlite3.connect(self._sim.path)) as db:
            until, token = db.execute("SELECT lease_until, lease_token FROM run WHERE id = ?", (run_id,)).fetchone()
            (sent,) = db.execute("SELECT max(token) FROM attempt WHERE step_id = ?", (step_id,)).fetchone()
        now = self._sim.machine.clock.now().mono
        if now > until or sent != token:
            self.wrong.append(f"{key}: sent under token {sent} at {now}; the lease is {token}'s until {until}")


@story
async def test_c060_a_pause_behind_any_reading_of_the_clock_makes_no_call_outside_of_the_lease(sim: Sim) -> None:
    judge = Judge(sim)
    readings = await paused_run(sim, None)
    assert readings[0] > 20 and readings[1] == 1
    taken_over = 0
    for at in range(1, readings[0] + 1):
        _, token = await paused_run(sim, at)
        taken_over += token > 1
    assert not judge.wrong, judge.wrong[:3]
    assert taken_over > 5, "in many of the stories the paused worker saw that it had lost its lease"


async def paused_run(sim: Sim, at: int | None) -> tuple[int, int]:
    """One run with a pause; how many readings there were, and under which token the comment was sent."""
    script: Script = [[comment("Once.")], "done"]
    agent = sim.agent(script, post_comment())
    assert sim.person is not None
    clock = PausingClock(sim.machine.clock, at)
    doors = msgspec.structs.replace(sim.person.doors, clock=clock)
    posted = len(sim.posts())
    paused = Surefoot(
        sim.url, [agent], worker=True, lease_seconds=LEASE_SECONDS, doors=doors, secret=SECRET, log=sim.lines.append
    )
    async with paused:
        run = await paused.start("reviewer", "Review it.")
        async with sim.surefoot(agent, lease_seconds=LEASE_SECONDS) as other:
            run = await other.wait(run.id, until=ended)
            events = await all_events(other, run.id)
    (step,) = calls_of(run)
    assert run.status == "completed" and len(sim.ours(step.operation_key)) == 1, at
    assert len(sim.posts()) - posted == 1, at
    sent = [e.data["token"] for e in events if e.type == "step_started" and e.step_id == step.id]
    return clock.readings, int(str(sent[-1]))
