"""The failure matrix, played: each thing that goes wrong, with a tool of each class, on simulated processes.

A play is one gated call: a model proposes it, a person approves, a worker sends, something goes wrong, a day passes.
The outcome is counted outside, in the World's log, save for what people were asked.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping

import httpcore
import msgspec

from surefoot import Agent, Operation, Receipt, Surefoot, Tool, effects, tool
from surefoot.connectors import github
from surefoot.connectors.github_api import place_of
from surefoot.connectors.github_lookup import find_issue_comment
from surefoot.http import client
from surefoot.snapshot import RunSnapshot
from surefoot.testing import faults as f
from surefoot.testing.machine import Machine, Process, When
from surefoot.testing.model import FakeModel, Step
from surefoot.testing.stage import Cast, Stage
from surefoot.testing.story import API_URL, HEADERS, NUMBER, REPO, charge, send_mail
from surefoot.testing.virtual import Network, Trip
from surefoot.testing.wire import WireRequest
from surefoot.testing.world import World
from tests.places import Place

COMMENTS = f"/repos/{REPO}/issues/{NUMBER}/comments"
WAIT_SECONDS = 1_200.0
SWEEPS_SECONDS = 90_000.0
"""Behind the last of the later looks, which is due after a day."""
FROZEN_SECONDS = 90.0
"""Three leases."""


@tool(effect=effects.read, timeout=15)
async def see_issue(op: Operation) -> Receipt:
    """Read the issue."""
    async with client(op, base_url=API_URL, headers=HEADERS) as http:
        return Receipt(output=(await http.get(f"/repos/{REPO}/issues/{NUMBER}")).status)


class Timeless(msgspec.Struct, frozen=True):
    """What a client goes by that knows nothing of an operation's times."""

    effect: str = "opaque"
    looking: bool = False
    first_byte_before: float = math.inf
    last_byte_before: float = math.inf


@tool(effect=effects.lookup(find_issue_comment, settle=60), timeout=15)
async def own_client(op: Operation, repo: str, issue_number: int, body: str) -> Receipt:
    """Comment, by a client that knows nothing of the operation's times. It does not retry by itself."""
    text = op.sign(body, place=place_of(repo, issue_number))
    headers = [("Host", "api.github.com"), *HEADERS.items()]
    request = httpcore.Request("POST", API_URL + COMMENTS, headers=headers, content=msgspec.json.encode({"body": text}))
    try:
        reply = await op._door.transport(Timeless()).handle_async_request(request)
        made = msgspec.json.decode(await reply.aread())
    except effects.NotSent as unsent:
        raise ConnectionError(str(unsent)) from None
    if reply.status >= 300:
        raise ConnectionError(f"status {reply.status}")
    return Receipt(resource_id=str(made["id"]))


class Column(msgspec.Struct, frozen=True):
    """A tool of one class, a call of it, and which requests to the World are its own."""

    tool: Tool
    arguments: Mapping[str, object]
    method: str
    path: str

    def is_own(self, wire: WireRequest) -> bool:
        """True for the call's own request, whose effect is meant."""
        return wire.method == self.method and wire.path == self.path


_COMMENT = {"repo": REPO, "issue_number": NUMBER, "body": "Looks good."}
COLUMNS = {
    "read": Column(see_issue, {}, "GET", f"/repos/{REPO}/issues/{NUMBER}"),
    "idempotent": Column(charge, {"invoice": "81", "amount_cents": 900}, "POST", "/billing/charges"),
    "lookup": Column(github.create_issue_comment, _COMMENT, "POST", COMMENTS),
    "own_client": Column(own_client, _COMMENT, "POST", COMMENTS),
    "opaque": Column(send_mail, {"to": "ann@example.com", "text": "Hello."}, "POST", "/mail/messages"),
}


class Tally(msgspec.Struct, frozen=True):
    """What came of one play."""

    sent: int
    """Own requests that the World received."""
    effects: int
    """Things made under the call's key, deleted ones too."""
    asked: bool
    """A person was asked what happened."""
    reported: bool
    """A person was told of an effect that was not expected, or of more than one."""
    status: str
    """The run's, with nobody having answered anything but the approval."""


class Play(Network):
    """One play. A row of the matrix is a function that prepares one."""

    def __init__(self, column: Column, place: Place, *, deletions_leave_a_trace: bool = False) -> None:
        super().__init__()
        self.place = place
        self.column = column
        self.world = World(deletion_events=deletions_leave_a_trace)
        self.world.add_pull(REPO, NUMBER, title="Handle None", body="It crashed.")
        self.world.add_comments(REPO, NUMBER, 3)
        self.machine = Machine(self.world, network=self, in_turn=True)
        self.machine.observe = self._observe
        self.workers = 2
        self.first_trip = Trip()
        self.at: dict[tuple[str, When], Callable[[Process], None]] = {}
        """What befalls the worker at a passage of its first own request, or of its first lookup; once each."""
        self.on_approval: Callable[[], None] = lambda: None
        self.story: Callable[[], None] = self.to_the_end
        self._own = False
        self._trips = 0
        self._approved = False
        self._run_id = ""
        self._workers: dict[str, Process] = {}
        self._restarting = True
        self._stage: Stage | None = None

    # Preparing

    def fault(self, fault: f.AnyFault, *, times: int | None = 1) -> None:
        """Hit the call's own request."""
        self.world.faults.add(f.Rule(fault, method=self.column.method, path=self.column.path, times=times))

    def looks(self, fault: f.AnyFault, *, times: int | None = None) -> None:
        """Hit the listing that a lookup reads."""
        self.world.faults.add(f.Rule(fault, method="GET", path=COMMENTS, times=times))

    def freeze_workers(self, seconds: float = FROZEN_SECONDS) -> None:
        """Stop every worker that holds the run now; another one is started to take over."""
        for process in self._workers.values():
            process.freeze(seconds)
        self._add_worker("fresh")

    # Playing

    def tally(self) -> Tally:
        """Play it and count."""
        with Stage(Cast(self._agents), self.place.url) as stage:
            self._stage = stage
            try:
                for number in range(self.workers):
                    self._add_worker(f"worker{number}")
                self.story()
                return self._count()
            finally:
                self.machine.bury_all()

    def _agents(self) -> list[Agent]:
        script: list[Step] = [[(self._gated.name, self.column.arguments)], "Done."]
        return [Agent("a", FakeModel(script), tools=[self._gated])]

    @property
    def _gated(self) -> Tool:
        return self.column.tool.using(approval="always")

    def _add_worker(self, name: str) -> None:
        """A worker, and another one in its place a second after it has died."""
        assert self._stage is not None
        if not self._restarting or self.machine.closing:
            return
        process = self.machine.start(name, self._stage.worker())
        process.on_end.append(lambda: self.machine.after(1.0, lambda: self._add_worker(name)))
        self._workers[name] = process

    def to_the_end(self) -> None:
        """Start, approve, and let it settle."""
        self._person(self._approve)
        self.settle()

    def settle(self) -> None:
        """Let everything come that still comes: retries, lookups, and the later looks, where some are owed."""
        self.pass_time(WAIT_SECONDS)
        snapshot = self._look()[0]
        if snapshot.status == "completed" and snapshot.next is not None:
            self.pass_time(SWEEPS_SECONDS)

    def pass_time(self, seconds: float) -> None:
        """Let `seconds` of virtual time go by."""
        end = self.machine.clock.elapsed + seconds
        self.machine.after(seconds, lambda: None)
        self.machine.run_until(lambda: self.machine.clock.elapsed >= end, seconds=seconds + 60.0)

    def _person(self, act: Callable[[Surefoot, Process], object]) -> None:
        assert self._stage is not None

        async def main(sf: Surefoot, process: Process) -> None:
            done = act(sf, process)
            if asyncio.iscoroutine(done):
                await done

        person = self.machine.start("person", self._stage.person(main))
        self.machine.run_until(lambda: person.ended)
        if person.failure is not None:
            raise person.failure

    async def _approve(self, sf: Surefoot, process: Process) -> None:
        run = await sf.start("a", "Go")
        self._run_id = run.id
        asked = await sf.wait(run.id)
        await sf.approve(asked.pending_actions[0].id, by="ann")
        self._approved = True
        self.on_approval()

    def _look(self) -> tuple[RunSnapshot, list[str], list[str]]:
        """The run, the kinds of questions that were asked, and its events by name."""
        seen: list[tuple[RunSnapshot, list[str], list[str]]] = []

        async def look(sf: Surefoot, process: Process) -> None:
            snapshot = await sf.snapshot(self._run_id)
            kinds = [row.action.kind.value for row in await sf.actions(run_id=self._run_id)]
            events = [line.event for line in await sf.store.events(sf.tenant, self._run_id, 0, 10_000)]
            seen.append((snapshot, kinds, [type(event).__name__ for event in events]))

        self._person(look)
        return seen[0]

    def _count(self) -> Tally:
        snapshot, kinds, events = self._look()
        key = next(step.operation_key for step in snapshot.steps if step.tool_name == self._gated.name) or ""
        return Tally(
            sent=len(self.world.requests(self.column.method, self.column.path)),
            effects=len(self.world.effects(key)),
            asked="resolve" in kinds,
            reported="duplicate" in kinds or "DuplicateDetected" in events,
            status=snapshot.status,
        )

    # The doors

    def trip(self, request: WireRequest, process_name: str) -> Trip:
        """The first own request travels as the row says, all others as usual."""
        self._own = self._approved and self.column.is_own(request)
        if not self._own:
            return Trip()
        self._trips += 1
        return self.first_trip if self._trips == 1 else Trip()

    def _observe(self, process: Process, name: str, when: When) -> None:
        if not self._approved or process.name.startswith("person"):
            return
        if name in ("http.connect", "http.send", "http.reply") and not self._own:
            return
        befalls = self.at.pop((name, when), None)
        if befalls is not None:
            befalls(process)

    # Backups

    def backup(self) -> None:
        """A copy of the store as it stands is kept."""
        self.place.save()

    def restore(self) -> None:
        """Every process ends, the copy takes the place of the store, and a new worker starts."""
        assert self._stage is not None
        self._restarting = False
        for process in self._workers.values():
            process.kill()
        self.pass_time(2.0)
        self._restarting = True
        self.place.put_back()
        self._add_worker("restored")


def killed(process: Process) -> None:
    """SIGKILL, at this passage."""
    process.kill_here()


def frozen(process: Process) -> None:
    """SIGSTOP, and SIGCONT after three leases."""
    process.freeze(FROZEN_SECONDS)
