"""Restate: a service of no-op steps, called through the server's ingress; service and server on loopback.

It journals a step's result in its server's own log, and no intent. The server is one process with one node, its data in
the folder of the cell.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import httpx
import hypercorn.asyncio
import hypercorn.config
import restate

from benchmarks.programs.lanes import PAYLOAD, Cell, Sample, Ticks, measured, tell

SERVER = Path(__file__).parents[2] / "build" / "bench" / "node" / "node_modules" / ".bin" / "restate-server"
START_SECONDS_MAX = 60.0
_TICKS: dict[str, Ticks] = {}
notes = restate.Service("notes")


class Context(Protocol):
    """What is used of Restate's."""

    async def run_typed(self, name: str, work: Callable[[], Awaitable[str]]) -> str:
        """One step."""
        ...


async def write(context: Context, asked: dict[str, str]) -> int:
    """So many steps."""
    name, steps = asked["run"], int(asked["steps"])
    for number in range(steps):

        async def note(number: int = number) -> str:
            _TICKS[name].tick(name)
            return f"{PAYLOAD}{number}"

        await context.run_typed(f"note-{number}", note)
    return steps


notes.handler()(write)


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """The server's process."""

    def __init__(self, folder: Path) -> None:
        self.ingress, self.admin = free_port(), free_port()
        settings = {
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_BIND_PORT": str(free_port()),
            "RESTATE_ADVERTISED_HOST": "127.0.0.1",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_ADMIN__BIND_PORT": str(self.admin),
            "RESTATE_INGRESS__BIND_PORT": str(self.ingress),
            "RESTATE_LOG_FILTER": "error",
            "RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE": "512MiB",
        }
        words = [str(SERVER), "--no-logo", "--base-dir", str(folder), "--node-name", "n1"]
        with (folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                words, env={**os.environ, **settings}, stdout=log, stderr=log, start_new_session=True
            )
        _until(lambda: bool(urllib.request.urlopen(f"http://127.0.0.1:{self.ingress}/restate/health", timeout=1)))

    def register(self, port: int) -> None:
        """Where the service is."""
        body = json.dumps({"uri": f"http://127.0.0.1:{port}", "force": True}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.admin}/deployments", body, {"content-type": "application/json"}
        )
        _until(lambda: bool(urllib.request.urlopen(request, timeout=5).read()))

    def stop(self) -> None:
        """The process and what it started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            if done():
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def serve(port: int) -> None:
    """The service, in a thread of its own."""
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.loglevel = "ERROR"
    asyncio.run(hypercorn.asyncio.serve(restate.app([notes]), config, shutdown_trigger=asyncio.Event().wait))


async def measure(cell: Cell, server: Server) -> Sample:
    """Each run is one call of the service, which answers when its journal has the end."""
    limits = httpx.Limits(max_connections=cell.at_once)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.ingress}", timeout=120, limits=limits) as client:

        async def run(name: str, ticks: Ticks) -> None:
            _TICKS[name] = ticks
            answer = await client.post("/notes/write", json={"run": name, "steps": str(cell.steps)})
            answer.raise_for_status()

        return await measured(cell, run, steps_of_run=cell.steps)


def main() -> None:
    """One cell."""
    asked = Cell.of_arguments(sys.argv[1:])
    port = free_port()
    threading.Thread(target=serve, args=(port,), daemon=True).start()
    server = Server(asked.folder)
    try:
        server.register(port)
        sample = asyncio.run(measure(asked, server))
    finally:
        server.stop()
    tell(sample)
    os._exit(0)


if __name__ == "__main__":
    main()
