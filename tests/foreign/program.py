"""A worker process for the foreign tests: `python -m tests.foreign.program '{"tool": …}'`.

It starts one run, says its id, and works until it is killed. It kills itself before the first byte of the tool's
`kill_at`-th request, if that is not 0.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import msgspec

from surefoot import Agent, Surefoot
from surefoot.agent.tools import Tool
from surefoot.connectors import github
from surefoot.doors import Doors, SystemClock, SystemEntropy
from surefoot.http import SystemHttp
from surefoot.testing.model import FakeModel, ScriptedCall
from tests.cases.rig import SECRET


class Config(msgspec.Struct, frozen=True):
    """What the process is."""

    store: str
    tool: str
    arguments: dict[str, object]
    settle: float
    timeout: float
    kill_at: int = 0


class Killer:
    """Counts requests from the tool's beginning on."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._count: int | None = None

    def __call__(self, name: str, when: str) -> None:
        if (name, when) == ("tool", "before"):
            self._count = 0
        elif (name, when) == ("http.send", "before") and self._count is not None:
            self._count += 1
            if self._count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)


def configured(name: str, settle: float, timeout: float) -> Tool:
    """A GitHub tool with short times."""
    tool = getattr(github, name)
    assert isinstance(tool, Tool)
    return tool.using(settle=settle, timeout=timeout)


async def work(config: Config) -> None:
    """Start the run and work until killed."""
    clock, hook = SystemClock(), Killer(config.kill_at)
    doors = Doors(clock=clock, entropy=SystemEntropy(), http=SystemHttp(clock, hook), hook=hook)
    script: list[str | list[ScriptedCall]] = [[(config.tool, config.arguments)], "done"]
    tool = configured(config.tool, config.settle, config.timeout)
    agent = Agent(name="worker", model=FakeModel(script), instructions="Do it.", tools=[tool])
    async with Surefoot(config.store, [agent], worker=True, secret=SECRET, doors=doors) as sf:
        run = await sf.start("worker", "Do it.")
        print(run.id, flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Config)))
