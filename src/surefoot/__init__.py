"""surefoot: AI agents whose tools change the outside world, through crashes and lost replies, each action once.

`import surefoot` loads neither pydantic nor httpx nor a model library; those come with the first call that needs them.
Nor does it load the runtime and the store: a module that declares tools and agents is read in a moment.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from surefoot import effects, errors
from surefoot.agent.agent import Agent
from surefoot.agent.builtin import ask_person, sleep, wait_for_signal
from surefoot.agent.schedule import Schedule
from surefoot.agent.tools import Approval, Tool, ToolCall, tool
from surefoot.core.throttle import Throttle
from surefoot.effects import Absent, Found, Operation, Receipt, Undetermined

if TYPE_CHECKING:
    from surefoot.app import Surefoot
    from surefoot.runtime.home import run_sync

__all__ = [
    "Absent",
    "Agent",
    "Approval",
    "Found",
    "Operation",
    "Receipt",
    "Schedule",
    "Surefoot",
    "Throttle",
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

_LATER = {"Surefoot": "surefoot.app", "run_sync": "surefoot.runtime.home"}


def __getattr__(name: str) -> object:
    if name == "__version__":
        # Asked of the installation where somebody wants it: reading that takes longer than all the rest here.
        return importlib.import_module("importlib.metadata").version("surefoot")
    if name not in _LATER:
        raise AttributeError(f"module 'surefoot' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
