"""Reading a pull request."""

from __future__ import annotations

import pytest

from surefoot.connectors import github
from surefoot.effects import InDoubt, Refused
from surefoot.testing import faults as f
from surefoot.testing.world import BOT
from tests.github.rig import NUMBER, REPO, Rig

PULL = f"/repos/{REPO}/pulls/{NUMBER}"


async def read(rig: Rig) -> dict[str, object]:
    return await github.read_pull_request(rig.op(effect="read"), REPO, NUMBER)


async def test_what_a_reviewer_needs(rig: Rig) -> None:
    seen = await read(rig)
    assert (seen["title"], seen["body"], seen["author"], seen["state"]) == (
        "Handle None",
        "It crashed.",
        "octocat",
        "open",
    )
    assert str(seen["diff"]).startswith("diff --git a/app.py b/app.py") and "note" not in seen
    assert seen["files"] == [{"filename": "app.py", "status": "modified", "additions": 1, "deletions": 0}]
    assert seen["more_files"] is False and len(str(seen["head_sha"])) == 40 and seen["base"]


async def test_a_long_diff_is_cut_at_whole_characters(rig: Rig) -> None:
    rig.world.add_pull(REPO, NUMBER, diff="diff --git a/a b/a\n@@ -0,0 +1 @@\n+" + "\U0001f600" * 70_000)
    seen = await read(rig)
    diff = str(seen["diff"])
    assert len(diff) == github.DIFF_CHARACTERS_MAX and diff.encode() and "cut" in str(seen["note"])


async def test_many_files_are_cut(rig: Rig) -> None:
    rig.world.add_pull(REPO, NUMBER, diff="".join(f"diff --git a/{n} b/{n}\n" for n in range(420)))
    seen = await read(rig)
    assert isinstance(seen["files"], list) and len(seen["files"]) == github.FILES_MAX and seen["more_files"] is True
    assert len(rig.world.requests("GET", f"{PULL}/files")) == 4


async def test_a_diff_that_github_does_not_make(rig: Rig) -> None:
    rig.fault(f.StatusBefore(406), "GET", PULL, nth=2)
    seen = await read(rig)
    assert seen["diff"] == "" and "too large" in str(seen["note"]).replace("this large", "too large")


async def test_failures_are_raised_for_the_runtime_to_repeat(rig: Rig) -> None:
    for fault, error in ((f.StatusBefore(500), InDoubt), (f.StatusBefore(404), Refused), (f.BadJson(), InDoubt)):
        rig.fault(fault, "GET", PULL)
        with pytest.raises(error):
            await read(rig)
    assert (await read(rig))["number"] == NUMBER


async def test_a_comment_is_deleted_and_a_repeat_finds_it_gone(rig: Rig) -> None:
    receipt = await rig.create()
    for deleted in (True, False):
        op = rig.op(effect="idempotent")
        gone = await github.delete_issue_comment(op, REPO, int(receipt.resource_id or 0))
        assert gone.output == {"id": int(receipt.resource_id or 0), "deleted": deleted}
    assert rig.world.comments(REPO, NUMBER, author=BOT.login) == []


async def test_a_comment_that_the_token_does_not_see_is_not_called_gone(rig: Rig) -> None:
    receipt = await rig.create()
    rig.world.set_access(REPO, readers=["somebody-else"])
    with pytest.raises(Refused):
        await github.delete_issue_comment(rig.op(effect="idempotent"), REPO, int(receipt.resource_id or 0))
    assert len(rig.world.comments(REPO, NUMBER, author=BOT.login)) == 1


async def test_the_compensation_of_a_double_is_a_call_of_its_own(rig: Rig) -> None:
    receipt = await rig.create()
    assert github.create_issue_comment.compensate is not None
    call = github.create_issue_comment.compensate(receipt, repo=REPO)
    assert getattr(call, "arguments", None) == {"repo": REPO, "comment_id": int(receipt.resource_id or 0)}
