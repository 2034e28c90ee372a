"""The World as a pure object on a virtual clock: endpoints, the log, and late arrival."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pytest

from surefoot.testing import faults as f
from surefoot.testing.github_state import Account
from surefoot.testing.wire import Applied, Outcome, Received, Replied, WireRequest
from surefoot.testing.world import BOT, TOKEN, World

START = 1_700_000_000.0
COMMENTS = "/repos/acme/app/issues/128/comments"


def make_world(*rules: f.Rule) -> World:
    world = World(now=START, rules=rules)
    world.add_pull("acme/app", 128)
    return world


def ask(
    world: World,
    method: str,
    target: str,
    body: object = None,
    *,
    at: float = START,
    headers: Mapping[str, str] | None = None,
) -> Outcome:
    payload = b"" if body is None else json.dumps(body).encode()
    merged = {"authorization": f"Bearer {TOKEN}", "host": "api.github.com", **(headers or {})}
    return world.handle(WireRequest(method, target, merged, payload), at)


def value(outcome: Outcome) -> object:
    assert outcome.reply is not None
    return json.loads(outcome.reply.body)


def mapping(outcome: Outcome) -> dict[str, object]:
    found = value(outcome)
    assert isinstance(found, dict)
    return found


def status(outcome: Outcome) -> int | None:
    return outcome.reply.status if outcome.reply is not None else None


def ids(outcome: Outcome) -> list[int]:
    found = value(outcome)
    assert isinstance(found, list)
    return [item["id"] for item in found]


def post(world: World, body: str = "hello", *, at: float = START) -> Outcome:
    return ask(world, "POST", COMMENTS, {"body": body}, at=at)


def test_a_comment_is_made_listed_counted_edited_and_deleted() -> None:
    world = make_world()
    made = mapping(post(world))
    number = made["id"]
    assert isinstance(number, int) and number > 2**31
    assert made["html_url"] == f"https://github.com/acme/app/pull/128#issuecomment-{number}"
    assert made["user"] == mapping(ask(world, "GET", "/user"))
    assert ids(ask(world, "GET", COMMENTS)) == [number]
    assert mapping(ask(world, "GET", "/repos/acme/app/issues/128"))["comments"] == 1
    comment = f"/repos/acme/app/issues/comments/{number}"
    assert mapping(ask(world, "PATCH", comment, {"body": "other"}))["body"] == "other"
    assert status(ask(world, "DELETE", comment)) == 204
    assert status(ask(world, "GET", comment)) == 404
    assert mapping(ask(world, "GET", "/repos/acme/app/issues/128"))["comments"] == 0
    assert value(ask(world, "GET", "/repos/acme/app/issues/128/events")) == []


def test_deleted_comments_are_events_only_where_the_world_is_told_so() -> None:
    world = World(now=START, deletion_events=True)
    world.add_issue("acme/app", 128)
    world.delete_comment(world.add_comment("acme/app", 128, "soon gone").id)
    events = value(ask(world, "GET", "/repos/acme/app/issues/128/events"))
    assert isinstance(events, list)
    assert [event["event"] for event in events] == ["comment_deleted"]


def test_pages_have_link_headers_and_ascending_ids() -> None:
    world = make_world()
    world.add_comments("acme/app", 128, 250)
    seen: list[int] = []
    target: str | None = f"{COMMENTS}?per_page=100"
    pages = 0
    while target is not None:
        outcome = ask(world, "GET", target)
        seen += ids(outcome)
        pages += 1
        assert outcome.reply is not None
        links = dict(part.split("; ")[::-1] for part in outcome.reply.headers.get("link", "").split(", ") if part)
        target = links.get('rel="next"', "").strip("<>").removeprefix("https://api.github.com") or None
        if pages == 1:
            assert links['rel="last"'] == f"<https://api.github.com{COMMENTS}?per_page=100&page=3>"
    assert pages == 3
    assert seen == sorted(set(seen)) and len(seen) == 250
    assert len(ids(ask(world, "GET", COMMENTS))) == 30
    assert len(ids(ask(world, "GET", f"{COMMENTS}?per_page=1000"))) == 100


def test_the_pull_request_is_served_as_json_diff_and_files() -> None:
    world = make_world()
    pull = mapping(ask(world, "GET", "/repos/acme/app/pulls/128"))
    assert pull["changed_files"] == 1
    for accept in ("application/vnd.github.diff", "application/vnd.github.v3.diff"):
        reply = ask(world, "GET", "/repos/acme/app/pulls/128", headers={"accept": accept}).reply
        assert reply is not None and reply.body.startswith(b"diff --git a/app.py b/app.py")
    files = value(ask(world, "GET", "/repos/acme/app/pulls/128/files"))
    assert isinstance(files, list)
    assert (files[0]["filename"], files[0]["additions"], files[0]["patch"]) == (
        "app.py",
        1,
        "@@ -1 +1,2 @@\n line\n+new line",
    )


def test_reviews_issues_and_labels() -> None:
    world = make_world()
    review = ask(world, "POST", "/repos/acme/app/pulls/128/reviews", {"body": "good", "event": "APPROVE"})
    assert (status(review), mapping(review)["state"]) == (200, "APPROVED")
    assert len(ids(ask(world, "GET", "/repos/acme/app/pulls/128/reviews"))) == 1
    issue = ask(world, "POST", "/repos/acme/app/issues", {"title": "t", "body": "b"})
    assert (status(issue), mapping(issue)["number"]) == (201, 129)
    for _ in range(2):
        assert status(ask(world, "POST", "/repos/acme/app/issues/129/labels", {"labels": ["bug"]})) == 200
    assert world.repos["acme/app"].issues[129].labels == ["bug"]
    kinds = [entry.kind for entry in world.log if isinstance(entry, Applied)]
    assert kinds == ["review", "issue", "labels"]


def test_refusals_are_githubs() -> None:
    world = make_world()
    world.set_access("acme/app", writers=[])
    assert status(post(world)) == 403
    world.set_access("acme/app", readers=[])
    assert status(ask(world, "GET", "/repos/acme/app")) == 404
    world.set_access("acme/app")
    assert status(ask(world, "GET", "/user", headers={"authorization": "Bearer other"})) == 401
    assert status(ask(world, "GET", "/repos/acme/app/issues/404")) == 404
    assert status(ask(world, "GET", "/repos/acme/none/issues/1")) == 404
    assert status(ask(world, "POST", COMMENTS, {"body": " "})) == 422
    assert status(world.handle(WireRequest("POST", COMMENTS, {"authorization": f"Bearer {TOKEN}"}, b"{"), START)) == 400
    world.lock_issue("acme/app", 128)
    assert status(post(world)) == 403
    world.delete_issue("acme/app", 128)
    assert status(ask(world, "GET", COMMENTS)) == 410
    assert world.comments("acme/app", 128) == []


def test_c013_bodies_over_the_limit_are_refused_with_422() -> None:
    world = make_world()
    assert status(post(world, "x" * 65_536)) == 201
    refused = post(world, "x" * 65_537)
    assert status(refused) == 422
    assert "65536" in str(mapping(refused)["errors"])
    assert len(world.comments("acme/app", 128)) == 1


def test_a_renamed_repository_and_a_moved_issue_redirect() -> None:
    world = make_world()
    world.rename_repo("acme/app", "acme/new")
    moved = ask(world, "GET", f"{COMMENTS}?page=2")
    assert moved.reply is not None and moved.reply.status == 301
    location = moved.reply.headers["location"]
    assert location.endswith("/issues/128/comments?page=2")
    assert status(ask(world, "GET", location.removeprefix("https://api.github.com"))) == 200
    assert status(post(world)) == 307
    world.transfer_issue("acme/new", 128, "acme/other", 7)
    gone = ask(world, "GET", "/repos/acme/new/issues/128")
    assert gone.reply is not None and gone.reply.status == 301
    assert gone.reply.headers["location"] == "https://api.github.com/repos/acme/other/issues/7"


def test_the_rate_limits_count_down_and_refuse() -> None:
    world = World(now=START, rate_limit=2, content_per_minute=1)
    world.add_issue("acme/app", 128)
    first = post(world)
    assert first.reply is not None and first.reply.headers["x-ratelimit-remaining"] == "1"
    second = post(world)
    assert second.reply is not None
    assert (second.reply.status, second.reply.headers["retry-after"]) == (403, "61")
    third = ask(world, "GET", "/user")
    assert third.reply is not None
    assert (third.reply.status, third.reply.headers["x-ratelimit-remaining"]) == (403, "0")
    assert int(third.reply.headers["x-ratelimit-reset"]) == START + 3_600
    assert status(ask(world, "GET", "/user", at=START + 3_600)) == 200


def test_c007_the_search_index_lags() -> None:
    world = make_world()
    post(world, "needle in a haystack")
    search = "/search/issues?q=needle+repo:acme/app"
    assert mapping(ask(world, "GET", search, at=START + 9.9))["total_count"] == 0
    assert mapping(ask(world, "GET", search, at=START + 10))["total_count"] == 1


def test_the_log_has_request_effect_and_reply_in_order_and_no_secret() -> None:
    world = make_world()
    ask(world, "POST", f"{COMMENTS}?a=b", {"body": "hello"}, headers={"x-api-key": "CANARY", "user-agent": "t"})
    came, effect, answer = world.log
    assert isinstance(came, Received) and isinstance(effect, Applied) and isinstance(answer, Replied)
    assert (came.order, effect.order, answer.order) == (1, 2, 3)
    assert (came.method, came.path, came.query, came.account) == ("POST", COMMENTS, {"a": "b"}, BOT.login)
    assert came.body == '{"body": "hello"}' and len(came.body_sha256) == 64
    assert came.headers == {"host": "api.github.com", "user-agent": "t"}
    assert (effect.request, effect.kind, effect.place, effect.text) == (1, "comment", "acme/app#128", "hello")
    assert (answer.request, answer.status, answer.end) == (1, 201, "reply")
    assert TOKEN.encode() not in msgspec.json.encode(world.log)


def test_listings_are_logged_with_what_they_showed() -> None:
    world = make_world()
    made = world.add_comments("acme/app", 128, 3)
    outcome = ask(world, "GET", f"{COMMENTS}?per_page=2")
    assert world.replies(outcome.request)[0].listed == tuple(comment.id for comment in made[:2])


def test_effects_are_found_by_operation_key_and_not_by_a_longer_key() -> None:
    world = make_world()
    post(world, "a\n<!-- agent-operation:run_1:step_4 k=3f9a01c2 mac=x -->")
    post(world, "b\n<!-- agent-operation:run_1:step_42 k=3f9a01c2 mac=x -->")
    world.add_comment("acme/app", 128, "<!-- agent-operation:run_1:step_4 k=3f9a01c2 mac=x -->")
    assert [effect.text[0] for effect in world.effects("run_1:step_4")] == ["a"]
    assert [effect.text[0] for effect in world.effects("run_1:step_42")] == ["b"]
    ask(world, "POST", "/billing/charges", {"amount": 1}, headers={"idempotency-key": "run_1:step_5"})
    assert [effect.kind for effect in world.effects("run_1:step_5")] == ["charge"]


def test_effects_are_found_by_a_business_key_that_a_marker_writes_otherwise() -> None:
    world = make_world()
    post(world, "a\n<!-- agent-operation:mail:inv%2D81 k=3f9a01c2 mac=x -->")
    assert [effect.text[0] for effect in world.effects("mail:inv-81")] == ["a"]
    assert world.effects("mail:inv-8") == []


def test_a_charge_is_made_once_for_a_key_while_the_key_lives() -> None:
    world = make_world()
    key = {"idempotency-key": "k"}
    first = mapping(ask(world, "POST", "/billing/charges", {"amount": 1}, headers=key))
    assert mapping(ask(world, "POST", "/billing/charges", {"amount": 1}, headers=key))["id"] == first["id"]
    assert status(ask(world, "POST", "/billing/charges", {"amount": 2}, headers=key)) == 422
    later = mapping(ask(world, "POST", "/billing/charges", {"amount": 1}, headers=key, at=START + 86_400))
    assert later["id"] != first["id"]
    assert len(world.effects("k")) == 2


def test_c006_mail_is_sent_as_often_as_it_is_asked_for() -> None:
    world = make_world(f.Rule(f.LostReply(), path="/mail/messages"))
    assert ask(world, "POST", "/mail/messages", {"to": "a@example.org", "text": "hi"}).reply is None
    assert status(ask(world, "POST", "/mail/messages", {"to": "a@example.org", "text": "hi"})) == 202
    assert status(ask(world, "GET", "/mail/messages")) == 404
    assert [entry.kind for entry in world.log if isinstance(entry, Applied)] == ["mail", "mail"]


@pytest.mark.parametrize("answer", ["reset", "fin", "hang", 504])
def test_a_late_request_takes_effect_when_it_arrives(answer: f.Drop | int) -> None:
    world = make_world(f.Rule(f.Late(30, answer=answer), method="POST"))
    outcome = post(world)
    assert (status(outcome), outcome.close) == ((504, "keep") if answer == 504 else (None, answer))
    assert world.next_due() == START + 30
    assert ids(ask(world, "GET", COMMENTS, at=START + 29)) == []
    assert len(ids(ask(world, "GET", COMMENTS, at=START + 31))) == 1
    assert world.next_due() is None
    effect = next(entry for entry in world.log if isinstance(entry, Applied))
    assert (effect.at, effect.request) == (START + 30, 1)
    assert world.comments("acme/app", 128)[0].created_at == START + 30


def test_r14_a_late_first_request_and_its_repeat_make_two_comments() -> None:
    world = make_world(f.Rule(f.Late(100), method="POST"))
    post(world, "agent-operation:k x")
    post(world, "agent-operation:k x", at=START + 90)
    assert len(world.effects("k")) == 1
    world.due(START + 100)
    assert [effect.at for effect in world.effects("k")] == [START + 90, START + 100]


def test_an_answer_that_is_withheld_is_logged_when_it_leaves() -> None:
    world = make_world(f.Rule(f.Delay(5)))
    outcome = post(world)
    assert (outcome.at, status(outcome)) == (START + 5, 201)
    assert world.replies(outcome.request) == []
    world.due(world.next_due() or 0)
    assert [answer.at for answer in world.replies(outcome.request)] == [START + 5]


def test_two_worlds_with_the_same_requests_have_the_same_log() -> None:
    logs = []
    for _ in range(2):
        world = make_world(f.Rule(f.Late(3), nth=2), f.Rule(f.LostReply(), nth=3))
        for index in range(5):
            post(world, f"comment {index}", at=START + index)
        logs.append(msgspec.json.encode(world.log))
    assert logs[0] == logs[1]


def test_accounts_are_told_apart_by_token() -> None:
    world = World(now=START, accounts={"a": Account("one", 1), "b": Account("two", 2)})
    world.add_issue("acme/app", 1)
    for token in "ab":
        ask(
            world,
            "POST",
            "/repos/acme/app/issues/1/comments",
            {"body": token},
            headers={"authorization": f"token {token}"},
        )
    assert [c.author.login for c in world.comments("acme/app", 1)] == ["one", "two"]
    world.revoke_token("b")
    assert status(ask(world, "GET", "/user", headers={"authorization": "Bearer b"})) == 401
