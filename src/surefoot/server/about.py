"""Endpoints about the server itself: agents, health, readiness."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from surefoot.agent.agent import Agent
from surefoot.app import Surefoot
from surefoot.core.state import RunStatus
from surefoot.errors import StoreError, StoreUnavailable
from surefoot.server.openapi import OPEN, described
from surefoot.server.requests import Reader
from surefoot.server.service import service_of
from surefoot.server.wire import AgentFacts, AgentPage, Health, Readiness, ToolFacts, Vocabulary, reply
from surefoot.snapshot import blocked_code
from surefoot.vocabulary import EVENTS, NEXT, TEXTS
from surefoot.waiters import takes

router = APIRouter(tags=["server"])

READY_SECONDS_MAX = 2.0
RUNS_MAX = 500
"""Of each status, so many of the newest are looked at for whether a worker takes them."""

Texts = Mapping[str, Mapping[str, str]]
"""A code's texts by language."""


@router.get("/v1/agents", summary="List agents", **described({200: AgentPage}))
async def agents(visit: Reader) -> Response:
    """The agents that runs can be started with."""
    return reply(AgentPage([_facts(visit.sf.agents[name]) for name in sorted(visit.sf.agents)]))


def _facts(agent: Agent) -> AgentFacts:
    tools = [
        ToolFacts(t.name, t.effect.name, t.approval is not None, t.compensate is not None) for t in agent.tools.values()
    ]
    return AgentFacts(agent.name, agent.version, tools)


@router.get("/v1/vocabulary", summary="Texts for people", **described({200: Vocabulary}))
async def vocabulary(visit: Reader) -> Response:
    """The product's words in the language of the request, so that a client can put events into words."""

    def said(table: Texts) -> dict[str, str]:
        return {code: texts.get(visit.language, texts["en"]) for code, texts in table.items()}

    tools = {tool.name: said(tool.display) for agent in visit.sf.agents.values() for tool in agent.tools.values()}
    return reply(Vocabulary(visit.language, said(TEXTS), said(NEXT), said(EVENTS), tools))


@router.get("/healthz", summary="Is the process alive", **described({200: Health}, security=OPEN))
async def healthz() -> Response:
    """The process answers; nothing else is looked at."""
    return reply(Health())


@router.get("/readyz", summary="Does work go on", **described({200: Readiness}, security=OPEN))
async def readyz(request: Request) -> Response:
    """Whether the store can be written and every worker is well: 200, or 503 with what is wrong.

    Runs that cannot be read or whose code is missing are told, and are no reason to take the process out of service.
    """
    wrong_store: str | None = None
    workers: list[str] = []
    blocked: dict[str, int] = {}
    for name, tenant in list(service_of(request).tenants.items()):
        sf = tenant.sf
        if sf.worker is None or sf.worker.unhealthy is not None:
            workers.append(f"{name}: {'no worker' if sf.worker is None else sf.worker.unhealthy}")
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await sf.store.check_writable()
                for code, count in (await _blocked(sf)).items():
                    blocked[code] = blocked.get(code, 0) + count
        except StoreError as problem:
            wrong_store = problem.code
        except TimeoutError:
            # A prober does not wait for as long as an append may wait for a lock or a server.
            wrong_store = StoreUnavailable.code
    readiness = Readiness(wrong_store is None and not workers, wrong_store, "; ".join(workers) or None, blocked)
    return reply(readiness, 200 if readiness.ready else 503)


async def _blocked(sf: Surefoot) -> Counter[str]:
    """Runs that no worker takes, by why."""
    found = Counter(await sf.store.blocked(sf.tenant))
    for status in (RunStatus.running, RunStatus.reconciling):
        rows = await sf.store.runs(sf.tenant, status=status.value, agent=None, before=None, limit=RUNS_MAX)
        if rows.unreadable:
            # A worker that has come across one has set it aside: it is counted already.
            aside = [await sf.store.blocked_runs(sf.tenant, code, "", RUNS_MAX) for code in found]
            found["unreadable"] += len({row.id for row in rows.unreadable}.difference(*aside))
        for row in rows:
            if row.blocked_code is None and blocked_code(row, sf.store.now()) is not None:
                missing = "unknown_tool" if row.run.kind == "perform" else "unknown_agent"
                found["no_worker" if takes(sf.context, sf.agents, row.run) else missing] += 1
    return found
