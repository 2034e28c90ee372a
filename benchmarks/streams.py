"""From commit to client: how long an event takes to one reader of a run, and to each of 500.

`python -m benchmarks.streams` starts `surefoot serve`, reads with clients in a process of their own, and prints JSON.
An event's time is the one that it carries, which is before its commit; clients read the same machine's clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from datetime import datetime
from pathlib import Path

TICKS = 30
READERS = 500
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


async def _reader(host: str, port: int, run_id: str, seen: list[float]) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    path = f"/v1/runs/{run_id}/events"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\n\r\n".encode())
    began = time.time()
    while line := await reader.readline():
        if line.startswith(b"data: ") and b'"at":"' in line:
            at = line.split(b'"at":"', 1)[1].split(b'"', 1)[0].decode()
            sent = datetime.fromisoformat(at).timestamp()
            # What was there before the client is history, not news.
            if sent > began:
                seen.append(time.time() - sent)
        elif line.startswith(b"event: end"):
            break
    writer.close()


async def _read(url: str, run_id: str, count: int) -> list[float]:
    host, port = url.removeprefix("http://").split(":")
    seen: list[float] = []
    await asyncio.gather(*(_reader(host, int(port), run_id, seen) for _ in range(count)))
    return seen


def _start(url: str, key: str) -> str:
    body = json.dumps({"agent": "ticker", "input": "Go"}).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/runs", body, headers)) as answer:
        return str(json.load(answer)["id"])


def _measured(url: str, count: int) -> dict[str, float]:
    run_id = _start(url, f"{count}-{time.time()}")
    words = [sys.executable, "-m", "benchmarks.streams", "read", url, run_id, str(count)]
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
            rounds = [(_measured(url, 1), _measured(url, READERS)) for _ in range(3)]
        finally:
            server.kill()
            server.wait()
    ratio = statistics.median(many["p95_ms"] / one["p95_ms"] for one, many in rounds)
    print(json.dumps({"rounds": rounds, "p95_ratio": round(ratio, 2)}, indent=1))


if __name__ == "__main__":
    main()
