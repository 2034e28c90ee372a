"""SIGKILL of `surefoot serve` in each window of the story, while a client follows it and approves."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http.client import HTTPException

import pytest

from surefoot.testing import faults as f
from tests.cli.rig import Cli
from tests.places import Place
from tests.processes.story import COMMENTS, Story, WorldProcess
from tests.server.rig import Reply, Served
from tests.server.watching import Follower
from tests.support import eventually

SECONDS_MAX = 90.0
IN_FLIGHT_SECONDS = 0.4


class Client:
    """Follows the run and decides about it, through whatever server is there; it knows nothing but what it is told."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.server: Served | None = None
        self.follower = Follower("")
        self._following: asyncio.Task[None] | None = None

    async def serve(self) -> Served:
        """A server, on the port of the one before it."""
        port = 0 if self.server is None else self.server.port
        self.server = await asyncio.to_thread(self._served, port)
        return self.server

    def _served(self, port: int) -> Served:
        story = self.story
        words = ("--store", story.store)
        return Served(Cli(story.place), *words, port=port, more=story.environ, file=story.file.name)

    @property
    def at(self) -> Served:
        """The server that is there, or was."""
        assert self.server is not None
        return self.server

    async def start(self) -> None:
        """Start the run, as often as it takes: the key makes it one. Then follow it."""
        self.story.run_id = str((await self.insist(lambda: self.at.start("reviewer", key="story"))).record()["id"])
        self.follower = Follower(self.story.run_id)
        self._following = asyncio.ensure_future(self._follow())

    async def approve(self) -> Reply:
        """Approve what is asked, as often as it takes: under its key it is one decision."""
        question = await self.insist(lambda: self.at.get(f"/v1/pending-actions?run_id={self.story.run_id}"))
        while not question.items():
            question = await self.insist(lambda: self.at.get(f"/v1/pending-actions?run_id={self.story.run_id}"))
        self.story.action_id = str(question.items()[0]["id"])
        return await self.insist(lambda: self.at.decide(self.story.action_id, "approve", key="once"))

    async def insist(self, ask: Callable[[], Reply]) -> Reply:
        """Ask until there is an answer."""
        answers: list[Reply] = []

        async def once() -> None:
            try:
                answers.append(await asyncio.to_thread(ask))
            except (OSError, HTTPException):
                # No server, or it died over this request.
                await eventually(self._listens, "a server to ask", seconds_max=SECONDS_MAX)

        while not answers:
            await once()
        assert answers[0].status < 300, answers[0]
        return answers[0]

    async def _follow(self) -> None:
        while not self.follower.over:
            try:
                await self.follower.connect(self.at.url)
            except (OSError, asyncio.IncompleteReadError):
                await eventually(self._listens, "a server to follow at", seconds_max=SECONDS_MAX)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.at.port), timeout=1.0).close()
        except OSError:
            return False
        return True

    async def end(self) -> None:
        """Wait until it was told of the run's end; then everything must be as the store and the World have it."""
        assert self._following is not None
        await asyncio.wait_for(self._following, SECONDS_MAX)
        stored = [line.sequence for line in await self.story.sf.store.events("default", self.story.run_id, 0, 10_000)]
        assert self.follower.received == stored
        assert self.follower.types[-1] == "run_completed"
        shown = (await self.insist(lambda: self.at.get(f"/v1/runs/{self.story.run_id}"))).record()
        assert shown["status"] == "completed"
        decided = [kind for kind in self.follower.types if kind == "action_decided"]
        assert len(decided) == 1
        await self.story.once()

    async def close(self) -> None:
        """No process is left."""
        if self._following is not None:
            self._following.cancel()
        if self.server is not None:
            self.server.kill()


@asynccontextmanager
async def told(world: WorldProcess, place: Place) -> AsyncIterator[Client]:
    """A story with its first server."""
    async with Story(world, place) as story:
        client = Client(story)
        try:
            await client.serve()
            yield client
        finally:
            await client.close()


async def after_start(client: Client) -> None:
    """The run is there, and perhaps more."""
    await client.start()
    client.at.kill()
    await client.serve()
    await client.approve()


async def while_waiting(client: Client) -> None:
    """A person is asked."""
    await client.start()
    await client.story.asked()
    client.at.kill()
    await client.serve()
    await client.approve()


async def over_the_decision(client: Client) -> None:
    """The decision is on its way, or its answer is."""
    await client.start()
    await client.story.asked()
    deciding = asyncio.ensure_future(client.approve())
    handle = asyncio.get_running_loop().call_later(random.Random(client.story.number).uniform(0, 0.03), client.at.kill)
    await asyncio.to_thread(client.at.process.wait)
    handle.cancel()
    await client.serve()
    assert (await deciding).record()["decision"] == "approve"


async def in_flight(client: Client) -> None:
    """The request has arrived at the target, its answer has not left."""
    client.story.world.hit(
        f.Rule(f.Delay(IN_FLIGHT_SECONDS), method="POST", path=COMMENTS, account=client.story.account, times=1)
    )
    await client.start()
    await client.approve()
    await eventually(client.story.posts, "the request at the target")
    client.at.kill()
    await client.serve()


async def at_the_reply(client: Client) -> None:
    """The comment is made; whether anybody wrote that down is a matter of chance."""
    await client.start()
    await client.approve()
    await client.story.comment_made()
    client.at.kill()
    await client.serve()


async def while_looking(client: Client) -> None:
    """The second server looks for the comment, and dies too."""
    await in_flight(client)
    await eventually(client.story.looks, "a look at the target", seconds_max=SECONDS_MAX)
    client.at.kill()
    await client.serve()


WINDOWS: tuple[Callable[[Client], Awaitable[None]], ...] = (
    after_start,
    while_waiting,
    over_the_decision,
    in_flight,
    at_the_reply,
    while_looking,
)


@pytest.mark.real_process
@pytest.mark.parametrize("window", [over_the_decision, in_flight, while_looking], ids=lambda window: window.__name__)
async def test_a_killed_server_makes_one_comment_and_its_client_knows(
    world: WorldProcess, place: Place, window: Callable[[Client], Awaitable[None]]
) -> None:
    async with told(world, place) as client:
        await window(client)
        await client.end()


@pytest.mark.prove
@pytest.mark.real_process
@pytest.mark.parametrize("number", range(100))
async def test_a_hundred_kills_in_all_windows(world: WorldProcess, place: Place, number: int) -> None:
    async with told(world, place) as client:
        await WINDOWS[number % len(WINDOWS)](client)
        await client.end()
