"""Who may do what against a real server with tokens: a matrix of permissions, sessions, and other sites' pages."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping

import pytest

from surefoot.server.tokens import ACTS
from tests.cli.rig import Cli
from tests.places import NewPlace, Place
from tests.server.rig import Reply, Served, serving
from tests.support import eventually_sync

TOKENS = {act: (f"{act}-7k3m9q2w" * 4) for act in ACTS}
TOKENS |= {"approve:tool=post_note": "t" * 36, "approve:class=lookup": "c" * 36, "approve:class=opaque": "o" * 36}
TOKENS |= {"approve:permission=billing": "b" * 36, "approve:tool=other": "x" * 36}
SETTING = "; ".join(f"{word}-holder {word} {token}" for word, token in TOKENS.items())
ALL = "a" * 40
FOREIGN = "f" * 40


@pytest.fixture(scope="module")
def web(new_place: NewPlace) -> Iterator[Served]:
    setting = f"{SETTING}; anna read+start+approve+resolve {ALL}; elsewhere/eve admin {FOREIGN}"
    with serving(new_place(), more={"SUREFOOT_TOKENS": setting}) as served:
        yield served


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def run_of(web: Served, key: str) -> str:
    made = web.ask(
        "POST", "/v1/runs", {"agent": "writer", "input": "Go"}, headers={**bearer(ALL), "Idempotency-Key": key}
    )
    assert made.status in (200, 201), made
    return str(made.record()["id"])


def question_of(web: Served, run_id: str) -> str:
    def waiting() -> list[dict[str, object]]:
        path = f"/v1/pending-actions?status=waiting&run_id={run_id}"
        return web.ask("GET", path, headers=bearer(ALL)).items()

    return str(eventually_sync(waiting, "a question", seconds_max=30)[0]["id"])


def test_the_matrix_of_permissions(web: Served) -> None:
    """Every endpoint that takes a permission, tried with every permission: what may pass does, and nothing else."""
    run_id = run_of(web, "matrix")
    action_id = question_of(web, run_id)
    requests: dict[tuple[str, str], tuple[object, set[str]]] = {
        ("GET", "/v1/agents"): (None, {"read"}),
        ("GET", "/v1/runs"): (None, {"read"}),
        ("GET", f"/v1/runs/{run_id}"): (None, {"read"}),
        ("GET", f"/v1/runs/{run_id}/events"): (None, {"read"}),
        ("GET", f"/v1/runs/{run_id}/messages"): (None, {"read"}),
        ("GET", "/v1/pending-actions"): (None, {"read"}),
        ("GET", f"/v1/pending-actions/{action_id}"): (None, {"read"}),
        ("POST", "/v1/runs"): ({"agent": "nobody", "input": "x"}, {"start"}),
        ("POST", f"/v1/runs/{run_id}/messages"): ({"text": ""}, {"start"}),
        # A hash that does not fit: who may decide gets 409, and nothing is decided.
        ("POST", f"/v1/pending-actions/{action_id}/decision"): (
            {"decision": "approve", "input_hash": "0"},
            {"approve", "approve:tool=post_note", "approve:class=lookup"},
        ),
    }
    wrong: list[str] = []
    for (method, path), (body, enough) in requests.items():
        for word, token in TOKENS.items():
            answer = web.ask(method, path, body, headers={**bearer(token), "Idempotency-Key": f"m-{word}"})
            passed = answer.status != 403
            if passed != (word in enough or word == "admin"):
                wrong.append(f"{method} {path} with {word}: {answer.status}")
            if not passed and answer.code != "not_permitted":
                wrong.append(f"{method} {path} with {word}: {answer.code}")
        for headers, code in (({}, "not_signed_in"), (bearer("z" * 40), "bad_token")):
            answer = web.ask(method, path, body, headers={**headers, "Idempotency-Key": "m-none"})
            if (answer.status, answer.code) != (401, code):
                wrong.append(f"{method} {path} with {headers}: {answer.status}")
    assert wrong == []


def test_a_resolve_question_takes_resolve(web: Served) -> None:
    made = web.ask(
        "POST", "/v1/runs", {"agent": "shouter", "input": "Go"}, headers={**bearer(ALL), "Idempotency-Key": "r"}
    )
    action_id = question_of(web, str(made.record()["id"]))
    for word in ("approve", "start", "evidence", "approve:class=opaque", "approve:tool=other"):
        answer = web.ask(
            "POST", f"/v1/pending-actions/{action_id}/decision", {"decision": "give_up"}, headers=bearer(TOKENS[word])
        )
        assert (answer.status, answer.code) == (403, "not_permitted"), word
    answer = web.ask(
        "POST", f"/v1/pending-actions/{action_id}/decision", {"decision": "give_up"}, headers=bearer(TOKENS["resolve"])
    )
    assert answer.status == 200
    assert answer.record()["decided_by"] == "resolve-holder"


def test_a_decision_says_who_when_and_from_where(web: Served) -> None:
    action_id = question_of(web, run_of(web, "who"))
    answer = web.ask("POST", f"/v1/pending-actions/{action_id}/decision", {"decision": "reject"}, headers=bearer(ALL))
    decided = answer.record()
    assert (decided["decided_by"], decided["decided_from"]) == ("anna", "token anna from 127.0.0.1")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z|.*\+00:00", str(decided["decided_at"]))


def test_what_is_another_tenants_does_not_exist(web: Served) -> None:
    run_id = run_of(web, "tenant")
    action_id = question_of(web, run_id)
    for path in (f"/v1/runs/{run_id}", f"/v1/runs/{run_id}/events", f"/v1/pending-actions/{action_id}"):
        assert web.ask("GET", path, headers=bearer(FOREIGN)).status == 404
    answer = web.ask(
        "POST", f"/v1/pending-actions/{action_id}/decision", {"decision": "approve"}, headers=bearer(FOREIGN)
    )
    assert answer.status == 404
    assert web.ask("GET", "/v1/runs", headers=bearer(FOREIGN)).items() == []


class Browser:
    """A page of this server in a browser that keeps its cookie."""

    def __init__(self, web: Served) -> None:
        self.web = web
        self.cookie = ""
        self.csrf = ""
        self.set_cookie = ""

    def log_in(self, token: str, **headers: str) -> Reply:
        answer = self.web.ask("POST", "/v1/session", {"token": token}, headers={"Origin": self.web.url, **headers})
        if answer.status == 200:
            self.set_cookie = answer.headers["set-cookie"]
            self.cookie = self.set_cookie.partition(";")[0]
            self.csrf = str(answer.record()["csrf"])
        return answer

    def ask(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Reply:
        """As a page of this server asks; `headers` replace."""
        own = {
            "Cookie": self.cookie,
            "Origin": self.web.url,
            "X-CSRF-Token": self.csrf,
            "Sec-Fetch-Site": "same-origin",
        }
        sent = {name: value for name, value in {**own, **(headers or {})}.items() if value}
        return self.web.ask(method, path, body, headers=sent)


def test_a_session_acts_as_its_token_does(web: Served) -> None:
    page = Browser(web)
    assert page.log_in(ALL).status == 200
    assert {part.strip() for part in page.set_cookie.split(";")[1:]} == {
        "HttpOnly", "Max-Age=43200", "Path=/", "SameSite=strict",
    }  # fmt: skip
    me = page.ask("GET", "/v1/session").record()
    assert (me["name"], me["tenant"], me["csrf"]) == ("anna", "default", page.csrf)
    assert me["permissions"] == ["approve", "read", "resolve", "start"]
    action_id = question_of(web, run_of(web, "session"))
    answer = page.ask("POST", f"/v1/pending-actions/{action_id}/decision", {"decision": "reject"})
    assert answer.record()["decided_from"] == "the page, from 127.0.0.1"
    assert page.ask("DELETE", "/v1/session").status == 204
    assert page.ask("GET", "/v1/runs").code == "session_over", "also for whoever has copied the cookie"
    assert page.log_in("z" * 40).status == 401


ATTACKS: dict[str, Mapping[str, str]] = {
    "foreign origin": {"Origin": "https://evil.example"},
    "null origin": {"Origin": "null"},
    "another port": {"Origin": "http://127.0.0.1:1"},
    "a name that begins alike": {"Origin": "http://127.0.0.1.evil.example"},
    "no origin at all": {"Origin": "", "Sec-Fetch-Site": ""},
    "cross-site, says the browser": {"Sec-Fetch-Site": "cross-site"},
    "same-site, says the browser": {"Sec-Fetch-Site": "same-site"},
    "no csrf token": {"X-CSRF-Token": ""},
    "a wrong csrf token": {"X-CSRF-Token": "0" * 64},
    "a csrf token of another alphabet": {"X-CSRF-Token": "\u00e9" * 64},
    "a name that points here": {"Host": "evil.example", "Origin": "http://evil.example"},
    "a name with our port": {"Host": "evil.example:8100", "Origin": "http://evil.example:8100"},
    "no host": {"Host": " "},
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_another_sites_page_changes_nothing(web: Served, attack: str) -> None:
    page = Browser(web)
    page.log_in(ALL)
    run_id = run_of(web, "attacked")
    action_id = question_of(web, run_id)
    before = web.ask("GET", f"/v1/runs/{run_id}", headers=bearer(ALL)).record()
    runs = len(web.ask("GET", "/v1/runs?limit=200", headers=bearer(ALL)).items())
    writes = [
        ("POST", "/v1/runs", {"agent": "writer", "input": "x"}),
        ("POST", f"/v1/runs/{run_id}/cancel", None),
        ("POST", f"/v1/runs/{run_id}/messages", {"text": "x"}),
        ("POST", f"/v1/pending-actions/{action_id}/decision", {"decision": "approve"}),
        ("DELETE", "/v1/session", None),
    ]
    for method, path, body in writes:
        for content in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
            answer = page.ask(
                method, path, body, {**ATTACKS[attack], "Content-Type": content, "Idempotency-Key": "evil"}
            )
            assert answer.status in (400, 403), (method, path, content, answer)
    assert web.ask("GET", f"/v1/runs/{run_id}", headers=bearer(ALL)).record() == before
    assert len(web.ask("GET", "/v1/runs?limit=200", headers=bearer(ALL)).items()) == runs
    assert page.ask("GET", "/v1/session").status == 200, "still logged in"


def test_another_site_cannot_log_somebody_in(web: Served) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}):
        assert Browser(web).log_in(ALL, **headers).status == 403


def test_a_program_that_logs_in_is_told_what_is_missing(web: Served) -> None:
    bare = web.ask("POST", "/v1/session", {"token": ALL})
    assert (bare.status, bare.code) == (403, "origin_missing")
    detail = str(bare.record()["detail"])
    assert "Origin" in detail and "Authorization: Bearer" in detail


def test_a_token_is_no_session_to_log_out_of(web: Served) -> None:
    kept = web.ask("DELETE", "/v1/session", headers=bearer(ALL))
    assert (kept.status, kept.code) == (409, "no_session") and "tokens revoke" in str(kept.record()["detail"])
    assert web.ask("GET", "/v1/runs", headers=bearer(ALL)).status == 200


def test_a_revoked_token_is_out_at_once(place: Place) -> None:
    cli = Cli(place)
    made = cli.json("tokens", "create", "ben", "--permission", "read", "--permission", "start").record()
    with serving(place) as web:
        page = Browser(web)
        assert page.log_in(str(made["token"])).status == 200
        assert web.ask("GET", "/v1/runs", headers=bearer(str(made["token"]))).status == 200
        assert web.get("/v1/runs").status == 401
        revoked = cli.json("tokens", "revoke", str(made["id"])).record()
        assert revoked["revoked_at"] is not None
        assert web.ask("GET", "/v1/runs", headers=bearer(str(made["token"]))).code == "bad_token"
        assert page.ask("GET", "/v1/runs").code == "session_over"
    listed = cli.json("tokens", "list").records()
    assert [(row["name"], row["permissions"], row["token"]) for row in listed] == [("ben", ["read", "start"], None)]
    assert str(made["token"]).rpartition("_")[2] not in web.log.read_text()


def test_a_tenant_begins_with_its_first_token_in_a_running_server(place: Place) -> None:
    with serving(place, more={"SUREFOOT_TOKENS": f"anna admin {ALL}"}) as web:
        made = Cli(place).json("tokens", "create", "ben", "--permission", "admin", "--tenant", "branch").record()
        key = bearer(str(made["token"]))
        assert web.ask("GET", "/v1/session", headers=key).record()["tenant"] == "branch"
        body = {"agent": "talker", "input": "Hi"}
        started = web.ask("POST", "/v1/runs", body, headers={**key, "Idempotency-Key": "k"})
        assert started.status == 201, started
        path = f"/v1/runs/{started.record()['id']}"

        def done() -> bool:
            return web.ask("GET", path, headers=key).record()["status"] == "completed"

        eventually_sync(done, "a worker of the new tenant", seconds_max=30)
        assert web.ask("GET", path, headers=bearer(ALL)).code == "not_found"
        assert web.get("/readyz").record()["ready"] is True
        assert 'tenant="branch"' not in web.ask("GET", "/metrics", headers=bearer(ALL)).body.decode()


def test_without_tokens_whoever_is_here_is_the_user(place: Place) -> None:
    with serving(place) as web:
        me = web.get("/v1/session").record()
        assert (me["csrf"], me["can_log_out"]) == (None, False)
        assert web.ask("POST", "/v1/session", {"token": "x"}).code == "no_tokens"
        assert web.get("/v1/runs", Host="evil.example").code == "foreign_host"
        for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Forwarded-Host", "Via"):
            assert web.ask("GET", "/v1/runs", headers={name: "203.0.113.7"}).code == "forwarded"
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = web.ask(
                "POST", "/v1/runs", {"agent": "writer", "input": "x"}, headers={**headers, "Idempotency-Key": "e"}
            )
            assert answer.code == "foreign_origin"
            assert (
                web.ask(
                    "POST",
                    "/v1/runs",
                    raw=b'{"agent":"writer","input":"x"}',
                    headers={**headers, "Content-Type": "text/plain"},
                ).status
                == 403
            )
        assert web.get("/v1/runs").items() == []


def test_the_settings_of_the_service_reach_it(place: Place) -> None:
    secret = "what GitHub signs with in this test"
    settings = {
        "SUREFOOT_TOKENS": f"anna read {ALL}",
        "SUREFOOT_GITHUB_WEBHOOK_SECRET": f"{secret}, the old one of GitHub",
        "SUREFOOT_PUBLIC_URL": "https://agents.example",
    }
    with serving(place, "--log-format", "json", more=settings) as web:
        raw = b'{"zen": "Keep it logically awesome."}'
        for key, status in ((secret, 200), ("the old one of GitHub", 200), ("another", 401)):
            signature = "sha256=" + hmac.new(key.encode(), raw, hashlib.sha256).hexdigest()
            headers = {"X-Hub-Signature-256": signature, "X-GitHub-Event": "ping", "Content-Type": "application/json"}
            assert web.ask("POST", "/v1/webhooks/github", raw=raw, headers=headers).status == status
        assert web.ask("GET", "/metrics", headers=bearer(ALL)).status == 200
        page = Browser(web)
        page.log_in(ALL, Host="agents.example", Origin="https://agents.example")
        assert "; Secure" in page.set_cookie, "people reach it by TLS"
        assert page.log_in(ALL, Host="evil.example", Origin="https://evil.example").status == 403
        lines = [json.loads(line) for line in web.log.read_text().splitlines()]
        assert lines and all({"time", "message"} <= line.keys() for line in lines)
        assert secret not in web.log.read_text() and ALL not in web.log.read_text()


LOCAL_ATTACKS: dict[str, Mapping[str, str]] = {
    "foreign origin": {"Origin": "https://evil.example"},
    "null origin": {"Origin": "null"},
    "another port": {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
    "a name that begins alike": {"Origin": "http://localhost.evil.example"},
    "cross-site, says the browser": {"Sec-Fetch-Site": "cross-site"},
    "a name that points here": {"Host": "evil.example", "Origin": "http://evil.example"},
    "a name that points here, without an origin": {"Host": "evil.example:8100"},
    "an address that means this machine": {"Host": "0.0.0.0:8100", "Origin": "http://0.0.0.0:8100"},
    "a name that ends alike": {"Host": "127.0.0.1.nip.example", "Origin": "http://127.0.0.1.nip.example"},
    "no host": {"Host": " "},
}


def test_r31_on_this_machine_too_another_sites_page_changes_nothing(place: Place) -> None:
    kinds = ("application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
    with serving(place) as web:
        run_id, action_id = web.asked("writer")
        before = web.get(f"/v1/runs/{run_id}").record()
        writes = [
            ("/v1/runs", b'{"agent":"writer","input":"x"}'),
            (f"/v1/runs/{run_id}/cancel", b""),
            (f"/v1/runs/{run_id}/messages", b'{"text":"x"}'),
            (f"/v1/pending-actions/{action_id}/decision", b'{"decision":"approve"}'),
            ("/v1/evidence", b'{"key":"k","verdict":"absent"}'),
        ]
        tried = 0
        for why, headers in LOCAL_ATTACKS.items():
            for path, body in writes:
                for kind in kinds:
                    sent = {**headers, "Content-Type": kind, "Idempotency-Key": "evil"}
                    answer = web.ask("POST", path, raw=body, headers=sent)
                    assert answer.status in (400, 403, 415), (why, path, kind, answer)
                    tried += 1
        assert tried >= 100
        assert web.get(f"/v1/runs/{run_id}").record() == before
        assert len(web.get("/v1/runs").items()) == 1
