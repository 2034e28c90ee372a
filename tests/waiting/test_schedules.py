"""Schedules: one run for each due time, whatever befalls workers and clocks."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from surefoot import Agent, Schedule, Surefoot
from surefoot.agent.schedule import CATCH_UP_MAX, CatchUp, due_between, due_text, next_due
from surefoot.agent.scheduling import _made_up
from surefoot.cli.userfile import load
from surefoot.errors import InvalidInput
from surefoot.store.port import RunRow
from surefoot.testing.clock import WALL_AT_START
from surefoot.testing.machine import Process, When, unobserved
from surefoot.testing.model import FakeModel
from surefoot.testing.stage import abandon
from tests.cases.rig import DAY, SECRET, Sim, story

BERLIN = "Europe/Berlin"
HOUR = 3_600.0


def wall(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def every(cron: str, timezone: str = "UTC", catch_up: CatchUp = "latest", name: str = "nightly") -> Schedule:
    return Schedule(name, cron, "reporter", "Report.", timezone, catch_up)


def due(schedule: Schedule, after: str, until: str) -> list[str]:
    return [due_text(at) for at in due_between(schedule, wall(after), wall(until))]


# Due times


def test_the_hour_that_does_not_exist_is_due_once_behind_the_gap() -> None:
    found = due(every("30 2 * * *", BERLIN), "2026-03-28T12:00Z", "2026-03-30T12:00Z")
    assert found == ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]


def test_the_hour_that_comes_twice_is_due_once() -> None:
    found = due(every("30 2 * * *", BERLIN), "2026-10-24T12:00Z", "2026-10-26T12:00Z")
    assert found == ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]


@pytest.mark.parametrize("minutes", range(0, 61, 10))
def test_in_the_second_of_two_hours_what_was_due_in_the_first_is_over(minutes: int) -> None:
    """A worker that began then looked without a pause until the hour was over, and made a run of a time before it."""
    schedule, start = every("30 2 * * *", BERLIN), wall("2026-10-25T01:00:01Z") + minutes * 60.0
    assert due_text(next_due(schedule, start)) == "2026-10-26T01:30:00Z"
    assert due_between(schedule, start, start + 60.0) == []


def test_times_that_do_not_exist_are_due_together_once() -> None:
    found = due(every("0,20,40 2 * * *", BERLIN), "2026-03-29T00:00Z", "2026-03-30T00:10Z")
    assert found == ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]


@pytest.mark.parametrize("cron", ["30 2 * * *", "0 1-4 * * *", "*/30 * * * *", "15 */2 * * *", "0 0 1 * *"])
@pytest.mark.parametrize("timezone", ["UTC", BERLIN, "America/Sao_Paulo", "Australia/Lord_Howe"])
@pytest.mark.parametrize("day", ["2026-03-27", "2026-10-23", "2026-04-03", "2026-10-02"])
def test_a_pause_is_made_up_with_the_times_that_were_due_in_it(cron: str, timezone: str, day: str) -> None:
    schedule, start = every(cron, timezone), wall(f"{day}T22:13:07Z")
    ahead: list[float] = []
    at = next_due(schedule, start)
    while at <= start + 5 * DAY and len(ahead) < 400:
        ahead.append(at)
        at = next_due(schedule, at)
    assert due_between(schedule, start, start + 5 * DAY) == ahead[-CATCH_UP_MAX:]
    assert sorted(set(ahead)) == ahead
    for moment in ahead[:5]:
        assert due_between(schedule, moment - 1, moment) == [moment] and not due_between(schedule, moment, moment)


def test_a_pause_of_years_costs_no_more_than_one_of_minutes() -> None:
    found = due(every("* * * * *"), "1999-01-01T00:00Z", "2026-01-01T00:00:30Z")
    assert len(found) == CATCH_UP_MAX and found[-1] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "fault",
    [
        {"cron": "61 * * * *"}, {"cron": "* * * *"}, {"cron": "0 * * * * *"}, {"cron": "0 0 31 2 *"}, {"cron": ""},
        {"timezone": "Mars/Olympus"}, {"timezone": ""}, {"timezone": "../etc/passwd"}, {"name": "two words"},
        {"name": ""}, {"input": " "}, {"catch_up": "some"},
    ],
)  # fmt: skip
def test_a_schedule_that_could_not_be_kept_is_refused_at_once(fault: dict[str, str]) -> None:
    good = {"name": "a", "cron": "0 7 * * *", "agent": "reporter", "input": "Report."}
    Schedule(**good)  # type: ignore[arg-type]  # texts throughout
    with pytest.raises(ValueError, match="schedule"):
        Schedule(**{**good, **fault})  # type: ignore[arg-type]  # texts throughout


# Runs


def reporter(sim: Sim) -> Agent:
    model = FakeModel(["Reported."])
    sim.models.append(model)
    return Agent("reporter", model)


def scheduled(sim: Sim, process: Process, *schedules: Schedule) -> Surefoot:
    return Surefoot(
        sim.url, [reporter(sim)], schedules=schedules, worker=True, doors=process.doors, log=sim.lines.append,
        secret=SECRET,
    )  # fmt: skip


def workers(sim: Sim, count: int, *schedules: Schedule, name: str = "w") -> list[Process]:
    """Processes that work until they are killed."""

    async def main(process: Process) -> None:
        sf = scheduled(sim, process, *schedules)
        process.on_death.append(lambda: abandon(sf))
        async with sf:
            await process.loop.create_future()

    return [sim.machine.start(f"{name}{number}", main) for number in range(count)]


async def runs_of(sim: Sim, count: int) -> list[RunRow]:
    """The runs, oldest first, once all have come to rest; exactly so many."""
    async with sim.surefoot(worker=False) as sf:
        rows = await sf.store.runs(sf.tenant, status=None, agent=None, before=None, limit=1_000)
        for row in rows:
            await sf.wait(row.run.id, timeout=600.0)
        rows = await sf.store.runs(sf.tenant, status=None, agent=None, before=None, limit=1_000)
    assert len(rows) == count, [row.metadata for row in rows]
    return rows[::-1]


@story
async def test_one_run_for_each_due_time_whatever_the_number_of_workers(sim: Sim) -> None:
    hourly = every("0 * * * *", name="hourly")
    workers(sim, 3, hourly, every("0 0 1 1 *", name="yearly"))
    await sim.pass_time(6 * HOUR)
    rows = await runs_of(sim, 6)
    first = next_due(hourly, WALL_AT_START)
    assert [row.metadata for row in rows] == [
        f'{{"due":"{due_text(first + n * HOUR)}","schedule":"hourly"}}'.encode() for n in range(6)
    ]
    assert {row.created_by for row in rows} == {"schedule hourly"}
    assert all(0 <= row.created_at - first - n * HOUR < HOUR for n, row in enumerate(rows))


@pytest.mark.parametrize(("catch_up", "made_up"), [("latest", 1), ("all", 72), ("none", 0)])
def test_after_a_pause_of_all_workers(sim: Sim, catch_up: CatchUp, made_up: int) -> None:
    async def play() -> None:
        hourly = every("0 * * * *", catch_up=catch_up)
        for process in workers(sim, 1, hourly):
            await sim.pass_time(60.0)
            process.kill()
        await sim.pass_time(72 * HOUR)
        workers(sim, 2, hourly, name="later")
        await sim.pass_time(60.0)
        rows = await runs_of(sim, made_up)
        if rows:
            last = due_between(hourly, 0, sim.machine.clock.now().wall)[-1]
            assert due_text(last).encode() in max(row.metadata for row in rows), "the newest of them"

    sim.play(play)


@pytest.mark.parametrize("catch_up", ["latest", "none"])
def test_a_look_that_comes_late_misses_nothing_that_was_due_just_now(catch_up: CatchUp) -> None:
    """Of two due times in one look the first made no run, though neither was missed."""
    minutely, now = every("* * * * *", catch_up=catch_up), wall("2026-05-05T10:02:10Z")
    in_time = due_between(minutely, now - 110.0, now)
    assert len(in_time) == 2 and _made_up(minutely, in_time, now) == in_time
    paused = due_between(minutely, now - HOUR, now)
    assert _made_up(minutely, paused, now) == (paused[-1:] if catch_up == "latest" else paused[-2:])


@story
async def test_a_clock_that_is_set_back_makes_no_second_run(sim: Sim) -> None:
    workers(sim, 2, every("0 * * * *"))
    await sim.pass_time(3 * HOUR)
    await runs_of(sim, 3)
    sim.machine.clock.jump_wall(-2 * HOUR)
    await sim.pass_time(2 * HOUR)
    await runs_of(sim, 3)
    await sim.pass_time(HOUR)
    await runs_of(sim, 4)


@story
async def test_a_clock_that_is_set_forward_makes_up_one_and_goes_on_when_it_is_corrected(sim: Sim) -> None:
    workers(sim, 2, every("0 * * * *"))
    await sim.pass_time(HOUR)
    await runs_of(sim, 1)
    sim.machine.clock.jump_wall(1_000 * DAY)
    await sim.pass_time(60.0)
    await runs_of(sim, 2)
    sim.machine.clock.jump_wall(-1_000 * DAY)
    await sim.pass_time(4 * HOUR)
    await runs_of(sim, 6)


@story
async def test_whichever_commit_is_a_workers_last_the_due_time_has_its_one_run(sim: Sim) -> None:
    hourly, passed = every("0 * * * *", catch_up="all"), Counter[str]()

    def observe(process: Process, name: str, when: When) -> None:
        passed[process.name] += name == "commit"
        words = process.name.split()
        if name == "commit" and words[0] == "dies" and passed[process.name] == int(words[1]) + 4:
            process.kill_here()

    sim.machine.observe = observe
    for hour in range(12):
        workers(sim, 1, hourly, name=f"dies {hour} ")
        await sim.pass_time(HOUR)
    sim.machine.observe = unobserved
    await sim.pass_time(HOUR)
    workers(sim, 1, hourly, name="last")
    await sim.pass_time(60.0)
    async with sim.surefoot(worker=False) as sf:
        rows = await sf.store.runs(sf.tenant, status=None, agent=None, before=None, limit=1_000)
    made = sorted(datetime.fromisoformat(msgspec.json.decode(row.metadata)["due"]) for row in rows)
    assert len(made) >= 6 and all(b - a == timedelta(hours=1) for a, b in pairwise(made)), "each due time once"
    await runs_of(sim, len(made))


@pytest.mark.parametrize("catch_up", ["latest", "all"])
@story
async def test_a_schedule_whose_run_cannot_be_made_stops_no_other(sim: Sim, catch_up: CatchUp) -> None:
    broken, good = every("0 * * * *", catch_up=catch_up, name="broken"), every("0 * * * *", name="good")
    (first,) = workers(sim, 1, broken, good)
    await sim.pass_time(60.0)
    first.kill()
    at = next_due(good, sim.machine.clock.now().wall)
    async with sim.surefoot(reporter(sim), worker=False) as sf:
        # As a worker leaves it that dies behind the start, and as a damaged file shows it then.
        known: dict[str, object] = {"schedule": "broken", "due": due_text(at)}
        key = f"schedule:broken:{due_text(at)}"
        new = sf.new_run("reporter", "Report.", metadata=known, by="schedule broken")
        await sf.begin(msgspec.structs.replace(new, key=key))
    assert sim.place.execute("UPDATE run SET limits = '{\"turns_max\":'") == 1
    workers(sim, 1, broken, good, name="later")
    await sim.pass_time(3 * HOUR)
    async with sim.surefoot(worker=False) as sf:
        for hour in range(3):
            made = f"schedule:good:{due_text(at + hour * HOUR)}"
            assert await sf.store.run_of_key(sf.tenant, made) is not None, made
    assert any("schedule broken" in line and "good" not in line for line in sim.lines)
    assert sim.place.execute("DELETE FROM run WHERE start_key LIKE 'schedule:broken:%'") == 3, (
        "it went on by itself too"
    )


@story
async def test_schedules_are_for_agents_that_are_known(sim: Sim) -> None:
    hourly = every("0 * * * *")
    with pytest.raises(InvalidInput, match="reporter"):
        Surefoot(sim.url, schedules=[hourly])
    with pytest.raises(InvalidInput, match="two schedules"):
        Surefoot(sim.url, [reporter(sim)], schedules=[hourly, hourly])
    own = Schedule("own", "0 7 * * *", reporter(sim), "Report.")
    assert sorted(Surefoot(sim.url, schedules=[own]).agents) == ["reporter"]


def test_a_worker_finds_the_schedules_in_the_users_file(tmp_path: Path) -> None:
    file = tmp_path / "reports.py"
    file.write_text(
        "from surefoot import Agent, Schedule\n"
        "from surefoot.testing.model import FakeModel\n"
        "reporter = Agent('reporter', FakeModel(['Reported.']))\n"
        "other = Agent('other', FakeModel(['Done.']))\n"
        "nightly = Schedule('nightly', '30 2 * * *', reporter, 'Report.', timezone='Europe/Berlin')\n"
        "weekly = Schedule('weekly', '0 7 * * MON', 'other', 'Tidy up.')\n"
    )
    assert [s.name for s in load(str(file)).schedules] == ["nightly", "weekly"]
    assert [s.name for s in load(f"{file}:reporter").schedules] == ["nightly"]
    assert datetime.fromtimestamp(next_due(load(str(file)).schedules[1], 0.0), UTC).strftime("%a %H:%M") == "Mon 07:00"
