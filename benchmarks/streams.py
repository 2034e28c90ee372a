"""From commit to client: how long an event takes to one reader of a run, and to each of 500.

`python -m benchmarks.streams` starts `surefoot serve`, a worker beside it that commits, and clients, each a process,
and prints JSON. Counted is what is committed once every client is connected. An event's time is the one that it
carries, from before its commit; clients read the same machine's clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

TICKS = 60
READERS = 500
AT = re.compile(rb'"at":"([^"]+)"')
AGENTS = f"""
import asyncio
from surefoot import Agent, effects, tool
from surefoot.testing.model import FakeModel


@tool(effect=effects.read)
async def tick(number: int) -> int:
    '''Wait a moment.'''
    await asyncio.sleep(0.1)
    return number


script = [[("tick", {{"number": n}})] for n in range({TICKS})]
ticker = Agent(name="ticker", model=FakeModel([*script, "done"]), instructions="Tick.", tools=[tick])
"""


class _Reader(asyncio.Protocol):
    """Reads a stream as cheaply as Python can: what clients cost is not what is measured."""

    def __init__(self, ask: bytes, seen: list[tuple[float, float]], over: Callable[[], None]) -> None:
        self.answered = False
        self._ask = ask
        self._seen = seen
        self._over = over

    def itself(self) -> _Reader:
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self._ask)

    def data_received(self, data: bytes) -> None:
        now = time.time()
        self.answered = True
        for found in AT.findall(data):
            sent = datetime.fromisoformat(found.decode()).timestamp()
            self._seen.append((sent, now - sent))
        if b"event: end" in data:
            self._over()


async def _read(url: str, run_id: str, count: int) -> list[float]:
    host, port = url.removeprefix("http://").split(":")
    ask = f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\n\r\n".encode()
    loop = asyncio.get_running_loop()
    seen: list[tuple[float, float]] = []
    left, done = count, asyncio.Event()

    def over() -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    readers = [_Reader(ask, seen, over) for _ in range(count)]
    for reader in readers:
        await loop.create_connection(reader.itself, host, int(port))
    while not all(reader.answered for reader in readers):
        await asyncio.sleep(0.01)
    began = time.time()
    await done.wait()
    return [latency for sent, latency in seen if sent > began]


def _start(url: str, folder: Path) -> str:
    """A run that a process of its own works on; its id."""
    before = _newest(url)
    words = [sys.executable, "-m", "surefoot", "runs", "start", "agents.py", "Go", "--wait", "--json"]
    subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while (found := _newest(url)) == before:
        time.sleep(0.01)
    return found


def _newest(url: str) -> str:
    with urllib.request.urlopen(f"{url}/v1/runs?limit=1") as answer:
        items = json.load(answer)["items"]
    return str(items[0]["id"]) if items else ""


def _measured(url: str, folder: Path, count: int) -> dict[str, float]:
    words = [sys.executable, "-m", "benchmarks.streams", "read", url, _start(url, folder), str(count)]
    seen = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    points = statistics.quantiles(seen, n=100)
    return {"readers": count, "events": len(seen), "p50_ms": points[49] * 1e3, "p95_ms": points[94] * 1e3}


def main() -> None:
    """Measure one reader and many, in turns, and print the ratio of their p95."""
    if sys.argv[1:2] == ["read"]:
        url, run_id, count = sys.argv[2:5]
        print(json.dumps(asyncio.run(_read(url, run_id, int(count)))))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "agents.py").write_text(AGENTS)
        log = folder / "log"
        with log.open("wb") as errors:
            server = subprocess.Popen(
                [sys.executable, "-m", "surefoot", "serve", "agents.py", "--port", "0"],
                cwd=folder, env=dict(os.environ), stderr=errors, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        try:
            while "serving http" not in log.read_text():
                assert server.poll() is None, log.read_text()
                time.sleep(0.05)
            url = log.read_text().split("serving ", 1)[1].split()[0]
            time.sleep(1.0)
            rounds = [(_measured(url, folder, 1), _measured(url, folder, READERS)) for _ in range(3)]
        finally:
            server.kill()
            server.wait()
    ratio = statistics.median(many["p95_ms"] / one["p95_ms"] for one, many in rounds)
    print(json.dumps({"rounds": rounds, "p95_ratio": round(ratio, 2)}, indent=1))


if __name__ == "__main__":
    main()
