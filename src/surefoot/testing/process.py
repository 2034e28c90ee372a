"""A real worker process with crash points: it kills, stops or breaks itself at a chosen passage of a door.

    python -m surefoot.testing.process agents.py --store sqlite:///app.db --point kill@http.send:after:2

It is a normal worker on the agents of a user's file, until SIGTERM. A point is ACTION@DOOR:WHEN or
ACTION@DOOR:WHEN:NTH; of several points each is counted from the one before it. Doors are those of
`surefoot.doors.Hook`, and `http.check`: its "after" lies between the last check of an operation's times and the bytes.
The actions:

    kill, stop   SIGKILL or SIGSTOP, to itself
    exit         an exception that ends the process
    raise        an exception that the passage raises, and nothing more
    full         from here on nothing can be written to a file (RLIMIT_FSIZE is 0), until SIGUSR1 makes room again
    pass         nothing: a place to count from
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from surefoot import http_wire
from surefoot.agent.agent import Agent
from surefoot.agent.tools import Tool
from surefoot.app import Surefoot
from surefoot.core import ends, people, policy
from surefoot.doors import Doors, Entropy, Hook, SystemClock, SystemEntropy
from surefoot.http import SystemHttp

Action = Literal["kill", "stop", "exit", "raise", "full", "pass"]
When = Literal["before", "after"]


class Broken(RuntimeError):
    """The exception of the action "raise"."""


class Point(msgspec.Struct, frozen=True):
    """One crash point: what happens at the `nth` passage (from 1)."""

    action: Action
    door: str
    when: When
    nth: int = 1


def read_point(text: str) -> Point:
    """A point from its text. Raises argparse.ArgumentTypeError."""
    action, _, place = text.partition("@")
    words = place.split(":")
    try:
        door, when, nth = (*words, "1")[:3]
        return msgspec.convert({"action": action, "door": door, "when": when, "nth": int(nth)}, type=Point)
    except (ValueError, msgspec.ValidationError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not ACTION@DOOR:WHEN:NTH; actions: {', '.join(get_args(Action))}"
        ) from None


class Plan:
    """The points of one process, as a hook for its doors.

    `notes` gets a line for each point before it acts, `trace` one for each passage: the operating system has them when
    the process dies.
    """

    def __init__(self, points: Sequence[Point], notes: Path | None = None, trace: Path | None = None) -> None:
        self._points = list(points)
        self._passed = 0
        self._notes = _appending(notes)
        self._trace = _appending(trace)

    def hook(self, name: str, when: When) -> None:
        """One passage."""
        self._trace(f"{name}:{when}\n")
        if not self._points or (self._points[0].door, self._points[0].when) != (name, when):
            return
        self._passed += 1
        if self._passed < self._points[0].nth:
            return
        point = self._points.pop(0)
        self._passed = 0
        self._notes(f"{point.action}@{name}:{when}:{point.nth}\n")
        _act(point)


def _appending(path: Path | None) -> Callable[[str], object]:
    if path is None:
        return len
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return lambda line: os.write(descriptor, line.encode())


def _act(point: Point) -> None:
    match point.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "exit":
            raise SystemExit(f"crash point {point.door}:{point.when}")
        case "raise":
            raise Broken(f"crash point {point.door}:{point.when}")
        case "full":
            limit_files(0)
        case "pass":
            return


def limit_files(size: int | None) -> None:
    """Let no write go beyond `size` bytes of a file (None: as far as the process may): it fails with EFBIG."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


def hooked_clock(hook: Hook) -> SystemClock:
    """The machine's clock, whose sleeps are passages.

    It stays a SystemClock: a store on PostgreSQL goes by its server's clock where the door is the machine's own.
    """
    clock = SystemClock()
    sleep = clock.sleep

    async def hooked(seconds: float) -> None:
        hook("clock.sleep", "before")
        await sleep(seconds)
        hook("clock.sleep", "after")

    vars(clock)["sleep"] = hooked
    return clock


class HookedEntropy:
    """Randomness whose draws are passages."""

    def __init__(self, entropy: Entropy, hook: Hook) -> None:
        self._entropy = entropy
        self._hook = hook

    def token(self, count: int) -> bytes:
        """Random bytes."""
        self._hook("random", "before")
        drawn = self._entropy.token(count)
        self._hook("random", "after")
        return drawn

    def fraction(self) -> float:
        """A random number in [0, 1)."""
        self._hook("random", "before")
        drawn = self._entropy.fraction()
        self._hook("random", "after")
        return drawn


def hooked_doors(hook: Hook) -> Doors:
    """The doors of a real process, each passage told to `hook`."""
    clock = hooked_clock(hook)
    return Doors(clock=clock, entropy=HookedEntropy(SystemEntropy(), hook), http=SystemHttp(clock, hook), hook=hook)


class HookedGate(http_wire.Gate):
    """A gate whose check at the socket write is a passage: behind it nothing can be called back any more."""

    def check(self, *, request: bool = True) -> None:
        """The check."""
        self.hook("http.check", "before")
        super().check(request=request)
        self.hook("http.check", "after")


def sweep_after(seconds: Sequence[float]) -> None:
    """Let this process sweep at other times than those of production."""
    for module in (policy, ends, people):
        vars(module)["SWEEP_SECONDS"] = tuple(seconds)


def load(path: Path) -> Mapping[str, object]:
    """The names of the user's file. Raises what the file raises."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return vars(module)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m surefoot.testing.process", description="A worker with crash points.")
    made.add_argument("file", type=Path, help="a Python file with agents at module level")
    made.add_argument("--store", required=True, metavar="URL")
    made.add_argument("--lease", type=float, default=policy.LEASE_SECONDS_DEFAULT, metavar="SECONDS")
    made.add_argument("--point", type=read_point, action="append", default=[], metavar="ACTION@DOOR:WHEN:NTH")
    made.add_argument("--notes", type=Path, help="gets a line for each point that was reached, before it acts")
    made.add_argument("--trace", type=Path, help="gets a line for each passage")
    made.add_argument("--sweep", type=float, nargs="+", metavar="SECONDS", help="in place of 60, 600 and 86400")
    return made


async def _work(arguments: argparse.Namespace, hook: Hook) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, limit_files, None)
    names = load(arguments.file)
    agents = [value for value in names.values() if isinstance(value, Agent)]
    tools = [value for value in names.values() if isinstance(value, Tool)]
    own = {name for agent in agents for name in agent.tools}
    async with Surefoot(
        arguments.store,
        agents,
        tools=[tool for tool in tools if tool.name not in own],
        worker=True,
        lease_seconds=arguments.lease,
        doors=hooked_doors(hook),
    ):
        await told.wait()


def main(argv: Sequence[str] | None = None) -> None:
    """Work until SIGTERM, SIGINT, or a point that ends the process."""
    arguments = _parser().parse_args(argv)
    points: list[Point] = arguments.point
    if any(point.door == "http.check" for point in points):
        vars(http_wire)["Gate"] = HookedGate
    if arguments.sweep:
        sweep_after(arguments.sweep)
    asyncio.run(_work(arguments, Plan(points, arguments.notes, arguments.trace).hook))


if __name__ == "__main__":
    main()
