"""What a program gives, agents among the tools of others included; and the run that works on a call of another one."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping

from surefoot.agent.agent import Agent
from surefoot.agent.messages import user_body
from surefoot.agent.starting import NewRun
from surefoot.core.policy import LEASE_SECONDS_MIN
from surefoot.core.state import Run, Step
from surefoot.core.throttle import Throttle
from surefoot.core.values import canonical, digest
from surefoot.errors import InvalidInput, NotAllowed, RunEnded
from surefoot.runtime.context import Context


def check_program(
    store: object, tenant: object, lease_seconds: object, capacity: object, throttle: object, log: object
) -> None:
    """Raises InvalidInput for what a program gave that would only go wrong later, or that no worker could live with."""
    if not isinstance(store, str):
        raise InvalidInput(f"store is a URL such as sqlite:///app.db, not {store!r}")
    if not isinstance(tenant, str) or not tenant.strip():
        raise InvalidInput(f"tenant is a text that is not empty, not {tenant!r}")
    if not isinstance(lease_seconds, int | float) or not LEASE_SECONDS_MIN <= lease_seconds < math.inf:
        raise InvalidInput(f"lease_seconds is {lease_seconds!r}: give seconds, at least {LEASE_SECONDS_MIN:g}")
    if not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < 1:
        raise InvalidInput(f"capacity is {capacity!r}: give how many runs one worker drives at once")
    if throttle is not None and not isinstance(throttle, Throttle):
        raise InvalidInput(f"throttle is {throttle!r}: give Throttle(rate=…, per=…, at_once=…)")
    if not callable(log):
        raise InvalidInput(f"log is {log!r}: give a function that takes a line")


def know(agents: dict[str, Agent], agent: Agent) -> list[Agent]:
    """Know an agent and those among its tools; those that were new. Raises InvalidInput for a name used twice."""
    if not isinstance(agent, Agent):
        raise InvalidInput(f"{agent!r} is no agent: give Agent(name=…, model=…)")
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
    token: int | None,
) -> Run:
    """The run that works on this call: made the first time, and the same one ever after, since its key is the call's.

    It is the same one also where the code of now means something else by the tool's name: what was begun for the call
    goes on, and the call is not told anything else. Raises RunEnded where the calling run has ended, LeaseLost where
    its lease has no longer that `token`, NotAllowed (`unknown_agent`).
    """
    try:
        return await create(_child(ctx, caller, run, step, arguments, token))
    except RunEnded:
        raise
    except NotAllowed:
        begun = None if step.operation_key is None else await ctx.store.run_of_key(ctx.tenant_id, step.operation_key)
        found = None if begun is None else (await ctx.store.run(ctx.tenant_id, begun)).run
        if found is None or found.parent_step_id is None:
            # Nothing, or what somebody has begun for no call: what that comes to is not this call's result.
            raise
        return found


def _child(
    ctx: Context, caller: Agent | None, run: Run, step: Step, arguments: Mapping[str, object], token: int | None
) -> NewRun:
    # Of the calling agent's own tools: another agent may have another one under that name.
    named = None if caller is None else caller.tools.get(step.tool_name or "")
    agent = None if named is None else named.agent
    if not isinstance(agent, Agent):
        raise NotAllowed(f"the tool {step.tool_name} is not an agent any more", code="unknown_agent")
    task = str(arguments["task"])
    return NewRun(
        agent=agent.name,
        version=agent.version,
        kind="agent",
        limits=agent.limits,
        by=run.id,
        key=step.operation_key,
        asked=digest(canonical([agent.name, task])),
        body=user_body(ctx.redactor.text(task)),
        parent_step_id=step.id,
        parent_token=token,
    )
