"""What all field cases share: a World, agents with scripted models, and the judge that looks at every story's end.

A `Case` knows what stands outside and judges it. `Sim` plays it in virtual time on simulated processes, `Live` with
real sockets and real processes, where a person's hand is either Python or the command line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import ParamSpec, Protocol

import msgspec

from surefoot import Agent, Approval, Surefoot
from surefoot.agent.tools import ApprovalChoice, Tool
from surefoot.connectors import github
from surefoot.doors import Clock
from surefoot.errors import SurefootError
from surefoot.http import Response, system_doors
from surefoot.runtime.worker import CAPACITY
from surefoot.snapshot import RunEvent, RunSnapshot, StepView, public_event
from surefoot.store import requests
from surefoot.store.open import open_store
from surefoot.store.port import Store
from surefoot.testing import checker, faults as f
from surefoot.testing.histories import validate_history
from surefoot.testing.machine import Machine, Process
from surefoot.testing.model import FakeModel, ScriptedCall, Step as Scripted
from surefoot.testing.stage import abandon
from surefoot.testing.wire import Applied, Received
from surefoot.testing.world import BOT, World
from tests.places import Place

P = ParamSpec("P")

REPO = "acme/app"
NUMBER = 128
COMMENTS = f"/repos/{REPO}/issues/{NUMBER}/comments"
ISSUE = f"/repos/{REPO}/issues/{NUMBER}"
SECRET = "the keyring of the field cases is known to the test"
DAY = 86_400.0
PROCESS_SECONDS_MAX = 60.0
"""How long a real process may take for one thing, on a machine that has much to do."""
READING = checker.Reading(accounts={BOT.login: str(BOT.id)}, clock_slack_s=0.02)
Script = Sequence[Scripted]
AT_REST = frozenset({"completed", "failed", "cancelled", "waiting_for_user", "reconciling"})

read_pull = github.read_pull_request
READ: ScriptedCall = ("read_pull_request", {"repo": REPO, "number": NUMBER})


def post_comment(*, gated: bool = False, gate_on: str = "", settle: float = 5.0, expires: float = DAY) -> Tool:
    """The fixture's tool: one comment, found again by its hidden marker; gated always, or on a word in its text."""
    when = (lambda body: gate_on in body) if gate_on else None
    approval: ApprovalChoice = Approval(when=when, expires=expires) if gated or gate_on else "never"
    return github.create_issue_comment.using(approval=approval, settle=settle)


def comment(body: str, number: int = NUMBER) -> ScriptedCall:
    """A scripted call of it."""
    return "create_issue_comment", {"repo": REPO, "issue_number": number, "body": body}


class Case:
    """A World, a store, and everything that a story has made, for the judge."""

    def __init__(self, place: Place, world: World) -> None:
        self.world = world
        self.place = place
        self.folder = place.folder
        self.url = place.url
        self.models: list[FakeModel] = []
        self.lines: list[str] = []
        """What was logged."""
        self.may_run: set[str] = set()
        """Runs that are left running on purpose."""
        self.broken: set[str] = set()
        """Invariants that the story itself breaks, by what it does outside of the runtime."""
        for number in (NUMBER, 404):
            world.add_pull(REPO, number, title="Handle None", body="It crashed.")

    # Making

    def agent(self, script: Script, *tools: Tool, by_call: bool = False, instructions: str = "Review.") -> Agent:
        """The agent `reviewer` with a scripted model."""
        model = FakeModel(script, by="call" if by_call else "history")
        self.models.append(model)
        return Agent(name="reviewer", model=model, instructions=instructions, tools=tools)

    def fault(
        self,
        fault: f.AnyFault,
        method: str = "POST",
        path: str = COMMENTS,
        *,
        nth: int = 1,
        times: int | None = 1,
        body_contains: str | None = None,
        lasting: float | None = None,
    ) -> None:
        """Hit the next matching request, or what `nth` and `times` say."""
        rule = f.Rule(
            fault, method=method, path=path, nth=nth, times=times, body_contains=body_contains, lasting=lasting
        )
        self.world.faults.add(rule)

    # Judging, by the World alone

    def ours(self, key: str | None) -> list[Applied]:
        """What our account made under a key."""
        assert key is not None
        return [e for e in self.world.effects(key) if e.account == BOT.login]

    def bodies(self, number: int = NUMBER) -> list[str]:
        """The texts of our comments, without their markers."""
        return [plain(c.body) for c in self.world.comments(REPO, number, author=BOT.login)]

    def posts(self, path: str = "**") -> list[Received]:
        """The requests that wanted to change something."""
        return [e for e in self.world.requests("*", path) if e.method not in ("GET", "HEAD")]

    def looks(self) -> list[Received]:
        """The listings of comments that were read."""
        return self.world.requests("GET", "**/comments")

    # Judging everything at the end

    async def judge(self, clock: Clock) -> None:
        """What every case demands too: one effect a key, approved bytes, rest, rows that fit, valid histories."""
        for model in self.models:
            for number, request in enumerate(model.requests):
                assert validate_history(request.messages) is None, f"request {number} would be refused"
        if self.place.kind == "sqlite" and not self.place.path.exists():
            return
        store = await open_store(self.url, msgspec.structs.replace(system_doors(), clock=clock))
        try:
            for run_id in await store.run_ids("default"):
                await self._judge_run(store, run_id)
            if not any([(await store.run("default", i)).blocked_code for i in await store.run_ids("default")]):
                found = await checker.check(self.world.log, store, "default", reading=READING)
                assert not [v for v in found if v.invariant not in self.broken], found
        finally:
            await store.close()

    async def _judge_run(self, store: Store, run_id: str) -> None:
        row = await store.run("default", run_id)
        if row.blocked_code is not None:
            return
        assert row.run.status.value in AT_REST or run_id in self.may_run, f"{run_id} is {row.run.status.value}"
        by_id = {a.action.id: a.action for a in await store.actions("default", run_id=run_id)}
        for step in [r.step for r in await store.steps("default", run_id)]:
            made = self.ours(step.operation_key) if step.operation_key else []
            assert len(made) <= 1 or "I1" in self.broken, f"{len(made)} effects of {step.operation_key}"
            for effect in made:
                if step.input_ref is None or effect.kind != "comment":
                    continue
                sent = msgspec.json.decode(await requests.request(store, "default", step.id))
                assert plain(effect.text) == sent["body"], "other bytes went out than were stored"
            if made and step.action_id is not None:
                action = by_id[step.action_id]
                assert (action.status.value, action.input_hash) == ("approved", step.input_hash), "not approved"


def plain(body: str) -> str:
    """A comment's text without the marker at its end."""
    text, _, marker = body.rpartition("\n\n<!-- agent-operation:")
    return text if marker else body


def calls_of(snapshot: RunSnapshot) -> list[StepView]:
    """The tool calls of a run, in order."""
    return [step for step in snapshot.steps if step.type == "tool_call"]


def statuses(events: Sequence[RunEvent]) -> list[str]:
    """Where the run went, by its status events and its end."""
    ends = {"run_completed": "completed", "run_failed": "failed", "run_cancelled": "cancelled"}
    return [str(e.data["to"]) if e.type == "run_status_changed" else ends[e.type] for e in events
            if e.type == "run_status_changed" or e.type in ends]  # fmt: skip


async def all_events(sf: Surefoot, run_id: str) -> list[RunEvent]:
    """The run's events up to now."""
    return [public_event(line) for line in await sf.store.events(sf.tenant, run_id, 0, 100_000)]


def ended(snapshot: RunSnapshot) -> bool:
    """The run is terminal."""
    return snapshot.status in ("completed", "failed", "cancelled")


def object_of(reply: Response) -> dict[str, object]:
    """A reply that is a JSON object."""
    value = reply.json()
    assert isinstance(value, dict)
    return value


async def code_of(answer: Awaitable[object]) -> str | None:
    """The code of the refusal, or None where there was none."""
    try:
        await answer
    except SurefootError as error:
        return error.code
    return None


async def approve_all(sf: Surefoot, run_id: str) -> None:
    """Approve what waits."""
    for action in (await sf.snapshot(run_id)).pending_actions:
        await sf.approve(action.id, by="ann")


# Virtual time


class Sim(Case):
    """A case on simulated processes. The test itself is one of them; a killed one is not stepped any more."""

    def __init__(self, place: Place) -> None:
        world = World()
        super().__init__(place, world)
        self.machine = Machine(world, in_turn=True)
        self.person: Process | None = None

    def play(self, story: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run the test's own process to its end, then bury everybody."""

        async def main(process: Process) -> None:
            self.person = process
            await story()

        person = self.machine.start("person", main)
        try:
            self.machine.run_until(lambda: person.ended)
        finally:
            failure = person.failure
            self.machine.bury_all()
        if failure is not None:
            raise failure
        asyncio.run(self.judge(self.machine.clock))

    def surefoot(
        self,
        *agents: Agent,
        process: Process | None = None,
        worker: bool = True,
        lease_seconds: float = 10.0,
        tools: Sequence[Tool] = (),
        capacity: int = CAPACITY,
    ) -> Surefoot:
        """A Surefoot of the test's process, or of another one; two in one process are two workers."""
        owner = process or self.person
        assert owner is not None
        return Surefoot(
            self.url, agents, worker=worker, tools=tools, lease_seconds=lease_seconds, capacity=capacity,
            doors=owner.doors, secret=SECRET, log=self.lines.append,
        )  # fmt: skip

    def worker(self, *agents: Agent, name: str = "worker", lease_seconds: float = 10.0) -> Process:
        """A process of its own that works until it is killed."""

        async def main(process: Process) -> None:
            sf = self.surefoot(*agents, process=process, lease_seconds=lease_seconds)
            # Before it opens: it may die in its first commit.
            process.on_death.append(lambda: abandon(sf))
            async with sf:
                await asyncio.get_running_loop().create_future()

        return self.machine.start(name, main)

    async def pass_time(self, seconds: float) -> None:
        """Let virtual seconds go by for everybody."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        loop.call_later(seconds, over.set_result, None)
        await over

    async def until(self, condition: Callable[[], object], seconds_max: float = 600.0) -> None:
        """Wait in virtual time until the condition holds."""
        end = self.machine.clock.elapsed + seconds_max
        while not condition():
            assert self.machine.clock.elapsed < end, "waited in vain"
            await self.pass_time(0.001)

    async def turn(self, count: int = 1) -> None:
        """Let everybody in this process go `count` rounds further, without any time passing."""
        loop = asyncio.get_running_loop()
        for _ in range(count):
            once: asyncio.Future[None] = loop.create_future()
            loop.call_soon(once.set_result, None)
            await once


def story(function: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Makes a coroutine that takes `sim` a test in virtual time."""

    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        sim = kwargs["sim"]
        assert isinstance(sim, Sim)
        sim.play(lambda: function(*args, **kwargs))

    test.__name__, test.__doc__ = function.__name__, function.__doc__
    test.__dict__.update(function.__dict__)
    test.__wrapped__ = function  # type: ignore[attr-defined]  # pytest reads the fixtures from it
    return test


# Real sockets and processes


class Hand(Protocol):
    """How a person acts. Refusals are SurefootErrors with their codes."""

    async def approve(self, action_id: str, *more: str) -> object: ...
    async def reject(self, action_id: str, *more: str) -> object: ...
    async def resolve(self, action_id: str, outcome: str, resource_id: str | None = None) -> object: ...
    async def message(self, run_id: str, text: str) -> object: ...
    async def cancel(self, run_id: str) -> object: ...


class PythonHand:
    """A program of its own, without a worker."""

    def __init__(self, live: Live) -> None:
        self._live = live

    async def approve(self, action_id: str, *more: str) -> object:
        options = dict(zip(more[::2], more[1::2], strict=True))
        input_hash, key = options.get("--hash"), options.get("--key")
        async with self._live.surefoot(worker=False) as sf:
            return await sf.approve(action_id, by="ann", input_hash=input_hash, key=key)

    async def reject(self, action_id: str, *more: str) -> object:
        async with self._live.surefoot(worker=False) as sf:
            return await sf.reject(action_id, by="ann")

    async def resolve(self, action_id: str, outcome: str, resource_id: str | None = None) -> object:
        async with self._live.surefoot(worker=False) as sf:
            return await sf.resolve(action_id, outcome, by="ann", external_resource_id=resource_id)

    async def message(self, run_id: str, text: str) -> object:
        async with self._live.surefoot(worker=False) as sf:
            await sf.message(run_id, text, by="ann")
            return None

    async def cancel(self, run_id: str) -> object:
        async with self._live.surefoot(worker=False) as sf:
            return await sf.cancel(run_id, by="ann")


class ShellHand:
    """The command line, as a process."""

    def __init__(self, live: Live) -> None:
        self._live = live

    async def approve(self, action_id: str, *more: str) -> object:
        return await self._live.shell("actions", "approve", action_id, "--by", "ann", *more)

    async def reject(self, action_id: str, *more: str) -> object:
        return await self._live.shell("actions", "reject", action_id, "--by", "ann", *more)

    async def resolve(self, action_id: str, outcome: str, resource_id: str | None = None) -> object:
        named = ("--id", resource_id) if resource_id else ()
        flag = "--" + outcome.replace("_", "-")
        return await self._live.shell("actions", "resolve", action_id, flag, *named, "--by", "ann")

    async def message(self, run_id: str, text: str) -> object:
        return await self._live.shell("runs", "message", run_id, text, "--by", "ann")

    async def cancel(self, run_id: str) -> object:
        return await self._live.shell("runs", "cancel", run_id, "--by", "ann")


class Live(Case):
    """A case in real time: the World on a socket, workers in this process or in others."""

    def __init__(self, place: Place, world: World, world_url: str) -> None:
        super().__init__(place, world)
        self.world_url = world_url
        self.doors = system_doors()
        self._children: list[Child] = []

    def surefoot(
        self, *agents: Agent, worker: bool = True, lease_seconds: float = 10.0, tools: Sequence[Tool] = ()
    ) -> Surefoot:
        """A Surefoot in this process."""
        return Surefoot(
            self.url, agents, worker=worker, tools=tools, lease_seconds=lease_seconds, secret=SECRET,
            log=self.lines.append,
        )  # fmt: skip

    @property
    def environment(self) -> dict[str, str]:
        """What a real process of the story is given."""
        source = Path(sys.modules["surefoot"].__path__[0]).parent
        own = {
            "PYTHONPATH": f"{source}:{source.parent}",
            "SUREFOOT_STORE": self.url,
            "SUREFOOT_SECRET": SECRET,
            "SUREFOOT_LANG": "en",
        }
        return {**os.environ, **own}

    async def shell(self, *words: str, exit_code: int | None = None) -> object:
        """`surefoot WORDS --json`: its document. Raises SurefootError with the code of a refusal."""
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "surefoot", *words, "--json",
            env=self.environment, cwd=self.folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(child.communicate(), PROCESS_SECONDS_MAX)
        assert out.strip(), f"surefoot {words} said nothing on stdout; stderr: {err.decode()[-2000:]}"
        document: object = json.loads(out)
        if isinstance(document, dict) and isinstance(document.get("error"), dict):
            assert child.returncode not in (0, None)
            error = document["error"]
            raise SurefootError(error["message"], code=error["code"])
        assert child.returncode == (exit_code or 0), err.decode()[-2000:]
        return document

    async def child(self, config: Mapping[str, object]) -> Child:
        """A real worker process; see program.py for what it can be told."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.cases.program", json.dumps(config),
            env=self.environment, cwd=self.folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        made = Child(process)
        self._children.append(made)
        return made

    async def end(self) -> None:
        """No process outlives the story."""
        for child in self._children:
            await child.kill()


class Child:
    """A real worker process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._errors = asyncio.ensure_future(self._read_errors())

    async def _read_errors(self) -> str:
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()

    async def line(self) -> str:
        """The next line that it says."""
        assert self.process.stdout is not None
        text = (await asyncio.wait_for(self.process.stdout.readline(), PROCESS_SECONDS_MAX)).decode().strip()
        if not text:
            raise AssertionError(f"the process has ended: {await self._errors}")
        return text

    async def dies(self) -> None:
        """Wait until it has killed itself."""
        await asyncio.wait_for(self.process.wait(), PROCESS_SECONDS_MAX)
        assert self.process.returncode == -9, await self._errors

    async def kill(self) -> str:
        """SIGKILL; the value is what it wrote on stderr."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        return await self._errors
