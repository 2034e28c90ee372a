"""The standard story with real processes: read a pull request, ask, publish one comment. A story has its own pull
request and its own account in the one World process, so that many run side by side."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import httpx
import msgspec

import surefoot
from surefoot import Agent, Surefoot
from surefoot.core.audit import check_run
from surefoot.core.events import ActionDecided, AnyEvent, RunCompleted, RunStatusChanged
from surefoot.errors import SurefootError
from surefoot.snapshot import RunSnapshot, StepView
from surefoot.testing import process
from surefoot.testing.faults import Rule
from surefoot.testing.wire import Applied, LogEntry, Received, Replied
from tests.places import Place
from tests.support import eventually

REPO = "acme/app"
BODY = "Looks good"
PULLS = 600
"""How many stories one World has room for."""
DEADLINE_SECONDS = 60.0
COMMENTS = "/repos/*/*/issues/*/comments"

AGENTS = """
from surefoot import Agent, Approval
from surefoot.connectors import github
from surefoot.testing.model import FakeModel

script = [
    [("read_pull_request", {{"repo": "{repo}", "number": {number}}})],
    [("create_issue_comment", {{"repo": "{repo}", "issue_number": {number}, "body": "{body}"}})],
    "done",
]
comment = github.create_issue_comment.using(
    approval=Approval(expires=3_600), settle={settle}, timeout={timeout}, attempts={attempts}
)
reviewer = Agent(
    name="reviewer", model=FakeModel(script), instructions="Review.", tools=[github.read_pull_request, comment]
)
"""


class WorldProcess:
    """The World as a process, seen from outside: its log and its control side."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self._log = log
        self._read = 0
        self._entries: list[LogEntry] = []
        self._numbers = itertools.count(1)

    def next_number(self) -> int:
        """A pull request, and an account, that no story has used."""
        number = next(self._numbers)
        assert number <= PULLS, "the World has no further pull request: raise PULLS"
        return number

    def entries(self) -> list[LogEntry]:
        """The whole log up to now."""
        with self._log.open("rb") as file:
            file.seek(self._read)
            complete = file.read().rpartition(b"\n")[0]
        if complete:
            self._read += len(complete) + 1
            self._entries += [msgspec.json.decode(line, type=LogEntry) for line in complete.splitlines()]
        return self._entries

    def hit(self, rule: Rule) -> None:
        """From now on requests that match are hit."""
        httpx.post(f"{self.url}/_world/faults", content=msgspec.json.encode(rule), trust_env=False).raise_for_status()

    def heal(self) -> None:
        """No fault is in force any more, for no story."""
        httpx.delete(f"{self.url}/_world/faults", trust_env=False).raise_for_status()


def described(pulls: int) -> list[str]:
    """The World's command line: so many pull requests, each with a token and an account of its own."""
    # The long proofs of one fleet make more requests in an hour than GitHub grants to one account.
    words = ["--repo", REPO, "--rate-limit", "1000000"]
    for number in range(1, pulls + 1):
        words += ["--pull", str(number), "--token", f"token-{number}=bot-{number}"]
    return words


class Worker:
    """A worker process. What it says goes through a pipe, so that it is heard when no file can be written."""

    def __init__(self, command: Sequence[str], environ: dict[str, str], notes: Path) -> None:
        self._notes = notes
        self._said: list[str] = []
        self.process = subprocess.Popen(
            command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        self._hearing.start()

    def _hear(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            self._said += lines

    @property
    def said(self) -> str:
        """What it has written to stderr."""
        return "".join(self._said)

    def notes(self) -> list[str]:
        """The points that it has reached."""
        return self._notes.read_text().splitlines() if self._notes.exists() else []

    def noted_at(self) -> float:
        """When it reached its last point (wall, seconds)."""
        return self._notes.stat().st_mtime

    def kill(self) -> None:
        """SIGKILL, and await the end."""
        self.process.kill()
        self.process.wait()
        self._hearing.join(DEADLINE_SECONDS)

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        self.process.send_signal(number)

    async def reached(self, point: str) -> None:
        """Wait until the point stands in the notes, such as "stop@tool:before:1"."""
        await eventually(lambda: point in self.notes() or self.process.poll() is not None, f"{point}: {self.said}")
        assert point in self.notes(), f"the worker ended before {point}: {self.said}"

    async def ended(self) -> int:
        """Wait for the end of the process; its exit code (negative: the signal)."""
        await eventually(lambda: self.process.poll() is not None, f"the worker's end; it reached {self.notes()}")
        self._hearing.join(DEADLINE_SECONDS)
        return self.process.wait()


class Story:
    """One run of the reviewer, its file, its store and its workers: `async with Story(world, place) as story`."""

    def __init__(
        self, world: WorldProcess, place: Place, *, settle: float = 0.3, timeout: float = 15.0, attempts: int = 8
    ) -> None:
        self.world = world
        self.number = world.next_number()
        self.account = f"bot-{self.number}"
        self.place = place.inside(f"story-{self.number}")
        self.folder = self.place.folder
        self.store = self.place.url
        self.file = self.folder / f"agents_{self.number}.py"
        text = AGENTS.format(
            repo=REPO, number=self.number, body=BODY, settle=settle, timeout=timeout, attempts=attempts
        )
        self.file.write_text(text)
        names = process.load(self.file).values()
        self.sf = Surefoot(self.store, [value for value in names if isinstance(value, Agent)])
        self.workers: list[Worker] = []
        self.run_id = ""
        self.action_id = ""
        self._calls = f"/repos/{REPO}/issues/{self.number}/comments"

    async def __aenter__(self) -> Story:
        await self.sf.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
        await self.sf.close()

    @property
    def environ(self) -> dict[str, str]:
        """The environment of its workers."""
        source = str(Path(surefoot.__path__[0]).parent)
        own = {"PYTHONPATH": source, "GITHUB_API_URL": self.world.url, "GITHUB_TOKEN": f"token-{self.number}"}
        return {**os.environ, **own, **self.place.secret}

    def worker(self, *points: str, options: Sequence[str] = ()) -> Worker:
        """Start a worker process with these crash points."""
        number = len(self.workers) + 1
        notes = self.folder / f"notes-{number}"
        words = ["-m", "surefoot.testing.process", str(self.file), "--store", self.store, "--notes", str(notes)]
        for point in points:
            words += ["--point", point]
        started = Worker([sys.executable, *words, *options], self.environ, notes)
        self.workers.append(started)
        return started

    # What people do

    async def start(self) -> None:
        """Start the run."""
        self.run_id = (await self.sf.start("reviewer", f"Review {REPO}#{self.number}")).id

    async def asked(self, kind: str = "approve") -> str:
        """Wait for a question of this kind to a person; its id."""
        snapshot = await self.until(
            lambda s: s.status == "waiting_for_user" and any(a.kind == kind for a in s.pending_actions), f"{kind} asked"
        )
        return next(action.id for action in snapshot.pending_actions if action.kind == kind)

    async def approve(self) -> None:
        """Approve the comment."""
        self.action_id = await self.asked()
        await self.sf.approve(self.action_id, by="ann")

    async def approved(self, *points: str, options: Sequence[str] = ()) -> Worker:
        """Start the run and a worker with these points, and approve when asked."""
        await self.start()
        worker = self.worker(*points, options=options)
        await self.approve()
        return worker

    # What is seen

    async def snapshot(self) -> RunSnapshot:
        """The run now."""
        return await self.sf.snapshot(self.run_id)

    async def until(self, condition: Callable[[RunSnapshot], bool], what: str) -> RunSnapshot:
        """Wait for a snapshot that meets the condition."""
        try:
            return await self.sf.wait(self.run_id, until=condition, timeout=DEADLINE_SECONDS)
        except SurefootError as error:
            said = "\n".join(worker.said for worker in self.workers)
            raise AssertionError(f"story {self.number}: waited in vain for: {what} ({error})\n{said}") from error

    async def completed(self) -> RunSnapshot:
        """Wait for the run's end, which has to be the good one."""
        snapshot = await self.until(lambda s: s.status in ("completed", "failed", "cancelled"), "the run's end")
        assert snapshot.status == "completed", (self.number, snapshot.status, snapshot.error_code)
        return snapshot

    async def step(self) -> StepView:
        """The step of the comment."""
        return comment_step(await self.snapshot())

    def comments(self) -> list[Applied]:
        """The comments that the World has made on the story's pull request."""
        place = f"{REPO}#{self.number}"
        return [e for e in self.world.entries() if isinstance(e, Applied) and e.request and e.place == place]

    async def comment_made(self) -> None:
        """Wait until the World has made the comment, whoever knows of it."""
        await eventually(self.comments, "the comment")

    def posts(self) -> list[Received]:
        """The requests for a comment that have arrived."""
        return [e for e in self.requests() if e.method == "POST" and e.path == self._calls]

    def looks(self) -> list[Received]:
        """The listings of comments that have been asked for."""
        return [e for e in self.requests() if e.method == "GET" and e.path == self._calls]

    def requests(self) -> list[Received]:
        """Everything that the story's account asked for."""
        return [e for e in self.world.entries() if isinstance(e, Received) and e.account == self.account]

    def replied(self, request: Received) -> bool:
        """Whether the request's answer has left the World."""
        return any(isinstance(e, Replied) and e.request == request.request for e in self.world.entries())

    async def events(self) -> list[AnyEvent]:
        """All events of the run."""
        return [line.event for line in await self.sf.store.events(self.sf.tenant, self.run_id, 0, 100_000)]

    async def statuses(self) -> list[str]:
        """The statuses of the run after the approval, in order."""
        events = await self.events()
        decided = next(
            i for i, e in enumerate(events) if isinstance(e, ActionDecided) and e.action_id == self.action_id
        )
        changes = [e for e in events[decided:] if isinstance(e, RunStatusChanged | RunCompleted)]
        return [e.to_status.value if isinstance(e, RunStatusChanged) else "completed" for e in changes]

    async def results(self) -> list[str]:
        """The results of the comment's call in the conversation."""
        call_id = (await self.step()).call_id
        messages = await self.sf.messages(self.run_id)
        return [
            message.body.decode()
            for message in messages
            if message.role == "tool_result" and message.call_id == call_id
        ]

    async def once(self) -> None:
        """What holds at the end of every story: one comment, of which the step knows, one result, nothing to find."""
        step = await self.step()
        comments = self.comments()
        assert len(comments) == 1, (self.number, comments)
        assert step.operation_key is not None and step.operation_key in comments[0].text
        assert (step.status, step.external_resource_id) == ("succeeded", str(comments[0].resource_id)), step
        assert len(await self.results()) == 1
        assert await self.findings() == []

    async def findings(self) -> list[str]:
        """What a doctor would find: rows against events."""
        store, tenant = self.sf.store, self.sf.tenant
        row = await store.run(tenant, self.run_id)
        steps = [one.step for one in await store.steps(tenant, self.run_id)]
        actions = [one.action for one in await store.actions(tenant, run_id=self.run_id)]
        recorded = await store.events(tenant, self.run_id, 0, 100_000)
        return [*await store.integrity(), *check_run(row.run, steps, actions, recorded)]


def comment_step(snapshot: RunSnapshot) -> StepView:
    """The step of the comment."""
    return next(step for step in snapshot.steps if step.tool_name == "create_issue_comment")
