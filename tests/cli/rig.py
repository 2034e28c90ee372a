"""The command line, in this process or in one of its own, on a store of its own; what agents send is a text file."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import msgspec

import surefoot
from surefoot.cli import main
from tests.places import Place
from tests.support import eventually_sync

SOURCE = Path(surefoot.__file__).parents[1]

AGENTS = '''
import asyncio
from pathlib import Path

from surefoot import Absent, Agent, Approval, Found, Operation, Receipt, effects, tool
from surefoot.agent.model import ModelNeedsPerson
from surefoot.testing.model import FakeModel

SENT = Path(__file__).with_name("sent.txt")
GATE = Path(__file__).with_name("gate")


def find_note(op: Operation, text: str) -> Found | Absent:
    held = SENT.read_text() if SENT.exists() else ""
    return Found(Receipt(resource_id="note-1")) if op.key in held else Absent(coverage="the whole file")


def _write(op: Operation, text: str) -> None:
    with SENT.open("a") as file:
        file.write(f"{op.key} {text}\\n")


@tool(effect=effects.lookup(find_note, settle=0.1), approval=Approval(expires=3_600))
async def post_note(op: Operation, text: str) -> Receipt:
    """Post a note."""
    _write(op, text)
    return Receipt(resource_id="note-1", url="https://notes.example/1")


@tool(effect=effects.lookup(find_note, settle=0.1), approval=Approval(expires=0.2))
async def post_soon(op: Operation, text: str) -> Receipt:
    """Post a note, if somebody approves it at once."""
    _write(op, text)
    return Receipt(resource_id="note-1")


@tool(effect=effects.opaque)
async def shout(op: Operation, text: str) -> Receipt:
    """Shout, and never learn whether anybody heard it."""
    _write(op, text)
    raise effects.InDoubt("no echo")


@tool(effect=effects.opaque, timeout=60)
async def wait_for_gate(op: Operation) -> Receipt:
    """Begin, and end once the gate is there."""
    _write(op, "begun")
    while not GATE.exists():
        await asyncio.sleep(0.01)
    return Receipt(resource_id="gate")


def _agent(name, tool, call, words):
    return Agent(name=name, model=FakeModel([[call], words]), instructions="Do it.", tools=[tool])


writer = _agent("writer", post_note, ("post_note", {"text": "hello"}), "Written.")
patient = _agent("patient", post_note.using(settle=60), ("post_note", {"text": "hello"}), "Written.")
hurried = _agent("hurried", post_soon, ("post_soon", {"text": "hello"}), "Written.")
inventor = Agent(name="inventor", model=FakeModel([[("\\x1b[2Jpost\\nnote\\u202e", {})], "Well."]))
sly = _agent("sly", post_note, ("post_note", {"text": "rm \\u202e -rf\\u200b /"}), "Written.")
shouter = _agent("shouter", shout.using(settle=0.1), ("shout", {"text": "hi"}), "Shouted.")
gatekeeper = _agent("gatekeeper", wait_for_gate, ("wait_for_gate", {}), "Through.")
talker = Agent(name="talker", model=FakeModel(["Hello."]), instructions="Talk.")
locked_out = Agent(name="locked_out", model=FakeModel([ModelNeedsPerson("bad key", status=401), "Hello."]))
'''


class Answer(msgspec.Struct, frozen=True):
    """What a command said."""

    code: int
    out: str
    err: str

    def value(self) -> object:
        """The one JSON document on stdout."""
        found: object = json.loads(self.out)
        return found

    def record(self) -> dict[str, object]:
        """The document, an object."""
        found = self.value()
        assert isinstance(found, dict), self
        return found

    def records(self) -> list[dict[str, object]]:
        """The document, an array of objects."""
        found = self.value()
        assert isinstance(found, list) and all(isinstance(item, dict) for item in found), self
        return found

    @property
    def error(self) -> str:
        """The code of the error that the document is."""
        error = self.record()["error"]
        assert isinstance(error, dict) and set(error) == {"code", "message", "details"}, self
        return str(error["code"])


class Cli:
    """`surefoot` in the folder of one place, on its store."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.folder = place.folder
        (self.folder / "agents.py").write_text(AGENTS)
        own = {"PYTHONPATH": str(SOURCE), "LANG": "C.UTF-8", **place.settings}
        self.environment: dict[str, str] = {**os.environ, **own}

    @property
    def sent(self) -> list[str]:
        """What the tools wrote: a key and a text in each line."""
        file = self.folder / "sent.txt"
        return file.read_text().splitlines() if file.exists() else []

    def command(self, *words: str) -> list[str]:
        """The words of the process."""
        return [sys.executable, "-m", "surefoot", *words]

    def run(self, *words: str, stdin: str = "", more: Mapping[str, str] | None = None) -> Answer:
        """Run a command to its end, in this process: most of what a process of its own costs is its start."""
        out, err = io.StringIO(), io.StringIO()
        with self._inside(stdin, more or {}), redirect_stdout(out), redirect_stderr(err):
            code = main(words)
        return Answer(code, out.getvalue(), err.getvalue())

    @contextmanager
    def _inside(self, stdin: str, more: Mapping[str, str]) -> Iterator[None]:
        """This process as the command's: its folder, environment and stdin, and no module of the user left behind."""
        folder, path, modules = Path.cwd(), list(sys.path), set(sys.modules)
        os.chdir(self.folder)
        try:
            with mock.patch.dict(os.environ, {**self.environment, **more}), mock.patch("sys.stdin", io.StringIO(stdin)):
                yield
        finally:
            os.chdir(folder)
            sys.path[:] = path
            for name in set(sys.modules) - modules:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(str(self.folder)):
                    del sys.modules[name]

    def process(self, *words: str, stdin: str = "", more: Mapping[str, str] | None = None) -> Answer:
        """Run a command to its end, as a process."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env={**self.environment, **(more or {})},
            input=stdin.encode(),
            capture_output=True,
            timeout=60,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def json(self, *words: str) -> Answer:
        """The same with --json."""
        return self.run(*words, "--json")

    def start(self, agent: str, text: str = "Go") -> str:
        """Start a run; its id."""
        return str(self.json("runs", "start", f"agents.py:{agent}", text).record()["id"])

    def work(self, agent: str = "") -> Answer:
        """A worker until nothing goes on without a person."""
        done = self.process("worker", f"agents.py:{agent}" if agent else "agents.py", "--until-idle")
        assert done.code == 0, done
        return done

    def asked(self, agent: str) -> tuple[str, str]:
        """A run of `agent` that waits for a person: the ids of the run and of the question."""
        run_id = self.start(agent)
        self.work(agent)
        waiting = self.json("actions", "list", "--status", "waiting", "--run", run_id).records()
        assert len(waiting) == 1, waiting
        return run_id, str(waiting[0]["id"])

    @contextmanager
    def worker(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker under way; it is killed at the end if it lives."""
        child = subprocess.Popen(
            self.command("worker", *words), cwd=self.folder, env=self.environment, stderr=subprocess.PIPE
        )
        try:
            yield child
        finally:
            child.kill()
            child.communicate()

    def eventually_sent(self, count: int = 1, seconds_max: float = 30) -> None:
        """Wait until the tools wrote so many lines."""
        eventually_sync(lambda: len(self.sent) >= count, f"{count} lines in sent.txt", seconds_max=seconds_max)

    def status(self, run_id: str) -> str:
        """The state of a run."""
        return str(self.json("runs", "show", run_id).record()["status"])

    def eventually_status(self, run_id: str, status: str, agent: str) -> None:
        """Let workers work until a run has this state."""

        def reached() -> bool:
            self.work(agent)
            return self.status(run_id) == status

        eventually_sync(reached, f"{run_id} to be {status}", seconds_max=30)


def ended_by(child: subprocess.Popen[bytes], number: signal.Signals, seconds_max: float = 30) -> tuple[int, str]:
    """Send a signal; the exit code and what it had said on stderr."""
    child.send_signal(number)
    _, err = child.communicate(timeout=seconds_max)
    return child.returncode, err.decode()
