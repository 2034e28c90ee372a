"""Each fault of the World, and which requests a rule hits."""

from __future__ import annotations

import msgspec
import pytest

from surefoot.testing import faults as f
from surefoot.testing.world import TOKEN, World
from tests.testing.test_world import COMMENTS, START, ask, ids, make_world, mapping, post, status

ALL_FAULTS: list[f.AnyFault] = [
    f.LostRequest("fin"),
    f.LostReply("hang"),
    f.StatusBefore(429, {"retry-after": "7"}),
    f.StatusAfter(502, body={"error": "bad gateway"}),
    f.Hang(3.0, applied=True),
    f.ResetMidBody(5, "fin"),
    f.Delay(1.5),
    f.Late(60.0, answer=504),
    f.BadJson(),
    f.EmptyBody(),
    f.StaleListing(4.0),
    f.StaleCount(4.0),
    f.OrderChanged(2),
    f.Change("lock_issue", {"repo": "acme/app", "number": 128}),
]


def count(world: World) -> int:
    return len(world.comments("acme/app", 128))


@pytest.mark.parametrize("fault", ALL_FAULTS, ids=lambda fault: type(fault).__name__)
def test_every_fault_survives_json(fault: f.AnyFault) -> None:
    rule = f.Rule(fault, method="POST", path="/repos/*/*/issues/*/comments", query={"page": "3"}, nth=2, lasting=4.0)
    assert msgspec.json.decode(msgspec.json.encode(rule), type=f.Rule) == rule


def test_the_list_of_faults_is_whole() -> None:
    assert {type(fault) for fault in ALL_FAULTS} == set(f.AnyFault.__args__)


@pytest.mark.parametrize("how", ["reset", "fin", "hang"])
def test_r13_lost_request_and_lost_reply(how: f.Drop) -> None:
    world = make_world(f.Rule(f.LostRequest(how)), f.Rule(f.LostReply(how), nth=2))
    first = post(world)
    assert (first.reply, first.close, first.at, count(world)) == (None, how, None if how == "hang" else START, 0)
    second = post(world)
    assert (second.reply, second.close, count(world)) == (None, how, 1)
    assert [answer.end for answer in world.replies(1) + world.replies(2)] == [how, how]
    assert (status(post(world)), count(world)) == (201, 2)


def test_c003_502_after_and_before_and_429_before() -> None:
    world = make_world(
        f.Rule(f.StatusAfter(502)),
        f.Rule(f.StatusBefore(502), nth=2),
        f.Rule(f.StatusBefore(429, {"Retry-After": "7"}), nth=3),
    )
    assert (status(post(world)), count(world)) == (502, 1)
    assert (status(post(world)), count(world)) == (502, 1)
    third = post(world)
    assert third.reply is not None
    assert (third.reply.status, third.reply.headers["retry-after"], count(world)) == (429, "7", 1)


def test_c008_the_first_29_of_56_posts_are_refused() -> None:
    world = make_world(f.Rule(f.StatusBefore(403, {"retry-after": "5"}), method="POST", times=29))
    answers = [status(post(world)) for _ in range(56)]
    assert answers == [403] * 29 + [201] * 27


C010_FAULTS: list[f.AnyFault] = [f.StatusBefore(403), f.StatusBefore(500), f.Hang(), f.BadJson(), f.EmptyBody()]


@pytest.mark.parametrize("fault", C010_FAULTS, ids=lambda fault: type(fault).__name__)
def test_c010_lookups_fail_while_the_post_was_applied(fault: f.AnyFault) -> None:
    world = make_world(
        f.Rule(f.LostReply(), method="POST"),
        f.Rule(fault, method="GET", path="/repos/*/*/issues/*/comments", times=None, until=START + 100),
    )
    post(world)
    outcome = ask(world, "GET", COMMENTS, at=START + 1)
    if isinstance(fault, f.Hang):
        assert (outcome.reply, outcome.at, outcome.close) == (None, None, "hang")
    elif isinstance(fault, f.StatusBefore):
        assert status(outcome) == fault.status
    else:
        assert outcome.reply is not None and outcome.reply.status == 200
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(outcome.reply.body)
    assert len(ids(ask(world, "GET", COMMENTS, at=START + 100))) == 1


def test_c011_listing_and_count_lag_one_by_one() -> None:
    rules = [f.Rule(f.StaleListing(4), path="**/comments", times=None), f.Rule(f.StaleCount(4), path="**/128", nth=2)]
    world = make_world(*rules)
    post(world)
    issue = "/repos/acme/app/issues/128"
    assert ids(ask(world, "GET", COMMENTS, at=START + 3.9)) == []
    assert mapping(ask(world, "GET", issue, at=START + 3.9))["comments"] == 1
    assert mapping(ask(world, "GET", issue, at=START + 3.9))["comments"] == 0
    assert len(ids(ask(world, "GET", COMMENTS, at=START + 4))) == 1


def test_r16_a_stale_listing_still_shows_what_was_deleted() -> None:
    world = make_world(f.Rule(f.StaleListing(4), method="GET"))
    made = world.add_comments("acme/app", 128, 1)[0]
    world.delete_comment(made.id)
    assert ids(ask(world, "GET", COMMENTS, at=START + 1)) == [made.id]
    assert ids(ask(world, "GET", COMMENTS, at=START + 1)) == []


def test_r16_order_changed_while_paging_hides_the_newest_and_repeats_others() -> None:
    world = make_world(f.Rule(f.OrderChanged(), times=None))
    made = [comment.id for comment in world.add_comments("acme/app", 128, 250)]
    seen = [number for page in (1, 2, 3) for number in ids(ask(world, "GET", f"{COMMENTS}?per_page=100&page={page}"))]
    assert len(seen) == 250
    assert set(made) - set(seen) == set(made[-2:])
    world.faults.clear()
    world.faults.add(f.Rule(f.OrderChanged(newest_first=True)))
    assert ids(ask(world, "GET", f"{COMMENTS}?per_page=100")) == made[:-101:-1]


def test_c012_a_stranger_acts_just_before_a_request() -> None:
    words = {"repo": "acme/app", "number": 128, "body": "agent-operation:k planted", "author": "mallory"}
    world = make_world(f.Rule(f.Change("add_comment", words), method="GET"), f.Rule(f.LostRequest(), method="POST"))
    post(world, "agent-operation:k mine")
    assert len(ids(ask(world, "GET", COMMENTS))) == 1
    assert world.effects("k") == []
    assert [c.author.login for c in world.comments("acme/app", 128)] == ["mallory"]


def test_a_deletion_between_effect_and_lookup() -> None:
    gone = f.Change("delete_newest_comment", {"repo": "acme/app", "number": 128, "author": "surefoot-bot"})
    world = make_world(f.Rule(f.LostReply(), method="POST"), f.Rule(gone, method="GET"))
    post(world, "agent-operation:k mine")
    assert ids(ask(world, "GET", COMMENTS)) == []
    assert len(world.effects("k")) == 1


def test_faults_join_and_the_first_that_decides_wins() -> None:
    world = make_world(f.Rule(f.Delay(2)), f.Rule(f.StatusAfter(503)), f.Rule(f.LostRequest()))
    outcome = post(world)
    assert (status(outcome), outcome.at, count(world)) == (503, START + 2, 1)
    world.due(START + 2)
    assert world.replies(1)[0].faults == ("delay", "status_after", "lost_request")


def test_a_reply_breaks_off_in_its_body() -> None:
    world = make_world(f.Rule(f.ResetMidBody(7)))
    outcome = post(world)
    assert (status(outcome), outcome.body_bytes, outcome.close, count(world)) == (201, 7, "reset", 1)
    assert world.replies(1)[0].end == "cut"


def test_c056_an_error_may_echo_the_credential() -> None:
    outcome = post(make_world(f.Rule(f.StatusBefore(500, echo_authorization=True))))
    assert outcome.reply is not None
    assert TOKEN.encode() in outcome.reply.body and TOKEN in outcome.reply.headers["x-echo"]


R15_REPLIES = [
    (429, {"retry-after": "7"}, None),
    (429, {}, None),
    (403, {"retry-after": "60"}, None),
    (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1700000060"}, None),
    (403, {}, {"message": "Resource not accessible by personal access token"}),
    (200, {}, {"error": "not really"}),
]


@pytest.mark.parametrize(("code", "headers", "body"), R15_REPLIES)
def test_r15_each_kind_of_refusal_can_be_said(code: int, headers: dict[str, str], body: object) -> None:
    outcome = post(make_world(f.Rule(f.StatusBefore(code, headers, body))))
    assert outcome.reply is not None and outcome.reply.status == code
    assert headers.items() <= outcome.reply.headers.items()
    assert body is None or mapping(outcome) == body


@pytest.mark.parametrize(
    ("rule", "hit"),
    [
        (f.Rule(f.StatusBefore(500), times=None), [0, 1, 2, 3, 4, 5]),
        (f.Rule(f.StatusBefore(500), method="GET"), [1]),
        (f.Rule(f.StatusBefore(500), method="GET", nth=2), [3]),
        (f.Rule(f.StatusBefore(500), nth=2, times=3), [1, 2, 3]),
        (f.Rule(f.StatusBefore(500), path="/repos/*/*/issues/*/comments", times=None), [0, 1, 2, 3]),
        (f.Rule(f.StatusBefore(500), path="/repos/*"), []),
        (f.Rule(f.StatusBefore(500), query={"page": "1"}), [3]),
        (f.Rule(f.StatusBefore(500), account="nobody"), []),
        (f.Rule(f.StatusBefore(500), body_contains="second"), [2]),
        (f.Rule(f.StatusBefore(500), since=START + 1, until=START + 3, times=None), [1, 2]),
        (f.Rule(f.StatusBefore(500), nth=2, times=None, lasting=2), [1, 2]),
    ],
)
def test_a_rule_hits_what_it_says(rule: f.Rule, hit: list[int]) -> None:
    world = make_world(rule)
    issue = "/repos/acme/app/issues/128"
    answers = [
        status(post(world, "first")),
        status(ask(world, "GET", COMMENTS, at=START + 1)),
        status(post(world, "second", at=START + 2)),
        status(ask(world, "GET", f"{COMMENTS}?page=1", at=START + 3)),
        status(ask(world, "GET", issue, at=START + 4)),
        status(ask(world, "GET", "/user", at=START + 5)),
    ]
    assert [index for index, answer in enumerate(answers) if answer == 500] == hit


def test_changes_are_only_those_that_are_listed() -> None:
    with pytest.raises(ValueError, match="is no change"):
        make_world().change("handle", {})
