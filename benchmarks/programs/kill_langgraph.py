"""LangGraph's kill test: a loop of tool nodes, then one that posts a comment; SqliteSaver, durability "sync".

Started again, invoke(None) goes on with the thread.
"""

from __future__ import annotations

import sys
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from benchmarks.programs.comment import TEXT, Story, ended

STORY = Story(sys.argv[1:])


class State(TypedDict):
    """What a checkpoint holds."""

    number: int
    comment: object
    messages: Annotated[list[object], add_messages]


def read_page(state: State) -> dict[str, object]:
    """A step before the comment."""
    return {"number": state["number"] + 1, "messages": [AIMessage(TEXT)]}


def post_comment(state: State) -> dict[str, object]:
    """The effect."""
    return {"comment": STORY.post()["id"]}


def after(state: State) -> str:
    """Where to go."""
    return "read_page" if state["number"] < STORY.steps else "post_comment"


def run() -> object:
    """Start the thread, or go on with it."""
    with SqliteSaver.from_conn_string(str(STORY.folder / "graph.db")) as saver:
        graph = StateGraph(State)
        graph.add_node("read_page", read_page)
        graph.add_node("post_comment", post_comment)
        graph.add_conditional_edges(START, after)
        graph.add_conditional_edges("read_page", after)
        graph.add_edge("post_comment", END)
        compiled = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "the-one"}, "recursion_limit": STORY.steps + 10}
        begun = compiled.get_state(config).next
        state = compiled.invoke(
            None if begun else {"number": 0, "comment": None, "messages": []}, config, durability="sync"
        )
        return state["comment"]


if __name__ == "__main__":
    ended(run)
