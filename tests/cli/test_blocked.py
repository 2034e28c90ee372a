"""A run that no worker goes on with: who waits for it is told why, and goes on waiting."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from surefoot import Surefoot, errors
from tests.cli.rig import AGENTS, Cli

pytestmark = pytest.mark.real_process


def _approved(cli: Cli) -> str:
    """A run whose approved call no worker can make before `agents.py` has its tool again."""
    run_id, action_id = cli.asked("writer")
    assert cli.run("actions", "approve", action_id).code == 0
    (cli.folder / "agents.py").write_text(AGENTS.replace("post_note", "post_other"))
    return run_id


def test_who_watches_is_told_once_why_it_stands_still_and_sees_it_go_on(cli: Cli) -> None:
    run_id = _approved(cli)
    watching = subprocess.Popen(
        cli.command("runs", "watch", run_id), cwd=cli.folder, env=cli.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert watching.stdout is not None and watching.stderr is not None
        assert watching.stdout.readline(), "it watches"
        cli.work("writer")
        assert cli.json("runs", "show", run_id).record()["error_code"] == "unknown_tool"
        told = watching.stderr.readline()
        assert run_id in told and "unknown_tool" in told and "start one with the code" in told
        (cli.folder / "agents.py").write_text(AGENTS)
        cli.work("writer")
        out, err = watching.communicate(timeout=60)
    finally:
        watching.kill()
        watching.communicate()
    assert watching.returncode == 0 and "Written." in out, (out, err)
    assert err == "", "it was told once"


def test_a_wait_that_gives_up_says_that_the_run_stands_still(cli: Cli) -> None:
    run_id = _approved(cli)
    cli.work("writer")

    async def waits() -> None:
        async with Surefoot(cli.place.url, log=lambda line: None) as sf:
            for until in (None, lambda run: run.status == "completed"):
                with pytest.raises(errors.WaitTimeout, match="no worker knew its agent") as late:
                    await sf.wait(run_id, until=until, timeout=0.05)
                assert late.value.details == {"status": "running", "blocked": "unknown_tool"}

    asyncio.run(waits())
