"""The composition root: `Surefoot` wires store, doors, tools and worker, and is what programs embed.

Every method is a decision or a read of its own; none keeps a run in memory between calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType

from surefoot.agent.agent import Agent
from surefoot.agent.children import check_program, child_run, know
from surefoot.agent.decisions import Decisions
from surefoot.agent.loop import AgentLoop
from surefoot.agent.messages import given_text, user_body
from surefoot.agent.model import Model
from surefoot.agent.performing import business_key, performing_run, receipt_of
from surefoot.agent.providers import close_models, resolve_model
from surefoot.agent.schedule import Schedule
from surefoot.agent.scheduling import Scheduler, agents_of, check_schedules
from surefoot.agent.starting import PERFORM, NewRun, agent_run, create_driven, create_run, new_id, run_again
from surefoot.agent.texts import TextFrame, Texts, frames
from surefoot.agent.tools import DECLARED, Tool, ToolCall
from surefoot.agent.undoing import Undoing, undo
from surefoot.core import policy
from surefoot.core.canonical import check_key
from surefoot.core.facts import check_name
from surefoot.core.people import Decision
from surefoot.core.redact import Redactor
from surefoot.core.state import Run, Step
from surefoot.core.throttle import Throttle
from surefoot.doors import Doors
from surefoot.effects import Absent, Found, Receipt, Undetermined
from surefoot.errors import Conflict, InvalidInput, NotFound, WaitTimeout
from surefoot.http import system_doors
from surefoot.runtime.background import in_place
from surefoot.runtime.children import cancel_tree
from surefoot.runtime.context import Context, to_stderr
from surefoot.runtime.deciding import decide_about, report_about
from surefoot.runtime.given import check_lists, check_timeout
from surefoot.runtime.home import Home
from surefoot.runtime.loop import Loop, PerformLoop
from surefoot.runtime.registry import Registry
from surefoot.runtime.saying import say
from surefoot.runtime.secrets import EnvironmentSecrets, load_keyring
from surefoot.runtime.tracing import process_tracing
from surefoot.runtime.waiting import signal_run
from surefoot.runtime.worker import CAPACITY, Worker
from surefoot.signing import KeyringSigner
from surefoot.snapshot import RunSnapshot
from surefoot.store.open import open_store
from surefoot.store.port import ActionRow, Following, Store
from surefoot.views import Views
from surefoot.waiters import LOOK_AGAIN_SECONDS, Until, wait_for_rest, wait_until

STARTS_MAX = 20
"""How often a start is tried in a conversation that goes on meanwhile."""


class Surefoot(Decisions, Views):
    """surefoot in a program: `async with Surefoot("sqlite:///app.db", agents=[reviewer], worker=True) as sf`.

    `store` is a URL; `tools` are further ones for `perform`; with `worker` this process drives runs, else it only
    starts and decides (and drives what it performs itself). Workers start the runs of `schedules`. `secret` is the
    keyring (default: SUREFOOT_SECRET, or a file beside the SQLite file). `capacity` bounds the runs that this process
    drives at once, `throttle` the tool calls of all workers of the tenant. `doors` are for tests.
    """

    def __init__(
        self,
        store: str = "sqlite:///surefoot.db",
        agents: Iterable[Agent] = (),
        *,
        tools: Iterable[Tool] = (),
        schedules: Iterable[Schedule] = (),
        worker: bool = False,
        tenant: str = "default",
        lease_seconds: float = policy.LEASE_SECONDS_DEFAULT,
        secret: str | None = None,
        doors: Doors | None = None,
        capacity: int = CAPACITY,
        throttle: Throttle | None = None,
        log: Callable[[str], None] = to_stderr,
    ) -> None:
        check_program(store, tenant, lease_seconds, capacity, throttle, log)
        check_lists(agents=agents, tools=tools, schedules=schedules)
        self.url = store
        self.tenant = tenant
        self.agents: dict[str, Agent] = {}
        self.doors = doors if doors is not None else system_doors()
        self.redactor = Redactor()
        self._registry = Registry()
        self._schedules = tuple(schedules)
        for agent in (*agents, *agents_of(self._schedules)):
            self._know(agent)
        for tool in tools:
            self._registry.add(tool)
        check_schedules(self._schedules, self.agents)
        self._claims, self._lease_s = worker, lease_seconds
        self._secret, self._log = secret, log
        self._capacity, self._throttle = capacity, throttle
        self._models: dict[str, tuple[Model, ...]] = {}
        self._texts = Texts(self.redactor)
        self._ctx: Context | None = None
        self._home = Home()
        self._worker: Worker | None = None
        self._scheduler: Scheduler | None = None
        self._undoing: Undoing | None = None

    def _know(self, agent: Agent) -> None:
        for known in know(self.agents, agent):
            self._registry.give(known.name, known.tools.values())

    # Life

    async def __aenter__(self) -> Surefoot:
        """Open the store and, where asked for, begin to work. Raises StoreError, and InvalidInput where it is open."""
        self._home.settle(is_open=self._ctx is not None)
        store = await open_store(self.url, self.doors)
        try:
            await self._begin(store)
        except BaseException:
            # Nobody calls __aexit__ after this.
            await store.close()
            self._ctx = None
            raise
        return self

    async def _begin(self, store: Store) -> None:
        secrets = EnvironmentSecrets(self.redactor)
        path = store.path if self.url.startswith("sqlite") else None
        keyring = load_keyring(self._secret or secrets.get("SUREFOOT_SECRET"), path, self.doors.entropy, self.redactor)
        self._ctx = Context(
            tenant_id=self.tenant,
            store=store,
            doors=self.doors,
            registry=self._registry,
            signer=KeyringSigner(keyring),
            keyring=keyring,
            tracing=process_tracing(store, self.redactor),
            secrets=secrets,
            redactor=self.redactor,
            lease_s=self._lease_s,
            log=self._tell,
            start_child=self._start_child,
            undo=self._undo,
        )
        for tool in DECLARED.values():
            self._registry.offer(tool)
        for name in self._registry.credentials:
            secrets.get(name)
        if self._claims:
            await self._working()
            self._scheduler = Scheduler(self.context, self._schedules, self.new_run, self.begin)
            self._scheduler.begin()
            self._undoing = Undoing(self.context, self._start_performing)
            self._undoing.begin()

    def _tell(self, line: str) -> None:
        # A line that cannot be written (a full disk, a broken handler) is no reason to stop driving runs.
        with contextlib.suppress(Exception):
            in_place(self._log, self.redactor.text(line))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the worker cleanly, then close the store."""
        await self.close()

    async def close(self, grace_seconds: float = 10.0) -> None:
        """Let calls under way finish for `grace_seconds`, leave the rest in doubt, and close. Idempotent."""
        if self._home.forked:
            self._worker = self._scheduler = self._undoing = self._ctx = None
            return
        try:
            for looking in (self._scheduler, self._undoing):
                if looking is not None:
                    await looking.stop()
            if self._worker is not None:
                await self._worker.stop(grace_seconds)
                self._worker = None
            await close_models(self._models, self._tell)
        finally:
            # Also where that is cut off: nobody closes it a second time.
            if self._ctx is not None:
                await self._ctx.store.close()
                self._ctx = None

    @property
    def context(self) -> Context:
        """The runtime's means; raises InvalidInput outside `async with`, its process and its event loop."""
        if self._ctx is None:
            raise InvalidInput("use Surefoot inside `async with`")
        self._home.check()
        return self._ctx

    @property
    def store(self) -> Store:
        """The store, for reads of one's own."""
        return self.context.store

    @property
    def worker(self) -> Worker | None:
        """This process's worker, if it has one."""
        return self._worker

    async def _working(self) -> Worker:
        """This process's worker: it claims where asked for, else it drives what this process performs."""
        if self._worker is None:
            ctx = self.context
            worker_id = new_id(ctx, "wrk")
            versions = {name: agent.version for name, agent in self.agents.items()}
            self._worker = Worker(
                ctx, worker_id, versions, self._loop_for, capacity=self._capacity, throttle=self._throttle
            )
            await self._worker.start(claims=self._claims)
        return self._worker

    def _loop_for(self, run: Run) -> Loop | None:
        if run.kind == PERFORM:
            return PerformLoop(self.context)
        agent = self.agents.get(run.agent)
        if agent is None or agent.version != run.agent_version:
            return None
        if agent.name not in self._models:
            self._models[agent.name] = tuple(resolve_model(model, self.context.secrets) for model in agent.models)
        return AgentLoop(self.context, agent, self._models[agent.name], self._texts)

    # Runs

    async def start(
        self,
        agent: str | Agent,
        input: str,
        *,
        key: str | None = None,
        conversation_id: str | None = None,
        metadata: Mapping[str, object] | None = None,
        priority: int = 0,
        by: str = "program",
    ) -> RunSnapshot:
        """Start a run. With a `key` that was used before and the same content, the run made first is returned. Where
        runs wait for a worker, each step of `priority` (-100 to 100) is worth a minute of waiting.

        `metadata` are the program's own, at most 64 KiB as JSON: every listed run carries them. Raises NotFound (agent,
        conversation), KeyReused, NotAllowed (`conversation_busy`), InvalidInput (`key_reserved`: a key that begins like
        surefoot's own; `too_large`: the metadata).
        """
        new = self.new_run(
            agent, input, key=key, conversation_id=conversation_id, metadata=metadata, by=by, priority=priority
        )
        return await self.snapshot((await self.begin(new))[0].id)

    def new_run(
        self,
        agent: str | Agent,
        input: str,
        *,
        key: str | None = None,
        conversation_id: str | None = None,
        metadata: Mapping[str, object] | None = None,
        priority: int = 0,
        by: str = "program",
    ) -> NewRun:
        """What `begin` makes a run of. Raises NotFound (agent), InvalidInput."""
        name = agent.name if isinstance(agent, Agent) else str(agent)
        known = self.agents.get(name)
        if known is None:
            names = ", ".join(sorted(self.agents)) or "none"
            raise NotFound(f"no agent {name!r} here; known: {names}", code="unknown_agent")
        text = self.redactor.text(said := given_text(input, "input"))
        of = (name, known.version, known.limits)
        return agent_run(of, (said, text), by, key, conversation_id, metadata or {}, priority)

    async def begin(self, new: NewRun) -> tuple[Run, bool]:
        """The run, and whether it was made now; False where its key had made it before. Raises as `start` does."""
        tries = 0
        while True:
            try:
                return await self._create_or_find(new, self._free_worker() if new.agent in self.agents else None)
            except Conflict:
                tries += 1
                if new.conversation_id is None or new.body is None or tries >= STARTS_MAX:
                    raise
                # The run that was under way in the conversation has ended just now: where that stands is read anew.

    def _free_worker(self) -> Worker | None:
        return self._worker if self._worker is not None and self._worker.free > 0 and self._claims else None

    async def _start_child(self, run: Run, step: Step, arguments: Mapping[str, object], token: int | None) -> Run:
        return await child_run(self.context, self._create, self.agents.get(run.agent), run, step, arguments, token)

    async def retry(self, run_id: str, *, by: str = "program") -> RunSnapshot:
        """Take up a failed or cancelled run in a new run of its conversation, with a fresh budget and no new message.

        What was settled meanwhile stands first. Said again, it is the same new run. Raises NotFound, NotAllowed
        (`run_under_way`, `run_completed`, `conversation_moved_on`, `conversation_busy`).
        """
        agent = self.agents.get((await self.store.run(self.tenant, run_id)).run.agent)
        again = await run_again(self.context, run_id, by, None if agent is None else (agent.version, agent.limits))
        return await self.snapshot((await self._create(again)).id)

    async def _create(self, new: NewRun) -> Run:
        return (await self.begin(new))[0]

    async def _create_or_find(self, new: NewRun, worker: Worker | None) -> tuple[Run, bool]:
        if worker is not None:
            return await create_driven(self.context, new, worker, self._loop_for)
        born = await create_run(self.context, new)
        self._wake(None)
        return born.run, born.made

    async def wait(self, run_id: str, until: Until | str | None = None, timeout: float | None = None) -> RunSnapshot:
        """Wait until the run has ended or only a person can move it, or until `until(snapshot)`; `timeout` in seconds.

        `until="completed"`, or another status, waits for that, or an end. Raises InvalidInput, and WaitTimeout: the run
        goes on, or its `details` say by which `blocked` code it stands still.
        """
        check_timeout(timeout)
        if until is not None:
            return await wait_until(self.context, run_id, until, timeout)
        await wait_for_rest(self.context, run_id, timeout)
        return await self.snapshot(run_id)

    async def texts(self, run_id: str) -> AsyncIterator[TextFrame]:
        """The run's text as the model writes it, from its next model call on, where this process drives the run.

        Frames are stored nowhere, known secrets are taken out of them, and a slow reader loses some (`missed`): the
        message that is written down in the end replaces all of its step. Ends with the run. Raises NotFound.
        """
        with self._texts.reading(run_id) as reader, contextlib.closing(self.store.follow(run_id)) as following:
            async for frame in frames(reader, lambda: self._ended(run_id, following)):
                yield frame

    async def _ended(self, run_id: str, following: Following) -> bool:
        run = await following.changed(LOOK_AGAIN_SECONDS)
        return (run or (await self.store.run(self.tenant, run_id)).run).ended

    async def message(self, run_id: str, text: str, *, key: str | None = None, by: str = "program") -> bool:
        """A user message; it waits until every open call has its result. False where it came before under this `key`.

        Raises RunEnded, NotFound, KeyReused (other text), InvalidInput, NotAllowed (`no_conversation`: perform).
        """
        check_key(key)
        check_name(by, "by")
        body = user_body(self.redactor.text(given_text(text, "text")))
        new = await say(self.context, run_id, body, key)
        self._wake(run_id)
        return new

    async def signal(
        self, run_id: str, name: str, value: object = None, *, key: str | None = None, by: str = "program"
    ) -> bool:
        """A signal for `wait_for_signal`: the result of the call that has waited for it longest, or kept for the next.

        The value is JSON-ready. False where the same signal came before under this `key`. Raises RunEnded, NotFound,
        KeyReused (other content), NotAllowed (`too_many_signals`), InvalidInput.
        """
        new = await signal_run(self.context, run_id, name, value, by=by, key=key)
        self._wake(run_id)
        return new

    async def cancel(self, run_id: str, *, by: str = "program") -> tuple[str, ...]:
        """Cancel the run in one commit; returns the steps whose calls may have been sent. Raises RunEnded, NotFound.

        From the acknowledgement on nothing is sent for the run; what was sent goes on being looked up. The same holds
        for the runs of agents that work for it, each of which is cancelled in a commit of its own.
        """
        return await cancel_tree(self.context, run_id, by, self._wake)

    def _wake(self, run_id: str | None) -> None:
        if self._worker is not None:
            self._worker.wake(run_id)

    # People: agent/decisions.py

    async def _decide(self, action_id: str, decision: Decision) -> ActionRow:
        row = await decide_about(self.context, action_id, decision)
        self._wake(row.run_id)
        await undo(self.context, row, self._start_performing)
        return row

    async def _undo(self, action_id: str) -> bool:
        return await undo(self.context, await self.store.action(self.tenant, action_id), self._start_performing)

    # Effects outside of an agent

    async def perform(
        self, call: ToolCall, *, key: str | None = None, timeout: float | None = None, by: str = "program"
    ) -> Receipt:
        """One call with all guarantees and no agent around it; at most one effect for a `key` while its run is kept.

        The same key with the same arguments answers from the first call; `timeout` (seconds) bounds the wait.
        Raises KeyReused (other arguments), ApprovalPending, OutcomeUnknown, PerformFailed, InvalidInput, WaitTimeout
        (`not_sent_yet`: nothing was sent in that time). The step goes on then, here or by a worker that knows the tool.
        """
        check_key(key)
        check_timeout(timeout)
        run, loop = await self._start_performing(call, business_key(call, key), by)
        await self._adopt(run.id)
        rules = self._registry.rules_for(call.tool)
        wait_s = rules.timeout_s + rules.settle_s + 30.0 if timeout is None else timeout
        ctx = self.context
        try:
            # Nothing can have happened yet where this task has just begun to drive the run and has not waited since.
            new, adopt = None if loop is None else run, lambda: self._adopt(run.id)
            rest = await wait_for_rest(ctx, run.id, wait_s, driven=new, meanwhile=adopt)
        except WaitTimeout:
            rest = None
        return await receipt_of(ctx, run.id, rest, None if loop is None else loop.answer)

    async def _start_performing(
        self, call: ToolCall, business_key: str | None, by: str, once_for: str | None = None
    ) -> tuple[Run, PerformLoop | None]:
        """The run, and what drives it where it was made just now."""
        self._registry.add(call.tool)
        worker = await self._working()
        ctx, loops = self.context, dict[str, PerformLoop]()

        def loop_for(run: Run) -> PerformLoop:
            return loops.setdefault(run.id, PerformLoop(ctx))

        def create(new: NewRun) -> Awaitable[tuple[Run, bool]]:
            return create_driven(ctx, new, worker, loop_for)

        run = await performing_run(create, call, business_key, by, once_for)
        return run, loops.get(run.id)

    async def _adopt(self, run_id: str) -> None:
        """Drive a run that this process performs, unless somebody does: a lease that ends is taken, if need be."""
        worker = await self._working()
        if run_id in worker.drivers or (await self.store.run(self.tenant, run_id)).run.ended:
            return
        await worker.take(run_id)

    async def report(self, key: str, verdict: Found | Absent | Undetermined, *, source: str = "report") -> bool:
        """Evidence from elsewhere for an operation key. False where it was known already. Raises NotFound."""
        run_id, new = await report_about(self.context, key, verdict, source)
        self._wake(run_id)
        return new
