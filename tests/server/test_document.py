"""The OpenAPI document says what the server does, and docs/api.md says what the document does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.core.transport import Response
from schemathesis.openapi.checks import UndefinedStatusCode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from surefoot.server.callers import Loopback
from surefoot.server.document import document
from surefoot.server.factory import create_app
from tests.places import NewPlace, Place
from tests.server.exchanges import record, surefoot_of
from tests.server.rig import Served, serving

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
EXAMPLES = 20
"""Of each operation; seeds are fixed, so that the same requests are made every time."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def test_the_page_is_the_document() -> None:
    examples = json.loads(PAGE.with_name("api-examples.json").read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == document(examples).rstrip() + "\n", "run: make docs"


async def test_the_exchanges_of_the_page_are_those_of_a_server(store_url: str) -> None:
    written = json.loads(PAGE.with_name("api-examples.json").read_text(encoding="utf-8"))
    async with surefoot_of(store_url) as sf:
        found = await record(sf)
        paths = create_app(sf, Loopback("default", "ada")).openapi()["paths"]
    operations = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert set(written) == set(found) == operations
    for operation, exchange in found.items():
        assert _form(written[operation]) == _form(exchange), f"{operation} answers in another form: make docs"
        assert re.search(r"^HTTP/1\.1 2\d\d ", exchange, re.MULTILINE), exchange


def _form(exchange: str) -> list[str]:
    """Lines without what differs from one time to the next; what a list or a table holds may be more or less."""
    kept = re.findall(r'^(?:[A-Z]+ /|HTTP|[A-Za-z-]+: |  "\w+":).*$', exchange, re.MULTILINE)
    return [re.sub(r"[0-9a-f]{16,}|\d+|(?<=: )(?:\[|\{|null|\").*", "", line) for line in kept]


@pytest.fixture(scope="module")
def web(new_place: NewPlace) -> Iterator[Served]:
    """A server with something in it."""
    with serving(new_place()) as served:
        yield served


class Sent(Protocol):
    """What the tests need of Schemathesis's case."""

    path_parameters: dict[str, object]

    def call(self, *, timeout: int) -> Response: ...

    def validate_response(self, response: Response, *, checks: list[CheckFunction]) -> object: ...


def test_no_request_gets_an_answer_that_is_not_documented(web: Served) -> None:
    run_id, action_id = web.asked("writer", "schema")
    real = {"run_id": run_id, "action_id": action_id}
    statuses: set[int] = set()
    found = 0
    for result in schemathesis.openapi.from_url(f"{web.url}/openapi.json").get_all_operations():
        assert isinstance(result, Ok), result
        found += 1

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=result.ok().as_strategy(), known=st.booleans())
        def send(case: Sent, known: bool) -> None:
            if known:
                case.path_parameters.update({k: real[k] for k in case.path_parameters if k in real})
            answer = case.call(timeout=10)
            statuses.add(answer.status_code)
            case.validate_response(answer, checks=CHECKS)

        send()
    assert found > 15, "the document was read"
    assert {200, 400, 404, 422} <= statuses, "more was reached than refusals"


def test_an_answer_that_is_not_documented_would_be_noticed(web: Served) -> None:
    poorer = web.get("/openapi.json").record()
    paths = poorer["paths"]
    assert isinstance(paths, dict)
    del paths["/healthz"]["get"]["responses"]["200"]
    schema = schemathesis.openapi.from_dict(poorer)
    case = schema["/healthz"]["GET"].Case()
    answer = case.call(base_url=web.url, timeout=10)
    with pytest.raises(BaseExceptionGroup) as caught:
        case.validate_response(answer, checks=CHECKS)
    assert caught.group_contains(UndefinedStatusCode)


def test_who_may_ask_is_documented_and_so(place: Place) -> None:
    settings = {"SUREFOOT_TOKENS": "anna admin " + "a" * 40, "SUREFOOT_GITHUB_WEBHOOK_SECRET": "w" * 32}
    with serving(place, more=settings) as served:
        found = served.get("/openapi.json").record()
        components, paths = found["components"], found["paths"]
        assert isinstance(components, dict) and isinstance(paths, dict)
        schemes = components["securitySchemes"]
        assert (schemes["bearer"]["type"], schemes["session"]["in"]) == ("http", "cookie")
        asked = 0
        for path, methods in paths.items():
            for method, operation in methods.items():
                ways = operation["security"]
                assert all(name in schemes for way in ways for name in way), (method, path)
                filled = path.replace("{run_id}", "run_none").replace("{action_id}", "act_none")
                answer = served.ask(method.upper(), filled)
                assert (answer.status == 401) is bool(ways), (method, path, ways, answer)
                if {"bearer": []} in ways:
                    allowed = served.ask(method.upper(), filled, headers={"Authorization": "Bearer " + "a" * 40})
                    assert allowed.status not in (401, 403), (method, path, allowed)
                asked += 1
        assert asked > 15


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/session", "/v1/evidence", "/v1/webhooks/github"])
def test_bodies_have_the_bounds_that_are_documented(place: Place, path: str) -> None:
    settings = {"SUREFOOT_TOKENS": "anna admin " + "a" * 40, "SUREFOOT_GITHUB_WEBHOOK_SECRET": "w" * 32}
    with serving(place, more=settings) as served:
        paths = served.get("/openapi.json").record()["paths"]
        assert isinstance(paths, dict)
        told = paths[path]["post"]["requestBody"]["description"]
        bytes_max = int(re.sub(r"\D", "", told))
        headers = {"Authorization": "Bearer " + "a" * 40, "Content-Type": "application/json", "Origin": served.url}
        fits = served.ask("POST", path, raw=b" " * bytes_max, headers=headers)
        assert fits.status in (400, 401), (told, fits)
        assert served.ask("POST", path, raw=b" " * (bytes_max + 1), headers=headers).code == "body_too_large"
        assert f"{told}" in PAGE.read_text(encoding="utf-8")
