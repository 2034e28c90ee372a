"""surefoot: AI agents whose tools change the outside world, through crashes and lost replies, each action once.

`import surefoot` loads neither pydantic nor httpx nor a model library; those come with the first call that needs them.
"""

from __future__ import annotations

from surefoot import effects, errors
from surefoot.agent.agent import Agent
from surefoot.agent.builtin import ask_person, sleep, wait_for_signal
from surefoot.agent.tools import Approval, Tool, ToolCall, tool
from surefoot.app import Surefoot, run_sync
from surefoot.effects import Absent, Found, Operation, Receipt, Undetermined

__all__ = [
    "Absent",
    "Agent",
    "Approval",
    "Found",
    "Operation",
    "Receipt",
    "Surefoot",
    "Tool",
    "ToolCall",
    "Undetermined",
    "ask_person",
    "effects",
    "errors",
    "run_sync",
    "sleep",
    "tool",
    "wait_for_signal",
]
