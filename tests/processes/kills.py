"""SIGKILL at drawn moments, and in which window of a call's life each of them really fell.

A window that is wide, or that the World can widen by answering slowly, is hit from outside: the test watches the
World's log or the store and kills. Windows too short for that are hit by the worker itself, at a drawn passage of a
door. Whatever was aimed at, a kill counts for the window that the store and the World's log say it fell into.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence

import msgspec

from surefoot.testing.faults import AnyFault, Delay, Late, LostRequest, Rule
from surefoot.testing.wire import Replied
from tests.places import Place
from tests.processes.story import COMMENTS, Story, Worker, WorldProcess
from tests.support import eventually

BEFORE = "before the intent"
SENDING = "intent → first byte"
FLIGHT = "in flight"
COMMITTING = "reply → commit"
LOOKUP = "lookup"
WAITING = "waiting"
WINDOWS = (BEFORE, SENDING, FLIGHT, COMMITTING, LOOKUP, WAITING)

SLOW_SECONDS = 0.5
"""How long a slow answer of the World takes; kills from outside fall into it."""
SETTLE_SECONDS = 0.6
AT_ONCE = 3
"""Stories side by side."""
MISSES_MAX = 40
"""Kills in all that may fall outside the windows."""

_FIRST_BYTE_LEFT = ("http.send:after", "http.reply:before")
_PROPOSED = "pass@model:after:2"
_COMMENT = (_PROPOSED, "pass@tool:before")
_DOUBT = (_PROPOSED, "raise@tool:after")


class Aim(msgspec.Struct, frozen=True):
    """One drawn kill. From outside: `delay_s` after `seen` holds; by itself: at the last of `points`."""

    window: str
    points: tuple[str, ...] = ()
    rules: tuple[tuple[str, str, AnyFault], ...] = ()
    seen: Callable[[Story], bool] | None = None
    delay_s: float = 0.0

    @property
    def kind(self) -> str:
        """How the process is killed."""
        return "by itself" if self.seen is None else "from outside"


def draw(chance: random.Random, window: str, number: int) -> Aim:
    """Where to kill. Where the window allows it, every other kill comes from outside."""
    outside = _OUTSIDE.get(window)
    return outside(chance) if outside is not None and number % 2 else _BY_ITSELF[window](chance)


def _before_from_outside(chance: random.Random) -> Aim:
    path, method = chance.choice([("/user", "GET"), ("/repos/*/*/pulls/*", "GET")])
    asked = path.split("/")[1] if path == "/user" else "pulls"
    return Aim(
        BEFORE,
        rules=((method, path, Delay(SLOW_SECONDS)),),
        seen=lambda story: any(asked in r.path for r in story.requests()),
        delay_s=chance.uniform(0, SLOW_SECONDS - 0.1),
    )


def _slow(chance: random.Random) -> AnyFault:
    """The request takes effect and is answered late, takes none, or takes it late but within the settle time."""
    faults: list[AnyFault] = [Delay(SLOW_SECONDS), LostRequest("hang"), Late(SETTLE_SECONDS / 3, "hang")]
    return chance.choice(faults)


def _flight_from_outside(chance: random.Random) -> Aim:
    return Aim(
        FLIGHT,
        rules=(("POST", COMMENTS, _slow(chance)),),
        seen=lambda story: bool(story.posts()),
        delay_s=chance.uniform(0, SLOW_SECONDS - 0.1),
    )


def _lookup_from_outside(chance: random.Random) -> Aim:
    slow = chance.choice([COMMENTS, "/repos/*/*/issues/*", "/repos/*/*"])
    rules: list[tuple[str, str, AnyFault]] = [("GET", slow, Delay(SLOW_SECONDS))]
    if chance.random() < 0.5:
        rules.append(("POST", COMMENTS, LostRequest("reset")))
    return Aim(
        LOOKUP,
        points=_DOUBT,
        rules=tuple(rules),
        seen=lambda story: any(
            r.method == "GET" and "/pulls" not in r.path and r.path != "/user" for r in story.requests()
        ),
        delay_s=chance.uniform(0, SLOW_SECONDS - 0.1),
    )


def _waiting_from_outside(chance: random.Random) -> Aim:
    if chance.random() < 0.5:
        return Aim(WAITING, seen=lambda story: bool(story.action_id), delay_s=chance.uniform(0, 0.3))
    return Aim(
        WAITING,
        rules=(("POST", COMMENTS, LostRequest("reset")),),
        seen=lambda story: any(story.replied(look) for look in story.looks()),
        delay_s=chance.uniform(0.05, SETTLE_SECONDS),
    )


def _before_by_itself(chance: random.Random) -> Aim:
    if chance.random() < 0.5:
        doors = ["http.connect:before", "http.connect:after", "http.send:before", "http.send:after"]
        doors += ["http.reply:before", "http.reply:after", "commit:before:2", "commit:after:2", "commit:before:3"]
        return Aim(BEFORE, points=(_PROPOSED, f"kill@{chance.choice(doors)}"))
    doors = [f"commit:{when}:{nth}" for when in ("before", "after") for nth in (1, 2, 3, 4)]
    doors += ["model:before", "model:after", "tool:before", "tool:after", "http.send:after:2", "http.reply:after:3"]
    doors += ["model:before:2", "model:after:2", "random:before:2", "clock.sleep:before:3"]
    return Aim(BEFORE, points=(f"kill@{chance.choice(doors)}",))


def _sending_by_itself(chance: random.Random) -> Aim:
    if chance.random() < 0.3:
        return Aim(SENDING, points=(_PROPOSED, chance.choice(["kill@tool:before", "kill@commit:after:3"])))
    doors = ["http.connect:before", "http.connect:after", "http.send:before", "clock.sleep:before"]
    return Aim(SENDING, points=(*_COMMENT, f"kill@{chance.choice(doors)}"))


def _flight_by_itself(chance: random.Random) -> Aim:
    points = (*_COMMENT, f"kill@{chance.choice(_FIRST_BYTE_LEFT)}")
    return Aim(FLIGHT, points=points, rules=(("POST", COMMENTS, _slow(chance)),))


def _committing_by_itself(chance: random.Random) -> Aim:
    ways = [
        (*_COMMENT, "kill@http.reply:after"),
        (_PROPOSED, "kill@tool:after"),
        (_PROPOSED, "pass@tool:after", "kill@commit:before"),
    ]
    return Aim(COMMITTING, points=chance.choice(ways))


def _lookup_by_itself(chance: random.Random) -> Aim:
    doors = ["lookup:before", "lookup:after", "http.connect:before", "http.connect:after"]
    doors += [f"http.{door}:{nth}" for door in ("send:before", "send:after", "reply:after") for nth in (1, 2, 3)]
    points = (*_DOUBT, "pass@commit:after", f"kill@{chance.choice(doors)}")
    if chance.random() < 0.2:
        points = (*_DOUBT, "pass@lookup:after", "kill@commit:before")
    lost = chance.random() < 0.5
    return Aim(LOOKUP, points=points, rules=(("POST", COMMENTS, LostRequest("reset")),) if lost else ())


def _waiting_by_itself(chance: random.Random) -> Aim:
    if chance.random() < 0.5:
        return Aim(WAITING, points=(_PROPOSED, "pass@commit:after", "kill@clock.sleep:before"))
    points = ("pass@lookup:after", "pass@commit:after", f"kill@clock.sleep:{chance.choice(['before', 'after'])}")
    return Aim(WAITING, points=points, rules=(("POST", COMMENTS, LostRequest("reset")),))


_OUTSIDE: dict[str, Callable[[random.Random], Aim]] = {
    BEFORE: _before_from_outside,
    FLIGHT: _flight_from_outside,
    LOOKUP: _lookup_from_outside,
    WAITING: _waiting_from_outside,
}
_BY_ITSELF: dict[str, Callable[[random.Random], Aim]] = {
    BEFORE: _before_by_itself,
    SENDING: _sending_by_itself,
    FLIGHT: _flight_by_itself,
    COMMITTING: _committing_by_itself,
    LOOKUP: _lookup_by_itself,
    WAITING: _waiting_by_itself,
}


async def kill_once(world: WorldProcess, place: Place, aim: Aim) -> str | None:
    """One story with one kill, to its good end. The window that was hit; None if the kill fell into none."""
    async with Story(world, place, settle=SETTLE_SECONDS) as story:
        for method, path, fault in aim.rules:
            world.hit(Rule(fault, method=method, path=path, account=story.account))
        await story.start()
        worker = story.worker(*aim.points)
        killing = asyncio.create_task(_killed(story, worker, aim))
        asking = asyncio.create_task(
            _approve_unless_killed(story, worker, wait=aim.window == WAITING and not aim.rules)
        )
        died_at, _ = await asyncio.gather(killing, asking)
        window = await _fell_into(story, worker, aim, died_at)
        story.worker()
        if (await story.snapshot()).status != "completed":
            await _approve_unless_decided(story)
        await story.completed()
        await story.once()
        assert_looked_between(story)
        return window


async def _killed(story: Story, worker: Worker, aim: Aim) -> float:
    """Kill, or wait until the worker has; when it died (wall, seconds)."""
    seen = aim.seen
    if seen is None:
        await eventually(
            lambda: worker.process.poll() is not None,
            f"the kill at {aim.points}, reached {worker.notes()}",
            seconds_max=60,
        )
        return worker.noted_at()
    await eventually(lambda: seen(story), f"what is waited for before a kill in {aim.window}", seconds_max=60)
    at = time.monotonic() + aim.delay_s
    await eventually(lambda: time.monotonic() >= at, "the drawn moment")
    worker.kill()
    return time.time()


async def _approve_unless_killed(story: Story, worker: Worker, *, wait: bool) -> None:
    """Approve when asked; a worker that is to die while a person is waited for is left alone until then."""
    asked = asyncio.create_task(story.asked())
    died = asyncio.create_task(worker.ended())
    await asyncio.wait({asked, died}, return_when=asyncio.FIRST_COMPLETED)
    if not asked.done():
        asked.cancel()
        return
    story.action_id = asked.result()
    if wait:
        await died
        return
    died.cancel()
    await story.sf.approve(story.action_id, by="ann")


async def _approve_unless_decided(story: Story) -> None:
    step = next((s for s in (await story.snapshot()).steps if s.tool_name == "create_issue_comment"), None)
    if step is None or step.status == "waiting_for_approval":
        await story.approve()


async def _fell_into(story: Story, worker: Worker, aim: Aim, died_at: float) -> str | None:
    """The window, from the store and the World's log as they were when the worker died."""
    snapshot = await story.snapshot()
    step = next((s for s in snapshot.steps if s.tool_name == "create_issue_comment"), None)
    last = worker.notes()[-1] if aim.seen is None else ""
    if snapshot.status == "waiting_for_user":
        return WAITING
    if step is None or step.status in ("pending", "waiting_for_approval"):
        return BEFORE
    if step.status == "running":
        if any(place in last for place in _FIRST_BYTE_LEFT):
            return FLIGHT
        posts = [post for post in story.posts() if post.at <= died_at]
        return COMMITTING if posts and _answered(story, posts[-1].request, died_at) else FLIGHT if posts else SENDING
    if step.status == "outcome_unknown":
        under_way = [r for r in story.requests() if r.at <= died_at and not _answered(story, r.request, died_at)]
        looking = any(place in last for place in ("lookup", "http.", "commit:before"))
        return LOOKUP if looking or any(r.method == "GET" for r in under_way) else WAITING
    return None


def _answered(story: Story, request: int, by: float) -> bool:
    """Whether the answer had left by then. A request that is never answered has a line of another kind."""
    replies = [e for e in story.world.entries() if isinstance(e, Replied) and e.request == request]
    return any(e.end != "hang" and e.at <= by for e in replies)


def assert_looked_between(story: Story) -> None:
    """Between two requests of one key stands a look that read every comment."""
    entries = story.world.entries()
    listed = {
        e.request: e.order for e in entries if isinstance(e, Replied) and e.status == 200 and e.listed is not None
    }
    looks = [listed[look.request] for look in story.looks() if look.request in listed]
    posts = story.posts()
    for first, second in itertools.pairwise(posts):
        assert any(first.order < order < second.order for order in looks), f"story {story.number}: sent without a look"


async def kill_all(world: WorldProcess, place: Place, chance: random.Random, in_each: int) -> Counter[tuple[str, str]]:
    """So many kills in each window; how often each window was hit in which way."""
    hits: Counter[tuple[str, str]] = Counter()
    owed = [window for window in WINDOWS for _ in range(in_each)]
    misses = 0
    while owed:
        aims = [draw(chance, window, number) for number, window in enumerate(owed)]
        chance.shuffle(aims)
        fell = await _gathered([kill_once(world, place, aim) for aim in aims])
        hits.update((window, aim.kind) for window, aim in zip(fell, aims, strict=True) if window is not None)
        misses += fell.count(None)
        assert misses <= MISSES_MAX, f"{misses} kills fell into no window; {dict(hits)}"
        owed = [window for window in WINDOWS for _ in range(max(in_each - _of(hits, window), 0))]
    return hits


async def _gathered(kills: Sequence[Coroutine[None, None, str | None]]) -> list[str | None]:
    """Run them, AT_ONCE side by side; the first failure ends the others."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(kill: Coroutine[None, None, str | None]) -> str | None:
        async with places:
            return await kill

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(kill)) for kill in kills]
    return [task.result() for task in tasks]


def _of(hits: Counter[tuple[str, str]], window: str) -> int:
    return sum(count for (where, _), count in hits.items() if where == window)


def histogram(hits: Counter[tuple[str, str]]) -> list[str]:
    """The histogram as lines."""
    lines = [f"{'window':<20}{'from outside':>14}{'by itself':>11}{'kills':>7}"]
    for window in WINDOWS:
        counts = hits[window, "from outside"], hits[window, "by itself"]
        lines.append(f"{window:<20}{counts[0]:>14}{counts[1]:>11}{sum(counts):>7}")
    return [*lines, f"{'all':<45}{sum(hits.values()):>7}"]
