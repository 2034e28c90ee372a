"""The simulated machine itself: its clock, its loop, its processes and its network."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from surefoot.testing.clock import ManualClock
from surefoot.testing.machine import Killed, Machine, Process, Stalled, When
from surefoot.testing.world import World

SOURCE = Path(__file__).parents[2] / "src"


async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    clock, woken = ManualClock(), list[float]()

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.ensure_future(sleeper(seconds)) for seconds in (30.0, 10.0, 20.0, 40.0)]
    await clock.run_for(35.0)
    assert woken == [10.0, 20.0, 30.0]
    assert clock.next_due() == 5.0
    clock.advance(5.0)
    await asyncio.gather(*tasks)
    assert woken[-1] == 40.0


def test_the_wall_clock_and_the_boot_clock_are_two() -> None:
    clock = ManualClock(wall=1_000.0, mono=50.0)
    first = clock.boot_id()
    clock.advance(10.0)
    clock.jump_wall(-100.0)
    assert (clock.now().mono, clock.now().wall, clock.true_wall) == (60.0, 910.0, 1_010.0)
    clock.reboot(mono=2.0)
    assert (clock.now().mono, clock.boot_id() != first) == (2.0, True)
    with pytest.raises(ValueError, match="time goes forward"):
        clock.advance(-1.0)


def test_time_passes_where_a_thread_lives_and_no_process() -> None:
    machine, end = Machine(World()), threading.Event()

    async def main(process: Process) -> None:
        # As the store on PostgreSQL has one, which is not that of a call.
        threading.Thread(target=end.wait, name="surefoot-store", daemon=True).start()

    try:
        process = machine.start("opener", main)
        later: list[float] = []
        machine.after(3_600.0, lambda: later.append(machine.clock.elapsed))
        machine.run_until(lambda: bool(later))
    finally:
        end.set()
    assert (process.ended, later) == (True, [3_600.0])


def test_days_pass_without_waiting() -> None:
    machine = Machine(World())
    heard: list[float] = []

    async def main(process: Process) -> None:
        for seconds in (86_400.0, 3_600.0):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(seconds):
                    await asyncio.Event().wait()
        heard.append(process.loop.time())

    process = machine.start("sleeper", main)
    machine.run_until(lambda: process.ended)
    assert (process.failure, heard) == (None, [90_000.0])


def test_a_killed_process_cleans_nothing_up() -> None:
    machine = Machine(World())
    told: list[str] = []

    async def main(process: Process) -> None:
        try:
            await process.doors.clock.sleep(10.0)
        finally:
            process.doors.hook("commit", "before")
            told.append("cleaned up")

    process = machine.start("victim", main)
    process.on_death.append(lambda: told.append("the lock is free"))
    machine.after(5.0, process.kill)
    machine.run_until(lambda: not process.alive)
    machine.bury_all()
    assert told == ["the lock is free"]


def test_a_kill_at_a_passage_does_not_return() -> None:
    machine = Machine(World())
    after: list[str] = []

    def observe(process: Process, name: str, when: When) -> None:
        process.kill_here()

    async def main(process: Process) -> None:
        process.doors.hook("tool", "before")
        after.append("went on")

    machine.observe = observe
    process = machine.start("victim", main)
    machine.run_until(lambda: not process.alive)
    assert (after, isinstance(process.failure, Killed)) == ([], True)


def test_a_stopped_process_goes_on_where_it_was() -> None:
    machine = Machine(World())
    at: list[float] = []

    async def main(process: Process) -> None:
        await process.doors.clock.sleep(5.0)
        at.append(process.loop.time())

    process = machine.start("zombie", main)
    machine.after(2.0, lambda: process.freeze(60.0))
    machine.run_until(lambda: process.ended)
    assert at == [62.0]


def test_what_never_ends_is_told() -> None:
    machine = Machine(World())

    async def main(process: Process) -> None:
        await asyncio.Event().wait()

    process = machine.start("waiter", main)
    with pytest.raises(Stalled, match="nothing will ever happen"):
        machine.run_until(lambda: process.ended)
    machine.bury_all()


def test_a_loop_that_spins_is_told() -> None:
    machine = Machine(World())

    async def main(process: Process) -> None:
        def again() -> None:
            process.loop.call_soon(again)

        again()
        await asyncio.Event().wait()

    process = machine.start("spinner", main)
    with pytest.raises(Stalled, match="without any time passing"):
        machine.run_until(lambda: process.ended)
    machine.bury_all()


def test_the_plugin_gives_doubles_and_the_crash_point_proof(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "from surefoot import Agent\n"
        "from surefoot.testing import FakeModel, Scenario, World\n"
        "def agents():\n"
        "    return [Agent('reviewer', FakeModel(['done']))]\n"
        "def test_it(surefoot_world, surefoot_clock, surefoot_crash_points):\n"
        "    surefoot_world.add_pull('acme/app', 1)\n"
        "    surefoot_clock.advance(5.0)\n"
        "    report = surefoot_crash_points(Scenario(agents, World))\n"
        "    assert [str(point) for point in report.points].count('model 1 before') == 1\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "surefoot.testing.plugin", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(SOURCE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_plugin_loads_nothing_of_the_kit_by_itself() -> None:
    code = "import sys, surefoot.testing.plugin; print([m for m in sys.modules if m.startswith('httpcore')])"
    ended = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[]\n"
