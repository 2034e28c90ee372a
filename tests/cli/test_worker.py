"""surefoot worker as a process: it stops in order, at once, when idle, and in favour of a fresh one."""

from __future__ import annotations

import gc
import re
import signal

import pytest

from surefoot.cli.worker import NEW_OBJECTS_MIN, collect_less
from tests.cli.rig import Cli, ended_by

pytestmark = pytest.mark.real_process

STUCK = '''
import threading

from surefoot import Agent, Receipt, effects, tool
from surefoot.testing.model import FakeModel


@tool(effect=effects.opaque, timeout=0.3)
def ring() -> Receipt:
    """Ring a bell that nobody stops."""
    threading.Event().wait()
    return Receipt(resource_id="1")


bell = Agent(name="bell", model=FakeModel([[("ring", {})], "Rung."]), tools=[ring])
'''


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_call_under_way_finish(cli: Cli, number: signal.Signals) -> None:
    run_id = cli.start("gatekeeper")
    with cli.worker("agents.py:gatekeeper", "--json") as worker:
        cli.eventually_sent()
        (cli.folder / "gate").touch()
        code, err = ended_by(worker, number)
    assert code == 0 and "worker stopped (told)" in err
    step = cli.json("runs", "show", run_id).record()["steps"][1]  # type: ignore[index]  # JSON
    assert (step["status"], step["attempt"], len(cli.sent)) == ("succeeded", 1, 1)
    cli.work("gatekeeper")
    assert cli.status(run_id) == "completed" and len(cli.sent) == 1


def test_a_second_signal_stops_at_once_and_the_call_is_in_doubt(cli: Cli) -> None:
    run_id = cli.start("gatekeeper")
    with cli.worker("agents.py:gatekeeper") as worker:
        cli.eventually_sent()
        worker.send_signal(signal.SIGTERM)
        assert worker.stderr is not None
        while b"stopping" not in worker.stderr.readline():
            assert worker.poll() is None
        assert ended_by(worker, signal.SIGTERM)[0] == 128 + signal.SIGTERM
    cli.work("gatekeeper")
    assert cli.status(run_id) == "waiting_for_user" and len(cli.sent) == 1, "opaque: nobody sends it again alone"


def test_until_idle_works_off_what_there_is_and_tells_it(cli: Cli) -> None:
    ids = [cli.start("talker") for _ in range(3)]
    waiting = cli.start("writer")
    done = cli.work()
    assert {cli.status(run_id) for run_id in ids} == {"completed"} and cli.status(waiting) == "waiting_for_user"
    assert all(f"{run_id}  " in done.err for run_id in (*ids, waiting)) and "The run is completed" in done.err
    assert cli.process("worker", "agents.py", "--until-idle", "--json").record() == {"ended": "idle"}


def test_a_name_limits_the_worker_to_its_agent(cli: Cli) -> None:
    talk, write = cli.start("talker"), cli.start("writer")
    cli.work("talker")
    assert (cli.status(talk), cli.status(write)) == ("completed", "running")


def test_a_worker_whose_call_does_not_end_replaces_itself(cli: Cli) -> None:
    (cli.folder / "stuck.py").write_text(STUCK)
    run_id = str(cli.json("runs", "start", "stuck.py", "Ring").record()["id"])
    done = cli.process("worker", "stuck.py", "--until-idle", "--lease-seconds", "2")
    workers = re.findall(r"^worker (wrk_\w+) \(process (\d+)\)", done.err, re.MULTILINE)
    assert done.code == 0 and len({name for name, _ in workers}) == 2, done.err
    assert len({process for _, process in workers}) == 1, "the same process, with a fresh program in it"
    assert "a call does not end after its time-out" in done.err
    assert [a["kind"] for a in cli.json("actions", "list", "--run", run_id).records()] == ["resolve"]
    assert cli.json("doctor").code == 0


def test_people_are_told_of_a_run_that_no_worker_knows(cli: Cli) -> None:
    run_id = cli.start("talker")
    cli.work("writer")
    assert cli.status(run_id) == "running"


def test_the_garbage_collector_looks_less_often_and_never_more_often() -> None:
    before = gc.get_threshold()
    try:
        for chosen, then in (((700, 10, 10), (NEW_OBJECTS_MIN, 10, 10)), ((50_000, 5, 5), (50_000, 5, 5))):
            gc.set_threshold(*chosen)
            collect_less()
            assert gc.get_threshold() == then and gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
