"""One whole request and its answer for each endpoint, as a server gives them: `make docs` writes them down.

    python -m tests.server.exchanges > docs/api-examples.json

What differs from one time to the next (ids, times, secrets) is put in a form that does not.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx

from surefoot import Surefoot
from surefoot.agent.model import ModelRequest, ModelResponse
from surefoot.server.doorman import TokenDoorman
from surefoot.server.factory import create_app
from surefoot.server.options import Options
from surefoot.server.tokens import Tokens, read_given
from surefoot.testing import FakeModel
from tests.identity.rig import GITHUB_SECRET, signed
from tests.server.house import SECRET, Outside

ORIGIN = "http://127.0.0.1:8100"
TOKEN = "ada-" + "0123456789" * 4
SHOWN = ("content-type", "location", "set-cookie")
SECONDS_MAX = 30.0
CORE = "01m8mkc46c9g18hv3d1v21j"
"""Of every id; three digits behind it tell them apart."""
DELIVERY = {
    "action": "created",
    "issue": {"number": 128},
    "comment": {
        "id": 2400000003,
        "body": "Looks good.",
        "user": {"id": 9001, "login": "anna"},
        "created_at": "2026-11-30T08:00:00Z",
    },
    "repository": {"full_name": "acme/app"},
}


class Recorder:
    """Asks, and writes down what was asked and answered, by operation."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.told: dict[str, str] = {}
        self._http = http
        self._cores: dict[str, str] = {}

    async def ask(
        self, operation: str, path: str, body: object = None, *, by: str | None = TOKEN, **headers: str
    ) -> httpx.Response:
        """One exchange; `operation` is its name in the document."""
        method = operation.split()[0]
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if by is not None:
            sent = {"Authorization": f"Bearer {by}", **sent}
        content = None if body is None else json.dumps(body).encode()
        if body is not None:
            sent["Content-Type"] = "application/json"
        answer = await self._http.request(method, path, content=content, headers=sent)
        asked = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
        if content is not None:
            asked += ["", json.dumps(body, indent=2, ensure_ascii=False)]
        given = [f"HTTP/1.1 {answer.status_code} {answer.reason_phrase}"]
        given += [f"{name.title()}: {value}" for name, value in answer.headers.items() if name in SHOWN]
        if answer.content:
            given += ["", _pretty(answer)]
        self.told[operation] = self._steady("\n".join([*asked, "", *given]))
        return answer

    def _steady(self, text: str) -> str:
        def core(found: re.Match[str]) -> str:
            return found[1] + self._cores.setdefault(found[2], f"{CORE}{len(self._cores) + 1:03d}")

        text = text.replace(TOKEN, "TOKEN")
        text = re.sub(r"\b((?:run|act|step|conv|msg|call)_)([0-9a-z]{26})", core, text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", "2026-11-30T08:00:00Z", text)
        text = re.sub(r'("csrf": )"[0-9a-f]{64}"', r'\1"5f0c…"', text)
        text = re.sub(r"surefoot_session=[^;\s]+", "surefoot_session=sfs_…", text)
        text = re.sub(r"(sha256=|v1,)\S+", r"\1…", text)
        return re.sub(r"(webhook-timestamp: )\d+", r"\g<1>1796025600", text)


def _pretty(answer: httpx.Response) -> str:
    if answer.headers["content-type"].startswith("application/json"):
        return json.dumps(answer.json(), indent=2, ensure_ascii=False)
    if answer.headers["content-type"].startswith("text/plain"):
        # Metrics: those of requests are many, and of the moment.
        lines = [line for line in answer.text.splitlines() if "http_request" not in line]
        return "\n".join([*lines, "# … surefoot_http_requests_total, surefoot_http_request_seconds"])
    return answer.text.rstrip()


class Patient:
    """A model that answers once `begin` is set: a run that was just started is shown as that, whoever is slow."""

    def __init__(self, model: FakeModel) -> None:
        self.begin = asyncio.Event()
        self.name = model.name
        self._model = model

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The model's answer, in time."""
        await self.begin.wait()
        return await self._model.complete(request)


async def record(sf: Surefoot) -> Mapping[str, str]:
    """The exchanges by operation, "POST /v1/runs". `sf` has the agents of `agents_of` and a worker."""
    tokens = Tokens(sf.store, sf.doors.clock, sf.doors.entropy, read_given(f"ada admin {TOKEN}", sf.tenant))
    options = Options(github_secrets=(GITHUB_SECRET,), evidence_secrets=("what your programs sign with",))
    app = create_app(sf, TokenDoorman(tokens, []), options=options)
    transport = httpx.ASGITransport(app, client=("203.0.113.7", 4242))
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as http:
        told = Recorder(http)
        run_id, action_id = await _a_run(told, sf)
        await _its_question(told, sf, run_id, action_id)
        await _others(told, sf)
        await _about(told)
        return told.told


async def _a_run(told: Recorder, sf: Surefoot) -> tuple[str, str]:
    body = {"agent": "writer", "input": "Tell them about the milk.", "metadata": {"ticket": 81}}
    run_id = str((await told.ask("POST /v1/runs", "/v1/runs", body, Idempotency_Key='"ticket-81"')).json()["id"])
    model = sf.agents["writer"].model
    assert isinstance(model, Patient)
    model.begin.set()
    asked = await sf.wait(run_id, timeout=SECONDS_MAX)
    await told.ask("GET /v1/runs", "/v1/runs?status=waiting_for_user&limit=1")
    await told.ask("GET /v1/runs/{run_id}", f"/v1/runs/{run_id}")
    said = {"text": "Mention the bread too."}
    path = f"/v1/runs/{run_id}/messages"
    await told.ask("POST /v1/runs/{run_id}/messages", path, said, Idempotency_Key='"ticket-81-note-1"')
    await told.ask("GET /v1/runs/{run_id}/messages", f"{path}?limit=2")
    value = {"name": "paid", "value": {"cents": 900}}
    path = f"/v1/runs/{run_id}/signals"
    await told.ask("POST /v1/runs/{run_id}/signals", path, value, Idempotency_Key='"payment-7"')
    return run_id, asked.pending_actions[0].id


async def _its_question(told: Recorder, sf: Surefoot, run_id: str, action_id: str) -> None:
    await told.ask("GET /v1/pending-actions", "/v1/pending-actions?status=waiting")
    path = f"/v1/pending-actions/{action_id}"
    shown = (await told.ask("GET /v1/pending-actions/{action_id}", path)).json()
    decision = {"decision": "approve", "reason": "looks right", "input_hash": shown["input_hash"]}
    operation = "POST /v1/pending-actions/{action_id}/decision"
    await told.ask(operation, f"{path}/decision", decision, Idempotency_Key='"ticket-81-approve"')
    done = await sf.wait(run_id, until=lambda run: run.status == "completed", timeout=SECONDS_MAX)
    after = done.last_event_sequence - 2
    events = f"/v1/runs/{run_id}/events"
    await told.ask("GET /v1/runs/{run_id}/events", events, Accept="text/event-stream", Last_Event_ID=str(after))


async def _others(told: Recorder, sf: Surefoot) -> None:
    unsure = await sf.start("shouter", "Shout.")
    unsure = await sf.wait(unsure.id, timeout=SECONDS_MAX)
    key = next(step.operation_key for step in unsure.steps if step.operation_key)
    found = {"key": key, "verdict": "found", "resource_id": "echo-7", "url": "https://notes.example/7"}
    await told.ask("POST /v1/evidence", "/v1/evidence", found)
    other = await sf.start("shouter", "Shout again.")
    await sf.wait(other.id, timeout=SECONDS_MAX)
    await told.ask("POST /v1/runs/{run_id}/cancel", f"/v1/runs/{other.id}/cancel")
    await told.ask("POST /v1/runs/{run_id}/retry", f"/v1/runs/{other.id}/retry")
    raw = json.dumps(DELIVERY).encode()
    hub = {name.replace("-", "_"): value for name, value in signed(raw).items() if name != "Content-Type"}
    await told.ask("POST /v1/webhooks/github", "/v1/webhooks/github", DELIVERY, by=None, **hub)


async def _about(told: Recorder) -> None:
    await told.ask("GET /v1/agents", "/v1/agents")
    await told.ask("GET /v1/vocabulary", "/v1/vocabulary", Accept_Language="zh-CN")
    await told.ask("GET /healthz", "/healthz", by=None)
    await told.ask("GET /readyz", "/readyz", by=None)
    await told.ask("GET /metrics", "/metrics")
    await told.ask("GET /v1/statistics", "/v1/statistics?hours=1")
    logged_in = await told.ask("POST /v1/session", "/v1/session", {"token": TOKEN}, by=None, Origin=ORIGIN)
    cookie = logged_in.headers["set-cookie"].partition(";")[0]
    await told.ask("GET /v1/session", "/v1/session", by=None, Cookie=cookie)
    csrf = {"X_CSRF_Token": logged_in.json()["csrf"], "Origin": ORIGIN}
    await told.ask("DELETE /v1/session", "/v1/session", by=None, Cookie=cookie, **csrf)


@asynccontextmanager
async def surefoot_of(url: str) -> AsyncIterator[Surefoot]:
    """A Surefoot with the agents that are asked. What the shouter says after its shout, it says at the end."""
    outside, end = Outside(), asyncio.Event()
    writer = outside.writer("Milk is out.")
    assert isinstance(writer.model, FakeModel)
    writer.model = Patient(writer.model)

    async def says(request: ModelRequest) -> str:
        # A run that is taken up again must not be over before its exchange has shown it, whatever the store takes.
        await end.wait()
        return "Shouted."

    agents = [writer, outside.agent("shouter", [("shout", {"text": "hi"})], says)]
    async with Surefoot(url, agents, worker=True, secret=SECRET, log=lambda line: None) as sf:
        yield sf
        end.set()


async def _main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with surefoot_of(f"sqlite:///{folder}/store.db") as sf:
            found = await record(sf)
    sys.stdout.write(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    asyncio.run(_main())
