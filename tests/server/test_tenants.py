"""A record of another tenant does not exist: every endpoint of the router, with every id that there is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Literal

import httpx

from surefoot import Surefoot
from tests.places import Place
from tests.server.house import KEY, House, Named, Outside, caller, house, surefoot_at

BODIES: Mapping[str, object] = {
    "/v1/runs": {"agent": "writer", "input": "Go"},
    "/v1/runs/{run_id}/messages": {"text": "hello"},
    "/v1/runs/{run_id}/signals": {"name": "paid"},
    "/v1/pending-actions/{action_id}/decision": {"decision": "approve"},
}
OPEN = {"/healthz", "/readyz", "/metrics"}
"""What is about the process and of no tenant."""


async def test_nothing_of_another_tenant_can_be_reached(place: Place, outside: Outside) -> None:
    agent = outside.writer()

    def open_tenant(name: str) -> Surefoot:
        return surefoot_at(place, [agent], tenant=name)

    doorman = Named(ada=caller("ada", tenant="acme"), eve=caller("eve", tenant="evil"))
    async with house(place, [agent], doorman=doorman, open_tenant=open_tenant) as at:
        acme = at.running._service.tenants["acme"].sf
        run = await acme.start("writer", "CANARY-INPUT", key="canary-key", metadata={"m": "CANARY-META"}, by="ada")
        run = await acme.wait(run.id, timeout=30)
        before = run.last_event_sequence
        ids = {run.id, run.conversation_id, run.pending_actions[0].id, *(step.id for step in run.steps)}
        document = (await at.client.get("/openapi.json")).json()
        asked = 0
        for method, template, path, params in requests_of(document, ids):
            one, none = [await _ask(at, method, path, params, template, value) for value in (True, False)]
            asked += 1
            assert one == none, f"{method} {path} {params} tells one tenant of another"
            assert not any(word in json.dumps(one) for word in ("CANARY", *ids)), (method, path, one)
        assert asked > 60, "the endpoints were read from the document"
        assert (await acme.snapshot(run.id)).last_event_sequence == before, "and nothing was done"
        # The same key in another tenant is another run.
        at.client.headers["X-Caller"] = "eve"
        own = await at.start("writer", "canary-key")
        assert own.status_code == 201 and own.json()["id"] not in ids
        assert [run["id"] for run in (await at.client.get("/v1/runs")).json()["items"]] == [own.json()["id"]]
        at.client.headers["X-Caller"] = "ada"
        assert [run["id"] for run in (await at.client.get("/v1/runs")).json()["items"]] == [run.id]
    assert outside.sent == []


Request = tuple[str, str, str, dict[str, str]]
Document = Mapping[str, Mapping[str, Mapping[str, Mapping[str, object]]]]


def requests_of(
    document: Mapping[str, Mapping[str, Mapping[str, Mapping[str, object]]]], ids: set[str]
) -> Iterator[Request]:
    """Every operation with every id in each of its places."""
    for template, methods in document["paths"].items():
        if template in OPEN:
            continue
        for method, operation in methods.items():
            parameters = operation.get("parameters", [])
            assert isinstance(parameters, list)
            queries = [p["name"] for p in parameters if p["in"] == "query" and p["schema"].get("type") != "integer"]
            for id in sorted(ids):
                path = re.sub(r"\{[^}]+\}", id, template)
                if path != template:
                    yield method.upper(), template, path, {}
                for name in queries:
                    filled = re.sub(r"\{[^}]+\}", "run_none", template)
                    if name not in ("status", "after", "cursor") or "actions" in template:
                        yield method.upper(), template, filled, {name: id}


async def _ask(
    at: House, method: str, path: str, params: dict[str, str], template: str, real: bool
) -> tuple[Literal["answer"], int, object]:
    """What eve is answered, with the ids of another tenant or with such that nobody has."""
    unreal = {name: _unreal(value) for name, value in params.items()}
    answer = await at.client.request(
        method,
        path if real else _unreal(path),
        params=params if real else unreal,
        json=BODIES.get(template) if method == "POST" else None,
        headers={"X-Caller": "eve", KEY: "eves-key", "Content-Type": "application/json"},
    )
    assert answer.status_code < 500, answer.text
    return "answer", answer.status_code, _without_ids(answer)


def _unreal(text: str) -> str:
    """The same with ids of the same shape that nobody has."""
    return re.sub(r"(run|act|conv|step)_[0-9a-z]{26}", lambda m: f"{m[1]}_{'0' * 26}", text)


def _without_ids(answer: httpx.Response) -> object:
    text = re.sub(r"(run|act|conv|step)_[0-9a-z_]+", r"\1", answer.text)
    return re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "", text)
