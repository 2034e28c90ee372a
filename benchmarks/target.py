"""The target of the kill tests: a server that takes comments, lists them, and knows when it was asked.

It may kill the process that posts once its comment is there, before any answer leaves: the lost response.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.rounds import ROOT, environment

START_SECONDS_MAX = 90.0
POLL_SECONDS = 0.002


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that are killed reset their connections: nothing to tell."""


class Target:
    """The server, and the one program under test that runs against it."""

    def __init__(self) -> None:
        self.comments: list[dict[str, object]] = []
        self.asked: list[float] = []
        """When each request came, lookups and posts (time.time())."""
        self.kills_poster = False
        self.child: subprocess.Popen[bytes] | None = None
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.server_address[1]

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()

    def take(self, text: object) -> dict[str, object] | None:
        """A comment is there from now on; None where its poster was killed and nobody is to be answered."""
        comment: dict[str, object] = {"id": len(self.comments) + 1, "text": text}
        self.comments.append(comment)
        if not self.kills_poster:
            return comment
        self.kills_poster = False
        assert self.child is not None
        os.killpg(self.child.pid, signal.SIGKILL)
        return None


def _handler_of(target: Target) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """The wire."""

        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

        def do_GET(self) -> None:
            """All comments."""
            target.asked.append(time.time())
            self._answer(target.comments)

        def do_POST(self) -> None:
            """One more."""
            target.asked.append(time.time())
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            comment = target.take(body["text"])
            if comment is None:
                self.close_connection = True
            else:
                self._answer(comment)

        def _answer(self, value: object) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@dataclass(frozen=True)
class Played:
    """One process from its start: what it said, when it first asked the target, and when it said so (seconds)."""

    said: str
    asked_seconds: float | None
    said_seconds: float


def play(
    target: Target,
    python: Path,
    module: str,
    folder: Path,
    steps: int,
    *words: str,
    until: Callable[[], bool] | None = None,
) -> Played:
    """Start a kill program and watch it until it says how it ended, dies, or `until` holds; then it is killed.

    What a process leaves on its machine (surefoot's locks of workers, where the store is PostgreSQL) lies in the folder
    too, so a copy of the folder shows a death as the first one did.
    """
    target.asked.clear()
    own = {"XDG_RUNTIME_DIR": str(folder.resolve())}
    command = [str(python), "-m", f"benchmarks.programs.{module}", str(folder), str(target.port), str(steps), *words]
    with (folder / "said.txt").open("a+", encoding="utf-8") as out:
        out.truncate(0)
        began = time.time()
        child = subprocess.Popen(
            command, cwd=ROOT, env={**environment(), **own}, stdout=out, stderr=out, start_new_session=True
        )
        target.child = child
        while child.poll() is None and time.time() - began < START_SECONDS_MAX:
            if until is not None and until():
                break
            time.sleep(POLL_SECONDS)
        passed = time.time() - began
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    lines = (folder / "said.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    said = next((line for line in lines if line.startswith(("DONE", "ERROR"))), f"no answer (exit {child.returncode})")
    return Played(said, target.asked[0] - began if target.asked else None, passed)
