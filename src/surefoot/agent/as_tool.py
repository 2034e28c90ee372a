"""The tool that an agent is for another one: its task becomes a run in a conversation of its own."""

from __future__ import annotations

from functools import cache
from typing import Protocol

import msgspec

from surefoot import effects
from surefoot.agent.tools import DECLARED, Arguments, Tool, tool
from surefoot.core.state import WaitsFor

TASK_CHARACTERS_MAX = 100_000


class NamedAgent(Protocol):
    """What a tool has to know of its agent."""

    @property
    def name(self) -> str:
        """The name under which it runs."""
        ...

    @property
    def version(self) -> str:
        """Of its code."""
        ...


def _task_fault(arguments: Arguments) -> str | None:
    if not 0 < len(str(arguments["task"]).strip()) <= TASK_CHARACTERS_MAX:
        return f"task is a text of 1 to {TASK_CHARACTERS_MAX} characters"
    return None


@cache
def _work_on() -> Tool:
    """What all such tools have in common; made with the first of them, not with the package."""

    @tool(effect=effects.read, name="agent", limits=_task_fault)
    def work_on(task: str) -> object:
        """Hand a task to another agent and wait for its result.

        Args:
            task: The task, complete in itself: the agent sees nothing else of this conversation.
        """
        raise AssertionError("a run answers this, not a function")

    del DECLARED[work_on.name, work_on.place]
    return work_on


def child_tool(agent: NamedAgent, name: str | None, description: str | None) -> Tool:
    """The tool that hands its task to `agent`. Raises ValueError for a name that is not a tool's."""
    common = _work_on()
    texts = {"en": f"{agent.name} is at work", "zh-CN": f"{agent.name} 正在处理"}
    return msgspec.structs.replace(
        common,
        name=name if name is not None else agent.name.replace(".", "_"),
        description=description if description is not None else common.description,
        version=agent.version,
        waits_for=WaitsFor.run,
        agent=agent,
        display={"doing": texts, "checking": texts},
    )
