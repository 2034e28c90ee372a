"""What the lookup trusts, what it doubts, and what it ignores."""

from __future__ import annotations

import pytest

from surefoot.effects import Absent, Found, InDoubt, Refused, Undetermined
from surefoot.testing import faults as f
from surefoot.testing.github_state import Account
from surefoot.testing.world import BOT
from tests.github.rig import BODY, COMMENTS, NUMBER, PLACE, REPO, SIGNER, Rig, virtual_rig

ISSUE = f"/repos/{REPO}/issues/{NUMBER}"
OURS = str(BOT.id)


def reason(verdict: object) -> str:
    """The reason of an Undetermined."""
    assert isinstance(verdict, Undetermined)
    return verdict.reason


def signed(rig: Rig, *, account: str = OURS, body: str = BODY) -> str:
    """Our comment, as it would have been sent."""
    return SIGNER.sign(rig.op(), body, PLACE, account)


@pytest.mark.parametrize("fault", [f.BadJson(), f.EmptyBody(), f.ResetMidBody(), f.StatusAfter(201, body={"ok": True})])
async def test_a_201_whose_id_cannot_be_read_is_in_doubt_and_found(rig: Rig, fault: f.AnyFault) -> None:
    rig.fault(fault)
    with pytest.raises(InDoubt):
        await rig.create()
    assert isinstance(await rig.find(), Found)


async def test_a_receipt_needs_no_more_than_an_id(rig: Rig) -> None:
    rig.fault(f.StatusAfter(201, body={"id": 5, "html_url": None, "user": "?"}))
    assert (await rig.create()).resource_id == "5"


async def test_time_is_no_reason_to_reject_a_mac_that_fits(rig: Rig) -> None:
    rig.world.now -= 86_400
    rig.world.add_comment(REPO, NUMBER, signed(rig), author=BOT.login)
    assert isinstance(await rig.find(), Found)


async def test_doubles_are_all_named_and_the_oldest_is_the_effect(rig: Rig) -> None:
    first = rig.world.add_comment(REPO, NUMBER, signed(rig), author=BOT.login)
    rig.world.add_comments(REPO, NUMBER, 150)
    second = rig.world.add_comment(REPO, NUMBER, signed(rig), author=BOT.login)
    verdict = await rig.find()
    assert isinstance(verdict, Found)
    assert [r.resource_id for r in (verdict.receipt, *verdict.also)] == [str(first.id), str(second.id)]
    assert all(r.url for r in (verdict.receipt, *verdict.also))


async def test_a_hit_stands_though_a_later_page_cannot_be_read(rig: Rig) -> None:
    hit = rig.world.add_comment(REPO, NUMBER, signed(rig), author=BOT.login)
    rig.world.add_comments(REPO, NUMBER, 150)
    rig.fault(f.StatusBefore(500), "GET", COMMENTS, nth=2)
    verdict = await rig.find()
    assert isinstance(verdict, Found) and verdict.receipt.resource_id == str(hit.id)


@pytest.mark.parametrize("path", [f"/repos/{REPO}", ISSUE])
@pytest.mark.parametrize("fault", [f.StatusBefore(503), f.BadJson(), f.StatusAfter(200, body={"number": NUMBER})])
async def test_a_hit_stands_though_the_record_beside_the_listing_cannot_be_read(
    rig: Rig, path: str, fault: f.AnyFault
) -> None:
    """An absence needs the repository's name and the issue's count. What is listed as ours does not."""
    hit = rig.world.add_comment(REPO, NUMBER, signed(rig), author=BOT.login)
    rig.fault(fault, "GET", path, times=None)
    verdict = await rig.find()
    assert isinstance(verdict, Found) and verdict.receipt.resource_id == str(hit.id)


@pytest.mark.parametrize("path", [f"/repos/{REPO}", ISSUE])
@pytest.mark.parametrize("fault", [f.StatusBefore(503), f.BadJson(), f.StatusAfter(200, body={"number": NUMBER})])
async def test_without_a_hit_such_a_record_is_still_missing(rig: Rig, path: str, fault: f.AnyFault) -> None:
    rig.fault(fault, "GET", path, times=None)
    assert reason(await rig.find()) == ("server_error" if isinstance(fault, f.StatusBefore) else "bad_json")


async def test_an_entry_that_cannot_be_read_hides_no_hit_behind_it_and_is_no_absence(rig: Rig) -> None:
    ours = {
        "id": 7,
        "html_url": "",
        "body": signed(rig),
        "user": {"id": BOT.id, "login": BOT.login},
        "created_at": "2026-01-31T08:00:00Z",
    }
    odd = {**ours, "id": "6", "body": "Something else"}
    rig.fault(f.StatusBefore(200, body=[odd, ours]), "GET", COMMENTS)
    verdict = await rig.find()
    assert isinstance(verdict, Found) and verdict.receipt.resource_id == "7"
    rig.fault(f.StatusBefore(200, body=[odd]), "GET", COMMENTS)
    assert reason(await rig.find()) == "bad_json"


async def test_a_comment_without_a_time_is_a_hit_by_its_mac_and_counts_as_made_just_now(rig: Rig) -> None:
    ours = {"id": 7, "body": signed(rig), "user": {"id": BOT.id, "login": BOT.login}}
    rig.fault(f.StatusBefore(200, body=[ours]), "GET", COMMENTS)
    assert isinstance(await rig.find(), Found)
    rig.fault(f.StatusBefore(200, body=[{**ours, "body": "Something else"}]), "GET", COMMENTS)
    assert reason(await rig.find()) == "edited"


async def test_a_marker_signed_before_the_account_was_known_counts(rig: Rig) -> None:
    rig.world.add_comment(REPO, NUMBER, signed(rig, account=""), author=BOT.login)
    assert isinstance(await rig.find(), Found)


@pytest.mark.parametrize("damage", ["mac=0", "k=ffffffff", "AGENT-Operation:run_1:step_1", "> <!-- agent-operation:"])
async def test_an_altered_marker_of_our_account_is_undetermined(rig: Rig, damage: str) -> None:
    text = signed(rig)
    for begin in ("mac=", "k=", "agent-operation:run_1:step_1", "<!-- agent-operation:"):
        if begin.lower().strip("<!- ") in damage.lower():
            start = text.index(begin)
            text = text[:start] + damage + text[start + len(damage.removeprefix("> ")) :]
            break
    assert text != signed(rig)
    rig.world.add_comment(REPO, NUMBER, text, author=BOT.login)
    assert reason(await rig.find()) == "marker_altered"


@pytest.mark.parametrize("text", [BODY, f"{BODY}\n", BODY.replace("\n", "\r\n"), f"  {BODY}\n\n[marker removed]"])
async def test_our_text_without_its_marker_is_undetermined(rig: Rig, text: str) -> None:
    rig.world.add_comment(REPO, NUMBER, text, author=BOT.login)
    assert reason(await rig.find()) == "marker_missing"


async def test_our_text_without_marker_counts_from_the_windows_first_second_on(rig: Rig) -> None:
    rig.world.now = float(int(rig.sent_at - 900))
    rig.world.add_comment(REPO, NUMBER, BODY, author=BOT.login)
    assert reason(await rig.find()) == "marker_missing"
    early = virtual_rig()
    early.world.now = float(int(early.sent_at - 900)) - 1
    early.world.add_comment(REPO, NUMBER, BODY, author=BOT.login)
    assert isinstance(await early.find(), Absent)


async def test_the_same_text_of_another_step_or_person_is_not_ours(rig: Rig) -> None:
    await rig.create(step="other")
    rig.world.add_comment(REPO, NUMBER, BODY)
    assert isinstance(await rig.find(), Absent)


async def test_a_deletion_in_the_window_is_undetermined() -> None:
    rig = virtual_rig(deletion_events=True)
    comment = rig.world.add_comment(REPO, NUMBER, "spam")
    rig.world.delete_comment(comment.id)
    assert reason(await rig.find()) == "deletion_seen"
    old = virtual_rig(deletion_events=True)
    old.world.now -= 3_600
    comment = old.world.add_comment(REPO, NUMBER, "spam")
    old.world.delete_comment(comment.id)
    assert isinstance(await old.find(), Absent)


async def test_a_deletion_on_a_later_page_of_events_is_seen() -> None:
    rig = virtual_rig(deletion_events=True)
    rig.world.now -= 86_400
    for number in range(130):
        rig.world.push(REPO, NUMBER, f"{number:040x}")
    rig.world.now += 86_400
    rig.world.delete_comment(rig.world.add_comment(REPO, NUMBER, "spam").id)
    assert reason(await rig.find()) == "deletion_seen"


async def test_an_order_that_changes_while_paging_is_not_absent(rig: Rig) -> None:
    rig.world.add_comments(REPO, NUMBER, 150)
    rig.world.add_comment(REPO, NUMBER, signed(rig), author=BOT.login)
    rig.fault(f.OrderChanged(shift=3), "GET", COMMENTS, times=None)
    assert reason(await rig.find()) == "count_mismatch"


async def test_a_short_page_with_a_next_one_is_not_the_last(rig: Rig) -> None:
    """GitHub may leave entries out of a page, for example those of blocked accounts."""
    rig.world.add_comments(REPO, NUMBER, 100)
    await rig.create()
    short = f.StatusBefore(200, headers={"Link": '<https://api.github.com/x?page=2>; rel="next"'}, body=[])
    rig.fault(short, "GET", COMMENTS)
    assert isinstance(await rig.find(), Found)


async def test_a_comment_that_comes_between_the_counts_is_not_absent(rig: Rig) -> None:
    change = f.Change("add_comment", {"repo": REPO, "number": NUMBER, "body": "hello"})
    rig.fault(change, "GET", ISSUE, nth=2)
    assert reason(await rig.find()) == "count_mismatch"
    assert isinstance(await rig.find(), Absent)


async def test_a_renamed_repository_and_a_moved_issue(rig: Rig) -> None:
    rig.world.rename_repo(REPO, "acme/app2")
    assert reason(await rig.find()) == "moved"
    moved = virtual_rig()
    moved.world.add_repo("acme/new")
    moved.world.transfer_issue(REPO, NUMBER, "acme/new", 1)
    assert reason(await moved.find()) == "moved"
    with pytest.raises(Refused):
        await moved.create()


async def test_a_case_that_differs_is_the_same_repository(rig: Rig) -> None:
    rig.fault(f.StatusBefore(200, body={"full_name": "Acme/App"}), "GET", f"/repos/{REPO}")
    assert isinstance(await rig.find(), Absent)


async def test_an_unknown_account_cannot_earn_an_absent(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden = f.StatusBefore(403, body={"message": "Resource not accessible by integration"})
    rig.fault(forbidden, "GET", "/user", times=None)
    assert reason(await rig.find()) == "account_unknown"
    await rig.create()
    assert reason(await rig.find()) == "account_unknown"
    monkeypatch.setenv("SUREFOOT_GITHUB_ACCOUNT", f"{BOT.login}:{BOT.id}")
    assert isinstance(await rig.find(), Found)


async def test_the_account_is_asked_for_once_for_a_credential(rig: Rig) -> None:
    await rig.create()
    await rig.find()
    assert len(rig.world.requests("GET", "/user")) == 1
    rig.world.accounts["second"] = Account("second-bot", 77)
    rig.secrets.values["GITHUB_TOKEN"] = "second"
    await rig.find()
    assert len(rig.world.requests("GET", "/user")) == 2


async def test_our_comment_under_an_earlier_account_is_undetermined(rig: Rig) -> None:
    await rig.create()
    rig.world.accounts["second"] = Account("second-bot", 77)
    rig.secrets.values["GITHUB_TOKEN"] = "second"
    assert reason(await rig.find()) == "account_changed"


async def test_a_comment_of_an_account_that_was_not_known_then_is_not_overlooked_by_another_one(rig: Rig) -> None:
    """Its marker names no account, and only our key can have made it."""
    forbidden = f.StatusBefore(403, body={"message": "Resource not accessible by integration"})
    rig.fault(forbidden, "GET", "/user", times=1)
    await rig.create()
    rig.world.accounts["second"] = Account("second-bot", 77)
    rig.secrets.values["GITHUB_TOKEN"] = "second"
    assert reason(await rig.find()) == "account_changed"


async def test_a_comment_of_a_deleted_account_is_nobodys(rig: Rig) -> None:
    item = {"id": 1, "html_url": "u", "body": signed(rig), "user": None, "created_at": "2023-11-14T22:13:20Z"}
    rig.fault(f.StatusBefore(200, body=[item]), "GET", COMMENTS)
    assert reason(await rig.find()) == "count_mismatch"


@pytest.mark.parametrize(
    "item",
    [
        {"id": "1"},
        {"id": True},
        {"id": 1, "body": 5},
        {"id": 1, "body": "", "user": "x"},
        {"id": 1, "body": "", "user": {"id": None}},
        {"id": 1, "body": "", "user": {"id": 1}, "created_at": "yesterday"},
        "text",
    ],
)
async def test_a_listing_that_cannot_be_read_is_undetermined(rig: Rig, item: object) -> None:
    rig.fault(f.StatusBefore(200, body=[item]), "GET", COMMENTS)
    assert reason(await rig.find()) == "bad_json"


async def test_a_missing_token_refuses_the_call_and_the_lookup_is_undetermined(rig: Rig) -> None:
    rig.secrets.values.clear()
    with pytest.raises(Refused):
        await rig.create()
    assert reason(await rig.find()) == "refused"
    assert rig.world.requests() == []


async def test_no_cache_is_asked_and_no_since(rig: Rig) -> None:
    await rig.find()
    for entry in rig.world.requests():
        assert entry.headers["cache-control"] == "no-cache" and "since" not in entry.query
        assert not entry.headers.keys() & {"if-none-match", "if-modified-since"}


async def test_a_lookup_only_reads(rig: Rig) -> None:
    await rig.find()
    assert {entry.method for entry in rig.world.requests()} == {"GET"}


async def test_a_locked_issue_refuses_without_a_try_again(rig: Rig) -> None:
    rig.world.lock_issue(REPO, NUMBER)
    with pytest.raises(Refused) as refused:
        await rig.create()
    assert (refused.value.status, refused.value.retry_after) == (403, None)


async def test_secrets_stand_in_no_text(rig: Rig) -> None:
    for fault in (f.StatusBefore(500, echo_authorization=True), f.StatusBefore(404, echo_authorization=True)):
        rig.fault(fault)
        with pytest.raises((InDoubt, Refused)) as caught:
            await rig.create()
        assert "world-token" not in repr(caught.value) + str(caught.value.__context__)
        rig.fault(fault, "GET", COMMENTS)
        assert "world-token" not in repr(await rig.find())
