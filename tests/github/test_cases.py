"""Field cases of comments on GitHub, at the level of the connector: one call, one look, and the World's own log."""

from __future__ import annotations

import re

import pytest

from surefoot.connectors import github
from surefoot.effects import Absent, Found, InDoubt, Refused, Undetermined
from surefoot.testing import faults as f
from surefoot.testing.wire import Applied
from surefoot.testing.world import BOT
from tests.github.rig import BODY, COMMENTS, NUMBER, PLACE, REPO, Rig, socket_rig

ISSUE = f"/repos/{REPO}/issues/{NUMBER}"


def comment_ids(rig: Rig) -> list[str]:
    """The ids of our comments, from the World."""
    return [str(comment.id) for comment in rig.world.comments(REPO, NUMBER, author=BOT.login)]


async def test_a_comment_is_created_once_with_its_marker(rig: Rig) -> None:
    receipt = await rig.create()
    (made,) = rig.world.effects("run_1:step_1")
    assert receipt.resource_id == str(made.resource_id) and receipt.url and receipt.url.endswith(receipt.resource_id)
    assert made.text.startswith(BODY + "\n\n<!-- agent-operation:run_1:step_1 k=")
    assert (made.place, rig.posts()) == (PLACE, 1)


async def test_c002_a_lost_reply_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async with socket_rig(monkeypatch) as rig:
        rig.fault(f.LostReply())
        with pytest.raises(InDoubt):
            await rig.create()
        verdict = await rig.find()
        assert isinstance(verdict, Found) and not verdict.also
        assert [verdict.receipt.resource_id] == comment_ids(rig)
        assert rig.posts() == 1


async def test_c003_502_after_and_before_and_a_429(monkeypatch: pytest.MonkeyPatch) -> None:
    async with socket_rig(monkeypatch) as rig:
        rig.fault(f.StatusAfter(502))
        with pytest.raises(InDoubt):
            await rig.create(step="a")
        assert isinstance(await rig.find(step="a"), Found)

        rig.fault(f.StatusBefore(502))
        with pytest.raises(InDoubt):
            await rig.create(body="b", step="b")
        assert isinstance(await rig.find(body="b", step="b"), Absent)
        await rig.create(body="b", step="b", attempt=2)
        assert len(rig.world.effects("run_1:b")) == 1

        rig.fault(f.StatusBefore(429, headers={"Retry-After": "7"}))
        with pytest.raises(Refused) as refused:
            await rig.create(body="c", step="c")
        assert refused.value.retry_after == 7


async def test_c005_one_post_per_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    async with socket_rig(monkeypatch) as rig:
        rig.fault(f.StatusAfter(502), times=None)
        with pytest.raises(InDoubt):
            await rig.create()
        assert rig.posts() == 1 and len(comment_ids(rig)) == 1


async def test_c007_a_long_thread_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with socket_rig(monkeypatch) as rig:
        rig.world.add_comments(REPO, NUMBER, 250)
        rig.fault(f.LostReply())
        with pytest.raises(InDoubt):
            await rig.create()
        verdict = await rig.find()
        assert isinstance(verdict, Found) and [verdict.receipt.resource_id] == comment_ids(rig)
        assert [entry.query["page"] for entry in rig.world.requests("GET", COMMENTS)] == ["1", "2", "3"]
        assert rig.world.requests("*", "/search/**") == []


@pytest.mark.parametrize("older", [0, 1, 99, 100, 101, 200, 250])
async def test_c007_absent_counts_every_page(rig: Rig, older: int) -> None:
    rig.world.add_comments(REPO, NUMBER, older)
    verdict = await rig.find()
    assert isinstance(verdict, Absent) and isinstance(verdict.coverage, dict)
    assert verdict.coverage == {
        "place": PLACE,
        "account": f"{BOT.login}:{BOT.id}",
        "pages": older // 100 + 1,
        "listed": older,
        "count_before": older,
        "count_after": older,
    }


async def test_c009_only_the_named_place_is_called(rig: Rig) -> None:
    rig.world.add_pull("other-org/other-repo", NUMBER)
    body = f"See other-org/other-repo#{NUMBER}, #{NUMBER} and https://github.com/other-org/other-repo/pull/{NUMBER}."
    await rig.create(body)
    assert isinstance(await rig.find(body), Found)
    assert {entry.path for entry in rig.world.requests()} == {"/user", f"/repos/{REPO}", ISSUE, COMMENTS}


FAILURES = [
    (f.StatusBefore(403), "forbidden"),
    (f.StatusBefore(403, headers={"Retry-After": "5"}), "rate_limited"),
    (f.StatusBefore(403, body={"message": "You have exceeded a secondary rate limit."}), "rate_limited"),
    (f.StatusBefore(429), "rate_limited"),
    (f.StatusBefore(404), "not_found"),
    (f.StatusBefore(410), "gone"),
    (f.StatusBefore(401), "unauthorized"),
    (f.StatusBefore(301, headers={"Location": "https://api.github.com/x"}), "moved"),
    (f.StatusBefore(304), "refused"),
    (f.StatusBefore(500), "server_error"),
    (f.StatusBefore(502), "server_error"),
    (f.StatusBefore(200, body={"message": "Something went wrong"}), "bad_json"),
    (f.Hang(), "timeout"),
    (f.LostRequest(), "unreachable"),
    (f.BadJson(), "bad_json"),
    (f.EmptyBody(), "bad_json"),
]
PATHS = ["/user", f"/repos/{REPO}", ISSUE, COMMENTS, f"{ISSUE}/events"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("fault", "reason"), FAILURES)
async def test_c010_a_refused_lookup_is_never_absent(rig: Rig, fault: f.AnyFault, reason: str, path: str) -> None:
    rig.fault(fault, "GET", path)
    verdict = await rig.find()
    assert isinstance(verdict, Undetermined)
    if path == "/user" and reason == "forbidden":
        reason = "account_unknown"
    assert verdict.reason == reason
    assert isinstance(verdict.coverage, dict)
    assert ("retry_after_seconds" in verdict.coverage) == (reason == "rate_limited")
    assert isinstance(await rig.find(), Absent), "well again"


@pytest.mark.parametrize(
    "fault", [f.StatusBefore(403), f.StatusBefore(500), f.Hang(), f.BadJson(), f.EmptyBody(), f.ResetMidBody()]
)
async def test_c010_a_lost_reply_and_a_lookup_that_fails(monkeypatch: pytest.MonkeyPatch, fault: f.AnyFault) -> None:
    async with socket_rig(monkeypatch, seconds=1.0) as rig:
        rig.fault(f.LostReply())
        with pytest.raises(InDoubt):
            await rig.create()
        rig.fault(fault, "GET", COMMENTS)
        assert isinstance(await rig.find(), Undetermined)
        verdict = await rig.find()
        assert isinstance(verdict, Found) and [verdict.receipt.resource_id] == comment_ids(rig)
        assert rig.posts() == 1


async def test_c011_a_short_listing_is_not_absent(rig: Rig) -> None:
    rig.world.add_comments(REPO, NUMBER, 3)
    rig.fault(f.LostReply())
    with pytest.raises(InDoubt):
        await rig.create()
    rig.fault(f.StaleListing(4), "GET", COMMENTS, times=None)
    verdict = await rig.find()
    assert isinstance(verdict, Undetermined) and verdict.reason == "count_mismatch"
    assert isinstance(verdict.coverage, dict) and (verdict.coverage["listed"], verdict.coverage["count_before"]) == (
        3,
        4,
    )
    rig.pass_time(4)
    assert isinstance(await rig.find(), Found)


async def test_c011_a_count_that_lags_too_is_over_after_the_settle_time(rig: Rig) -> None:
    rig.fault(f.LostReply())
    with pytest.raises(InDoubt):
        await rig.create()
    rig.fault(f.StaleListing(4), "GET", COMMENTS, times=None)
    rig.fault(f.StaleCount(4), "GET", ISSUE, times=None)
    rig.pass_time(github.SETTLE_SECONDS)
    assert isinstance(await rig.find(), Found)


async def test_c012_a_strangers_marker_is_no_proof(rig: Rig) -> None:
    leaked = rig.marker(account=str(BOT.id))
    rig.world.add_comment(REPO, NUMBER, f"{BODY}\n\n{leaked}")
    verdict = await rig.find()
    assert isinstance(verdict, Absent)
    receipt = await rig.create()
    verdict = await rig.find()
    assert isinstance(verdict, Found) and verdict.receipt.resource_id == receipt.resource_id and not verdict.also


async def test_c012_a_marker_of_another_place_or_step_is_no_proof(rig: Rig) -> None:
    elsewhere = rig.marker(account=str(BOT.id), place="acme/app#9")
    rig.world.add_comment(REPO, NUMBER, f"x\n\n{elsewhere}", author=BOT.login)
    verdict = await rig.find()
    assert isinstance(verdict, Undetermined) and verdict.reason == "marker_altered"
    assert isinstance(await rig.find(step="step_2"), Absent)


async def test_c013_a_body_over_the_limit_is_refused_before_approval() -> None:
    tool, place = github.create_issue_comment, {"repo": REPO, "issue_number": NUMBER}
    for length in (70_000, 65_530, github.TEXT_CHARACTERS_MAX + 1):
        assert "characters" in (tool.refusal({**place, "body": "x" * length}) or "")
    assert tool.refusal({**place, "body": "x" * github.TEXT_CHARACTERS_MAX}) is None
    assert tool.refusal({**place, "body": " \n"}) is not None


async def test_c013_the_longest_body_arrives_with_its_marker(rig: Rig) -> None:
    body, step = "界" * github.TEXT_CHARACTERS_MAX, "s" * 400
    await rig.create(body, step=step)
    verdict = await rig.find(body, step=step)
    assert isinstance(verdict, Found)
    (comment,) = rig.world.comments(REPO, NUMBER)
    assert len(comment.body) <= github.BODY_CHARACTERS_MAX


async def test_c013_the_tool_itself_refuses_too(rig: Rig) -> None:
    with pytest.raises(Refused):
        await rig.create("x" * 70_000)
    assert rig.world.requests() == []


async def test_c014_a_marker_in_the_models_text_is_removed(rig: Rig) -> None:
    pending = rig.marker(step="pending", account=str(BOT.id))
    await rig.create(f"{BODY}\n\n{pending}\n\nThat was that.", step="other")
    (comment,) = rig.world.comments(REPO, NUMBER)
    assert "pending" not in comment.body and comment.body.count("agent-operation") == 1
    assert isinstance(await rig.find(step="pending"), Absent)
    assert isinstance(await rig.find(step="other"), Found)


async def test_texts_of_the_applied_body_are_the_approved_ones(rig: Rig) -> None:
    body = "Zeile 1\r\n\r\n  ```diff\n-  a\n+  b\n```\n中文 \U0001f600 <!-- an ordinary comment -->"
    await rig.create(body)
    applied = [entry for entry in rig.world.log if isinstance(entry, Applied)]
    assert re.sub(r"\n\n<!-- agent-operation:.*-->$", "", applied[0].text) == body


def test_c009_places_that_would_leave_the_path_are_refused() -> None:
    for repo in (
        "acme",
        "acme/",
        "acme/..",
        "../app",
        "acme/app/x",
        "acme/app?x",
        "acme/app\n",
        "acme/%2e%2e",
        "/",
        "",
    ):
        assert github.create_issue_comment.refusal({"repo": repo, "issue_number": 1, "body": "x"}), repo
    for number in (0, -1, 2**60):
        assert github.read_pull_request.refusal({"repo": REPO, "number": number}), number


def test_display_and_declaration() -> None:
    tool = github.create_issue_comment
    assert tool.display["doing"] == {"en": "Posting the comment on GitHub", "zh-CN": "正在 GitHub 上发表评论"}
    assert tool.display["checking"] == {
        "en": "Checking whether the comment was created",
        "zh-CN": "正在核对评论是否已创建",
    }
    assert (tool.effect.name, tool.effect.settle, tool.timeout, tool.credential) == ("lookup", 60, 15, "GITHUB_TOKEN")
    assert tool.target_text({"repo": REPO, "issue_number": NUMBER, "body": ""}) == PLACE
    assert github.read_pull_request.effect.name == "read"
