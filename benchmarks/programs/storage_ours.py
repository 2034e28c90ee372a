"""How much surefoot stores: one run of so many steps, each with 1 KiB of its own: what the model wrote, or a result.

python -m benchmarks.programs.storage_ours FOLDER STEPS
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from benchmarks.programs.grown import Meter, text_of
from surefoot import Agent, Receipt, Surefoot, effects, tool
from surefoot.agent.model import CallPart, ModelRequest, ModelResponse


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


async def main(folder: Path, steps: int) -> None:
    """The run, and what it left."""
    turns = steps // 2
    agent = Agent("notes", Scripted(turns), tools=[note], turns=turns + 1)
    async with Surefoot(f"sqlite:///{folder.resolve() / 'app.db'}", [agent], worker=True) as sf:
        meter = Meter(folder, steps)
        ended = await sf.wait((await sf.start(agent, "Take notes.")).id)
        assert ended.status == "completed", ended.error_code
        meter.tell()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
