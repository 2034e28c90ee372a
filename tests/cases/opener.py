"""A process that opens stores when it is told to: each line of stdin names one; it answers `ok` or an error's code."""

from __future__ import annotations

import asyncio
import sys

from surefoot import Surefoot
from surefoot.errors import SurefootError


async def opened(url: str) -> str:
    """Open as a worker does, and close."""
    try:
        async with Surefoot(url, worker=True):
            return "ok"
    except SurefootError as error:
        return error.code


if __name__ == "__main__":
    print("started", flush=True)
    for line in sys.stdin:
        print(asyncio.run(opened(line.strip())), flush=True)
