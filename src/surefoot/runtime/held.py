"""A run under a lease: what its driver knows and may decide. The driver's parts share it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from surefoot.core import policy
from surefoot.core.attempts import end_used_up
from surefoot.core.decide import Start, approval_over, fail_run, start_step
from surefoot.core.draft import Draft
from surefoot.core.ends import fail_step
from surefoot.core.payloads import result_body
from surefoot.core.redact import safe_error
from surefoot.core.state import Action, EffectClass, Rules, Run, Step, StepStatus, StepType, wake_times
from surefoot.core.text import clean_text
from surefoot.errors import LeaseLost, NotAllowed, StoreClosed, StoreError, Unreadable
from surefoot.runtime.background import from_inside
from surefoot.runtime.context import LOOK_TIMEOUT_SECONDS, Context
from surefoot.runtime.execute import Call
from surefoot.runtime.handle import Handle
from surefoot.runtime.late import shown_before
from surefoot.runtime.loop import Known, Loop
from surefoot.runtime.questions import Questions, difference
from surefoot.runtime.registry import RunnableTool
from surefoot.runtime.throttles import Place, Throttles, leave
from surefoot.store.requests import request

T = TypeVar("T")
HOLD_SECONDS = 2.0
SEND_WINDOW_SECONDS_MIN = 0.5
"""With less of the lease left no attempt begins; the renewal comes first."""
ACCOUNT_SECONDS_MIN = 1.5
ACCOUNT_SECONDS_MAX = 60.0
"""So rarely it is asked whose a credential is where that cannot be found out for long."""
_SKIPPED = frozenset({"not_yet", "approval_expired", "account_changed", "account_unknown"})


class Held:
    """One run, its lease, and what was read for it. `others_busy` says whether another task of the driver works."""

    def __init__(self, ctx: Context, handle: Handle, loop: Loop, lease_until: float, throttles: Throttles) -> None:
        self.ctx = ctx
        self.handle = handle
        self.loop = loop
        self.tools = ctx.registry.of(handle.run)
        handle.on_append = loop.appended
        self.lease_until = ctx.store.local(lease_until)
        """By this process's boot clock, seconds: what may be believed of it. The store's guard is the last word."""
        self.throttles = throttles
        self.hold_s = HOLD_SECONDS
        """A run that has nothing to do for longer gives its lease back."""
        self.stopping = False
        self.lost = False
        self.stuck: dict[str, Call] = {}
        """Calls that did not end after their time-out, by step."""
        self.others_busy: Callable[[], bool] = bool
        self.accounts: dict[str, str | None] = {}
        self._entered: dict[str, list[Place]] = {}
        """Steps that have passed their throttles, until `leave`."""
        self._shown: dict[str, Mapping[str, object]] = {}
        """What stood in the questions under whose approval steps run, by the question."""
        self._differences: dict[tuple[str, str | None], str | None] = {}
        """What `difference` came to, by step and approval."""
        self._known: dict[str, Known] = {}
        """Requests by their blob's name, as far as they passed through this process."""

    @property
    def run(self) -> Run:
        """The run after the last append."""
        return self.handle.run

    def now(self) -> float:
        """The store's clock, seconds (mono)."""
        return self.ctx.store.now().mono

    def keep(self, until: float) -> None:
        """The lease lasts until then, by the store's clock. To be called when the store has just said so."""
        self.lease_until = self.ctx.store.local(until)

    @property
    def left_s(self) -> float:
        """How much of the lease is left at least, seconds, less the margin in which nothing begins."""
        margin = self.ctx.lease_s * policy.LEASE_MARGIN_FRACTION
        return self.lease_until - margin - self.ctx.doors.clock.now().mono

    @property
    def lasts(self) -> bool:
        """Whether enough of the lease is left for an attempt to begin."""
        return self.left_s >= SEND_WINDOW_SECONDS_MIN

    def rules(self, step: Step) -> Rules:
        """What holds for the step: as a Draft sees it."""
        return policy.careful_rules(self.tools.rules.get(step.tool_name or "", step.rules), step.rules)

    # Deciding

    async def decide(self, command: Callable[[Draft], T], *, step_id: str | None = None) -> T | None:
        """Decide under the lease. None, and `lost`, where the lease is gone."""
        try:
            result = await self.handle.decide(command, release=self.may_release, step_id=step_id)
        except LeaseLost:
            self.lost = True
            return None
        if not self.run.steps:
            # Perhaps somebody else has ended the last one, and a conflict has told of it: nothing else would.
            await self.loop.resume(self.run)
        return result

    async def see_cut_off(self) -> None:
        """Know what became of a decision whose wait was cancelled. Raises Unreadable, StoreClosed."""
        if self.handle.cut_off:
            await self.surely(self.handle.see_cut_off)

    async def surely(self, read: Callable[[], Awaitable[T]]) -> T:
        """What `read` gives, asked again while the store is away: what a call has come to is not lost over it.

        Raises Unreadable, StoreClosed.
        """
        tries = 0
        while True:
            try:
                return await read()
            except (Unreadable, StoreClosed):
                raise
            except StoreError:
                tries += 1
                await self.ctx.doors.clock.sleep(policy.backoff(tries, 0.5, base_s=0.1, max_s=10.0))

    def may_release(self, after: Run) -> bool:
        """The lease ends with an append that leaves nothing to do for a while, if nothing else is under way."""
        # The cheapest first: this is asked of every append, and nearly each of them leaves something to do at once.
        mono, _ = wake_times(after)
        if mono == 0.0 or self.stuck or (mono is not None and mono <= self.now() + self.hold_s):
            return False
        return not self.others_busy()

    def start(self, step: Step | None) -> Start | None:
        """What an intent needs right now; None where none may begin: the lease ends soon, or the worker stops."""
        window = self.left_s
        if self.stopping or self.lost or window < SEND_WINDOW_SECONDS_MIN or self.handle.token is None:
            return None
        if step is not None and not self._let_begin(step):
            return None
        account = None if step is None else self._account(step)
        return Start(self.handle.token, window, account=account, key_id=self.ctx.key_id)

    def _account(self, step: Step) -> str | None:
        """Whose the credential is, as far as it is known; of a tool that cannot tell, what was known before."""
        tool = self.tools.tools.get(step.tool_name or "")
        if tool is None or tool.account is None:
            return step.account
        return self.accounts.get(tool.credential or "")

    def go_on(self, d: Draft) -> list[str]:
        """Everything that can begin in this append: ready calls, else the loop's next step. Returns the steps begun."""
        begun: list[str] = []
        for step in sorted(d.run.steps.values(), key=lambda s: s.sequence):
            ready = step.status is StepStatus.pending and step.not_before <= d.at.mono and not d.run.ended
            start = self.start(step) if ready and self.ready_at_once(step) else None
            if start is not None and _try_start(d, step, start):
                begun.append(step.id)
        if not d.run.ended and not d.run.batch_open:
            begun += self.loop.go_on(d, self.start(None))
        return begun

    def ready_at_once(self, step: Step) -> bool:
        """True where the intent needs no I/O first: no account, no precondition, nothing to wait for."""
        if step.type is not StepType.tool_call:
            return step.type is StepType.model_call
        tool = self.tools.tools.get(step.tool_name or "")
        if step.rules.waits_for is not None or tool is None or self.was_read(step):
            return False
        if step.owner_step_id is not None or tool.precondition is not None:
            return False
        if not self.is_as_meant(step, tool) or self._throttled(step):
            return False
        if tool.account is None:
            return True
        account = self.accounts.get(tool.credential or "")
        return account is not None and step.account in (None, account)

    def was_read(self, step: Step) -> bool:
        """Whether a pending call was tried as a read, and is none by the code of now: perhaps it was none then."""
        return bool(step.attempts) and bool(step.doubtful_attempts) and self.rules(step).effect is not EffectClass.read

    # Throttles

    def _throttled(self, step: Step) -> bool:
        tool = self.tools.tools.get(step.tool_name or "")
        return tool is not None and self.throttles.bound(tool)

    def _let_begin(self, step: Step) -> bool:
        """By its throttles: it has entered, and did not wait for too long since, as for another decision of its run."""
        entered = self._entered.get(step.id)
        return not self._throttled(step) if entered is None else all(place.lets_begin for place in entered)

    async def enter(self, step: Step) -> bool:
        """Wait until the step's next attempt may begin by its throttles; `leave` afterwards. False: not now."""
        if step.id in self._entered or not self._throttled(step):
            return True
        entered = await self.throttles.enter(self.tools[step.tool_name])
        if entered is not None:
            self._entered[step.id] = entered
        return entered is not None

    def leave(self, step_id: str) -> None:
        """The step's attempt is over, or did not begin."""
        leave(self._entered.pop(step_id, []))

    def leave_all(self) -> None:
        """The run is not driven any more."""
        for step_id in list(self._entered):
            self.leave(step_id)

    def is_as_meant(self, step: Step, tool: RunnableTool) -> bool:
        """Whether the call is by the code of now what was approved, or proposed where nobody was asked.

        False until `difference` was asked, unless it is known without: this process has just prepared the call, or its
        tool asks nobody.
        """
        if (known := (step.id, step.action_id)) in self._differences:
            return self._differences[known] is None
        asks_nobody = tool.approval is None or step.input_ref in self._known
        return step.action_id is None and asks_nobody and tool.version == step.tool_version

    async def difference(self, step: Step, tool: RunnableTool) -> str | None:
        """Why a person has to be asked before the call is sent, though nobody was or somebody has approved it."""
        known = (step.id, step.action_id)
        if known not in self._differences:
            arguments = await self.arguments(step)
            shown = None if step.action_id is None else await self.shown(step)
            self._differences[known] = difference(step, tool, arguments, shown)
        return self._differences[known]

    def needs_question(self, step: Step) -> bool:
        """True if the step runs under an approval that is not valid now."""
        return approval_over(Draft(self.run, self.ctx.store.now(), rules=self.tools.rules), step)

    # Reading

    async def arguments(self, step: Step) -> dict[str, object]:
        """The exact arguments of a step, from its stored request. Raises Unreadable."""
        known = self._known.get(step.input_ref or "")
        if known is not None:
            return known[0]
        data = await request(self.ctx.store, self.ctx.tenant_id, step.id)
        return msgspec.json.decode(data, type=dict[str, object])

    async def view(self, step: Step) -> bytes:
        """The redacted arguments, as people see them."""
        known = self._known.get(step.input_ref or "")
        if known is not None:
            return known[1]
        row = await self.ctx.store.step(self.ctx.tenant_id, step.id)
        return row.safe_input or b"{}"

    async def shown(self, step: Step) -> Mapping[str, object]:
        """The preview of the question under whose approval the step runs; empty where it runs under none."""
        if step.action_id is None:
            return {}
        if step.action_id not in self._shown:
            row = await self.ctx.store.action(self.ctx.tenant_id, step.action_id)
            self._shown[step.action_id] = msgspec.json.decode(row.preview, type=dict[str, object])
        return self._shown[step.action_id]

    def remember(self, known: Mapping[str, Known]) -> None:
        """Keep the requests of the newest answer of the model; older ones are read from the store."""
        self._known = dict(known)

    async def questions(self, step: Step, problem: Exception | None = None) -> Questions:
        """The questions that a command on the step may ask, with the `problem` that they are about, redacted.

        Reads and model calls are asked about without arguments.
        """
        tool = self.tools.tools.get(step.tool_name or "")
        plain = step.type is StepType.model_call or self.rules(step).effect is EffectClass.read
        view = b"{}" if plain else await self.view(step)
        told = () if problem is None else (safe_error(problem, self.ctx.redactor),)
        effects = await shown_before(self.ctx, step)
        return Questions(self.ctx.doors, step, view, tool, told, asked=self.asked(step), effects=effects)

    def asked(self, step: Step) -> Action | None:
        """The question under whose approval the step runs or waits."""
        return self.run.actions.get(step.action_id or "")

    async def resolve_account(self, step: Step, tool: RunnableTool) -> bool:
        """Know the account of the tool's credential; False where it cannot be found out just now."""
        name = tool.credential or ""
        if tool.account is None or self.accounts.get(name) is not None:
            return True
        known, account = await self._asked_account(step, tool)
        if known:
            self.accounts[name] = account
        return known

    def account_told(self, tool: RunnableTool) -> bool:
        """Whether it is told whose the credential is, be it nobody's, and was not found to be unknown since."""
        return tool.account is None or (tool.credential or "") in self.accounts

    async def _asked_account(self, step: Step, tool: RunnableTool) -> tuple[bool, str | None]:
        """Whether it is told whose the credential is, and whose."""
        whose = tool.account
        assert whose is not None, "who asks has looked"
        try:
            op = self.ctx.operation(self.run.id, step, None)
            async with asyncio.timeout(LOOK_TIMEOUT_SECONDS):
                account: object = await from_inside(lambda: whose(op))
        except Exception as problem:
            self.ctx.log(f"{step.id}: the account is not known yet ({type(problem).__name__})")
            return False, None
        if isinstance(account, int) and not isinstance(account, bool):
            account = str(account)  # an id, as APIs give it
        if not isinstance(account, str):
            # None too: what a function that had no answer gives would have been taken for an account that is not told.
            kind = type(account).__name__
            self.ctx.log(f"{step.id}: the account is not known yet (the tool's account function gave {kind}, no text)")
            return False, None
        self.ctx.patience.over(f"account {tool.credential or ''}")
        return True, clean_text(account) or None

    async def other_account(self, step: Step, tool: RunnableTool) -> str | None:
        """Why the credential shows another place than the step was sent to, as a code; None where it is the same."""
        if tool.account is None or step.account is None:
            return None
        # It may have changed since it was asked last, and be put right at any time. Until it is told, what was told
        # before stays: another call of the run may be about to begin by it.
        name = tool.credential or ""
        known, account = await self._asked_account(step, tool)
        if not known:
            self.accounts.pop(name, None)
            return "account_unknown"
        self.accounts[name] = account
        if account is None:
            return "account_unknown"
        return None if account == step.account else "account_changed"

    def account_pause_s(self, tool: RunnableTool) -> float:
        """Until it is asked again whose the credential is."""
        now, name = self.ctx.doors.clock.now().mono, f"account {tool.credential or ''}"
        return self.ctx.patience.pause_s(name, now, 1.0, ACCOUNT_SECONDS_MIN, ACCOUNT_SECONDS_MAX)


def _try_start(d: Draft, step: Step, start: Start) -> bool:
    try:
        start_step(d, step.id, start)
    except NotAllowed as refusal:
        if refusal.code == "attempts_used_up":
            end_used_up(d, step.id)
        elif refusal.code == "time_used_up":
            fail_run(d, refusal.code)
        elif refusal.code not in _SKIPPED:
            refuse_step(d, step, refusal)
        return False
    return True


def refuse_step(d: Draft, step: Step, refusal: NotAllowed) -> None:
    """The step may not begin: it fails without an attempt, and the model is told why."""
    body = result_body(f"The call was not executed: {refusal}.", code=refusal.code)
    fail_step(d, step, refusal.code, body=body)
