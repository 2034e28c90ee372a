"""All GitHub tools against a GitHub that is not ours, behind a proxy that misbehaves, with real kills."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from surefoot import Agent, Surefoot
from surefoot.connectors import github
from surefoot.snapshot import RunSnapshot, StepView
from surefoot.testing.model import FakeModel
from tests.cases.rig import SECRET, calls_of
from tests.foreign.program import Config, configured
from tests.foreign.proxy import Mishap, Proxy, Trap
from tests.foreign.service import APP_BOT, APP_ID, INSTALLATION_ID, Repository
from tests.places import Place

pytestmark = pytest.mark.foreign

SETTLE, TIMEOUT = 1.0, 1.5
STORY_SECONDS = 40.0


class Probe(msgspec.Struct, frozen=True):
    """One tool: how it is called, its own request, and how many of its effects the repository holds."""

    tool: str
    arguments: Callable[[Repository], Mapping[str, object]]
    method: str
    path: str
    count: Callable[[Repository], int]
    grade: Literal["searched", "repeated"]
    nth: int = 1
    """Which request of the tool it is."""


PROBES = [
    Probe(
        "create_issue_comment", lambda r: {**_issue(r), "body": "Looks good."},
        "POST", "**/issues/*/comments", lambda r: sum("Looks good." in body for body in r.comments()), "searched",
    ),
    Probe(
        "create_review", lambda r: {**_pull(r), "body": "Looks good.", "event": "COMMENT"},
        "POST", "**/pulls/*/reviews", lambda r: sum("Looks good." in body for _, body in r.reviews()), "searched",
    ),
    Probe(
        "create_issue", lambda r: {"repo": r.name, "title": "Another", "body": "Text."},
        "POST", "/repos/*/*/issues", lambda r: r.issues().count("Another"), "searched",
    ),
    Probe(
        "merge_pull_request", lambda r: {**_pull(r), "head_sha": r.head},
        "PUT", "**/merge", lambda r: int(r.merged()), "searched",
    ),
    Probe(
        "add_labels", lambda r: {**_issue(r), "labels": ["bug", "crash"]},
        "POST", "**/labels", lambda r: int(sorted(r.labels()) == ["bug", "crash"]), "repeated",
    ),
    Probe("close_issue", lambda r: _issue(r), "PATCH", "**/issues/*", lambda r: int(r.state() == "closed"), "repeated"),
    Probe(
        "delete_issue_comment", lambda r: {"repo": r.name, "comment_id": r.comment()},
        "DELETE", "**/issues/comments/*", lambda r: 1 - len(r.comments()), "repeated",
    ),
    Probe(
        "dismiss_review", lambda r: {**_pull(r), "review_id": r.review(), "message": "Twice."},
        "PUT", "**/dismissals", lambda r: sum(state == "DISMISSED" for state, _ in r.reviews()), "repeated", nth=2,
    ),
]  # fmt: skip
EACH = pytest.mark.parametrize("probe", PROBES, ids=[probe.tool for probe in PROBES])


def _issue(repository: Repository) -> dict[str, object]:
    return {"repo": repository.name, "issue_number": repository.issue}


def _pull(repository: Repository) -> dict[str, object]:
    return {"repo": repository.name, "number": repository.pull}


def surefoot(place: Place, probe: Probe, arguments: Mapping[str, object]) -> Surefoot:
    """A worker in this process."""
    model = FakeModel([[(probe.tool, dict(arguments))], "done"])
    agent = Agent(name="worker", model=model, instructions="Do it.", tools=[configured(probe.tool, SETTLE, TIMEOUT)])
    return Surefoot(place.url, [agent], worker=True, secret=SECRET, log=lambda line: None)


async def play(place: Place, probe: Probe, arguments: Mapping[str, object]) -> RunSnapshot:
    """One run in this process, to its end."""
    async with surefoot(place, probe, arguments) as sf:
        return await sf.wait((await sf.start("worker", "Do it.")).id, timeout=STORY_SECONDS)


def judge(proxy: Proxy, probe: Probe, repository: Repository, run: RunSnapshot, *, requests: int) -> StepView:
    """One effect, so many requests, and the run is over."""
    assert probe.count(repository) == 1
    assert len(proxy.requests(probe.method, probe.path)) == requests
    (step,) = calls_of(run)
    assert (run.status, step.status) == ("completed", "succeeded"), (step.status, step.error_code)
    return step


@EACH
async def test_without_a_fault(place: Place, proxy: Proxy, repository: Repository, probe: Probe) -> None:
    run = await play(place, probe, probe.arguments(repository))
    assert judge(proxy, probe, repository, run, requests=1).external_resource_id


@EACH
@pytest.mark.parametrize("mishap", ["lost_reply", "502_after", "hang_after"])
async def test_applied_and_not_told(
    place: Place, proxy: Proxy, repository: Repository, probe: Probe, mishap: Mishap
) -> None:
    arguments = probe.arguments(repository)
    proxy.traps.append(Trap(probe.method, probe.path, mishap))
    run = await play(place, probe, arguments)
    _found_or_repeated(proxy, probe, repository, run)


def _found_or_repeated(proxy: Proxy, probe: Probe, repository: Repository, run: RunSnapshot) -> None:
    again = probe.grade == "repeated" and probe.tool != "dismiss_review"
    step = judge(proxy, probe, repository, run, requests=2 if again else 1)
    assert (step.resolution == "found") == (probe.grade == "searched")


@EACH
@pytest.mark.parametrize("mishap", ["lost_request", "502_before"])
async def test_not_applied_and_not_told(
    place: Place, proxy: Proxy, repository: Repository, probe: Probe, mishap: Mishap
) -> None:
    arguments = probe.arguments(repository)
    proxy.traps.append(Trap(probe.method, probe.path, mishap))
    judge(proxy, probe, repository, await play(place, probe, arguments), requests=2)


@EACH
async def test_late_within_the_settle_time(place: Place, proxy: Proxy, repository: Repository, probe: Probe) -> None:
    arguments = probe.arguments(repository)
    proxy.traps.append(Trap(probe.method, probe.path, "late"))
    run = await play(place, probe, arguments)
    await proxy.settle()
    judge(proxy, probe, repository, run, requests=1 if probe.grade == "searched" else 2)


async def child(place: Place, probe: Probe, arguments: Mapping[str, object], *, kill_at: int = 0) -> Child:
    """A worker in a process of its own."""
    config = Config(place.url, probe.tool, dict(arguments), SETTLE, TIMEOUT, kill_at)
    source = Path(sys.modules["surefoot"].__path__[0]).parent
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.foreign.program", msgspec.json.encode(config).decode(),
        env={**os.environ, "PYTHONPATH": f"{source}:{source.parent}"}, cwd=place.folder,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    return Child(process)


class Child:
    """The process, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self.process.pid, signal.SIGKILL)

    async def dies(self) -> str:
        """Wait for its death by SIGKILL; the id of the run that it had started."""
        out, err = await asyncio.wait_for(self.process.communicate(), STORY_SECONDS)
        assert self.process.returncode == -signal.SIGKILL, err.decode()[-2000:]
        return out.decode().strip()


async def taken_over(place: Place, probe: Probe, arguments: Mapping[str, object], run_id: str) -> RunSnapshot:
    """What another worker makes of the dead one's run."""
    async with surefoot(place, probe, arguments) as sf:
        return await sf.wait(run_id, timeout=STORY_SECONDS)


@EACH
async def test_killed_before_the_first_byte(place: Place, proxy: Proxy, repository: Repository, probe: Probe) -> None:
    arguments = probe.arguments(repository)
    run_id = await (await child(place, probe, arguments, kill_at=probe.nth)).dies()
    assert proxy.requests(probe.method, probe.path) == []
    run = await taken_over(place, probe, arguments, run_id)
    assert judge(proxy, probe, repository, run, requests=1).attempt == 2


@EACH
async def test_killed_after_the_target_applied(
    place: Place, proxy: Proxy, repository: Repository, probe: Probe
) -> None:
    arguments = probe.arguments(repository)
    trap = Trap(probe.method, probe.path, "lost_reply")
    proxy.traps.append(trap)
    worker = await child(place, probe, arguments)
    trap.after = worker.kill
    run_id = await worker.dies()
    assert probe.count(repository) == 1, "the target had applied it"
    _found_or_repeated(proxy, probe, repository, await taken_over(place, probe, arguments, run_id))


async def test_a_github_app_acts_under_a_token_of_its_installation(
    place: Place, proxy: Proxy, repository: Repository, monkeypatch: pytest.MonkeyPatch, app_key: str
) -> None:
    monkeypatch.delenv("GITHUB_TOKEN")
    monkeypatch.setenv("GITHUB_APP_ID", str(APP_ID))
    monkeypatch.setenv("GITHUB_APP_INSTALLATION_ID", str(INSTALLATION_ID))
    monkeypatch.setenv("GITHUB_APP_PRIVATE_KEY", app_key)
    proxy.traps.append(Trap("POST", "**/issues/*/comments", "lost_reply"))
    probe = PROBES[0]
    run = await play(place, probe, probe.arguments(repository))
    _found_or_repeated(proxy, probe, repository, run)
    tokens = proxy.requests("POST", "/app/installations/*/access_tokens")
    assert [one.status for one in tokens] == [201], "one token for the call and its lookup"
    assert repository.authors() == [APP_BOT]


async def test_reading_a_pull_request(proxy: Proxy, repository: Repository, place: Place) -> None:
    arguments = {"repo": repository.name, "number": repository.pull}
    probe = Probe("read_pull_request", lambda r: arguments, "GET", "**", lambda r: 1, "repeated")
    run = await play(place, probe, arguments)
    (step,) = calls_of(run)
    assert run.status == "completed" and step.status == "succeeded"
    assert github.read_pull_request.effect.name == "read"
