"""What a cut of the power finds on the disk: the order of syncs and sends among the system calls of a real program."""

from __future__ import annotations

import asyncio
from pathlib import Path

from surefoot import Surefoot
from tests.counts.tracing import Line, traced
from tests.processes.story import WorldProcess

WAL = "app.db-wal"
WRITES = ("pwrite64", "write")
SYNCS = ("fsync", "fdatasync")


async def comments_traced(world: WorldProcess, folder: Path, count: int) -> list[Line]:
    """The system calls of a program that publishes so many comments."""
    number = world.next_number()
    url = f"sqlite:///{folder / 'app.db'}"
    async with Surefoot(url):
        pass
    environ = {"GITHUB_API_URL": world.url, "GITHUB_TOKEN": f"token-{number}"}
    words = ("comments", url, str(number), str(count))
    return await asyncio.to_thread(lambda: traced(folder / "calls.jsonl", *words, environ=environ))


def durable_sends(lines: list[Line]) -> tuple[int, int]:
    """How many POSTs there were, and before how many of them everything written to the log was on the disk.

    It has to be so when the POST's connection is opened, and nothing may have been written since the POST before it
    but what belongs to this one: an intent of its own was written in between.
    """
    posts = [i for i, line in enumerate(lines) if line["call"] == "sendto" and line["data"].startswith("POST ")]
    durable, before = 0, 0
    for post in posts:
        connect = next(
            i for i in range(post, -1, -1) if lines[i]["call"] == "connect" and lines[i]["path"] == lines[post]["path"]
        )
        written = [line for line in lines[before:post] if line["call"] in WRITES and line["path"].endswith(WAL)]
        synced = [line for line in lines[before:connect] if line["call"] in SYNCS and line["path"].endswith(WAL)]
        durable += bool(written) and any(
            sync["result"] == 0 and sync["entered"] > written[-1]["left"] and sync["left"] < lines[connect]["entered"]
            for sync in synced
        )
        before = post
    return len(posts), durable
