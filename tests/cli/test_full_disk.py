"""A disk that takes nothing more: commands that only read still answer, and those that write say why they cannot."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from functools import partial

import pytest

from tests.cli.rig import Cli
from tests.support import eventually_sync

pytestmark = [pytest.mark.sqlite_only("the store is on the disk that is full"), pytest.mark.real_process]
READS = (
    ("runs", "list"),
    ("runs", "show", "RUN"),
    ("actions", "list"),
    ("actions", "show", "ACTION"),
    ("doctor",),
    ("tokens", "list"),
)
WRITES = (("actions", "approve", "ACTION"), ("runs", "cancel", "RUN"), ("prune",))


def _full() -> None:
    """No file may grow, the shared memory beside the store included: what a full disk does, for this process alone."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _on_a_full_disk(cli: Cli, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", "-m", "surefoot", *words, "--json"], cwd=cli.folder, env=cli.environment,
        capture_output=True, text=True, timeout=60, preexec_fn=_full,
    )  # fmt: skip


def test_what_only_reads_answers_and_what_writes_says_why_it_cannot(cli: Cli) -> None:
    run_id, action_id = cli.asked("writer")
    named = {"RUN": run_id, "ACTION": action_id}
    for words in READS:
        full = _on_a_full_disk(cli, *(named.get(word, word) for word in words))
        assert full.returncode == 0, (words, full.stderr)
        assert full.stdout == cli.json(*(named.get(word, word) for word in words)).out or words == ("doctor",)
        assert "read without writing" in full.stderr
    before = (cli.folder / "surefoot.db").read_bytes()
    for words in WRITES:
        full = _on_a_full_disk(cli, *(named.get(word, word) for word in words))
        assert full.returncode == 4 and "free space" in full.stdout, (words, full.stdout, full.stderr)
    assert (cli.folder / "surefoot.db").read_bytes() == before
    assert cli.run("actions", "approve", action_id).code == 0, "with space again, everything goes on"


def test_a_worker_whose_log_takes_nothing_works(cli: Cli) -> None:
    run_id = cli.start("talker")
    with open("/dev/full", "w") as full:
        for words in (("worker", "agents.py", "--until-idle"), ("runs", "show", run_id, "--json"), ("prune",)):
            done = subprocess.run(cli.command(*words), cwd=cli.folder, env=cli.environment, stderr=full, timeout=60)
            assert done.returncode == 0, words
        unknown = cli.command("runs", "show", "run_none")
        refused = subprocess.run(unknown, cwd=cli.folder, env=cli.environment, stderr=full)
    assert (cli.status(run_id), refused.returncode) == ("completed", 5)


def test_a_worker_whose_log_is_read_by_nobody_any_more_works(cli: Cli) -> None:
    reading, writing = os.pipe()
    worker = subprocess.Popen(cli.command("worker", "agents.py"), cwd=cli.folder, env=cli.environment, stderr=writing)
    os.close(writing)
    try:
        os.read(reading, 1)
        os.close(reading)
        for _ in range(3):
            run_id = cli.start("talker")
            eventually_sync(lambda: cli.status(run_id) == "completed", "the run to be completed")  # noqa: B023
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.wait()


def test_what_only_reads_answers_beside_a_process_that_has_the_store_open(cli: Cli) -> None:
    run_id, action_id = cli.asked("writer")
    named = {"RUN": run_id, "ACTION": action_id}
    with contextlib.closing(sqlite3.connect(cli.folder / "surefoot.db")) as other:
        other.execute("UPDATE meta SET updated_at = updated_at")
        other.commit()
        for words in READS:
            full = _on_a_full_disk(cli, *(named.get(word, word) for word in words))
            assert full.returncode == 0 and "read without writing" not in full.stderr, (words, full.stderr)


def test_a_process_that_may_open_no_more_files_says_what_helps(cli: Cli) -> None:
    assert cli.json("runs", "list").code == 0
    told = 0
    for count in range(6, 24):
        done = subprocess.run(
            [sys.executable, "-B", "-m", "surefoot", "runs", "list", "--json"], cwd=cli.folder, env=cli.environment,
            capture_output=True, text=True, timeout=60,
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (count, count)),
        )  # fmt: skip
        if done.returncode == 0:
            break
        if done.stdout:  # with fewer, Python itself does not start
            assert done.returncode == 4 and "ulimit -n" in done.stdout and "free space" not in done.stdout, done
            told += 1
    assert told >= 1 and done.returncode == 0
