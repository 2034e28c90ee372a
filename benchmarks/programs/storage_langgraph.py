"""How much LangGraph stores: one thread of so many super-steps, each of which adds a message of 1 KiB."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from benchmarks.programs.grown import Meter, text_of


class State(TypedDict):
    """What a checkpoint holds."""

    number: int
    messages: Annotated[list[object], add_messages]


def note(state: State) -> dict[str, object]:
    """The tool node."""
    return {"number": state["number"] + 1, "messages": [AIMessage(text_of(state["number"]))]}


if __name__ == "__main__":
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    with SqliteSaver.from_conn_string(str(folder / "graph.db")) as saver:
        graph = StateGraph(State)
        graph.add_node("note", note)
        graph.add_edge(START, "note")
        graph.add_conditional_edges("note", lambda state: "note" if state["number"] < steps else END)
        compiled = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "the-one"}, "recursion_limit": steps + 10}
        meter = Meter(folder, steps)
        compiled.invoke({"number": 0, "messages": []}, config, durability="sync")
        meter.tell()
