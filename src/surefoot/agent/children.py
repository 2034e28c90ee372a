"""Start the run that works on a call of another one: once for each call, whoever comes back to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from surefoot.agent.agent import Agent
from surefoot.agent.messages import user_body
from surefoot.agent.starting import NewRun
from surefoot.core.state import Run, Step
from surefoot.core.values import canonical, digest
from surefoot.errors import InvalidInput, NotAllowed
from surefoot.runtime.context import Context


def know(agents: dict[str, Agent], agent: Agent) -> list[Agent]:
    """Know an agent and those among its tools; those that were new. Raises InvalidInput for a name used twice."""
    if agents.get(agent.name) is agent:
        return []
    if agent.name in agents:
        raise InvalidInput(f"two agents are called {agent.name!r}; give one of them another name")
    agents[agent.name] = agent
    found = [agent]
    for tool in agent.tools.values():
        if isinstance(tool.agent, Agent):
            found += know(agents, tool.agent)
    return found


async def child_run(
    ctx: Context,
    create: Callable[[NewRun], Awaitable[Run]],
    caller: Agent | None,
    run: Run,
    step: Step,
    arguments: Mapping[str, object],
) -> Run:
    """The run that works on this call: made the first time, and the same one ever after, since its key is the call's.

    Raises RunEnded where the calling run has ended, NotAllowed (`unknown_agent`).
    """
    # Of the calling agent's own tools: another agent may have another one under that name.
    named = None if caller is None else caller.tools.get(step.tool_name or "")
    agent = None if named is None else named.agent
    if not isinstance(agent, Agent):
        raise NotAllowed(f"the tool {step.tool_name} is not an agent any more", code="unknown_agent")
    task = str(arguments["task"])
    new = NewRun(
        agent=agent.name,
        version=agent.version,
        kind="agent",
        limits=agent.limits,
        by=run.id,
        key=step.operation_key,
        asked=digest(canonical([agent.name, task])),
        body=user_body(ctx.redactor.text(task)),
        parent_step_id=step.id,
    )
    return await create(new)
