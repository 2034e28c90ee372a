"""How much surefoot stores: one run of so many steps, each with 1 KiB of its own: what the model wrote, or a result.

python -m benchmarks.programs.storage_ours PLACE STEPS        a folder, or the URL of an empty database
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

import asyncpg

from benchmarks.programs.grown import Grown, Meter, text_of
from benchmarks.programs.lanes import POSTGRES
from surefoot import Agent, Receipt, Surefoot, effects, tool
from surefoot.agent.model import CallPart, ModelRequest, ModelResponse

SIZE = (
    "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
)
WHOLE = "SELECT pg_database_size(current_database())"
LOG = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"


@tool(effect=effects.idempotent(key_lifetime=None))
async def note(number: int, text: str) -> Receipt:
    """Take a note."""
    return Receipt(resource_id=str(number), output=text_of(2 * number + 1))


class Scripted:
    """Asks for so many notes, each of 1 KiB, one in each turn."""

    name = "scripted"

    def __init__(self, turns: int) -> None:
        self._turns, self._turn = turns, -1

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The next answer. It counts by itself: to count in the history would cost more, the longer the run."""
        self._turn += 1
        if self._turn == self._turns:
            return ModelResponse("done")
        arguments = json.dumps({"number": self._turn, "text": text_of(2 * self._turn)})
        return ModelResponse("", (CallPart(f"call_{self._turn}", "note", arguments),))


async def _run(url: str, steps: int, measured: Callable[[], Awaitable[Callable[[], Awaitable[None]]]]) -> None:
    turns = steps // 2
    agent = Agent("notes", Scripted(turns), tools=[note], turns=turns + 1)
    async with Surefoot(url, [agent], worker=True) as sf:
        tell = await measured()
        ended = await sf.wait((await sf.start(agent, "Take notes.")).id)
        assert ended.status == "completed", ended.error_code
        await tell()


async def on_sqlite(folder: Path, steps: int) -> None:
    """The run, and what it left in the file."""

    async def measured() -> Callable[[], Awaitable[None]]:
        meter = Meter(folder, steps)

        async def tell() -> None:
            meter.tell()

        return tell

    await _run(f"sqlite:///{folder.resolve() / 'app.db'}", steps, measured)


async def on_postgres(url: str, steps: int) -> None:
    """The run, and what it left in the database: its tables with their indexes, and what the server's log grew by."""
    connection = await asyncpg.connect(url)

    async def measured() -> Callable[[], Awaitable[None]]:
        began, log, size = time.perf_counter(), await connection.fetchval(LOG), await connection.fetchval(SIZE)

        async def tell() -> None:
            seconds = time.perf_counter() - began
            await connection.execute("CHECKPOINT")
            grown = await connection.fetchval(SIZE) - size
            told = Grown(steps, grown, await connection.fetchval(WHOLE), await connection.fetchval(LOG) - log, seconds)
            sys.stdout.write(json.dumps(asdict(told)) + "\n")
            sys.stdout.flush()

        return tell

    await _run(url, steps, measured)
    await connection.close()


if __name__ == "__main__":
    place, steps = sys.argv[1], int(sys.argv[2])
    asyncio.run(on_postgres(place, steps) if place.startswith(POSTGRES) else on_sqlite(Path(place), steps))
