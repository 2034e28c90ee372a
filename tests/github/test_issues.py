"""The lookup of an issue by the numbers of its repository, and the tools that may be repeated at any time."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import pytest

from surefoot.connectors import github
from surefoot.connectors.github_issues import GAPS_MAX
from surefoot.effects import Absent, Found, InDoubt, NotSent, Receipt, Refused, Undetermined, Verdict
from surefoot.testing import faults as f
from surefoot.testing.world import BOT
from tests.github.rig import SIGNER, Rig, forget_accounts, virtual_rig

REPO = "acme/tracker"
ISSUES = f"/repos/{REPO}/issues"
TITLE, BODY = "It crashes", "With `None`.\n\nSee the log."
SEEDS = 150


@pytest.fixture
def rig() -> Rig:
    """A repository with issues and pull requests of the day before."""
    return rig_with(8)


def rig_with(older: int) -> Rig:
    """The same with `older` of them."""
    made = virtual_rig()
    made.world.now -= 86_400
    for number in range(1, older + 1):
        (made.world.add_pull if number % 4 == 0 else made.world.add_issue)(REPO, number, title=f"No. {number}")
    made.world.repos.setdefault(REPO, made.world.add_repo(REPO) if older == 0 else made.world.repos.get(REPO))  # type: ignore[arg-type]  # made above
    made.world.now += 86_400
    return made


async def create(rig: Rig, *, step: str = "step_1", attempt: int = 1) -> Receipt:
    """One attempt."""
    return await github.create_issue(rig.op(step=step, attempt=attempt), REPO, TITLE, BODY)


async def find(rig: Rig, *, step: str = "step_1") -> Verdict:
    """One look."""
    return await github.find_issue(rig.op(step=step, looking=True), REPO, TITLE, BODY)


def add(rig: Rig, number: int, *, author: str = "stranger", title: str = "Another", body: str = "") -> None:
    """Somebody opens an issue now."""
    rig.world.add_issue(REPO, number, title=title, body=body, author=author)


def reason(verdict: Verdict) -> str:
    """Why it is Undetermined."""
    assert isinstance(verdict, Undetermined)
    return verdict.reason


async def test_an_issue_is_found_by_its_number(rig: Rig) -> None:
    assert isinstance(await find(rig), Absent)
    rig.fault(f.LostReply(), path=ISSUES)
    with pytest.raises(InDoubt):
        await create(rig)
    verdict = await find(rig)
    assert isinstance(verdict, Found)
    assert verdict.receipt.resource_id == "9" and str(verdict.receipt.url).endswith("/issues/9")


async def test_only_the_pages_of_the_window_are_read() -> None:
    rig = rig_with(350)
    for number in range(351, 361):
        add(rig, number)
    verdict = await find(rig)
    assert isinstance(verdict, Absent) and isinstance(verdict.coverage, dict)
    assert verdict.coverage["pages"] == 1 and verdict.coverage["missing"] == 0
    for number in range(361, 501):
        add(rig, number)
    verdict = await find(rig)
    assert isinstance(verdict, Absent) and isinstance(verdict.coverage, dict) and verdict.coverage["pages"] == 2


async def test_an_empty_repository() -> None:
    rig = rig_with(0)
    assert isinstance(await find(rig), Absent)
    await create(rig)
    assert isinstance(await find(rig), Found)


async def test_a_deleted_issue_may_have_been_ours(rig: Rig) -> None:
    add(rig, 9)
    add(rig, 10)
    rig.world.delete_issue(REPO, 9)
    assert reason(await find(rig)) == "deletion_seen"


async def test_the_newest_one_may_be_the_deleted_one(rig: Rig) -> None:
    add(rig, 9)
    rig.world.delete_issue(REPO, 9)
    assert reason(await find(rig)) == "listing_changed"


async def test_a_moved_issue_may_have_been_ours(rig: Rig) -> None:
    add(rig, 9)
    add(rig, 10)
    rig.world.transfer_issue(REPO, 9, "acme/elsewhere", 1)
    assert reason(await find(rig)) == "moved"


async def test_a_number_that_is_neither_issue_nor_pull_request(rig: Rig) -> None:
    """As a discussion is."""
    add(rig, 10)
    assert reason(await find(rig)) == "number_unreadable"


async def test_many_missing_numbers_are_not_asked_for(rig: Rig) -> None:
    add(rig, 8 + GAPS_MAX + 2)
    assert reason(await find(rig)) == "too_many_gaps"


async def test_one_that_the_listing_leaves_out_is_read_by_its_number(rig: Rig) -> None:
    await create(rig)
    add(rig, 10)
    hidden = rig.world.repos[REPO].issues[9]
    listed = [{"number": n, "title": "x", "created_at": at, "user": {"id": 1}, "html_url": ""}
              for n, at in ((10, "2023-11-14T22:13:20Z"), (8, "2023-11-13T22:13:20Z"))]  # fmt: skip
    rig.fault(f.StatusBefore(200, body=listed), "GET", ISSUES)
    verdict = await find(rig)
    assert isinstance(verdict, Found) and verdict.receipt.resource_id == str(hidden.number)


async def test_a_listing_that_lags_is_not_absent(rig: Rig) -> None:
    await create(rig)
    rig.fault(f.StaleListing(30), "GET", ISSUES)
    assert reason(await find(rig)) == "listing_changed", "the next number is taken already"


async def test_whose_it_is_and_whether_its_marker_is_whole(rig: Rig) -> None:
    ours = rig.marker(account=str(BOT.id), place=REPO)
    add(rig, 9, title=TITLE, body=f"{BODY}\n\n{ours}")
    assert isinstance(await find(rig), Absent), "a stranger's copy counts for nothing"
    add(rig, 10, author=BOT.login, title=TITLE, body=BODY)
    assert reason(await find(rig)) == "marker_missing"
    rig.world.repos[REPO].issues[10].title = "Other words"
    assert isinstance(await find(rig), Absent), "the title belongs to the text"
    rig.world.repos[REPO].issues[10].body = f"x\n\n{ours.replace('mac=', 'mac=0')}"
    assert reason(await find(rig)) == "marker_altered"


async def test_an_old_hit_counts(rig: Rig) -> None:
    rig.world.now -= 7_200
    add(rig, 9, author=BOT.login, title=TITLE, body=f"{BODY}\n\n{rig.marker(account=str(BOT.id), place=REPO)}")
    assert isinstance(await find(rig), Found)


@pytest.mark.parametrize("path", ["/user", f"/repos/{REPO}", ISSUES, f"{ISSUES}/9"])
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (f.StatusBefore(403), "forbidden"),
        (f.StatusBefore(429), "rate_limited"),
        (f.StatusBefore(502), "server_error"),
        (f.Hang(), "timeout"),
    ],
)
async def test_a_look_that_fails_is_never_absent(rig: Rig, fault: f.AnyFault, why: str, path: str) -> None:
    rig.fault(fault, "GET", path)
    assert reason(await find(rig)) == ("account_unknown" if (path, why) == ("/user", "forbidden") else why)
    assert isinstance(await find(rig), Absent)


async def test_closing_and_labels_are_states(rig: Rig) -> None:
    for attempt in (1, 2):
        op = rig.op(effect="idempotent", attempt=attempt)
        closed = await github.close_issue(op, REPO, 1, "not_planned")
        labelled = await github.add_labels(op, REPO, 1, ["bug", "crash"])
    issue = rig.world.repos[REPO].issues[1]
    assert (issue.state, issue.state_reason, issue.labels) == ("closed", "not_planned", ["bug", "crash"])
    assert closed.resource_id == "1" and labelled.output == {"labels": ["bug", "crash"]}
    assert [event.event for event in issue.events] == ["closed", "labeled", "labeled"]


def test_limits_normal_form_texts_and_compensation() -> None:
    for title in ("", "x" * 257, "two\nlines"):
        assert github.create_issue.refusal({"repo": REPO, "title": title, "body": ""})
    assert github.create_issue.refusal({"repo": REPO, "title": "x", "body": "x" * 70_000})
    assert github.create_issue.refusal({"repo": REPO, "title": "x", "body": ""}) is None
    labels = github.add_labels
    assert labels.check_arguments({"repo": REPO, "issue_number": 1, "labels": [" a ", "b", "a"]})["labels"] == [
        "a",
        "b",
    ]
    for wrong in ([], [""], ["x" * 51], ["x"] * 101):
        assert labels.refusal({"repo": REPO, "issue_number": 1, "labels": wrong})
    assert github.create_issue.compensate is not None
    undone = github.create_issue.compensate(Receipt(resource_id="9"), repo=REPO)
    assert undone.tool is github.close_issue and undone.arguments["issue_number"] == 9  # type: ignore[attr-defined]  # a call


async def one_thread(seed: int) -> str:
    """An issue under a fault and a look under another one, judged by what the World holds."""
    forget_accounts()
    dice = random.Random(seed)
    rig = rig_with(dice.choice([1, 8, 99, 100, 130]))
    first = rig.world.repos[REPO].next_number()
    for number in range(first, first + dice.choice([0, 1, 3, 120])):
        add(rig, number, author=dice.choice(["stranger", BOT.login]))
    sends = [None, f.LostRequest(), f.LostReply(), f.StatusBefore(502), f.StatusAfter(502), f.Late(dice.uniform(1, 40))]
    send = dice.choice(sends)
    if send is not None:
        rig.fault(send, path=ISSUES)
    if dice.random() < 0.8:
        with suppress(InDoubt, NotSent, Refused):
            await create(rig)
    rig.pass_time(github.SETTLE_SECONDS + 15)
    ours = [e.resource_id for e in rig.world.effects("run_1:step_1")]
    for _ in range(dice.randint(0, 2)):
        add(rig, rig.world.repos[REPO].next_number())
    if dice.random() < 0.2:
        rig.world.delete_issue(REPO, dice.choice([*ours, rig.world.repos[REPO].next_number() - 1]))
    looks = [None, None, f.StaleListing(dice.uniform(0, 90)), f.OrderChanged(shift=7), f.StatusBefore(404), f.BadJson()]
    look = dice.choice(looks)
    if look is not None:
        rig.fault(look, "GET", ISSUES, times=dice.choice([1, None]))
    verdict = await find(rig)
    match verdict:
        case Found(receipt=receipt):
            assert receipt.resource_id in {str(number) for number in ours}, f"wrong found, seed {seed}"
        case Absent():
            assert not ours, f"wrong absent, seed {seed}"
    return type(verdict).__name__


async def test_no_wrong_absent_and_no_wrong_found() -> None:
    ends = Counter([await one_thread(seed) for seed in range(SEEDS)])
    assert min(ends["Found"], ends["Absent"], ends["Undetermined"]) >= 8, ends


async def test_the_body_goes_out_as_approved(rig: Rig) -> None:
    await create(rig)
    issue = rig.world.repos[REPO].issues[9]
    assert issue.title == TITLE and issue.body == SIGNER.sign(rig.op(), BODY, REPO, str(BOT.id))
