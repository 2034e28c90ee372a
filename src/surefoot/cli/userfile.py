"""The user's file: `reviewer.py`, `package.module`, or either with `:name`; its agents, tools and schedules."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

import msgspec

from surefoot.agent.agent import Agent
from surefoot.agent.schedule import Schedule
from surefoot.agent.tools import Tool
from surefoot.core.redact import Redactor
from surefoot.errors import InvalidInput
from surefoot.runtime.secrets import EnvironmentSecrets

EXAMPLE = "give the file that defines the agent, such as reviewer.py"


class UserCode(msgspec.Struct, frozen=True):
    """What a user's module offers. `agents` are all of it, or the one that was named."""

    place: str
    agents: tuple[Agent, ...]
    tools: tuple[Tool, ...]
    schedules: tuple[Schedule, ...] = ()
    """Those of its agents."""

    @property
    def agent(self) -> Agent:
        """The only agent. Raises InvalidInput (`no_agent`, `which_agent`)."""
        if len(self.agents) == 1:
            return self.agents[0]
        if not self.agents:
            raise _no_agent(self.place)
        names = ", ".join(sorted(a.name for a in self.agents))
        raise InvalidInput(
            f"{self.place} has {len(self.agents)} agents ({names}); say which one: {self.place}:{self.agents[0].name}",
            code="which_agent",
        )


def load(place: str) -> UserCode:
    """Import a file or module and find its module-level agents and tools.

    Raises InvalidInput: `file_not_found`, `import_failed`, `unknown_agent`, `no_agent` (neither agent nor tool).
    """
    where, name = split_place(place)
    module = imported(where)
    found = _agents(module, where)
    tools = tuple({id(v): v for v in vars(module).values() if isinstance(v, Tool)}.values())
    if name is not None:
        found = {name: _named(found, name, where)}
    if not found and not tools:
        raise _no_agent(where)
    agents = tuple({id(a): a for a in found.values()}.values())
    # An agent's tools are configured copies: they stand before the ones that the file imported.
    own = {tool_name for agent in agents for tool_name in agent.tools}
    names = {agent.name for agent in agents}
    schedules = {id(v): v for v in vars(module).values() if isinstance(v, Schedule) and v.agent_name in names}
    return UserCode(where, agents, tuple(t for t in tools if t.name not in own), tuple(schedules.values()))


def split_place(place: str) -> tuple[str, str | None]:
    """The file or module, and the name behind the colon if there is one."""
    where, colon, name = place.rpartition(":")
    if not colon or os.path.exists(place):
        return place, None
    if not where or not name:
        raise InvalidInput(f"{place!r} is not FILE or FILE:name; {EXAMPLE}", code="file_not_found")
    return where, name


def _no_agent(place: str) -> InvalidInput:
    return InvalidInput(
        f"{place} has no agent at module level: write `reviewer = Agent(name=…, model=…, tools=[…])` there",
        code="no_agent",
    )


def _agents(module: ModuleType, place: str) -> dict[str, Agent]:
    """The agents by the name of their variable."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, Agent)}
    by_name: dict[str, tuple[str, Agent]] = {}
    for variable, agent in found.items():
        other = by_name.setdefault(agent.name, (variable, agent))
        if other[1] is not agent:
            raise InvalidInput(
                f"{place}: {other[0]} and {variable} are two agents called {agent.name!r}; give one another name",
                code="which_agent",
            )
    return found


def _named(found: dict[str, Agent], name: str, place: str) -> Agent:
    by_name = {agent.name: agent for agent in found.values()}
    agent = by_name.get(name) or found.get(name)
    if agent is None:
        names = ", ".join(sorted(by_name)) or "none"
        raise InvalidInput(f"{place} has no agent {name!r}; it has: {names}", code="unknown_agent")
    return agent


def imported(place: str) -> ModuleType:
    """The module of a file or of a name. Raises InvalidInput: `file_not_found`, `import_failed`."""
    if place.endswith(".py") or os.sep in place or os.path.isfile(place):
        return _import_file(Path(place))
    if not all(part.isidentifier() for part in place.split(".")):
        raise InvalidInput(
            f"{place!r} is neither a Python file nor the name of a module; {EXAMPLE}", code="file_not_found"
        )
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as problem:
        if problem.name is None or not (place == problem.name or place.startswith(problem.name + ".")):
            raise _failed(place, problem) from None
        raise InvalidInput(
            f"there is no module {place!r} on the path, and no file of that name in {os.getcwd()}; {EXAMPLE}",
            code="file_not_found",
        ) from None
    except (Exception, SystemExit) as problem:
        raise _failed(place, problem) from None


def _import_file(path: Path) -> ModuleType:
    file = path.resolve()
    if not file.is_file():
        raise InvalidInput(f"there is no file {path} (looked in {Path.cwd()}); {EXAMPLE}", code="file_not_found")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    name = file.stem if file.stem.isidentifier() and file.stem not in sys.modules else f"surefoot_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path} is not a Python file: its name has to end in .py", code="file_not_found")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        raise _failed(str(path), problem) from None
    return module


def _failed(place: str, problem: BaseException) -> InvalidInput:
    """The error with the last line of the user's own code that led to it; values of secrets are redacted."""
    redactor = Redactor()
    EnvironmentSecrets(redactor)
    frames = [f for f in traceback.extract_tb(problem.__traceback__) if f.filename != __file__]
    own = [f for f in frames if "importlib" not in f.filename and "site-packages" not in f.filename]
    package = str(Path(__file__).resolve().parents[1])
    own = [f for f in own if not f.filename.startswith(package)]
    at = f"{own[-1].filename}, line {own[-1].lineno}: " if own else ""
    if isinstance(problem, SyntaxError):
        at = f"{problem.filename}, line {problem.lineno}: "
    text = redactor.patterns(f"{type(problem).__name__}: {problem}")[0]
    return InvalidInput(f"{place} cannot be imported: {at}{text}", code="import_failed")
