"""What GitHub and the people on it do between a send and a look makes no look say absent or found wrongly."""

from __future__ import annotations

import pytest

from surefoot.connectors import github
from surefoot.effects import Absent, Found, InDoubt, Operation, Refused, Undetermined
from surefoot.testing import faults as f
from surefoot.testing.github_state import Account, Review
from surefoot.testing.world import BOT
from tests.github.rig import BODY, COMMENTS, NUMBER, PLACE, REPO, SIGNER, Rig, virtual_rig

ISSUE = f"/repos/{REPO}/issues/{NUMBER}"
PULL = f"/repos/{REPO}/pulls/{NUMBER}"


def reason(verdict: object) -> str:
    """The reason of an Undetermined."""
    assert isinstance(verdict, Undetermined), verdict
    return verdict.reason


def later(rig: Rig) -> None:
    """A minute passes."""
    rig.pass_time(60)
    rig.world.now = rig.clock.now().wall


async def find_all(rig: Rig) -> list[object]:
    """Each of the looks, one after the other. There is an issue of the day before, whose number is the last but one."""
    if NUMBER - 1 not in rig.world.repos[REPO].issues:
        rig.world.add_issue(REPO, NUMBER - 1).created_at -= 86_400
    op = rig.op(looking=True)
    pull = rig.world.repos[REPO].issues[NUMBER].pull
    assert pull is not None
    return [
        await rig.find(),
        await github.find_review(op, REPO, NUMBER, BODY),
        await github.find_issue(op, REPO, "A title", BODY),
        await github.find_merge(op, REPO, NUMBER, pull.head_sha),
    ]


# ---- answers that are not what GitHub says now


@pytest.mark.parametrize("status", [201, 202, 203, 206])
@pytest.mark.parametrize("path", ["**/comments", "**/reviews", "**/issues", ISSUE, PULL, f"/repos/{REPO}", "**/events"])
async def test_an_answer_that_is_not_whole_is_never_absent(rig: Rig, status: int, path: str) -> None:
    assert all(isinstance(verdict, Absent) for verdict in await find_all(rig))
    whole: dict[str, object] = {"full_name": REPO, "number": NUMBER, "comments": 0, "merged": False}
    listing = path.startswith("**")
    rig.fault(f.StatusBefore(status, body=[] if listing else whole), "GET", path, times=None)
    verdicts = await find_all(rig)
    hit = [verdict for verdict in verdicts if not isinstance(verdict, Absent)]
    assert hit and {reason(verdict) for verdict in hit} == {"not_whole"}


@pytest.mark.parametrize("path", [COMMENTS, ISSUE, f"/repos/{REPO}"])
async def test_an_answer_from_a_cache_is_never_absent(rig: Rig, path: str) -> None:
    body: object = [] if path == COMMENTS else {"full_name": REPO, "number": NUMBER, "comments": 0}
    rig.fault(f.StatusBefore(200, headers={"Age": "31"}, body=body), "GET", path)
    assert reason(await rig.find()) == "cached"
    rig.fault(f.StatusBefore(200, headers={"Age": "0"}, body=body), "GET", path)
    assert isinstance(await rig.find(), Absent)


async def test_a_deletion_and_a_new_comment_between_two_pages_hide_nothing() -> None:
    """The counts agree before and after, and ours stands on no page that was read."""
    rig = virtual_rig(deletion_events=False)
    old = rig.world.add_comments(REPO, NUMBER, 100)
    await rig.create()
    rig.world.add_comments(REPO, NUMBER, 20)
    for change in (
        f.Change("delete_comment", {"comment_id": old[5].id}),
        f.Change("add_comment", {"repo": REPO, "number": NUMBER, "body": "hello"}),
    ):
        rig.fault(change, "GET", COMMENTS, nth=2)
    verdict = await rig.find()
    assert isinstance(verdict, Found) or reason(verdict) == "listing_changed"
    assert isinstance(await rig.find(), Found)


# ---- texts that people changed


async def test_our_comment_that_was_rewritten_is_not_absent(rig: Rig) -> None:
    made = await rig.create()
    later(rig)
    rig.world.edit_comment(int(made.resource_id or 0), "Rewritten by somebody.")
    assert reason(await rig.find()) == "edited"


async def test_comments_that_were_edited_and_cannot_be_ours(rig: Rig) -> None:
    rig.world.now -= 3_600
    old = rig.world.add_comment(REPO, NUMBER, "A table", author=BOT.login)
    rig.world.now += 3_600
    strangers = rig.world.add_comment(REPO, NUMBER, "Hm.")
    other = int((await rig.create(step="other")).resource_id or 0)
    later(rig)
    text = next(comment.body for comment in rig.world.comments(REPO, NUMBER) if comment.id == other)
    for number, body in ((old.id, "Another table"), (strangers.id, "Hm!"), (other, f"EDIT: yes\n\n{text}")):
        rig.world.edit_comment(number, body)
    assert isinstance(await rig.find(), Absent)


async def test_what_was_added_to_our_comment_hides_it_not(rig: Rig) -> None:
    made = await rig.create()
    later(rig)
    text = SIGNER.sign(rig.op(), BODY, PLACE, str(BOT.id))
    rig.world.edit_comment(int(made.resource_id or 0), f"{text}\n\nEDIT: see also #5.\n```\ncode\n```")
    assert isinstance(await rig.find(), Found)


@pytest.mark.parametrize(
    "shown",
    [
        "The marker was:\n\n```html\n{0}\n```\n\nOdd.",
        "The marker was:\n\n~~~\n{0}\n~~~\nOdd.",
        "The marker was:\n\n    {0}\n\nOdd.",
        "The marker was:\n\n\t{0}\n\nOdd.",
        "> {0}\n\nOdd.",
    ],
)
async def test_a_marker_that_our_account_shows_to_people_is_no_effect(rig: Rig, shown: str) -> None:
    rig.world.add_comment(REPO, NUMBER, shown.format(rig.marker(account=str(BOT.id))), author=BOT.login)
    assert reason(await rig.find()) == "marker_altered"


async def test_a_body_that_leaves_a_code_block_open_is_found(rig: Rig) -> None:
    body = "Try this:\n\n```\nmake test"
    await rig.create(body)
    assert isinstance(await rig.find(body), Found)


async def test_an_issue_whose_text_was_rewritten_is_not_absent(rig: Rig) -> None:
    op = rig.op()
    rig.world.add_issue(REPO, NUMBER - 1).created_at -= 86_400
    made = await github.create_issue(op, REPO, "It crashes", BODY)
    number = int(made.resource_id or 0)
    rig.world.repos[REPO].issues[number].body = "Rewritten by somebody."
    assert reason(await github.find_issue(rig.op(looking=True), REPO, "It crashes", BODY)) == "marker_missing"


async def test_a_review_of_ours_that_nobody_has_submitted_is_no_effect(rig: Rig) -> None:
    pull = rig.world.repos[REPO].issues[NUMBER].pull
    assert pull is not None
    text = SIGNER.sign(rig.op(), BODY, PLACE, str(BOT.id))
    pull.reviews.append(Review(rig.world.new_id(), BOT, text, "PENDING", rig.world.now))
    assert reason(await github.find_review(rig.op(looking=True), REPO, NUMBER, BODY)) == "not_submitted"


# ---- places and accounts that changed


async def test_another_repository_under_the_same_name_is_not_the_one_that_was_sent_to(rig: Rig) -> None:
    await rig.create()
    later(rig)
    rig.world.rename_repo(REPO, "acme/old")
    del rig.world.old_names[REPO]
    rig.world.add_repo(REPO, age_seconds=0)
    rig.world.add_pull(REPO, NUMBER)
    assert [reason(verdict) for verdict in await find_all(rig)] == ["moved"] * 4


async def test_a_repository_that_was_made_just_before_the_send_is_searched() -> None:
    rig = virtual_rig()
    rig.world.add_repo("acme/new", age_seconds=5)
    rig.world.add_pull("acme/new", 1)
    assert isinstance(await github.find_issue_comment(rig.op(looking=True), "acme/new", 1, BODY), Absent)


async def test_a_wrong_account_in_the_settings_hides_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.create()
    monkeypatch.setenv("SUREFOOT_GITHUB_ACCOUNT", "somebody-else:77")
    assert reason(await rig.find()) == "refused"
    with pytest.raises(Refused, match="SUREFOOT_GITHUB_ACCOUNT"):
        await rig.create()
    monkeypatch.setenv("SUREFOOT_GITHUB_ACCOUNT", f"{BOT.login}:{BOT.id}")
    assert isinstance(await rig.find(), Found)


async def test_an_old_issue_that_was_moved_here_is_no_sign_of_how_far_the_numbers_had_come(rig: Rig) -> None:
    """It has the time at which it was opened elsewhere, and a number of now: behind it, ours may be hidden."""
    rig.world.now -= 30 * 86_400
    rig.world.add_issue("acme/elsewhere", 1, title="Old")
    rig.world.now += 29 * 86_400
    rig.world.add_issue(REPO, NUMBER + 1, title="Of yesterday")
    rig.world.now += 86_400
    made = await github.create_issue(rig.op(), REPO, "It crashes", BODY)
    rig.world.transfer_issue("acme/elsewhere", 1, REPO, NUMBER + 3)
    rig.fault(f.StaleListing(30), "GET", f"/repos/{REPO}/issues")
    verdict = await github.find_issue(rig.op(looking=True), REPO, "It crashes", BODY)
    assert isinstance(verdict, Found) and verdict.receipt.resource_id == made.resource_id


@pytest.mark.parametrize("between", [1, 2])
async def test_a_number_that_nobody_can_read_does_not_hide_the_next_one(rig: Rig, between: int) -> None:
    """As a discussion's, in a listing that lags."""
    rig.world.now -= 86_400
    rig.world.add_issue(REPO, NUMBER + 1)
    rig.world.now += 86_400
    ours = SIGNER.sign(rig.op(), BODY, REPO, str(BOT.id))
    rig.world.add_issue(REPO, NUMBER + 1 + between + 1, title="It crashes", body=ours, author=BOT.login)
    rig.fault(f.StaleListing(30), "GET", f"/repos/{REPO}/issues")
    assert reason(await github.find_issue(rig.op(looking=True), REPO, "It crashes", BODY)) == "listing_changed"


async def test_what_somebody_merged_is_no_receipt_of_a_call_that_was_only_refused_before(rig: Rig) -> None:
    pull = rig.world.repos[REPO].issues[NUMBER].pull
    assert pull is not None
    pull.merge_commit_sha, pull.merged_by = "c" * 40, Account("ann", 7)
    rig.world.repos[REPO].issues[NUMBER].state = "closed"

    def op(*, earlier: bool) -> Operation:
        made = rig.op(attempt=2)
        made.earlier_may_be_sent = earlier
        return made

    with pytest.raises(Refused, match="already"):
        await github.merge_pull_request(op(earlier=False), REPO, NUMBER, pull.head_sha)
    assert (await github.merge_pull_request(op(earlier=True), REPO, NUMBER, pull.head_sha)).resource_id == "c" * 40


async def test_a_202_without_an_id_is_in_doubt(rig: Rig) -> None:
    rig.fault(f.StatusAfter(202, body={}))
    with pytest.raises(InDoubt):
        await rig.create()
    assert isinstance(await rig.find(), Found)
