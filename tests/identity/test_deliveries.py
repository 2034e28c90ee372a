"""What else GitHub tells: reviews and issues with our marker, merges, closes and labels that a step in doubt asked for.

Each is settled by the delivery alone, once; one that is nearly it changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from surefoot.agent.tools import Tool
from surefoot.connectors import github
from surefoot.testing.github_state import Repo, account_view, issue_view, pull_view, review_view, stamp
from surefoot.testing.world import BOT
from tests.github.rig import BODY, NUMBER, REPO
from tests.identity.rig import STRANGER, Rig, rig_of
from tests.places import Place

PULL = f"/repos/{REPO}/pulls/{NUMBER}"
ISSUES = f"/repos/{REPO}/issues"
BASE = "https://api.github.com"
Told = dict[str, object]


def repo_of(rig: Rig) -> Repo:
    return rig.world.repos[REPO]


def told(rig: Rig, action: str, **things: object) -> Told:
    return {"action": action, "repository": {"full_name": REPO}, "sender": account_view(BOT), **things}


def changed(delivery: Mapping[str, object], thing: str, /, **members: object) -> Told:
    """The same delivery with other members of one thing."""
    found = delivery[thing]
    assert isinstance(found, dict)
    return {**delivery, thing: {**found, **members}}


async def deliver(rig: Rig, body: Told, event: str) -> str:
    answer = await rig.deliver(json.dumps(body).encode(), event=event)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["outcome"])


async def settles(rig: Rig, run_id: str, event: str, good: Told, nearly: Mapping[str, Told], made_id: str) -> None:
    """What is nearly it is ignored; it is settled by the right one, and known after that."""
    for why, body in nearly.items():
        assert await deliver(rig, body, event) == "ignored", why
    assert await rig.step(run_id) == ("outcome_unknown", None, None)
    writes = len(rig.world.requests("POST") + rig.world.requests("PUT") + rig.world.requests("PATCH"))
    assert await deliver(rig, good, event) == "settled"
    assert await rig.step(run_id) == ("succeeded", "found", made_id)
    done = await rig.sf.wait(run_id, timeout=20)
    (step,) = [s for s in done.steps if s.type == "tool_call"]
    assert done.status == "completed" and (step.evidence[-1].verdict, step.evidence[-1].source) == ("found", "webhook")
    assert await deliver(rig, good, event) == "repeated"
    assert await deliver(rig, {**good, "again": True}, event) in ("known", "ignored")
    assert len(rig.world.requests("POST") + rig.world.requests("PUT") + rig.world.requests("PATCH")) == writes
    assert await rig.sf.snapshot(run_id) == done


@asynccontextmanager
async def doing(
    place: Place, monkeypatch: pytest.MonkeyPatch, tool: Tool, arguments: dict[str, object]
) -> AsyncIterator[Rig]:
    async with rig_of(place, monkeypatch, act=(tool, arguments)) as rig:
        yield rig


async def test_a_review_with_our_marker(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = github.create_review.using(settle=60)
    arguments: dict[str, object] = {"repo": REPO, "number": NUMBER, "body": BODY, "event": "COMMENT"}
    async with doing(place, monkeypatch, tool, arguments) as rig:
        run_id = await rig.in_doubt("POST", f"{PULL}/reviews", f"{PULL}/reviews")
        issue = repo_of(rig).issues[NUMBER]
        assert issue.pull is not None
        (review,) = issue.pull.reviews
        view = review_view(repo_of(rig), issue, review)
        good = told(rig, "submitted", review=view, pull_request=pull_view(repo_of(rig), issue, issue.pull, BASE, 0))
        nearly = {
            "edited": {**good, "action": "edited"},
            "a stranger's": changed(good, "review", user=account_view(STRANGER)),
            "nobody's": changed(good, "review", user=None),
            "without a text": changed(good, "review", body=None),
            "of another pull request": changed(good, "pull_request", number=NUMBER + 1),
            "of another repository": {**good, "repository": {"full_name": "acme/other"}},
            "with a changed MAC": changed(good, "review", body=review.body.replace("mac=", "mac=0")),
        }
        written = changed(good, "repository", full_name=REPO.title())  # as its owner writes it
        await settles(rig, run_id, "pull_request_review", written, nearly, str(review.id))


async def test_an_issue_with_our_marker(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = github.create_issue.using(settle=60)
    async with doing(place, monkeypatch, tool, {"repo": REPO, "title": "It crashes", "body": BODY}) as rig:
        run_id = await rig.in_doubt("POST", ISSUES, ISSUES)
        issue = next(i for i in repo_of(rig).issues.values() if i.title == "It crashes")
        good = told(rig, "opened", issue=issue_view(repo_of(rig), issue, BASE, 0))
        nearly = {
            "reopened": {**good, "action": "reopened"},
            "a stranger's": changed(good, "issue", user=account_view(STRANGER)),
            "without a text": changed(good, "issue", body=None),
            "of another repository": {**good, "repository": {"full_name": "acme/other"}},
        }
        await settles(rig, run_id, "issues", good, nearly, str(issue.number))


async def the_merge(place: Place, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The arguments of a merge of the pull request as it stands."""
    async with rig_of(place, monkeypatch) as plain:
        pull = repo_of(plain).issues[NUMBER].pull
        assert pull is not None
        return {"repo": REPO, "number": NUMBER, "head_sha": pull.head_sha}


async def test_a_merge_of_the_approved_head(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = github.merge_pull_request.using(settle=60)
    async with doing(place, monkeypatch, tool, await the_merge(place, monkeypatch)) as rig:
        run_id = await rig.in_doubt("PUT", f"{PULL}/merge", f"/repos/{REPO}")
        issue = repo_of(rig).issues[NUMBER]
        assert issue.pull is not None and issue.pull.merge_commit_sha is not None
        view = pull_view(repo_of(rig), issue, issue.pull, BASE, 0)
        good = told(rig, "closed", pull_request=view, sender=account_view(STRANGER))
        nearly = {
            "closed and not merged": changed(good, "pull_request", merged=False),
            "merged with another head": changed(good, "pull_request", head={"sha": "f" * 40}),
            "another pull request": changed(good, "pull_request", number=NUMBER + 1),
            "labeled": {**good, "action": "labeled"} | {"pull_request": {**view, "merged": False}},
            "synchronize": {**good, "action": "synchronize"},
            "of another repository": {**good, "repository": {"full_name": "acme/other"}},
        }
        await settles(rig, run_id, "pull_request", good, nearly, issue.pull.merge_commit_sha)


async def test_a_step_that_cannot_be_read_keeps_no_other_from_being_settled(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = github.merge_pull_request.using(settle=60)
    async with doing(place, monkeypatch, tool, await the_merge(place, monkeypatch)) as rig:
        damaged = await rig.in_doubt("PUT", f"{PULL}/merge", f"/repos/{REPO}")
        other = await rig.in_doubt("PUT", f"{PULL}/merge", f"/repos/{REPO}")
        issue = repo_of(rig).issues[NUMBER]
        assert issue.pull is not None
        view = pull_view(repo_of(rig), issue, issue.pull, BASE, 0)
        good = told(rig, "closed", pull_request=view, sender=account_view(STRANGER))
        (rules,) = {row["rules"] for row in place.contents()["step"] if row["status"] == "outcome_unknown"}
        of_it = "WHERE run_id = ? AND status = 'outcome_unknown'"
        assert place.execute(f"UPDATE step SET rules = '{{' {of_it}", damaged) == 1
        assert await deliver(rig, good, "pull_request") == "settled"
        assert await rig.step(other) == ("succeeded", "found", issue.pull.merge_commit_sha)
        assert place.execute(f"UPDATE step SET rules = ? {of_it}", rules, damaged) == 1
        assert await deliver(rig, good, "pull_request") == "settled", "sent again, it is read again"
        assert await rig.step(damaged) == ("succeeded", "found", issue.pull.merge_commit_sha)


async def test_labels_and_a_close_that_our_account_made(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = github.add_labels.using(attempts=1)
    arguments: dict[str, object] = {"repo": REPO, "issue_number": NUMBER, "labels": ["bug", "urgent"]}
    async with doing(place, monkeypatch, labels, arguments) as rig:
        run_id = await rig.in_doubt("POST", f"{ISSUES}/{NUMBER}/labels", "/none")
        issue = repo_of(rig).issues[NUMBER]
        view = {**issue_view(repo_of(rig), issue, BASE, 0), "updated_at": _now(rig)}
        good = told(rig, "labeled", issue=view)
        nearly = {
            "one of two": changed(good, "issue", labels=[{"name": "bug"}]),
            "by a stranger": {**good, "sender": account_view(STRANGER)},
            "before it was asked for": changed(good, "issue", updated_at="2020-01-01T00:00:00Z"),
            "unlabeled": {**good, "action": "unlabeled"},
            "on another issue": changed(good, "issue", number=NUMBER + 1),
        }
        assert await deliver(rig, nearly.pop("before it was asked for"), "issues") == "too_old"
        await settles(rig, run_id, "issues", good, nearly, f"{REPO}#{NUMBER}")


async def test_a_close_that_our_account_made(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    close = github.close_issue.using(attempts=1)
    async with doing(place, monkeypatch, close, {"repo": REPO, "issue_number": NUMBER}) as rig:
        run_id = await rig.in_doubt("PATCH", f"{ISSUES}/{NUMBER}", "/none")
        issue = repo_of(rig).issues[NUMBER]
        assert issue.state == "closed"
        view = {**issue_view(repo_of(rig), issue, BASE, 0), "updated_at": _now(rig)}
        good = told(rig, "closed", issue=view)
        nearly = {
            "by a stranger": {**good, "sender": account_view(STRANGER)},
            "open again": changed(good, "issue", state="open"),
            "another issue": changed(good, "issue", number=NUMBER + 1),
        }
        written = changed(good, "repository", full_name=REPO.title())  # as its owner writes it
        monkeypatch.setattr(rig.sf.store, "counts", None)  # nothing counts the whole store for one delivery
        await settles(rig, run_id, "issues", written, nearly, str(NUMBER))


async def test_a_delivery_that_lacks_what_it_is_about_does_not_fit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_of(place, monkeypatch) as rig:
        for event, action in (
            ("issue_comment", "created"),
            ("pull_request_review", "submitted"),
            ("issues", "opened"),
            ("issues", "labeled"),
            ("pull_request", "closed"),
        ):
            answer = await rig.deliver(json.dumps({"action": action}).encode(), event=event)
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), event
        for event in ("push", "ping", "star"):
            assert await deliver(rig, {"action": "created"}, event) == "ignored"


def _now(rig: Rig) -> str:
    return stamp(rig.sf.doors.clock.now().wall)
