"""Endpoints about the server itself: agents, health, readiness."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from surefoot.agent.agent import Agent
from surefoot.server.openapi import described
from surefoot.server.requests import Visitor
from surefoot.server.service import service_of
from surefoot.server.wire import AgentFacts, AgentPage, Health, Readiness, ToolFacts, reply

router = APIRouter(tags=["server"])


@router.get("/v1/agents", summary="List agents", **described({200: AgentPage}))
async def agents(visit: Visitor) -> Response:
    """The agents that runs can be started with."""
    visit.need("read")
    return reply(AgentPage([_facts(visit.sf.agents[name]) for name in sorted(visit.sf.agents)]))


def _facts(agent: Agent) -> AgentFacts:
    tools = [ToolFacts(t.name, t.effect.name, t.approval is not None) for t in agent.tools.values()]
    return AgentFacts(agent.name, agent.version, tools)


@router.get("/healthz", summary="Is the process alive", **described({200: Health}))
async def healthz() -> Response:
    """The process answers; nothing else is looked at."""
    return reply(Health())


@router.get("/readyz", summary="Does work go on", **described({200: Readiness}))
async def readyz(request: Request) -> Response:
    """Whether the store can be read and the worker is well: 200, or 503 with what is wrong."""
    sf = service_of(request).own.sf
    worker = sf.worker
    wrong = "this process has no worker" if worker is None else worker.unhealthy
    readiness = Readiness(wrong is None, None, wrong, [])
    return reply(readiness, 200 if readiness.ready else 503)
