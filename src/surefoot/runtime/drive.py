"""Drive one claimed run: start what may start, run it, record its end, look after doubt, until only others can move it.

Each decision is a commit; what it started is launched after its commit was acknowledged, never before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from surefoot.core import policy
from surefoot.core.attempts import Outcome, ask_about_model, is_current, record_outcome, recover_step
from surefoot.core.draft import Draft
from surefoot.core.people import expire_due
from surefoot.core.state import STEP_ENDS, Step, StepStatus, StepType, wake_times
from surefoot.errors import KeyHeld, LeaseLost, StoreClosed, StoreError, Unreadable
from surefoot.runtime.context import Context
from surefoot.runtime.doubt import settle_step
from surefoot.runtime.execute import Call, Sorter, run_call, wait_call
from surefoot.runtime.handle import Handle
from surefoot.runtime.held import Held
from surefoot.runtime.loop import Loop, RecordModel
from surefoot.runtime.ready import start_when_ready
from surefoot.runtime.registry import RunnableTool
from surefoot.runtime.throttles import Throttles
from surefoot.runtime.tracing import ATTEMPT_END, RUN_STATUS

REST_SECONDS_MAX = 3_600.0
WAIT_SECONDS_MIN = 0.02
_LATE = ":late"
"""Behind a step's id: the task that waits for a call which did not end in time."""


class Driver:
    """Drives one run under one lease. `failure` is what broke the drive, if something did."""

    def __init__(
        self,
        ctx: Context,
        handle: Handle,
        loop: Loop,
        lease_until: float,
        throttles: Throttles,
        *,
        owner_died: bool,
    ) -> None:
        self.ctx = ctx
        self.handle = handle
        self.held = Held(ctx, handle, loop, lease_until, throttles)
        self.held.others_busy = self._others_busy
        self.failure: BaseException | None = None
        self._owner_died = owner_died
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._recording: set[asyncio.Task[object] | None] = set()
        self._made: set[tuple[str, int]] = set()
        """Attempts of calls that were made, or are being made: step and number. No other one has sent anything."""
        self._waiter: asyncio.Future[None] | None = None
        self._awake = False
        self._changed = False

    # Life

    async def drive(self, begun: Sequence[str] = ()) -> None:
        """Until the run needs nobody, the lease is lost, or the worker stops. Raises StoreError and Unreadable.

        `begun` are steps whose intents were committed for this driver, and acknowledged.
        """
        async with self.ctx.tracing.drive(self.handle.run) as span:
            await self._drive(begun)
            span.note(RUN_STATUS, self.handle.run.status.value)

    async def _drive(self, begun: Sequence[str]) -> None:
        self._launch(begun)
        try:
            await self._go_on(looked=bool(begun))
        except Exception:
            # What is under way may still act: nobody else may conclude anything until it has ended under this lease.
            self.held.stopping = True
            await self._drain()
            await self._end_unsent()
            raise
        finally:
            self.held.leave_all()

    async def _go_on(self, *, looked: bool) -> None:
        await self.held.loop.resume(self.handle.run)
        await self._recover()
        # The commit that began the first steps has looked at everything.
        looked = looked and not self._needs_main()
        while not (self.released or self.held.lost):
            if not (self.held.stopping or looked):
                await self._advance()
            looked = False
            if self.released or self.held.lost or (self.held.stopping and not self._tasks):
                break
            await self._rest()
        await self._drain()
        await self._end_unsent()

    @property
    def released(self) -> bool:
        """The lease was given back: the run needs nobody for a while."""
        return self.handle.released

    @property
    def stuck(self) -> bool:
        """A call of this run did not end after its time-out."""
        return bool(self.held.stuck)

    def poke(self) -> None:
        """Somebody else appended: look at the run again."""
        self._changed = True
        self._wake()

    def renewed(self, until: float) -> None:
        """The lease was renewed; what waited for more of it may begin."""
        self.held.keep(until)
        if not self._tasks:
            self._wake()

    def stop(self) -> None:
        """Begin nothing more; calls under way go on."""
        self.held.stopping = True
        self._wake()

    def lose(self) -> None:
        """The lease is gone: calls are told to stop; what they did becomes evidence."""
        self.held.lost = True
        self.cancel()

    def cancel(self) -> None:
        """Tell every call to stop, once. What writes down an end is left alone: it is what others will know.

        So is what waits for the late end of a call that has been told, unless the worker stops.
        """
        for key, task in self._tasks.items():
            waits = key.endswith(_LATE) and not self.held.stopping
            if task not in self._recording and not task.cancelling() and not waits:
                task.cancel()
        self._wake()

    async def _drain(self) -> None:
        """Until nothing is under way; also what a commit begins that was on its way."""
        while self._tasks:
            if self.held.lost:
                self.cancel()
            await asyncio.wait(list(self._tasks.values()))

    async def _rest(self) -> None:
        """Wait for a task's end, a poke, or the next due time; a long wait gives the lease back."""
        delay = self._until_next()
        # A run that only others can move is for whoever comes first, however long this process may hold one.
        long = delay > self.held.hold_s or wake_times(self.handle.run)[0] is None
        if long and not self._tasks and not self.held.stopping:
            await self._release()
            return
        await self._pause(min(delay, REST_SECONDS_MAX))
        if self._changed:
            self._changed = False
            await self._look_again()

    async def _pause(self, seconds: float) -> None:
        """Until `_wake`, or so long. A bare future and the loop's timer: this is on the path of every step."""
        if self._awake:
            self._awake = False
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
            self._awake = False

    def _wake(self) -> None:
        self._awake = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _look_again(self) -> None:
        """Another writer appended: a cancelled run aborts its model call and its reads; effects run to their end."""
        run = await self.handle.reload()
        await self.held.loop.resume(run)
        if not run.ended:
            return
        for key, task in self._tasks.items():
            step = run.steps.get(key)
            if key.endswith(_LATE) or task in self._recording:
                # What a call did is written down, as evidence if it is over: the run has ended under another worker.
                continue
            if step is None or step.status in STEP_ENDS:
                task.cancel()

    async def _release(self) -> None:
        self.handle.released = True
        if self.handle.token is not None:
            await self.ctx.store.release(self.ctx.tenant_id, self.handle.run.id, self.handle.token)

    def _until_next(self) -> float:
        run, now = self.handle.run, self.ctx.store.now()
        if self.held.stopping:
            return REST_SECONDS_MAX
        if self._tasks:
            idle = [s for s in run.steps.values() if s.id not in self._tasks]
            due = [s.not_before for s in idle if s.status is StepStatus.pending]
            due += [s.look_at for s in idle if s.look_at is not None]
            return max(min(due, default=now.mono + REST_SECONDS_MAX) - now.mono, WAIT_SECONDS_MIN)
        mono, wall = wake_times(run)
        waits = [mono - now.mono] if mono is not None else []
        waits += [wall - now.wall] if wall is not None else []
        return max(min(waits, default=REST_SECONDS_MAX), WAIT_SECONDS_MIN)

    def _others_busy(self) -> bool:
        current = asyncio.current_task()
        return True in [task is not current and not task.done() for task in self._tasks.values()]

    # Deciding

    async def _recover(self) -> None:
        """Steps that say running under another lease: nobody wrote down an end."""
        token = self.handle.token
        left = [s for s in self.handle.run.steps.values() if s.status is StepStatus.running]
        left = [s for s in left if s.attempts[-1].token != token]
        if not left:
            return

        def command(d: Draft) -> list[str]:
            # Somebody may have ended one meanwhile, with its run.
            steps = [d.run.steps[s.id] for s in left if s.id in d.run.steps]
            starts = [self.held.start(s) if self.held.ready_at_once(s) else None for s in steps]
            pairs = zip(steps, starts, strict=True)
            begun = [s.id for s, start in pairs if recover_step(d, s.id, owner_died=self._died(s), start=start)]
            return begun + [i for i in self.held.go_on(d) if i not in begun]

        self._launch(await self.held.decide(command) or [])

    def _died(self, step: Step) -> bool:
        """Whether the process of the step's last attempt is proven dead.

        What is proven is the death of the owner before this one alone: it may have died before it looked at what an
        earlier one, which lives, has left under way.
        """
        return self._owner_died and step.attempts[-1].token + 1 == self.handle.token

    async def _advance(self) -> None:
        """One look at everything: expire, start, look after doubt."""
        held = self.held
        now = self.ctx.store.now()
        if any(a.expires_wall is not None and now.wall >= a.expires_wall for a in self.handle.run.waiting_actions):
            await self._expire()
        await self._end_unsent()
        self._launch(await held.decide(held.go_on) or [])
        for step in list(self.handle.run.steps.values()):
            if step.id in self._tasks or held.lost or self.released:
                continue
            if step.status is StepStatus.pending and step.not_before <= now.mono and not self.handle.run.ended:
                # With too little of the lease left nothing would come of it, again and again, until it is renewed.
                if held.lasts and (not held.ready_at_once(step) or held.needs_question(step)):
                    self._spawn(step.id, self._then_launch(start_when_ready, step))
            elif step.look_at is not None and step.look_at <= now.mono:
                self._spawn(step.id, self._then_launch(settle_step, step))

    async def _end_unsent(self) -> None:
        """Intents on which nothing was sent: nobody waited for their commit, or it was not acknowledged, though it
        happened, or their call was not made for another reason. Who comes later could only ask what had become of them.
        """
        await self.held.see_cut_off()
        left = [s for s in self.handle.run.steps.values() if s.status is StepStatus.running and s.id not in self._tasks]
        for step in left:
            if step.attempts[-1].token != self.handle.token or (step.id, step.attempt) in self._made:
                continue
            self._launch(await self._record_end(step, Outcome("not_sent", code="commit_unknown", again_s=0.0)))

    async def _expire(self) -> None:
        run = self.handle.run
        step = next((s for s in run.steps.values() if any(a.step_id == s.id for a in run.waiting_actions)), None)
        if step is not None:
            questions = await self.held.questions(step)
            await self.held.decide(lambda d: expire_due(d, questions))

    # Tasks

    def _launch(self, step_ids: Sequence[str]) -> None:
        for step_id in step_ids:
            step = self.handle.run.steps.get(step_id)
            if step is not None:
                self._spawn(step_id, self._work(step))

    def _spawn(self, key: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[key] = task
        task.add_done_callback(self._ended)

    async def _work(self, step: Step) -> None:
        """A step to its recorded end, and on: the one step that begins with that end needs no task of its own."""
        while True:
            begun = await (self._model(step) if step.type is StepType.model_call else self._attempt(step))
            after = self.handle.run.steps.get(begun[0]) if len(begun) == 1 else None
            task = asyncio.current_task()
            told = self.held.lost or task is None or task.cancelling()
            if after is None or task is None or told or self._tasks.get(step.id) is not task:
                self._launch(begun)
                return
            del self._tasks[step.id]
            self._tasks[after.id] = task
            step = after
            if self._needs_main():
                self._wake()

    def _ended(self, done: asyncio.Task[None]) -> None:
        for key, task in self._tasks.items():
            if task is done:
                del self._tasks[key]
                break
        error = RuntimeError("stopped from inside") if done.cancelled() else done.exception()
        if error is not None and not (done.cancelled() and done.cancelling()):
            # The others go on to their ends under this lease: cut off, a call that nobody can look for is a question.
            self.failure = error
            self.stop()
        if self._needs_main():
            self._wake()

    def _needs_main(self) -> bool:
        """Every task goes on by itself; the main line is for what none of them sees: times, doubt, and rest."""
        others = [s for s in self.handle.run.steps.values() if s.id not in self._tasks]
        due = any(s.status is StepStatus.pending or s.look_at is not None for s in others)
        return due or not self._tasks or self.held.lost or self.held.stopping

    async def _then_launch(self, work: Callable[[Held, Step], Awaitable[list[str]]], step: Step) -> None:
        # Called here, not by the caller: a task that is cancelled before it begins must leave no coroutine unawaited.
        self._launch(await work(self.held, step))

    async def _model(self, step: Step) -> list[str]:
        """One model call; its answer and what that starts are one append. Returns the steps begun, as all below."""
        hook, loop = self.ctx.doors.hook, self.held.loop
        self._made.add((step.id, step.attempt))
        try:
            hook("model", "before")
            answer = await loop.call_model(self.handle.run, step)
            hook("model", "after")
            record = await self.held.surely(lambda: loop.record_model(self.handle.run, answer))
        except StoreError:
            raise
        except Exception as error:
            return await self._model_failed(step, error)
        while True:
            try:
                return await self._record_answer(step, record)
            except KeyHeld:
                # Another run took a key after it was asked for: the call is answered from there.
                record = await self.held.surely(lambda: loop.record_model(self.handle.run, answer))

    async def _record_answer(self, step: Step, record: RecordModel) -> list[str]:
        self.held.remember(record.known)
        questions = await self.held.questions(step)

        def command(d: Draft) -> list[str]:
            if d.run.ended or not is_current(d.step(step.id), step.attempt):
                return []
            record(d, step.id, step.attempt, questions)
            return self.held.go_on(d)

        return await self._record(command, step.id)

    async def _model_failed(self, step: Step, error: Exception) -> list[str]:
        outcome, mendable = self.held.loop.sort_model_error(step, error)
        questions = await self.held.questions(step, error)

        def command(d: Draft) -> list[str]:
            if d.run.ended:
                return []
            if mendable:
                ask_about_model(d, step.id, step.attempt, outcome.code, questions)
            else:
                record_outcome(d, step.id, step.attempt, outcome, questions)
            return self.held.go_on(d)

        return await self._record(command, step.id)

    async def _attempt(self, step: Step) -> list[str]:
        """One attempt of a tool call, from its acknowledged intent to its recorded end."""
        tool = self.held.tools[step.tool_name]
        arguments = await self.held.arguments(step)
        rules = self.held.rules(step)
        op = self.ctx.operation(self.handle.run.id, step, step.attempts[-1], rules)
        self._made.add((step.id, step.attempt))
        with self.ctx.tracing.tool(self.handle.run, step) as span:
            outcome, call = await run_call(self.ctx.doors, tool, op, arguments, rules, self.ctx.redactor)
            span.note(ATTEMPT_END, outcome.end)
            if outcome.end != "applied":
                span.failed(outcome.code or outcome.end)
        if call is None:
            self.held.leave(step.id)
        else:
            self.held.stuck[step.id] = call
            self._spawn(step.id + _LATE, self._late_end(step, call, tool))
        return await self._record_end(step, outcome)

    async def _late_end(self, step: Step, call: Call, tool: RunnableTool) -> None:
        """A call that did not end in time ends after all: what it did is evidence."""
        while not await wait_call(self.ctx.doors, call, REST_SECONDS_MAX):
            pass
        self.held.stuck.pop(step.id, None)
        self.held.leave(step.id)
        rules = self.held.rules(step)
        op = self.ctx.operation(self.handle.run.id, step, step.attempts[-1], rules)
        late = Sorter(tool.name, op, rules, self.ctx.redactor, 0.5).sort(call.done)
        self._launch(await self._record_end(step, late))

    async def _record_end(self, step: Step, outcome: Outcome) -> list[str]:
        task = asyncio.current_task()
        self._recording.add(task)
        try:
            questions = await self.held.surely(lambda: self.held.questions(step))

            def command(d: Draft) -> list[str]:
                record_outcome(d, step.id, step.attempt, outcome, questions)
                return self.held.go_on(d)

            return await self._record(command, step.id)
        finally:
            self._recording.discard(task)

    async def _record(self, command: Callable[[Draft], list[str]], step_id: str) -> list[str]:
        """Record an end, without bound while the lease token is ours; with the lease lost it becomes evidence.

        Returns the steps begun with it. Raises StoreClosed: nobody here can write it down any more.
        """
        tries, ours = 0, True
        while True:
            try:
                if ours:
                    return await self.handle.decide(command, release=self.held.may_release, step_id=step_id)
                await self._record_as_anybody(command, step_id)
                return []
            except LeaseLost:
                self.held.lost, ours = True, False
            except (Unreadable, StoreClosed):
                raise
            except StoreError as problem:
                tries += 1
                self.ctx.log(f"{step_id}: the end is not recorded yet ({problem}); trying again")
                await self.ctx.doors.clock.sleep(policy.backoff(tries, 0.5, base_s=0.1, max_s=10.0))

    async def _record_as_anybody(self, command: Callable[[Draft], list[str]], step_id: str) -> None:
        run = await self.ctx.store.load(self.ctx.tenant_id, self.handle.run.id, step_id)
        await Handle(self.ctx.store, run, self.ctx.registry.of(run).rules).decide(command, step_id=step_id)
