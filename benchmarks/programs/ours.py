"""surefoot itself, with the defaults of a program that embeds it: one process, one worker, nothing left out.

`perform`: effects outside of any agent, one after the other in each lane. Each is a run of its own with one step (a
tool call with a key), from the call of `Surefoot.perform` to its receipt.

`loop`: runs of an agent, from `Surefoot.start` to the end of `Surefoot.wait`. Its model answers at once, in this
process: so many turns of one model call and one tool call each, then a closing answer. Each model call and each tool
call is a step, as everywhere in surefoot. A run of 20 steps is 10 turns and the closing answer (21 steps, all counted);
a run of 1 step is the closing answer alone.

The tool changes nothing and takes no time, but is declared as an effect, so nothing of what surefoot does for an effect
is left out.
"""

from __future__ import annotations

import asyncio
import sys

from benchmarks.programs.lanes import PAYLOAD, Cell, Sample, Ticks, measured, tell
from surefoot import Agent, Receipt, Surefoot, effects, tool
from surefoot.agent.model import AssistantMessage, CallPart, ModelRequest, ModelResponse, UserMessage

_TICKS: dict[str, Ticks] = {}


@tool(effect=effects.idempotent(key_lifetime=None))
async def note(run: str, number: int, text: str) -> Receipt:
    """Take a note."""
    _TICKS[run].tick(run)
    return Receipt(resource_id=f"{run}-{number}")


class Scripted:
    """Asks for a note in each turn, and says that it is done after the last one.

    The name of the run is its first message. How often it has answered is known by the length of the history.
    """

    name = "scripted"

    def __init__(self, turns: int) -> None:
        self._turns = turns

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The next answer."""
        first = request.messages[0]
        assert isinstance(first, UserMessage)
        run = first.text
        _TICKS[run].tick(run)
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
        if turn == self._turns:
            return ModelResponse("done")
        arguments = f'{{"run": "{run}", "number": {turn}, "text": "{PAYLOAD}"}}'
        return ModelResponse("", (CallPart(f"call_{turn}", "note", arguments),), finish="tool_calls")


async def _perform(cell: Cell, url: str) -> Sample:
    async with Surefoot(url, tools=[note]) as sf:

        async def run(name: str, ticks: Ticks) -> None:
            _TICKS[name] = ticks
            for number in range(cell.steps):
                await sf.perform(note.call(run=name, number=number, text=PAYLOAD), key=f"{name}-{number}")
            del _TICKS[name]

        return await measured(cell, run, steps_of_run=cell.steps)


async def _loop(cell: Cell, url: str) -> Sample:
    turns = cell.steps // 2
    agent = Agent("notes", Scripted(turns), "Take notes.", [note], turns=turns + 1)
    # One worker drives all lanes: with more runs than its capacity they would wait for each other.
    async with Surefoot(url, [agent], worker=True, capacity=max(128, cell.at_once)) as sf:

        async def run(name: str, ticks: Ticks) -> None:
            _TICKS[name] = ticks
            started = await sf.start(agent, name)
            ended = await sf.wait(started.id)
            assert ended.status == "completed", ended.error_code
            del _TICKS[name]

        return await measured(cell, run, steps_of_run=2 * turns + 1, turns_of_run=turns)


async def measure(cell: Cell) -> Sample:
    """`perform` or `loop`."""
    url = cell.place if cell.on_postgres else f"sqlite:///{cell.folder.resolve() / 'app.db'}"
    return await (_perform if cell.what == "perform" else _loop)(cell, url)


if __name__ == "__main__":
    tell(asyncio.run(measure(Cell.of_arguments(sys.argv[1:]))))
