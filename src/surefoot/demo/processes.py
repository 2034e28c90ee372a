"""The demo's processes: the World, and workers that are killed and stopped. All of them end with the demo."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar

import msgspec

from surefoot.demo.change import PACKAGE, Change
from surefoot.testing.faults import Rule
from surefoot.testing.wire import Applied, LogEntry, Received, read_log
from surefoot.testing.world import BOT
from surefoot.testing.world_server import WorldState

T = TypeVar("T")

REPO, NUMBER = "acme/app", 128
TOKEN = "demo-token-of-the-world"
COMMENTS = "/repos/*/*/issues/*/comments"
WAIT_SECONDS_MAX = 60.0
POLL_SECONDS = 0.02
LOG_LINES_SHOWN = 15
_OWN_SETTINGS = ("SUREFOOT_STORE", "SUREFOOT_TENANT", "SUREFOOT_LEASE_SECONDS", "SUREFOOT_GITHUB_ACCOUNT")


class DemoFailed(Exception):
    """The demo could not be played to its end."""


class Started(msgspec.Struct, frozen=True):
    """What `runs start --json` prints, as far as it is needed here."""

    id: str


class Child:
    """A process of the demo with its own log file."""

    def __init__(self, name: str, words: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name.replace(' ', '-')}.log"
        self._file: IO[bytes] = self.log.open("ab")
        self.started = time.time()
        self._popen = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=self._file,
            # Ctrl-C is for the demo, which then ends its processes in order.
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    @property
    def ended(self) -> int | None:
        """The exit code, negative for a signal; None while it lives (a stopped process lives)."""
        return self._popen.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._popen.send_signal(number)

    def stopped(self) -> bool:
        """Whether it was stopped by a signal since the last call."""
        if self._popen.returncode is not None:
            return False
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return False
        if not os.WIFSTOPPED(status):
            self._popen.returncode = os.waitstatus_to_exitcode(status)
            return False
        return True

    def end(self) -> None:
        """Kill it if it lives, and wait for its end."""
        if self.ended is None:
            self._popen.kill()
        self._popen.wait()
        self._file.close()

    def tail(self) -> str:
        """The end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join(f"  {self.name}: {line}" for line in lines)


class Stagehands:
    """Starts the World and workers in one folder; ends whatever still lives on leaving."""

    def __init__(self, folder: Path, lease_seconds: float) -> None:
        self.folder = folder
        self.world = ""
        self.workers: list[Child] = []
        self._children: list[Child] = []
        own_path = os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))))
        self._environment = {name: value for name, value in os.environ.items() if name not in _OWN_SETTINGS}
        self._environment |= {
            "PYTHONPATH": own_path,
            "PYTHONUNBUFFERED": "1",
            "SUREFOOT_STORE": self.store,
            "SUREFOOT_LEASE_SECONDS": f"{lease_seconds:g}",
            "GITHUB_TOKEN": TOKEN,
            "SUREFOOT_GITHUB_ACCOUNT": f"{BOT.login}:{BOT.id}",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in reversed(self._children):
            child.end()

    @property
    def store(self) -> str:
        """The URL of the store."""
        return f"sqlite:///{self.folder / 'surefoot.db'}"

    def _start(self, name: str, *words: str) -> Child:
        child = Child(name, words, self._environment, self.folder)
        self._children.append(child)
        return child

    async def start_world(self, change: Change) -> None:
        """The double of GitHub, with one pull request."""
        (self.folder / "change.diff").write_text(change.diff, encoding="utf-8")
        port = self.folder / "port"
        child = self._start(
            "world", "surefoot.testing.world_server", "--port", "0", "--port-file", str(port),
            "--log", str(self.folder / "world.jsonl"), "--repo", REPO, "--pull", str(NUMBER), "--comments", "3",
            "--title", change.title, "--diff", str(self.folder / "change.diff"), "--token", f"{TOKEN}={BOT.login}",
        )  # fmt: skip
        await self.until(lambda: port.exists() or child.ended is not None, "the World")
        self.world = f"http://127.0.0.1:{port.read_text()}"
        self._environment["GITHUB_API_URL"] = self.world

    def start_worker(self, point: str | None = None) -> Child:
        """A worker on reviewer.py; with a crash point it signals itself at one passage of a door."""
        name = f"worker {len(self.workers) + 1}"
        if point is None:
            child = self._start(name, "surefoot", "worker", "reviewer.py")
        else:
            lease = self._environment["SUREFOOT_LEASE_SECONDS"]
            child = self._start(
                name, "surefoot.testing.process", "reviewer.py", "--store", self.store, "--lease", lease,
                "--point", point,
            )  # fmt: skip
        self.workers.append(child)
        return child

    def start_run(self, text: str, by: str) -> str:
        """Start the run as a user does, on the command line; its id. Raises DemoFailed."""
        words = [sys.executable, "-m", "surefoot", "runs", "start", "reviewer.py", text, "--by", by, "--json"]
        done = subprocess.run(words, cwd=self.folder, env=self._environment, capture_output=True, check=False)
        if done.returncode != 0:
            raise self.failed(f"the run did not start: {(done.stdout + done.stderr).decode(errors='replace')}")
        return msgspec.json.decode(done.stdout, type=Started).id

    async def until(self, condition: Callable[[], T], what: str) -> T:
        """The first true value. Raises DemoFailed with the ends of all logs after WAIT_SECONDS_MAX."""
        end = time.monotonic() + WAIT_SECONDS_MAX
        while not (value := condition()):
            if time.monotonic() > end:
                raise self.failed(f"waited {WAIT_SECONDS_MAX:g} s in vain for {what}")
            await asyncio.sleep(POLL_SECONDS)
        return value

    def failed(self, why: str) -> DemoFailed:
        """The failure with what the processes said last."""
        return DemoFailed("\n".join([why, *(child.tail() for child in self._children)]))

    # The World

    def world_log(self) -> list[LogEntry]:
        """What the World saw and did."""
        path = self.folder / "world.jsonl"
        return read_log(path) if path.exists() else []

    def posts(self) -> list[Received]:
        """The requests that wanted a comment."""
        return [e for e in self.world_log() if isinstance(e, Received) and e.method == "POST"]

    def created(self) -> list[Applied]:
        """The comments that requests made."""
        return [e for e in self.world_log() if isinstance(e, Applied) and e.request]

    def comments_of_ours(self) -> list[tuple[int, str]]:
        """Id and body of the comments that our account has on the pull request now."""
        state = msgspec.json.decode(self._control("GET", "state"), type=WorldState)
        listed = state.repos[REPO][str(NUMBER)].comments
        return [(c.id, c.body) for c in listed if c.author.id == BOT.id]

    def fault(self, rule: Rule) -> None:
        """Let the World misbehave."""
        self._control("POST", "faults", msgspec.json.encode(rule))

    def heal(self) -> None:
        """The World is well again."""
        self._control("DELETE", "faults")

    def _control(self, method: str, name: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.world}/_world/{name}", data=body, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=WAIT_SECONDS_MAX) as reply:
            answer: bytes = reply.read()
        return answer
