"""The World with operations that call it: over real sockets, or without any on a clock that jumps."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager

import httpcore
import pytest

from surefoot.connectors import github, github_api
from surefoot.core.marker import Keyring
from surefoot.doors import Clock, HttpDoor, HttpTransport, Instant, SystemClock, Timed
from surefoot.effects import EffectName, Operation, Receipt, Verdict
from surefoot.http import SystemHttp
from surefoot.signing import KeyringSigner
from surefoot.testing.faults import AnyFault, Rule
from surefoot.testing.wire import Outcome, WireRequest
from surefoot.testing.world import TOKEN, World
from surefoot.testing.world_server import WorldServer

REPO = "acme/app"
NUMBER = 128
PLACE = f"{REPO}#{NUMBER}"
BODY = "Looks good.\n\nOne question: what about `None`?"
COMMENTS = f"/repos/{REPO}/issues/{NUMBER}/comments"
SIGNER = KeyringSigner(Keyring([b"k" * 32]))


class JumpingClock:
    """Virtual time: it stands still until somebody moves it."""

    def __init__(self, wall: float) -> None:
        self._now = Instant(1_000.0, wall)

    def now(self) -> Instant:
        return self._now

    def boot_id(self) -> str:
        return "virtual"

    def move(self, seconds: float) -> None:
        self._now = Instant(self._now.mono + seconds, self._now.wall + seconds)

    async def sleep(self, seconds: float) -> None:
        self.move(seconds)


class WorldDoor:
    """An HTTP door that hands requests to a World, without sockets."""

    def __init__(self, world: World, clock: JumpingClock) -> None:
        self._world = world
        self._clock = clock

    @property
    def clock(self) -> Clock:
        return self._clock

    def transport(self, op: Timed) -> HttpTransport:
        return _WorldTransport(self._world, self._clock)


class _WorldTransport:
    def __init__(self, world: World, clock: JumpingClock) -> None:
        self._world = world
        self._clock = clock

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        headers = {name.decode().lower(): value.decode() for name, value in request.headers}
        assert isinstance(request.stream, AsyncIterable)
        body = b"".join([part async for part in request.stream])
        target = request.url.target.decode()
        wire = WireRequest(request.method.decode(), target, headers, body)
        outcome = self._world.handle(wire, self._clock.now().wall)
        return self._answer(outcome, float(request.extensions["deadline"]))

    def _answer(self, outcome: Outcome, deadline: float) -> httpcore.Response:
        left = deadline - self._clock.now().mono
        wait = left + 1 if outcome.at is None else outcome.at - self._clock.now().wall
        if wait >= left:
            self._clock.move(left)
            raise httpcore.ReadTimeout("no reply in time")
        self._clock.move(max(wait, 0.0))
        if outcome.reply is None:
            raise httpcore.ReadError("reset")
        if outcome.body_bytes is not None:
            raise httpcore.RemoteProtocolError("cut")
        lines = [(name.encode(), value.encode()) for name, value in outcome.reply.headers.items()]
        return httpcore.Response(outcome.reply.status, headers=lines, content=outcome.reply.body)

    async def aclose(self) -> None:
        pass


class Secrets:
    """The World's token, or what a test sets."""

    def __init__(self) -> None:
        self.values = {"GITHUB_TOKEN": TOKEN}

    def get(self, name: str) -> str | None:
        return self.values.get(name)


class Rig:
    """A World with a pull request, and the GitHub tools as the runtime would call them."""

    def __init__(self, world: World, door: HttpDoor, clock: Clock, *, seconds: float) -> None:
        self.world = world
        self.clock = clock
        self.secrets = Secrets()
        self.sent_at = clock.now().wall
        self._door = door
        self._seconds = seconds

    def op(
        self, *, step: str = "step_1", looking: bool = False, effect: EffectName = "lookup", attempt: int = 1
    ) -> Operation:
        """The operation of a step, as its call or as its lookup sees it."""
        now = self.clock.now()
        return Operation(
            key=f"run_1:{step}",
            tool="create_issue_comment",
            run_id="run_1",
            step_id=step,
            call_id=f"call_{step}",
            attempt=attempt,
            first_sent_at=self.sent_at,
            search_from=self.sent_at - 900,
            tenant_id="default",
            first_byte_before=now.mono + self._seconds,
            last_byte_before=now.mono + self._seconds,
            effect=effect,
            looking=looking,
            earlier_may_be_sent=attempt > 1,
            door=self._door,
            signer=SIGNER,
            secrets=self.secrets,
        )

    async def create(self, body: str = BODY, *, step: str = "step_1", attempt: int = 1) -> Receipt:
        """One attempt."""
        return await github.create_issue_comment(self.op(step=step, attempt=attempt), REPO, NUMBER, body)

    async def find(self, body: str = BODY, *, step: str = "step_1") -> Verdict:
        """One look."""
        return await github.find_issue_comment(self.op(step=step, looking=True), REPO, NUMBER, body)

    def fault(
        self, fault: AnyFault, method: str = "POST", path: str = COMMENTS, *, nth: int = 1, times: int | None = 1
    ) -> None:
        """Hit the next matching request, or what `nth` and `times` say."""
        self.world.faults.add(Rule(fault, method=method, path=path, nth=nth, times=times))

    def pass_time(self, seconds: float) -> None:
        """Move the virtual clock."""
        assert isinstance(self.clock, JumpingClock)
        self.clock.move(seconds)
        self.world.due(self.clock.now().wall)

    def posts(self) -> int:
        """How many POSTs arrived."""
        return len(self.world.requests("POST"))

    def marker(self, *, step: str = "step_1", account: str, place: str = PLACE) -> str:
        """A real marker, as it would leak."""
        return SIGNER.sign(self.op(step=step), "", place, account).strip()


def make_world(*, deletion_events: bool = False, now: float) -> World:
    """A World with the pull request."""
    world = World(now=now, deletion_events=deletion_events)
    world.add_pull(REPO, NUMBER, title="Handle None", body="It crashed.")
    return world


def virtual_rig(*, deletion_events: bool = False) -> Rig:
    """A rig without sockets."""
    clock = JumpingClock(1_700_000_000.0)
    world = make_world(deletion_events=deletion_events, now=clock.now().wall)
    return Rig(world, WorldDoor(world, clock), clock, seconds=15.0)


@asynccontextmanager
async def socket_rig(monkeypatch: pytest.MonkeyPatch, *, seconds: float = 5.0) -> AsyncIterator[Rig]:
    """A rig over real sockets; a call may take `seconds`."""
    clock = SystemClock()
    world = make_world(now=clock.now().wall)
    async with WorldServer(world) as url:
        monkeypatch.setenv("GITHUB_API_URL", url)
        yield Rig(world, SystemHttp(clock), clock, seconds=seconds)


def forget_accounts() -> None:
    """As in a new process."""
    github_api._accounts.clear()
