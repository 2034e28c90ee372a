"""Time: C060."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from surefoot import Surefoot
from surefoot.core.state import Attempt
from surefoot.doors import Instant
from surefoot.testing.clock import ManualClock
from surefoot.testing.machine import Process
from surefoot.testing.wire import LogEntry, Received
from tests.cases.rig import SECRET, Script, Sim, all_events, calls_of, comment, ended, post_comment, story

LEASE_SECONDS = 10.0
PAUSE_SECONDS = 20.0


class PausingClock:
    """The machine's clock for one process, which is paused at its reading number `at`: behind it, or before."""

    def __init__(self, machine: ManualClock, at: int | None, where: str) -> None:
        self.readings = 0
        self._machine = machine
        self._at = at
        self._before = where == "before"

    def now(self) -> Instant:
        early = self._machine.now()
        self.readings += 1
        if self.readings == self._at:
            self._machine.advance(PAUSE_SECONDS)
        return self._machine.now() if self._before else early

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
    """Looks at the lease in the very moment in which the bytes of a POST leave."""

    def __init__(self, sim: Sim) -> None:
        self.wrong: list[str] = []
        self._sim = sim
        self._left: tuple[float, float, int, int] = (0.0, 0.0, 0, 0)
        sim.world.on_log = self.received
        sim.machine.observe = self.passed

    def passed(self, process: Process, name: str, when: str) -> None:
        """A door was passed."""
        if (name, when) != ("http.send", "after"):
            return
        query = self._sim.place.query
        ((run_id, until, token),) = query("SELECT id, lease_until, lease_token FROM run ORDER BY id DESC LIMIT 1")
        tried = [str(row[0]) for row in query(f"SELECT attempts FROM step WHERE run_id = '{run_id}'")]
        attempts = [one for text in tried for one in msgspec.json.decode(text, type=list[Attempt])]
        newest = max(attempts, key=lambda one: (one.started.mono, one.number))
        assert isinstance(until, float) and isinstance(token, int)
        self._left = (self._sim.machine.clock.now().mono, until, token, newest.token)

    def received(self, entry: LogEntry) -> None:
        """A request has arrived, the last one that left."""
        now, until, token, sent = self._left
        if isinstance(entry, Received) and entry.method == "POST" and (now > until or sent != token):
            self.wrong.append(f"sent under token {sent} at {now}; the lease is that of {token} until {until}")


@pytest.mark.parametrize("where", ["behind", "before"])
def test_c060_a_pause_at_any_reading_of_the_clock_makes_no_call_outside_of_the_lease(sim: Sim, where: str) -> None:
    @story
    async def play(sim: Sim) -> None:
        judge = Judge(sim)
        readings, token = await paused_run(sim, None, where)
        assert readings > 20 and token == 1
        taken_over = 0
        for at in range(1, readings + 1):
            _, token = await paused_run(sim, at, where)
            taken_over += token > 1
        assert not judge.wrong, judge.wrong[:3]
        assert taken_over > 5, "in many of the stories the paused worker saw that it had lost its lease"

    play(sim=sim)


async def paused_run(sim: Sim, at: int | None, where: str) -> tuple[int, int]:
    """One run with a pause; how many readings there were, and under which token the comment was sent.

    A pause before a reading may hit the check at the socket too, whose clock is then the pausing one. Behind that check
    nothing but the write is left, and a pause there is what no client can exclude.
    """
    script: Script = [[comment("Once.")], "done"]
    # With a time-out beyond the pause nothing but the lease forbids the call.
    agent = sim.agent(script, post_comment().using(timeout=60))
    person = sim.person
    assert person is not None
    whole = person.doors
    clock = PausingClock(sim.machine.clock, at, where)
    doors = msgspec.structs.replace(whole, clock=clock)
    if where == "before":
        person.doors = doors
    posted = len(sim.posts())
    paused = Surefoot(
        sim.url, [agent], worker=True, lease_seconds=LEASE_SECONDS, doors=doors, secret=SECRET, log=sim.lines.append
    )
    async with paused:
        run = await paused.start("reviewer", "Review it.")
        async with sim.surefoot(agent, lease_seconds=LEASE_SECONDS) as other:
            run = await other.wait(run.id, until=ended)
            events = await all_events(other, run.id)
    person.doors = whole
    (step,) = calls_of(run)
    assert run.status == "completed" and len(sim.ours(step.operation_key)) == 1, at
    assert len(sim.posts()) - posted == 1, at
    sent = [e.data["token"] for e in events if e.type == "step_started" and e.step_id == step.id]
    return clock.readings, int(str(sent[-1]))
