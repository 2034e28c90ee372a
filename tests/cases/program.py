"""A worker process for stories with real crashes: `python -m tests.cases.program '{"script": …}'`.

It says `started` once it works and then works until it is killed. What it can be told is in `Config`. It kills itself
with SIGKILL at the door passage that `kill` names.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import msgspec

from surefoot import Agent, Surefoot
from surefoot.doors import Doors, SystemClock, SystemEntropy
from surefoot.http import SystemHttp
from surefoot.testing.model import FakeModel, ScriptedCall
from tests.cases.rig import SECRET, post_comment, read_pull


class Kill(msgspec.Struct, frozen=True):
    """The `nth` passage of a door behind the commit of the first effectful intent, and nothing earlier."""

    door: str
    when: str = "before"
    nth: int = 1


class Config(msgspec.Struct, frozen=True):
    """What the process is."""

    store: str
    script: list[str | list[tuple[str, dict[str, object]]]]
    gated: bool = False
    gate_on: str = ""
    settle: float = 0.5
    lease_seconds: float = 10.0
    start: str | None = None
    kill: Kill | None = None


class Killer:
    """Counts passages."""

    def __init__(self, kill: Kill | None) -> None:
        self._kill = kill
        self._count = 0

    def __call__(self, name: str, when: str) -> None:
        if self._kill is None or (name, when) != (self._kill.door, self._kill.when):
            return
        self._count += 1
        if self._count == self._kill.nth:
            os.kill(os.getpid(), signal.SIGKILL)


async def work(config: Config) -> None:
    """Work until killed."""
    clock, hook = SystemClock(), Killer(config.kill)
    doors = Doors(clock=clock, entropy=SystemEntropy(), http=SystemHttp(clock, hook), hook=hook)
    script: list[str | list[ScriptedCall]] = [s if isinstance(s, str) else list(s) for s in config.script]
    tools = [read_pull, post_comment(gated=config.gated, gate_on=config.gate_on, settle=config.settle)]
    agent = Agent(name="reviewer", model=FakeModel(script), instructions="Review.", tools=tools)
    async with Surefoot(
        config.store, [agent], worker=True, lease_seconds=config.lease_seconds, secret=SECRET, doors=doors
    ) as sf:
        say("started")
        if config.start is not None:
            say((await sf.start("reviewer", config.start)).id)
        await asyncio.get_running_loop().create_future()


def say(text: str) -> None:
    """One line for whoever started us."""
    print(text, flush=True)


if __name__ == "__main__":
    asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Config)))
