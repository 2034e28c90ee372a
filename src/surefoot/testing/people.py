"""Who takes part in a simulated story: models that say what a plan says, people who decide, scripts that perform."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

import msgspec

from surefoot import effects
from surefoot.agent.agent import Agent
from surefoot.agent.model import (
    AssistantMessage,
    ModelNeedsPerson,
    ModelRequest,
    ModelResponse,
    ModelRetryable,
    UserMessage,
)
from surefoot.agent.tools import Approval, Tool
from surefoot.app import Surefoot
from surefoot.connectors.github import create_issue_comment, read_pull_request
from surefoot.core.values import digest
from surefoot.errors import ApprovalPending, OutcomeUnknown, PerformFailed, StoreError, SurefootError, WaitTimeout
from surefoot.runtime.questions import MODEL_CHOICES
from surefoot.store.port import ActionRow
from surefoot.testing.machine import Machine, Process
from surefoot.testing.model import FakeModel, ScriptedCall
from surefoot.testing.story import NUMBER, REPO, charge, send_mail
from surefoot.testing.world import World

APPROVAL_SECONDS = 300.0
THINKS_SECONDS = 20.0
POLL_SECONDS = 2.0
LAST_WORD_SECONDS = 35.0
LESS_SHARE = 0.25
OVER = "Done."

Turn = tuple[ScriptedCall, ...]


class RunPlan(msgspec.Struct, frozen=True):
    """One run: what its model proposes, turn by turn, and what people do to it. Times in seconds from the start."""

    text: str
    turns: tuple[Turn, ...]
    starts: float = 0.0
    cancelled: float | None = None
    cancelled_in_the_middle: bool = False
    """Cancelled as soon as a worker is stopped in the middle of what it does."""
    message: float | None = None


class Script(msgspec.Struct, frozen=True):
    """All runs of a story, and the keys of what a script charges and mails by `perform`."""

    runs: tuple[RunPlan, ...]
    performs: tuple[str, ...] = ()
    model_fails: float = 0.0


def draw_script(dice: random.Random, *, model_fails: float) -> Script:
    """One to three runs with one to three turns each."""
    runs = tuple(_draw_run(dice, number) for number in range(dice.choice((1, 1, 2, 2, 3))))
    performs = ("inv-1", "mail-1")[: dice.choice((1, 2))] if dice.random() < 0.2 else ()
    return Script(runs, performs, model_fails)


def _draw_run(dice: random.Random, number: int) -> RunPlan:
    turns = [tuple(_draw_call(dice, f"{number}.{turn}.{place}") for place in range(dice.choice((1, 1, 1, 2, 3))))
             for turn in range(dice.choice((1, 2, 2, 3)))]  # fmt: skip
    if dice.random() < 0.1:
        turns.append(turns[-1])
    return RunPlan(
        f"Plan {number}",
        tuple(turns),
        starts=0.0 if number == 0 else round(dice.uniform(0.0, 20.0), 3),
        cancelled=round(dice.uniform(0.1, 30.0), 3) if dice.random() < 0.15 else None,
        cancelled_in_the_middle=dice.random() < 0.2,
        message=round(dice.uniform(0.1, 60.0), 3) if dice.random() < 0.1 else None,
    )


def _draw_call(dice: random.Random, name: str) -> ScriptedCall:
    comment: Mapping[str, object] = {"repo": REPO, "issue_number": NUMBER, "body": f"Remark {name}"}
    calls: tuple[ScriptedCall, ...] = (
        ("read_pull_request", {"repo": REPO, "number": NUMBER}),
        ("create_issue_comment", comment),
        ("create_issue_comment", comment),
        ("note", comment),
        ("note", comment),
        ("charge", {"invoice": name, "amount_cents": 100}),
        ("charge", {"invoice": name, "amount_cents": 100}),
        ("send_mail", {"to": "ann@example.org", "text": f"Mail {name}"}),
        ("no_such_tool", {}),
    )
    return calls[dice.choice((0, 1, 1, 2, 3, 4, 5, 6, 7, 7, 8))]


class SimulatedModel:
    """Answers by the plan that the conversation's first message names; fails as often as the story says."""

    name = "simulated"

    def __init__(self, script: Script, dice: random.Random) -> None:
        self._plans = {run.text: FakeModel([*run.turns, OVER]) for run in script.runs}
        self._lengths = {run.text: len(run.turns) + 1 for run in script.runs}
        self._fails = script.model_fails
        self._dice = dice

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The plan's next answer; a history that real providers refuse is refused."""
        await asyncio.sleep(self._dice.uniform(0.01, 3.0))
        if self._dice.random() < self._fails:
            await self._fail()
        first = next(m.text for m in request.messages if isinstance(m, UserMessage))
        said = sum(isinstance(m, AssistantMessage) for m in request.messages)
        if said >= self._lengths[first]:
            return ModelResponse("Noted.", model=self.name)
        return await self._plans[first].complete(request)

    async def _fail(self) -> None:
        kind = self._dice.randrange(5)
        if kind == 0:
            raise ModelRetryable("overloaded", status=529)
        if kind == 1:
            raise ModelRetryable("slow down", status=429, retry_after=self._dice.uniform(0.5, 20.0))
        if kind == 2:
            raise ModelNeedsPerson("no quota", status=402)
        if kind == 3:
            await asyncio.sleep(700.0)
        raise OSError("the connection broke")


def simulated_agents(
    script: Script,
    dice: random.Random,
    code: random.Random | None = None,
    limited: Callable[[Tool], Tool] = lambda tool: tool,
) -> list[Agent]:
    """The agent of a simulated story, as a new process makes it; with `code` its tools are those of a code drawn.

    `limited` gives a tool its limits.
    """
    gated = create_issue_comment.using(approval=Approval(expires=APPROVAL_SECONDS))
    note = create_issue_comment.using(name="note")
    tools: tuple[Tool, ...] = (read_pull_request, gated, note, charge, send_mail)
    if code is not None:
        tools = tuple(_of_another_code(tool, code) for tool in tools)
    return [Agent("reviewer", SimulatedModel(script, dice), "Review.", [limited(tool) for tool in tools])]


def _of_another_code(tool: Tool, dice: random.Random) -> Tool:
    """The tool in another state of its code: of another version, or without a way to find out what it did."""
    changed = tool.using(version=dice.choice(("1", "2")))
    can_tell = tool.effect.name in ("lookup", "idempotent")
    return changed.using(effect=effects.opaque) if can_tell and dice.random() < LESS_SHARE else changed


class Person:
    """Starts the runs, decides what waits, and stays until everything has come to rest."""

    def __init__(self, script: Script, machine: Machine, world: World) -> None:
        self._script = script
        self._machine = machine
        self._world = world
        self.run_ids: dict[str, str] = {}
        """Of the runs that were started, by their plan's text."""
        self._seen: dict[str, float] = {}
        self._told: set[str] = set()
        self.violations: list[str] = []
        self.cancelled: set[str] = set()
        """Runs whose cancel was acknowledged."""
        self.waits: Callable[[], bool] = lambda: False
        """Whether something is still to come that nobody sees in the store."""

    async def live(self, sf: Surefoot, process: Process) -> None:
        """Until nothing waits, runs or is to be looked up again."""
        while True:
            try:
                await self._start_and_touch(sf)
                for row in await sf.actions(status="waiting"):
                    await self._decide(sf, process, row)
                if self._dust_has_settled() and await at_rest(sf):
                    return
            except SurefootError as refusal:
                process.say(f"is told: {refusal.code}")
            except OSError as fault:
                process.say(f"meets {fault}")
            await process.doors.clock.sleep(POLL_SECONDS)

    def _dust_has_settled(self) -> bool:
        """Everything was started, and whoever was stopped has gone on and said what there was to say."""
        went_on = max(self._machine.stopped.values(), default=float("-inf"))
        started = len(self.run_ids) == len(self._script.runs)
        return started and self._machine.clock.elapsed > went_on + LAST_WORD_SECONDS and not self.waits()

    async def _start_and_touch(self, sf: Surefoot) -> None:
        now = self._machine.clock.elapsed
        for plan in self._script.runs:
            if now < plan.starts:
                continue
            if plan.text not in self.run_ids:
                run = await sf.start("reviewer", plan.text, key=plan.text)
                self.run_ids[plan.text] = run.id
            run_id = self.run_ids[plan.text]
            due = plan.cancelled is not None and now >= plan.cancelled
            in_the_middle = plan.cancelled_in_the_middle and any(p.frozen for p in self._machine.processes)
            if (due or in_the_middle) and f"cancel {run_id}" not in self._told:
                await self._cancel(sf, run_id)
            if plan.message is not None and now >= plan.message and f"message {run_id}" not in self._told:
                self._told.add(f"message {run_id}")
                await sf.message(run_id, "Please be brief.")

    async def _cancel(self, sf: Surefoot, run_id: str) -> None:
        try:
            await sf.cancel(run_id)
        except StoreError:
            raise
        except SurefootError:
            self._told.add(f"cancel {run_id}")
            return
        self._told.add(f"cancel {run_id}")
        self.cancelled.add(run_id)

    async def _decide(self, sf: Surefoot, process: Process, row: ActionRow) -> None:
        action, now = row.action, self._machine.clock.elapsed
        dice = random.Random(f"{self._machine.seed}:{action.id}")
        thinks = dice.uniform(0.0, THINKS_SECONDS) if dice.random() < 0.95 else APPROVAL_SECONDS + 60.0
        if now < self._seen.setdefault(action.id, now) + thinks:
            return
        kind = action.kind.value
        process.say(f"decides about {kind} of {row.tool_name or 'model'}")
        if kind == "approve":
            decide = sf.approve if dice.random() < 0.9 else sf.reject
            if dice.random() < 0.1:
                await self._decide_about_something_else(sf, action.id)
            await decide(action.id, by="ann", input_hash=action.input_hash, key=action.id)
        elif kind == "ask":
            await sf.answer(action.id, MODEL_CHOICES[0], by="ann", key=action.id)
        elif kind == "duplicate":
            await sf.reject(action.id, by="ann", key=action.id)
        else:
            await self._resolve(sf, row, dice)

    async def _decide_about_something_else(self, sf: Surefoot, action_id: str) -> None:
        """The person was shown other content than what waits: such an approval must not count."""
        try:
            await sf.approve(action_id, by="ann", input_hash=digest(b"what was shown"), key="about something else")
        except StoreError:
            raise
        except SurefootError:
            return
        self.violations.append(f"I4: {action_id} was approved for content that was not shown")

    async def _resolve(self, sf: Surefoot, row: ActionRow, dice: random.Random) -> None:
        """The person looks at the world itself, once nothing is under way any more."""
        machine = self._machine
        if machine.under_way or self._world.next_due() is not None or any(p.frozen for p in machine.processes):
            return
        step = (await sf.store.step(sf.tenant, row.action.step_id)).step
        made = self._world.effects(step.operation_key)
        if dice.random() < 0.1:
            await sf.resolve(row.action.id, "give_up", by="ann", key=row.action.id)
        elif made:
            await sf.resolve(
                row.action.id, "happened", by="ann", external_resource_id=str(made[0].resource_id), key=row.action.id
            )
        else:
            await sf.resolve(row.action.id, "did_not_happen", by="ann", key=row.action.id)


async def at_rest(sf: Surefoot) -> bool:
    """Every run has ended, nobody is asked, and nothing is to be looked up again."""
    if await sf.store.next_wake(sf.tenant) != (None, None):
        return False
    rows = await sf.store.runs(sf.tenant, status=None, agent=None, before=None, limit=100)
    if any(not row.run.ended or row.ready_at is not None for row in rows):
        return False
    return not await sf.actions(status="waiting")


async def perform_all(
    sf: Surefoot, process: Process, script: Script, limited: Callable[[Tool], Tool], *, waits: bool
) -> None:
    """A script without an agent: it performs each call under its key until it has an answer.

    With `waits` it is known to take longer than anybody waits: a store is late, or a limit is in the way.
    """
    tools = limited(charge), limited(send_mail)
    for key in script.performs:
        call = tools[0].call(invoice=key, amount_cents=900)
        if key.startswith("mail"):
            call = tools[1].call(to="ann@example.org", text=f"About {key}")
        while True:
            try:
                await sf.perform(call, key=key)
                break
            except WaitTimeout as late:
                if not waits:
                    raise
                process.say(f"is told: {late.code}")
            except PerformFailed as failed:
                process.say(f"is told: {failed.code}")
                break
            except OutcomeUnknown as unknown:
                process.say(f"is told: {unknown}")
                if "given up" in str(unknown):
                    break
            except (ApprovalPending, StoreError, OSError) as open_question:
                process.say(f"is told: {open_question!r}")
            await process.doors.clock.sleep(POLL_SECONDS)
