"""Drive one claimed run: start what may start, run it, record its end, look after doubt, until only others can move it.

Each decision is a commit; what it started is launched after its commit was acknowledged, never before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

import msgspec

from surefoot.core import policy
from surefoot.core.attempts import Outcome, ask_about_model, record_outcome, recover_step
from surefoot.core.decide import Start, answer_from_owner, approval_over, ask_approval, defer, start_step
from surefoot.core.draft import Draft
from surefoot.core.ends import fail_step
from surefoot.core.payloads import result_body
from surefoot.core.people import expire_due
from surefoot.core.reconcile import (
    ask_what_happened,
    believe_person,
    next_for_doubt,
    record_look,
    resend,
    wait_for_doubt,
)
from surefoot.core.state import (
    STEP_ENDS,
    ActionKind,
    EffectClass,
    Resolution,
    Run,
    Step,
    StepStatus,
    StepType,
    wake_times,
)
from surefoot.errors import Conflict, LeaseLost, NotAllowed, StoreError, SurefootError
from surefoot.runtime.context import Context
from surefoot.runtime.execute import Call, Sorter, run_call, wait_call
from surefoot.runtime.handle import Handle
from surefoot.runtime.look import look
from surefoot.runtime.loop import Loop
from surefoot.runtime.questions import Questions
from surefoot.runtime.registry import RunnableTool

T = TypeVar("T")
HOLD_SECONDS = 2.0
"""A run that has nothing to do for longer gives its lease back."""
SEND_WINDOW_SECONDS_MIN = 0.5
"""With less of the lease left no attempt begins; the renewal comes first."""
_SKIPPED = frozenset({"not_yet", "approval_expired", "account_changed"})


class Driver:
    """Drives one run under one lease. `stuck` counts calls that did not end after their time-out."""

    def __init__(self, ctx: Context, handle: Handle, loop: Loop, lease_until: float, *, owner_died: bool) -> None:
        self.ctx = ctx
        self.handle = handle
        self.loop = loop
        self.lease_until = lease_until
        self.stopping = False
        self.lost = False
        self.stuck: dict[str, Call] = {}
        self._owner_died = owner_died
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._poked = asyncio.Event()
        self._arguments: dict[str, dict[str, object]] = {}
        self._views: dict[str, bytes] = {}
        self._accounts: dict[str, str | None] = {}

    # Life

    async def drive(self) -> None:
        """Until the run needs nobody, the lease is lost, or the worker stops. Raises StoreError and Unreadable."""
        await self.loop.resume(self.handle.run)
        await self._recover()
        while not (self.released or self.lost):
            if not self.stopping:
                await self._advance()
            if self.released or self.lost or (self.stopping and not self._tasks):
                break
            await self._rest()
        await self._drain()

    def poke(self) -> None:
        """Somebody else appended: look at the run again."""
        self._poked.set()

    def poke_timer(self) -> None:
        """The lease was renewed: what waited for more of it may begin."""
        if not self._tasks:
            self._poked.set()

    def lose(self) -> None:
        """The lease is gone: calls are told to stop; what they did becomes evidence."""
        self.lost = True
        self.cancel()

    def cancel(self) -> None:
        """Tell every call to stop."""
        for task in self._tasks.values():
            task.cancel()
        self._poked.set()

    @property
    def released(self) -> bool:
        """The lease was given back: the run needs nobody for a while."""
        return self.handle.released

    @property
    def busy(self) -> bool:
        """True while a call or a look is under way."""
        return bool(self._tasks)

    async def _drain(self) -> None:
        tasks = list(self._tasks.values())
        if self.lost:
            for task in tasks:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _rest(self) -> None:
        delay = self._until_next()
        if not self._tasks and not self.stopping and delay > HOLD_SECONDS:
            await self._release()
            return
        waits: set[asyncio.Future[None] | asyncio.Task[None]] = set(self._tasks.values())
        poked = asyncio.ensure_future(self._wait_poke())
        waits.add(poked)
        timer = asyncio.ensure_future(self.ctx.doors.clock.sleep(min(delay, 3_600.0)))
        waits.add(timer)
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            poked.cancel()
            timer.cancel()
        if self._poked.is_set():
            self._poked.clear()
            await self._look_again()

    async def _wait_poke(self) -> None:
        await self._poked.wait()

    async def _look_again(self) -> None:
        """Another writer appended: a cancelled run aborts its model call and its reads; effects run to their end."""
        run = await self.handle.reload()
        if not run.ended:
            return
        for key, task in self._tasks.items():
            step = run.steps.get(key)
            if step is None or step.status in STEP_ENDS:
                task.cancel()

    async def _release(self) -> None:
        self.handle.released = True
        if self.handle.token is not None:
            await self.ctx.store.release(self.ctx.tenant_id, self.handle.run.id, self.handle.token)

    def _until_next(self) -> float:
        run, now = self.handle.run, self.ctx.doors.clock.now()
        if self._tasks:
            # Steps under way are watched by their tasks; others may become due meanwhile.
            due = [
                s.not_before for s in run.steps.values() if s.status is StepStatus.pending and s.id not in self._tasks
            ]
            due += [s.look_at for s in run.steps.values() if s.look_at is not None and s.id not in self._tasks]
            return max(min(due, default=now.mono + 3_600.0) - now.mono, 0.05)
        mono, wall = wake_times(run)
        waits = [mono - now.mono] if mono is not None else []
        waits += [wall - now.wall] if wall is not None else []
        return max(min(waits, default=3_600.0), 0.0)

    # Decisions

    async def _decide(self, command: Callable[[Draft], T], *, step_id: str | None = None) -> T | None:
        """Decide under the lease. None (and `lost`) where the lease is gone."""
        try:
            return await self.handle.decide(command, release=self._may_release, step_id=step_id)
        except LeaseLost:
            self.lost = True
            return None

    def _may_release(self, after: Run) -> bool:
        """The lease ends with this append if nothing is left to do for a while and nothing else is under way."""
        current = asyncio.current_task()
        others = any(task is not current and not task.done() for task in self._tasks.values())
        mono, _ = wake_times(after)
        now = self.ctx.doors.clock.now().mono
        return not others and not self.stuck and (mono is None or mono > now + HOLD_SECONDS)

    def _start(self, step: Step | None) -> Start | None:
        """What an intent needs right now; None where none may begin: the lease ends soon, or the worker stops."""
        window = self.lease_until - self.ctx.lease_s * policy.LEASE_MARGIN_FRACTION - self.ctx.store.now().mono
        if self.stopping or self.lost or window < SEND_WINDOW_SECONDS_MIN or self.handle.token is None:
            return None
        account = None if step is None else self._accounts.get(step.credential or "")
        return Start(self.handle.token, window, account=account, key_id=self.ctx.key_id)

    def _go_on(self, d: Draft) -> list[str]:
        """Everything that can begin in this append: ready calls, else the loop's next step. Returns the steps begun."""
        if d.run.ended:
            return []
        begun: list[str] = []
        for step in sorted(d.run.steps.values(), key=lambda s: s.sequence):
            if step.status is StepStatus.pending and step.not_before <= d.at.mono and self._ready_at_once(step):
                start = self._start(step)
                if start is not None and self._try_start(d, step, start):
                    begun.append(step.id)
        if not d.run.ended and not d.run.batch_open:
            begun += self.loop.go_on(d, self._start(None))
        return begun

    def _try_start(self, d: Draft, step: Step, start: Start) -> bool:
        try:
            start_step(d, step.id, start)
        except NotAllowed as refusal:
            if refusal.code not in _SKIPPED:
                text = f"The call was not executed: {refusal}."
                fail_step(d, step, refusal.code, body=result_body(text, code=refusal.code))
            return False
        return True

    def _ready_at_once(self, step: Step) -> bool:
        """True where the intent needs no I/O first: no account to resolve, no precondition, no other owner of the key."""
        if step.type is not StepType.tool_call:
            return step.type is StepType.model_call
        tool = self.ctx.registry.tools.get(step.tool_name or "")
        if tool is None or step.owner_step_id is not None or tool.precondition is not None:
            return False
        if tool.version != step.tool_version:
            return False
        return tool.account is None or (tool.credential or "") in self._accounts

    async def _advance(self) -> None:
        """One look at everything: expire, start, launch."""
        run, now = self.handle.run, self.ctx.doors.clock.now()
        if any(a.expires_wall is not None and now.wall >= a.expires_wall for a in run.waiting_actions):
            await self._expire()
        begun = await self._decide(self._go_on)
        self._launch(begun or [])
        for step in list(self.handle.run.steps.values()):
            if step.id in self._tasks or self.lost:
                continue
            if step.status is StepStatus.pending and step.not_before <= now.mono and not self.handle.run.ended:
                if not self._ready_at_once(step) or self._needs_question(step):
                    self._spawn(step.id, self._prepare(step))
            elif step.look_at is not None and step.look_at <= now.mono:
                self._spawn(step.id, self._settle(step.id))

    def _needs_question(self, step: Step) -> bool:
        draft = Draft(self.handle.run, self.ctx.store.now(), rules=self.ctx.registry.rules)
        return approval_over(draft, step)

    async def _expire(self) -> None:
        run = self.handle.run
        asked = [s for s in run.steps.values() if any(a.step_id == s.id for a in run.waiting_actions)]
        if asked:
            questions = await self._questions(asked[0])
            await self._decide(lambda d: expire_due(d, questions))

    async def _recover(self) -> None:
        """Steps that say running under another lease: nobody wrote down an end."""
        run, token = self.handle.run, self.handle.token
        left = [s.id for s in run.steps.values() if s.status is StepStatus.running and s.attempts[-1].token != token]
        if not left:
            return

        def command(d: Draft) -> list[str]:
            begun = [i for i in left if recover_step(d, i, owner_died=self._owner_died, start=self._start(d.step(i)))]
            return begun + [i for i in self._go_on(d) if i not in begun]

        self._launch(await self._decide(command) or [])

    # Tasks

    def _launch(self, step_ids: list[str]) -> None:
        for step_id in step_ids:
            step = self.handle.run.steps.get(step_id)
            if step is None or self.lost:
                continue
            self._spawn(step_id, self._model(step) if step.type is StepType.model_call else self._attempt(step))

    def _spawn(self, key: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks[key] = task

        def ended(done: asyncio.Task[None]) -> None:
            if self._tasks.get(key) is done:
                del self._tasks[key]
            self._poked_by(done)

        task.add_done_callback(ended)

    def _poked_by(self, done: asyncio.Task[None]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._failure = error
            self.lost = True
            self.cancel()

    _failure: BaseException | None = None

    @property
    def failure(self) -> BaseException | None:
        """What broke the drive, if something did; the lease was not given back then."""
        return self._failure

    async def _model(self, step: Step) -> None:
        """One model call: the answer and what it starts are one append."""
        hook = self.ctx.doors.hook
        try:
            hook("model", "before")
            answer = await self.loop.call_model(self.handle.run, step)
            hook("model", "after")
            record = await self.loop.record_model(self.handle.run, answer)
        except StoreError:
            raise
        except Exception as error:
            await self._model_failed(step, error)
            return
        questions = await self._questions(step)

        def command(d: Draft) -> list[str]:
            if d.run.ended or d.step(step.id).attempt != step.attempt:
                return []
            record(d, step.id, step.attempt, questions)
            return self._go_on(d)

        await self._record(command, step.id)

    async def _model_failed(self, step: Step, error: Exception) -> None:
        outcome, mendable = self.loop.sort_model_error(step, error)
        questions = await self._questions(step)

        def command(d: Draft) -> list[str]:
            if mendable and not d.run.ended:
                ask_about_model(d, step.id, step.attempt, outcome.code, questions)
            elif not d.run.ended or step.id in d.run.steps:
                record_outcome(d, step.id, step.attempt, outcome, questions)
            return self._go_on(d)

        await self._record(command, step.id)

    async def _attempt(self, step: Step) -> None:
        """One attempt of a tool call, from its acknowledged intent to its recorded end."""
        tool = self.ctx.registry[step.tool_name]
        arguments = await self._arguments_of(step)
        op = self.ctx.operation(self.handle.run.id, step, step.attempts[-1])
        outcome, call = await run_call(self.ctx.doors, tool, op, arguments, step.rules, self.ctx.redactor)
        if call is not None:
            self.stuck[step.id] = call
            self._spawn(f"{step.id}:late", self._late_end(step, call, tool))
        await self._record_end(step, outcome)

    async def _late_end(self, step: Step, call: Call, tool: RunnableTool) -> None:
        """A call that did not end in time ends after all: its end is evidence."""
        while not await wait_call(self.ctx.doors, call, 3_600.0):
            pass
        self.stuck.pop(step.id, None)
        op = self.ctx.operation(self.handle.run.id, step, step.attempts[-1])
        sorter = Sorter(tool.name, op, step.rules, self.ctx.redactor, 0.5)
        await self._record_end(step, sorter.sort(call.done))

    async def _record_end(self, step: Step, outcome: Outcome) -> None:
        questions = await self._questions(step)

        def command(d: Draft) -> list[str]:
            record_outcome(d, step.id, step.attempt, outcome, questions)
            return self._go_on(d)

        await self._record(command, step.id)

    async def _record(self, command: Callable[[Draft], list[str]], step_id: str) -> None:
        """Record an end without bound while the lease token is ours; with the lease lost it becomes evidence."""
        tries = 0
        while True:
            try:
                begun = await self.handle.decide(command, release=self._may_release, step_id=step_id)
                self._launch(begun)
                return
            except LeaseLost:
                self.lost = True
                await self._record_as_anybody(command, step_id)
                return
            except Conflict:
                raise
            except StoreError as problem:
                if problem.code == "unreadable":
                    raise
                tries += 1
                self.ctx.log(f"{step_id}: the end is not recorded yet ({problem.code}); trying again")
                await self.ctx.doors.clock.sleep(policy.backoff(tries, 0.5, base_s=0.1, max_s=10.0))

    async def _record_as_anybody(self, command: Callable[[Draft], list[str]], step_id: str) -> None:
        run = await self.ctx.store.load(self.ctx.tenant_id, self.handle.run.id, step_id)
        handle = Handle(self.ctx.store, run, self.ctx.registry.rules)
        self.handle.token = None
        await handle.decide(command, step_id=step_id)

    # Steps that need I/O before their intent

    async def _prepare(self, step: Step) -> None:
        """A pending step that cannot start from memory alone."""
        if step.owner_step_id is not None:
            await self._ask_owner(step)
            return
        tool = self.ctx.registry[step.tool_name]
        if await self._must_ask_again(step, tool):
            return
        if not await self._resolve_account(step, tool):
            await self._decide(lambda d: defer(d, step.id, policy.backoff(1, 0.5), "account_unknown"))
            return
        start = self._start(step)
        if start is None:
            return

        def command(d: Draft) -> list[str]:
            now = d.step(step.id)
            if now.status is not StepStatus.pending:
                return []
            try:
                start_step(d, step.id, start)
            except NotAllowed as refusal:
                if refusal.code != "account_changed":
                    raise
                defer(d, step.id, 60.0, refusal.code)
                return []
            return [step.id]

        try:
            begun = await self._decide(command)
        except NotAllowed:
            return
        self._tasks.pop(step.id, None)
        self._launch(begun or [])

    async def _must_ask_again(self, step: Step, tool: RunnableTool) -> bool:
        """The approval is over, the tool changed, or what held at approval does not hold now: ask, show what differs."""
        why: str | None = None
        shown: dict[str, object] = {}
        if self._needs_question(step):
            why = "The approval of this call is over."
        if tool.version != step.tool_version and step.action_id is not None:
            why, shown = "The tool has changed since this call was approved.", {"tool_version": tool.version}
        if why is None and tool.precondition is not None and step.action_id is not None:
            why, shown = await self._precondition_failed(step, tool)
        if why is None:
            return False
        warning = why
        questions = Questions(
            self.ctx.doors, step, await self._view(step), tool, (warning,), {**shown, "tool_version": tool.version}
        )

        def command(d: Draft) -> None:
            if d.step(step.id).status is StepStatus.pending and not d.run.ended:
                ask_approval(d, step.id, questions[ActionKind.approve])

        await self._decide(command)
        return True

    async def _precondition_failed(self, step: Step, tool: RunnableTool) -> tuple[str | None, dict[str, object]]:
        row = await self.ctx.store.action(self.ctx.tenant_id, step.action_id or "")
        before = msgspec.json.decode(row.preview).get("precondition")
        now = await read_precondition(self.ctx, self.handle.run.id, step, tool, await self._arguments_of(step))
        if before == now:
            return None, {}
        return "What held when this call was approved has changed.", {
            "precondition": now,
            "precondition_before": before,
        }

    async def _resolve_account(self, step: Step, tool: RunnableTool) -> bool:
        if tool.account is None or (tool.credential or "") in self._accounts:
            return True
        op = self.ctx.operation(self.handle.run.id, step, None)
        try:
            self._accounts[tool.credential or ""] = await tool.account(op)
        except Exception as problem:
            self.ctx.log(f"{step.id}: the account is not known yet ({type(problem).__name__})")
            return False
        return True

    async def _ask_owner(self, step: Step) -> None:
        """Another step holds this business key: answer from its receipt, wait for it, or take the key over."""
        owner = await self.ctx.store.step(self.ctx.tenant_id, step.owner_step_id or "")
        body = result_body(msgspec.json.decode(owner.safe_output or b"null"))

        def command(d: Draft) -> None:
            if d.step(step.id).status is not StepStatus.pending or d.run.ended:
                return
            if owner.step.status is StepStatus.succeeded:
                answer_from_owner(d, step.id, owner.step.external_resource_id, owner.step.resource_url, body)
            elif owner.step.status is StepStatus.failed:
                text = "An earlier call under the same key failed; propose the call again."
                fail_step(d, step, "owner_failed", body=result_body(text, code="owner_failed"))
            else:
                defer(d, step.id, policy.OWNER_POLL_SECONDS, "waits_for_owner")

        await self._decide(command)

    # Doubt

    async def _settle(self, step_id: str) -> None:
        """What the class of a step in doubt (or owing a later look) allows now."""
        step = self.handle.run.steps[step_id]
        tool = self.ctx.registry[step.tool_name]
        await self._resolve_account(step, tool)
        questions = await self._questions(step)
        draft = Draft(self.handle.run, self.ctx.store.now(), rules=self.ctx.registry.rules)
        closed = step.status in STEP_ENDS or step.resolution is Resolution.given_up
        live = step_id in self.stuck
        doubt = next_for_doubt(draft, step, live=live)
        if closed or doubt.action == "look":
            await self._look(step, tool, questions)
            return
        jitterless = doubt.delay_s

        def command(d: Draft) -> list[str]:
            now = d.step(step_id)
            if now.status is not StepStatus.outcome_unknown:
                return []
            start = self._start(now)
            action = next_for_doubt(d, now, live=live).action
            if action == "resend" and start is not None:
                resend(d, step_id, start)
                return [step_id]
            if action == "believe_person":
                return [step_id] if believe_person(d, step_id, start, questions) else self._go_on(d)
            if action == "ask":
                ask_what_happened(d, step_id, questions)
                return []
            wait_for_doubt(d, step_id, max(jitterless, 0.5))
            return []

        await self._finish(step_id, command)

    async def _look(self, step: Step, tool: RunnableTool, questions: Questions) -> None:
        if tool.effect.lookup is None:
            await self._decide(lambda d: ask_what_happened(d, step.id, questions), step_id=step.id)
            return
        answer = await look(self.ctx, self.handle.run.id, step, tool, await self._arguments_of(step))
        jitter = self.ctx.doors.entropy.fraction()

        def command(d: Draft) -> list[str]:
            live = step.id in self.stuck
            start = self._start(d.step(step.id)) if not d.run.ended else None
            begun = record_look(d, step.id, answer, live=live, start=start, questions=questions, jitter=jitter)
            return [step.id, *self._go_on(d)] if begun else self._go_on(d)

        await self._finish(step.id, command)

    async def _finish(self, step_id: str, command: Callable[[Draft], list[str]]) -> None:
        begun = await self._decide(command, step_id=step_id)
        # The step's own task ends here; the attempt that begins now is a task of its own.
        self._tasks.pop(step_id, None)
        self._launch(begun or [])

    # What steps need read

    async def _arguments_of(self, step: Step) -> dict[str, object]:
        found = self._arguments.get(step.id)
        if found is None:
            data = await self.ctx.store.blob(self.ctx.tenant_id, step.input_ref or "")
            found = msgspec.json.decode(data, type=dict[str, object])
            if step.status in STEP_ENDS:
                return found
            self._arguments[step.id] = found
        return found

    async def _view(self, step: Step) -> bytes:
        view = self._views.get(step.id)
        if view is None:
            row = await self.ctx.store.step(self.ctx.tenant_id, step.id)
            view = row.safe_input or b"{}"
        return view

    async def _questions(self, step: Step) -> Questions:
        tool = self.ctx.registry.tools.get(step.tool_name or "")
        lazily = step.type is StepType.model_call or step.rules.effect is EffectClass.read
        view = b"{}" if lazily else await self._view(step)
        return Questions(self.ctx.doors, step, view, tool)


async def read_precondition(
    ctx: Context, run_id: str, step: Step, tool: RunnableTool, arguments: dict[str, object]
) -> object:
    """The precondition's value as JSON; an exception is a value too, so that it never equals what was approved."""
    op = ctx.operation(run_id, step, None)
    call = Call(tool.make_precondition(op, arguments), is_async=True)
    try:
        if not await wait_call(ctx.doors, call, 30.0):
            raise SurefootError("the precondition did not answer in time")
        return msgspec.to_builtins(call.done.result(), str_keys=True)
    except Exception as problem:
        return {"unreadable": type(problem).__name__}
    finally:
        call.cancel()
