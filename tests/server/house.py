"""A whole server in this process, on a real socket; what its tools do is a list."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import httpx
from fastapi import Request

from surefoot import (
    Absent,
    Agent,
    Approval,
    Found,
    Operation,
    Receipt,
    Surefoot,
    ask_person,
    effects,
    tool,
    wait_for_signal,
)
from surefoot.agent.tools import Tool
from surefoot.server.callers import ACTS, Caller, Doorman, Loopback
from surefoot.server.factory import create_app
from surefoot.server.problems import Problem
from surefoot.server.running import Running, listen
from surefoot.testing.model import FakeModel, ScriptedCall, Step
from tests.places import Place
from tests.support import eventually

SECRET = "0123456789abcdef0123456789abcdef"
KEY = "Idempotency-Key"


class Asks(Protocol):
    """Whatever can be asked: httpx's client."""

    async def get(self, url: str) -> httpx.Response: ...


class Outside:
    """What the tools did, and tools that do it."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        """The key and the text of each effect."""
        self.known = True
        """Whether a lookup finds what was sent."""

        async def find(op: Operation, text: str) -> Found | Absent:
            found = self.known and any(key == op.key for key, _ in self.sent)
            return Found(Receipt(resource_id="note-1")) if found else Absent(coverage="the whole list")

        @tool(effect=effects.lookup(find, settle=0.05), approval=Approval(expires=3_600))
        async def post_note(op: Operation, text: str) -> Receipt:
            """Post a note, once a person allows it."""
            self.sent.append((op.key, text))
            return Receipt(resource_id=f"note-{len(self.sent)}", url="https://notes.example/1")

        @tool(effect=effects.lookup(find, settle=0.05))
        async def jot(op: Operation, text: str) -> Receipt:
            """Post a note at once."""
            self.sent.append((op.key, text))
            return Receipt(resource_id=f"note-{len(self.sent)}")

        @tool(effect=effects.opaque)
        async def shout(op: Operation, text: str) -> Receipt:
            """Shout, and never learn whether anybody heard it."""
            self.sent.append((op.key, text))
            raise effects.InDoubt("no echo")

        @tool(effect=effects.opaque, approval=Approval(permission="billing", expires=3_600))
        async def pay(op: Operation, cents: int) -> Receipt:
            """Pay, once somebody from billing allows it."""
            self.sent.append((op.key, str(cents)))
            return Receipt(resource_id="payment-1")

        self.tools: dict[str, Tool] = {
            one.name: one for one in (post_note, jot, shout.using(settle=0.05), pay, ask_person, wait_for_signal)
        }

    def agent(self, name: str, *script: Step) -> Agent:
        """An agent with these tools that does what the script says."""
        return Agent(name=name, model=FakeModel(script), instructions="Do it.", tools=list(self.tools.values()))

    def writer(self, text: str = "hello", name: str = "writer") -> Agent:
        """It posts one note after an approval."""
        return self.agent(name, [note(text)], "Written.")


def note(text: str) -> ScriptedCall:
    """A gated call."""
    return ("post_note", {"text": text})


class House:
    """A server and a client of it."""

    def __init__(self, sf: Surefoot, running: Running, client: httpx.AsyncClient) -> None:
        self.sf = sf
        self.running = running
        self.client = client

    async def start(self, agent: str = "writer", key: str | None = None, **more: object) -> httpx.Response:
        """POST /v1/runs."""
        body = {"agent": agent, "input": "Go", **more}
        return await self.client.post("/v1/runs", json=body, headers={KEY: key or f"key-of-{agent}"})

    async def started(self, agent: str = "writer", key: str | None = None) -> str:
        """A new run's id."""
        answer = await self.start(agent, key)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def run(self, run_id: str) -> dict[str, object]:
        """The snapshot."""
        found: dict[str, object] = (await self.client.get(f"/v1/runs/{run_id}")).json()
        return found

    async def until(self, run_id: str, *statuses: str) -> dict[str, object]:
        """Wait for a state; the snapshot then."""
        await self.sf.wait(run_id, until=lambda run: run.status in statuses, timeout=30)
        return await self.run(run_id)

    async def asked(self, agent: str = "writer", key: str | None = None) -> tuple[str, str]:
        """A new run that waits for a person: the ids of the run and of its one question."""
        run_id = await self.started(agent, key)
        return run_id, await self.question(run_id)

    async def question(self, run_id: str) -> str:
        """The one question that a run waits with."""
        run = await self.sf.wait(run_id, until=lambda run: bool(run.pending_actions), timeout=30)
        (action,) = run.pending_actions
        return action.id

    async def decide(
        self,
        action_id: str,
        decision: str,
        members: Mapping[str, object] | None = None,
        *,
        key: str | None = None,
        **more: object,
    ) -> httpx.Response:
        """POST a decision."""
        headers = {} if key is None else {KEY: key}
        body = {"decision": decision, **(members or {}), **more}
        return await self.client.post(f"/v1/pending-actions/{action_id}/decision", json=body, headers=headers)


@asynccontextmanager
async def house(
    place: Place,
    agents: Sequence[Agent] = (),
    *,
    doorman: Doorman | None = None,
    worker: bool = True,
    open_tenant: Callable[[str], Surefoot] | None = None,
    sock: socket.socket | None = None,
) -> AsyncIterator[House]:
    """A server on the test's store."""
    async with surefoot_at(place, agents, worker=worker) as sf:
        app = create_app(sf, doorman or Loopback("default", "ada"), open_tenant=open_tenant)
        running = Running(app, sock or listen("127.0.0.1", 0))
        serving = asyncio.ensure_future(running.serve())
        await eventually(lambda: running.began or serving.done(), "the server to listen")
        try:
            async with httpx.AsyncClient(base_url=running.url, trust_env=False, timeout=30) as client:
                yield House(sf, running, client)
        finally:
            running.stop()
            await serving


def surefoot_at(
    place: Place, agents: Sequence[Agent] = (), *, worker: bool = True, tenant: str = "default"
) -> Surefoot:
    """A Surefoot on the test's store."""
    return Surefoot(place.url, agents, worker=worker, tenant=tenant, secret=SECRET, log=lambda line: None)


class Named:
    """A doorman who believes the name in the X-Caller header; each name is a caller of its own."""

    def __init__(self, **callers: Caller) -> None:
        self._callers = callers

    def tenants(self) -> tuple[str, ...]:
        """Those of the callers."""
        return tuple(caller.tenant for caller in self._callers.values())

    async def identify(self, request: Request) -> Caller:
        """Who it says it is."""
        found = self._callers.get(request.headers.get("x-caller", ""))
        if found is None:
            raise Problem(401, "no_caller", "say who you are")
        return found


def caller(name: str, *permissions: str, tenant: str = "default") -> Caller:
    """A caller with these permissions, with all if none is given."""
    return Caller(tenant, name, frozenset(permissions or ACTS), "test")


def code_of(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of a problem."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem: Mapping[str, object] = answer.json()
    assert set(problem) == {"type", "title", "status", "code", "detail", "details"}, problem
    assert problem["status"] == answer.status_code
    return answer.status_code, str(problem["code"])
