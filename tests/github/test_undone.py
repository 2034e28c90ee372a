"""A double on GitHub that a person has decided to undo: the comment that nobody wanted is deleted, the other stays."""

from __future__ import annotations

import pytest

from surefoot import Found, Receipt, Surefoot
from surefoot.connectors import github
from surefoot.testing.world import BOT, TOKEN
from tests.github.rig import BODY, NUMBER, REPO, socket_rig
from tests.support import eventually


async def test_a_second_comment_is_deleted_once_a_person_says_so(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    async with socket_rig(monkeypatch) as rig:
        call = github.create_issue_comment.call(repo=REPO, issue_number=NUMBER, body=BODY)
        async with Surefoot(store_url, tools=[github.create_issue_comment], worker=True) as sf:
            receipt = await sf.perform(call, key="128")
            (first,) = rig.world.comments(REPO, NUMBER)
            assert receipt.resource_id == str(first.id)
            second = rig.world.add_comment(REPO, NUMBER, first.body, author=BOT.login)
            await sf.report("create_issue_comment:128", Found(Receipt(resource_id=str(second.id))))
            (question,) = await sf.actions(status="waiting")
            await sf.approve(question.action.id, by="anna")
            await eventually(lambda: rig.world.comments(REPO, NUMBER) == [first])
        assert len(rig.world.requests("DELETE")) == 1
