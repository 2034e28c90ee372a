"""Merging: the head that was seen, once, and never another one."""

from __future__ import annotations

import pytest

from surefoot.connectors import github
from surefoot.effects import Absent, Found, InDoubt, Receipt, Refused, Undetermined, Verdict
from surefoot.testing import faults as f
from surefoot.testing.github_state import Account, Pull
from surefoot.testing.world import BOT
from tests.github.rig import NUMBER, REPO, Rig

PULL = f"/repos/{REPO}/pulls/{NUMBER}"
OTHER = "b" * 40


def pull_of(rig: Rig) -> Pull:
    """The pull request in the World."""
    pull = rig.world.repos[REPO].issues[NUMBER].pull
    assert pull is not None
    return pull


async def merge(rig: Rig, head: str, *, attempt: int = 1) -> Receipt:
    """One attempt."""
    return await github.merge_pull_request(rig.op(attempt=attempt), REPO, NUMBER, head)


async def find(rig: Rig, head: str) -> Verdict:
    """One look."""
    return await github.find_merge(rig.op(looking=True), REPO, NUMBER, head)


async def test_a_merge_is_found_with_its_commit(rig: Rig) -> None:
    head = pull_of(rig).head_sha
    assert isinstance(await find(rig, head), Absent)
    rig.fault(f.LostReply(), "PUT", f"{PULL}/merge")
    with pytest.raises(InDoubt):
        await merge(rig, head)
    verdict = await find(rig, head)
    assert isinstance(verdict, Found) and verdict.receipt.resource_id == pull_of(rig).merge_commit_sha
    assert isinstance(verdict.coverage, dict) and verdict.coverage["merged_by"] == BOT.login
    (request,) = rig.world.requests("PUT")
    assert f'"sha":"{head}"' in request.body


async def test_another_head_is_refused_and_not_merged(rig: Rig) -> None:
    head = pull_of(rig).head_sha
    rig.world.push(REPO, NUMBER, OTHER)
    with pytest.raises(Refused) as refused:
        await merge(rig, head)
    assert refused.value.status == 409 and pull_of(rig).merge_commit_sha is None
    verdict = await find(rig, head)
    assert isinstance(verdict, Undetermined) and verdict.reason == "head_changed"


async def test_what_somebody_else_merged(rig: Rig) -> None:
    head = pull_of(rig).head_sha
    pull_of(rig).merge_commit_sha, pull_of(rig).merged_by = "c" * 40, Account("ann", 7)
    rig.world.repos[REPO].issues[NUMBER].state = "closed"
    verdict = await find(rig, head)
    assert isinstance(verdict, Found) and isinstance(verdict.coverage, dict)
    assert verdict.coverage["merged_by"] == "ann", "it is merged as wanted; the evidence says by whom"
    with pytest.raises(Refused, match="already"):
        await merge(rig, head)
    assert (await merge(rig, head, attempt=2)).resource_id == "c" * 40, "a repeat meets what an earlier attempt did"
    pull_of(rig).head_sha = OTHER
    verdict = await find(rig, head)
    assert isinstance(verdict, Undetermined) and verdict.reason == "merged_at_another_head"


async def test_a_closed_one_is_not_merged(rig: Rig) -> None:
    head = pull_of(rig).head_sha
    rig.world.repos[REPO].issues[NUMBER].state = "closed"
    assert isinstance(await find(rig, head), Absent)
    for attempt in (1, 2):
        with pytest.raises(Refused, match="closed"):
            await merge(rig, head, attempt=attempt)


@pytest.mark.parametrize("body", [{"merged": True}, {"merged": False, "sha": OTHER}, [], "x"])
async def test_a_200_that_does_not_say_so_is_in_doubt(rig: Rig, body: object) -> None:
    rig.fault(f.StatusBefore(200, body=body), "PUT", f"{PULL}/merge")
    with pytest.raises(InDoubt):
        await merge(rig, pull_of(rig).head_sha)


@pytest.mark.parametrize("path", [f"/repos/{REPO}", PULL])
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (f.StatusBefore(404), "not_found"),
        (f.StatusBefore(429), "rate_limited"),
        (f.StatusBefore(502), "server_error"),
        (f.Hang(), "timeout"),
        (f.BadJson(), "bad_json"),
    ],
)
async def test_a_look_that_fails_is_never_absent(rig: Rig, fault: f.AnyFault, why: str, path: str) -> None:
    rig.fault(fault, "GET", path)
    verdict = await find(rig, pull_of(rig).head_sha)
    assert isinstance(verdict, Undetermined) and verdict.reason == why


async def test_the_precondition_is_the_head(rig: Rig) -> None:
    assert await github.pull_request_head(rig.op(looking=True), REPO, NUMBER) == {"head_sha": pull_of(rig).head_sha}
    assert github.merge_pull_request.precondition is github.pull_request_head


def test_a_head_is_a_whole_commit_id() -> None:
    arguments = {"repo": REPO, "number": NUMBER, "method": "merge"}
    for head in ("", "abc", "main", "B" * 40, "b" * 41):
        assert github.merge_pull_request.refusal({**arguments, "head_sha": head})
    assert github.merge_pull_request.refusal({**arguments, "head_sha": OTHER}) is None
