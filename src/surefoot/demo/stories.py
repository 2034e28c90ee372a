"""The five stories. Each waits for conditions, never for a time, and is judged by GitHub's state and by the store."""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from surefoot.app import Surefoot
from surefoot.core import events as ev
from surefoot.core.state import AttemptEnd, Step, StepStatus
from surefoot.demo.agent_file import Times, write_agent_file
from surefoot.demo.change import real_change
from surefoot.demo.processes import COMMENTS, NUMBER, REPO, WAIT_SECONDS_MAX, Child, Stagehands
from surefoot.demo.timeline import TOOL, Facts, Line, timeline
from surefoot.doctor import examine
from surefoot.errors import WaitTimeout
from surefoot.snapshot import ActionView, RunSnapshot
from surefoot.testing.faults import LostReply, Rule, StatusBefore

MODEL_SECONDS_MAX = 600.0
EVENTS_MAX = 5_000
LOST = Rule(LostReply("hang"), method="POST", path=COMMENTS)
FORBIDDEN = Rule(StatusBefore(403), method="GET", path=COMMENTS, times=None)
BEFORE_THE_FIRST_BYTE = "http.send:before:2"
"""The first request of a process asks whose the token is, which comes before the intent."""


class Teller(Protocol):
    """Who tells the story and asks the person."""

    def say(self, text: str = "") -> None:
        """A line of the story."""
        ...

    def show(self, action: ActionView) -> None:
        """A question, as a person sees it."""
        ...

    def ask(self, question: str, choices: str, as_told: str) -> str:
        """The person's choice, one letter of `choices`; `as_told` where the demo answers itself."""
        ...


class Check(msgspec.Struct, frozen=True):
    """Something that has to be true at the end."""

    what: str
    ok: bool


class Told(msgspec.Struct, frozen=True):
    """A story that was played to its end."""

    story: str
    ok: bool
    seconds: float
    checks: list[Check]
    timeline: list[Line]
    comments: int
    why: str
    run: RunSnapshot
    folder: str


class Tale:
    """One story under way."""

    def __init__(
        self, hands: Stagehands, sf: Surefoot, teller: Teller, by: str, model: str | None, run: RunSnapshot
    ) -> None:
        self.hands = hands
        self.sf = sf
        self.teller = teller
        self.by = by
        self.seconds_max = MODEL_SECONDS_MAX if model else WAIT_SECONDS_MAX
        self.run = run
        self.acts: list[Line] = []
        self.checks: list[Check] = []
        self.rejected = False

    # What the demo does

    def act(self, text: str) -> None:
        """Something that the demo does to the processes."""
        self.acts.append(Line(time.time(), "the demo", text))
        self.teller.say(f"  {text}")

    async def rest(self) -> RunSnapshot:
        """Where the run ends, or a person is asked. Raises DemoFailed."""
        try:
            self.run = await self.sf.wait(self.run.id, timeout=self.seconds_max)
        except WaitTimeout as problem:
            raise self.hands.failed(str(problem)) from None
        return self.run

    async def question(self, kind: str) -> ActionView:
        """The open question of this kind, shown."""
        run = await self.rest()
        found = next((a for a in run.pending_actions if a.kind == kind and a.tool_name == TOOL), None)
        if found is None:
            raise self.hands.failed(f"no question of kind {kind} came; the run is {run.status} ({run.error_code})")
        self.teller.show(found)
        return found

    async def approve(self, as_told: str = "y") -> None:
        """Ask for the approval, and record the decision."""
        action = await self.question("approve")
        if self.teller.ask("Post this comment? [y/n]", "yn", as_told) == "y":
            await self.sf.approve(action.id, by=self.by, input_hash=action.input_hash)
            return
        self.rejected = True
        await self.sf.reject(action.id, by=self.by, reason="not now")

    async def lose_the_worker(self) -> None:
        """A worker posts, the reply is lost, and it is killed while it waits for it."""
        worker = self.hands.workers[-1]
        made = await self.hands.until(self.hands.created, "the comment on GitHub")
        worker.send(signal.SIGKILL)
        self.act(f"{worker.name} is killed (SIGKILL) while it waits for the reply about comment {made[0].resource_id}")
        await self.hands.until(lambda: worker.ended, f"the end of {worker.name}")
        self.check(f"{worker.name} died by SIGKILL", worker.ended == -signal.SIGKILL)

    def another_worker(self, point: str | None = None) -> Child:
        """Start a worker."""
        worker = self.hands.start_worker(point)
        self.act(f"{worker.name} starts (process {worker.pid})")
        return worker

    async def stop_cleanly(self, worker: Child) -> None:
        """SIGTERM, and its end."""
        worker.send(signal.SIGTERM)
        await self.hands.until(lambda: worker.ended is not None, f"the end of {worker.name}")

    # What has to be true

    def check(self, what: str, ok: bool) -> None:
        """Something that has to be true."""
        self.checks.append(Check(what, ok))

    async def step(self) -> Step:
        """The step of the comment."""
        rows = await self.sf.store.steps(self.sf.tenant, self.run.id)
        found = [row.step for row in rows if row.step.tool_name == TOOL]
        if len(found) != 1:
            raise self.hands.failed(f"{len(found)} steps of {TOOL} instead of one")
        return found[0]

    async def check_end(self, attempts: int, posts: int) -> None:
        """What holds at the end of every story in which the comment was approved."""
        step, body = await self.step(), str(self._arguments().get("body"))
        ours = self.hands.comments_of_ours()
        marked = [number for number, text in ours if f"agent-operation:{step.operation_key}" in text]
        self.check("GitHub has exactly one comment of ours, with this operation's key", len(ours) == len(marked) == 1)
        self.check(f"GitHub got {posts} POST in all", len(self.hands.posts()) == posts)
        self.check("its text is the approved one", all(text.startswith(body) for _, text in ours))
        self.check("the step that was begun succeeded", step.status is StepStatus.succeeded)
        self.check("the comment's id is on that step", [step.external_resource_id] == [str(n) for n in marked])
        self.check(f"it has {attempts} attempt{'s' if attempts > 1 else ''}", step.attempt == attempts)
        await self.check_rest()

    async def check_rest(self) -> None:
        """What holds at the end of every story."""
        rows = await self.sf.messages(self.run.id)
        step = await self.step()
        self.check("the conversation has one result for the call", [r.call_id for r in rows].count(step.call_id) == 1)
        self.check("the run is completed", self.run.status == "completed")
        report = await examine(self.sf.store, self.sf.tenant)
        self.check("the doctor finds nothing", not report.findings)

    def _arguments(self) -> Mapping[str, object]:
        views = [s.input for s in self.run.steps if s.tool_name == TOOL]
        return views[0] if views and isinstance(views[0], dict) else {}

    async def statuses(self) -> list[str]:
        """The states of the run since its start, each with the one before."""
        recorded = await self.sf.store.events(self.sf.tenant, self.run.id, 0, EVENTS_MAX)
        found = ["running"]
        for line in recorded:
            if isinstance(line.event, ev.RunStatusChanged):
                found.append(line.event.to_status.value)
            elif isinstance(line.event, ev.RunCompleted):
                found.append("completed")
        return found


async def founding(tale: Tale) -> str:
    """The reply is lost and the worker dies."""
    tale.hands.fault(LOST)
    tale.another_worker()
    await tale.approve()
    if tale.rejected:
        return await _rejected(tale)
    await tale.lose_the_worker()
    tale.another_worker()
    await tale.rest()
    await tale.check_end(attempts=1, posts=1)
    states = ["running", "waiting_for_user", "running", "reconciling", "running", "completed"]
    tale.check("the run went running, reconciling, running, completed", await tale.statuses() == states)
    return (
        "Why it was not sent again: the step had an attempt that may have been sent, so the new worker's first act was "
        "to look. GitHub holds a comment with this step's key: the call had happened. Its id went onto the step."
    )


async def absent(tale: Tale) -> str:
    """The worker dies before the first byte."""
    first = tale.another_worker()
    await tale.question("approve")
    await tale.stop_cleanly(first)
    tale.act(f"{first.name} stops: waiting for a person needs no process")
    await tale.approve()
    if tale.rejected:
        tale.another_worker()
        return await _rejected(tale)
    second = tale.another_worker(f"kill@{BEFORE_THE_FIRST_BYTE}")
    await tale.hands.until(lambda: second.ended, f"the death of {second.name}")
    tale.check(f"{second.name} died by SIGKILL", second.ended == -signal.SIGKILL)
    tale.act(f"{second.name} is dead (SIGKILL), between its intent and the first byte of the call")
    tale.check("GitHub had got nothing by then", not tale.hands.posts())
    tale.another_worker()
    await tale.rest()
    await tale.check_end(attempts=2, posts=1)
    return (
        "Why it was sent after all: the intent was written down, so the call may have been sent for all that the new "
        "worker knew. It went on looking until the settle time was over (shortened for the demo; 60 s by default). "
        "Only then was absence believed, and the same step went out with the same key and bytes, still approved."
    )


async def undetermined(tale: Tale) -> str:
    """GitHub does not let itself be read; a person tells."""
    tale.hands.fault(LOST)
    tale.another_worker()
    await tale.approve()
    if tale.rejected:
        return await _rejected(tale)
    await tale.lose_the_worker()
    tale.hands.fault(FORBIDDEN)
    tale.act("GitHub answers every look at its comments with 403 from now on")
    tale.another_worker()
    question = await tale.question("resolve")
    number, _ = tale.hands.comments_of_ours()[0]
    tale.teller.say(f"  On the pull request's page a person sees comment {number}.")
    chosen = tale.teller.ask("What happened? [h]appened, [d]id not happen, [g]ive up", "hdg", "h")
    if chosen == "d":
        tale.hands.heal()
        tale.act("GitHub can be read again: one more look is owed before anything is sent")
    decision = {"h": "happened", "d": "did_not_happen", "g": "give_up"}[chosen]
    resource = str(number) if chosen == "h" else None
    await tale.sf.resolve(question.id, decision, by=tale.by, external_resource_id=resource)
    await tale.rest()
    if chosen == "g":
        tale.check("GitHub got 1 POST in all", len(tale.hands.posts()) == 1)
        tale.check("the step keeps its unknown outcome", (await tale.step()).status is StepStatus.outcome_unknown)
        await tale.check_rest()
    else:
        await tale.check_end(attempts=1, posts=1)
    return (
        "Why it was not sent again: a look that gets no answer proves neither that the comment is there nor that it is "
        "not. So nothing was sent, the worker went on looking, and a person was asked as well."
    )


async def rejected(tale: Tale) -> str:
    """The person says no."""
    tale.another_worker()
    await tale.approve(as_told="n")
    if tale.rejected:
        return await _rejected(tale)
    await tale.rest()
    await tale.check_end(attempts=1, posts=1)
    return "You approved it, so it was posted, once."


async def _rejected(tale: Tale) -> str:
    await tale.rest()
    step = await tale.step()
    tale.check("GitHub got no POST", not tale.hands.posts())
    tale.check("GitHub has no comment of ours", not tale.hands.comments_of_ours())
    tale.check("the step failed as rejected, without an attempt", (step.error_code, step.attempt) == ("rejected", 0))
    await tale.check_rest()
    return "A rejected call is never begun: there is no attempt. The model got a refusal as the call's one result."


async def paused(tale: Tale) -> str:
    """A worker freezes between its intent and the first byte, and wakes after another has done the work."""
    first = tale.another_worker()
    await tale.question("approve")
    await tale.stop_cleanly(first)
    tale.act(f"{first.name} stops: waiting for a person needs no process")
    await tale.approve()
    if tale.rejected:
        tale.another_worker()
        return await _rejected(tale)
    frozen = tale.another_worker(f"stop@{BEFORE_THE_FIRST_BYTE}")
    await tale.hands.until(frozen.stopped, f"{frozen.name} to freeze")
    tale.act(f"{frozen.name} is frozen (SIGSTOP), between its intent and the first byte of the call")
    tale.another_worker()
    await tale.rest()
    made = len(tale.hands.created())
    frozen.send(signal.SIGCONT)
    tale.act(f"{frozen.name} wakes up (SIGCONT); its lease is over")
    await tale.stop_cleanly(frozen)
    tale.check(f"{frozen.name} ended in order after it woke up", frozen.ended == 0)
    ends = [a.end for a in (await tale.step()).attempts]
    tale.check("its attempt ended as not sent", ends == [AttemptEnd.not_sent, AttemptEnd.applied])
    tale.check("no comment came after it woke up", len(tale.hands.created()) == made)
    await tale.check_end(attempts=2, posts=1)
    return (
        "Why there are not two: a frozen worker cannot be told that it lost its lease. So its time to write was fixed "
        "before the call and is checked again at the socket: when it woke up, it wrote nothing. The other worker sent "
        "only when that time and the settle time were over and a look had shown that nothing was there."
    )


class Story(msgspec.Struct, frozen=True):
    """A story with its times."""

    play: Callable[[Tale], Awaitable[str]]
    title: str
    times: Times = Times()


STORIES: Mapping[str, Story] = {
    "founding": Story(founding, "GitHub creates the comment, the reply is lost, the worker is killed."),
    "absent": Story(absent, "The worker is killed after its intent and before the first byte.", Times(settle=2)),
    "undetermined": Story(
        undetermined, "The worker is killed, and GitHub does not let itself be read.", Times(settle=1)
    ),
    "rejected": Story(rejected, "The person says no."),
    "paused": Story(paused, "A worker freezes before the first byte and wakes up too late.", Times(1, 3, 3)),
}


async def play(name: str, folder: Path, teller: Teller, by: str, model: str | None = None) -> Told:
    """Play a story with real processes in `folder`. Raises DemoFailed, and what a person's terminal raises."""
    began = time.monotonic()
    story = STORIES[name]
    change = real_change()
    write_agent_file(folder, model, story.times)
    teller.say(f"{name}: {story.title}")
    teller.say(f"  pull request {REPO}#{NUMBER}: {change.title} ({change.source})")
    if story.times.settle != Times().settle:
        teller.say(f"  settle time for this story: {story.times.settle:g} s ({Times().settle:g} s by default)")
    with Stagehands(folder, story.times.lease) as hands:
        await hands.start_world(change)
        run_id = hands.start_run(f"Review {REPO}#{NUMBER} and publish the review.", by)
        async with Surefoot(hands.store, log=teller.say) as sf:
            tale = Tale(hands, sf, teller, by, model, await sf.snapshot(run_id))
            why = await story.play(tale)
            return await _told(name, tale, why, time.monotonic() - began)


async def _told(name: str, tale: Tale, why: str, seconds: float) -> Told:
    recorded = await tale.sf.store.events(tale.sf.tenant, tale.run.id, 0, EVENTS_MAX)
    workers = [(worker.started, worker.name) for worker in tale.hands.workers]
    facts = Facts(await tale.step(), recorded, tale.hands.world_log(), tale.acts, workers)
    return Told(
        story=name,
        ok=all(check.ok for check in tale.checks),
        seconds=round(seconds, 1),
        checks=tale.checks,
        timeline=timeline(facts),
        comments=len(tale.hands.comments_of_ours()),
        why=why,
        run=tale.run,
        folder=str(tale.hands.folder),
    )
