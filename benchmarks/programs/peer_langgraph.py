"""LangGraph on SQLite with durability "sync": a graph that loops over one tool node, its state the message history.

A step is one super-step: the tool node, which adds one short message, and its checkpoint. It writes no intent.
`langgraph` is its asynchronous checkpointer, `langgraph-threads` the synchronous one, a thread for each run at once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Annotated, Protocol, TypedDict

from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from benchmarks.programs.lanes import PAYLOAD, Cell, Sample, Ticks, measured, measured_by_threads, tell

_TICKS: dict[str, Ticks] = {}


class State(TypedDict):
    """What a checkpoint holds."""

    run: str
    number: int
    steps: int
    messages: Annotated[list[object], add_messages]


def note(state: State) -> dict[str, object]:
    """The tool node."""
    _TICKS[state["run"]].tick(state["run"])
    return {"number": state["number"] + 1, "messages": [AIMessage(PAYLOAD)]}


async def note_async(state: State) -> dict[str, object]:
    """The same as a coroutine."""
    return note(state)


class Graph(Protocol):
    """What is used of a compiled graph."""

    async def ainvoke(self, start: State, config: dict[str, object], *, durability: str) -> object:
        """Run it to its end."""
        ...

    def invoke(self, start: State, config: dict[str, object], *, durability: str) -> object:
        """The same, blocking."""
        ...


def graph(saver: object, node: Callable[[State], object]) -> Graph:
    """The compiled loop."""
    made = StateGraph(State)
    made.add_node("note", node)
    made.add_edge(START, "note")
    made.add_conditional_edges("note", lambda state: "note" if state["number"] < state["steps"] else END)
    compiled: Graph = made.compile(checkpointer=saver)
    return compiled


def start(name: str, steps: int) -> State:
    """The state that a run begins with."""
    return {"run": name, "number": 0, "steps": steps, "messages": []}


def settings(name: str) -> dict[str, object]:
    """A thread of its own for each run, and room for its steps."""
    return {"configurable": {"thread_id": name}, "recursion_limit": 10_000}


async def measure(cell: Cell) -> Sample:
    """By coroutines."""
    async with AsyncSqliteSaver.from_conn_string(str(cell.folder / "graph.db")) as saver:
        compiled = graph(saver, note_async)

        async def run(name: str, ticks: Ticks) -> None:
            _TICKS[name] = ticks
            await compiled.ainvoke(start(name, cell.steps), settings(name), durability="sync")

        return await measured(cell, run, steps_of_run=cell.steps)


def measure_by_threads(cell: Cell) -> Sample:
    """By threads."""
    with SqliteSaver.from_conn_string(str(cell.folder / "graph.db")) as saver:
        compiled = graph(saver, note)

        def run(name: str, ticks: Ticks) -> None:
            _TICKS[name] = ticks
            compiled.invoke(start(name, cell.steps), settings(name), durability="sync")

        return measured_by_threads(cell, run, steps_of_run=cell.steps)


if __name__ == "__main__":
    asked = Cell.of_arguments(sys.argv[1:])
    tell(measure_by_threads(asked) if asked.what.endswith("-threads") else asyncio.run(measure(asked)))
