"""The HTTP door without sockets: requests travel in virtual time, judged as the real transport judges them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, Callable
from typing import TYPE_CHECKING, Protocol

import httpcore
import msgspec

from surefoot.effects import NotSent
from surefoot.errors import InvalidInput
from surefoot.http_wire import Gate
from surefoot.testing.wire import Outcome, Reply, WireRequest

if TYPE_CHECKING:
    from surefoot.doors import Clock, Doors, HttpTransport, Timed
    from surefoot.testing.clock import ManualClock


class Trip(msgspec.Struct, frozen=True):
    """How one request travels; times in seconds."""

    connect: float = 0.002
    there: float = 0.005
    """From the last byte's leaving to the arrival. Nothing that happens to the sender stops it."""
    back: float = 0.005
    refused: bool = False
    """No connection comes about."""
    stopped: float = 0.0
    """The process is stopped between its last check and the write, for so long."""


class Sent(msgspec.Struct):
    """A request that left a process, as only a judge can know it. Times as `ManualClock.elapsed`."""

    process: str
    wire: WireRequest
    checked: float
    """When the times were judged for the last time before it."""
    entries: int
    """How long the target's log was then, where the machine knows."""
    request: int = 0
    """Its number in the target's log, once it has arrived."""
    answered: float | None = None
    """When its answer reached the process, if the process lived then."""
    outcome: Outcome | None = None
    over: float | None = None
    """When the process stopped waiting for its answer."""


class Network:
    """How requests travel: `trip` is asked for each. Without one they all travel alike and fast."""

    def __init__(self, trip: Callable[[WireRequest, str], Trip] | None = None) -> None:
        self._trip = trip

    def trip(self, request: WireRequest, process_name: str) -> Trip:
        """The way of this request."""
        return Trip() if self._trip is None else self._trip(request, process_name)


class RandomNetwork(Network):
    """Travel times by chance; `lost` is the share of connections that do not come about."""

    def __init__(self, dice: random.Random, *, lost: float = 0.0) -> None:
        super().__init__()
        self._dice = dice
        self.lost = lost

    def trip(self, request: WireRequest, process_name: str) -> Trip:
        """The way of this request."""
        dice = self._dice.random
        return Trip(0.001 + 0.02 * dice(), 0.001 + 0.05 * dice(), 0.001 + 0.05 * dice(), refused=dice() < self.lost)


class Serves(Protocol):
    """What answers requests: a World, or a double of the user's own."""

    def handle(self, request: WireRequest, now: float) -> Outcome | Reply:
        """What becomes of a request that arrives at `now`."""
        ...


class Wires(Protocol):
    """The simulated machine, as the network sees it (`surefoot.testing.machine.Machine`)."""

    network: Network
    clock: ManualClock
    sent: list[Sent]
    under_way: int

    @property
    def target(self) -> Serves:
        """Where requests arrive."""
        ...

    def stir(self) -> None:
        """Something happened."""
        ...

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later."""
        ...

    def say(self, text: str) -> None:
        """A line of the trace."""
        ...

    def log_length(self) -> int:
        """Entries in the target's log."""
        ...


class Sender(Protocol):
    """The simulated process that sends (`surefoot.testing.machine.Process`)."""

    name: str
    dead: bool
    doors: Doors

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Its own event loop."""
        ...

    @property
    def machine(self) -> Wires:
        """Where it runs."""
        ...

    def freeze(self, seconds: float) -> None:
        """Stop it."""
        ...

    def check_alive(self) -> None:
        """Raises in a process that is gone."""
        ...


class VirtualHttp:
    """The HTTP door of one simulated process."""

    def __init__(self, process: Sender) -> None:
        self._process = process

    @property
    def clock(self) -> Clock:
        """The machine's clock."""
        return self._process.doors.clock

    def transport(self, op: Timed) -> HttpTransport:
        """A transport for one client of `op`."""
        return _Transport(self._process, op)


class _Transport:
    def __init__(self, process: Sender, op: Timed) -> None:
        self._process = process
        self._op = op
        self._keeps = op.effect == "read" or op.looking
        self._connected = False

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        gate = Gate(self._op, self._process.doors.clock, self._process.doors.hook)
        gate.begin(float(request.extensions.get("deadline", self._op.last_byte_before)))
        try:
            return await self._exchange(await _wire(request), gate)
        except asyncio.CancelledError as exc:
            if gate.sent_bytes == 0:
                raise exc from NotSent("cancelled before the first byte")
            raise
        except Exception as exc:
            if gate.sent_bytes == 0:
                raise NotSent(str(exc) or type(exc).__name__) from None
            raise

    async def aclose(self) -> None:
        self._connected = False

    async def _exchange(self, wire: WireRequest, gate: Gate) -> httpcore.Response:
        process, hook = self._process, gate.hook
        trip = process.machine.network.trip(wire, process.name)
        if not (self._keeps and self._connected):
            await self._connect(trip, gate)
        hook("http.send", "before")
        gate.check()
        checked, entries = process.machine.clock.elapsed, process.machine.log_length()
        if trip.stopped > 0:
            process.freeze(trip.stopped)
            process.machine.say(f"{process.name} is stopped between the check and the write")
            await asyncio.sleep(0)
        process.check_alive()
        gate.sent_bytes = len(wire.body) + 1
        sent = Sent(process.name, wire, checked, entries)
        reply = send(process, sent, trip)
        try:
            hook("http.send", "after")
            hook("http.reply", "before")
            outcome = await _in_time(reply, gate)
        finally:
            sent.over = process.machine.clock.elapsed
        response = _response(outcome)
        hook("http.reply", "after")
        return response

    async def _connect(self, trip: Trip, gate: Gate) -> None:
        gate.hook("http.connect", "before")
        gate.check()
        try:
            async with asyncio.timeout(gate.connect_seconds()):
                await asyncio.sleep(trip.connect)
        except TimeoutError:
            raise httpcore.ConnectTimeout("no connection before the time for the first byte") from None
        if trip.refused:
            raise httpcore.ConnectError("refused")
        gate.hook("http.connect", "after")
        self._connected = True


def _outcome(given: object, number: int, now: float) -> Outcome:
    if isinstance(given, Reply):
        return Outcome(number, given, now)
    if not isinstance(given, Outcome):
        text = "a double answers a request with a Reply, or with an Outcome where the reply is late or lost"
        raise InvalidInput(f"{text} (surefoot.testing.wire), not with {type(given).__name__}")
    return given


def send(process: Sender, sent: Sent, trip: Trip) -> asyncio.Future[Outcome]:
    """The bytes have left: the request arrives whatever becomes of the process. The future gets its outcome."""
    machine, wire = process.machine, sent.wire
    machine.sent.append(sent)
    reply: asyncio.Future[Outcome] = asyncio.Future(loop=process.loop)
    machine.stir()

    def arrive() -> None:
        machine.under_way -= 1
        machine.stir()
        now = machine.clock.true_wall
        arrived = sum(1 for other in machine.sent if other.request)
        outcome = _outcome(machine.target.handle(wire, now), arrived + 1, now)
        sent.request, sent.outcome = outcome.request, outcome
        machine.say(f"{process.name} -> {wire.method} {wire.target}: {told(outcome)}")
        if outcome.at is not None:
            machine.after(max(outcome.at - machine.clock.true_wall, 0.0) + trip.back, lambda: answer(outcome))

    def answer(outcome: Outcome) -> None:
        machine.stir()
        if not (process.dead or reply.done()):
            sent.answered = machine.clock.elapsed
            reply.set_result(outcome)

    machine.under_way += 1
    machine.after(trip.there, arrive)
    return reply


def told(outcome: Outcome) -> str:
    """An outcome in a few words."""
    status = "nothing" if outcome.reply is None else str(outcome.reply.status)
    return status if outcome.close == "keep" else f"{status}, {outcome.close}"


async def _in_time(reply: asyncio.Future[Outcome], gate: Gate) -> Outcome:
    try:
        async with asyncio.timeout(gate.read_seconds()):
            return await reply
    except TimeoutError:
        raise httpcore.ReadTimeout("no reply in time") from None


async def _wire(request: httpcore.Request) -> WireRequest:
    assert isinstance(request.stream, AsyncIterable)
    body = b"".join([part async for part in request.stream])
    headers = {name.decode().lower(): value.decode("latin-1") for name, value in request.headers}
    return WireRequest(request.method.decode(), request.url.target.decode(), headers, body)


def _response(outcome: Outcome) -> httpcore.Response:
    if outcome.reply is None:
        raise httpcore.ReadError("the connection was closed without a reply")
    if outcome.body_bytes is not None:
        raise httpcore.RemoteProtocolError("the reply broke off")
    lines = [(name.encode(), value.encode("latin-1")) for name, value in outcome.reply.headers.items()]
    return httpcore.Response(outcome.reply.status, headers=lines, content=outcome.reply.body)
