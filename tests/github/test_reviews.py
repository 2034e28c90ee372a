"""The lookup of a review: two complete listings that agree, since GitHub does not count reviews."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import pytest

from surefoot.connectors import github
from surefoot.effects import Absent, Found, InDoubt, NotSent, Receipt, Refused, Undetermined, Verdict
from surefoot.testing import faults as f
from surefoot.testing.github_state import Account, Review
from surefoot.testing.world import BOT
from tests.github.rig import BODY, NUMBER, PLACE, REPO, SIGNER, Rig, forget_accounts, virtual_rig

PULL = f"/repos/{REPO}/pulls/{NUMBER}"
REVIEWS = f"{PULL}/reviews"
SEEDS = 150


async def create(rig: Rig, *, step: str = "step_1", attempt: int = 1) -> Receipt:
    """One attempt."""
    return await github.create_review(rig.op(step=step, attempt=attempt), REPO, NUMBER, BODY, "REQUEST_CHANGES")


async def find(rig: Rig, *, step: str = "step_1") -> Verdict:
    """One look."""
    return await github.find_review(rig.op(step=step, looking=True), REPO, NUMBER, BODY)


def reviews(rig: Rig) -> list[Review]:
    """The reviews in the World."""
    pull = rig.world.repos[REPO].issues[NUMBER].pull
    assert pull is not None
    return pull.reviews


def add(rig: Rig, body: str, *, author: Account = BOT, state: str = "COMMENTED", count: int = 1) -> None:
    """Somebody reviews now."""
    for _ in range(count):
        reviews(rig).append(Review(rig.world.new_id(), author, body, state, rig.world.now))


def reason(verdict: Verdict) -> str:
    """Why it is Undetermined."""
    assert isinstance(verdict, Undetermined)
    return verdict.reason


@pytest.mark.parametrize("older", [0, 99, 100, 230])
async def test_a_review_is_found_behind_others_and_absent_counts_every_page(rig: Rig, older: int) -> None:
    add(rig, "Hm.", author=Account("stranger", 1), count=older)
    verdict = await find(rig)
    assert isinstance(verdict, Absent) and isinstance(verdict.coverage, dict)
    assert (verdict.coverage["pages"], verdict.coverage["listed"]) == (older // 100 + 1, older)
    rig.fault(f.LostReply(), path=REVIEWS)
    with pytest.raises(InDoubt):
        await create(rig)
    verdict = await find(rig)
    assert isinstance(verdict, Found) and verdict.receipt.resource_id == str(reviews(rig)[-1].id)
    assert reviews(rig)[-1].state == "CHANGES_REQUESTED"


async def test_a_dismissed_review_is_still_found(rig: Rig) -> None:
    made = await create(rig)
    call = {"repo": REPO, "number": NUMBER, "review_id": int(made.resource_id or 0), "message": "Twice."}
    first = await github.dismiss_review(rig.op(effect="idempotent"), **call)  # type: ignore[arg-type]  # by name
    again = await github.dismiss_review(rig.op(effect="idempotent"), **call)  # type: ignore[arg-type]  # by name
    assert (first.output, again.output) == ({"id": call["review_id"], "dismissed": True}, {
        "id": call["review_id"], "dismissed": False,
    })  # fmt: skip
    assert isinstance(await find(rig), Found)


async def test_whose_it_is_and_whether_its_marker_is_whole(rig: Rig) -> None:
    leaked = rig.marker(account=str(BOT.id))
    add(rig, f"{BODY}\n\n{leaked}", author=Account("stranger", 1))
    assert isinstance(await find(rig), Absent), "a stranger's copy counts for nothing"
    add(rig, f"{BODY}\n\n{rig.marker(account=str(BOT.id), place='acme/app#9')}")
    assert reason(await find(rig)) == "marker_altered"
    reviews(rig).clear()
    add(rig, BODY)
    assert reason(await find(rig)) == "marker_missing"
    reviews(rig).clear()
    await create(rig, step="other")
    assert isinstance(await find(rig), Absent), "the same text of another step"


async def test_doubles_are_named(rig: Rig) -> None:
    await create(rig)
    await create(rig, attempt=2)
    verdict = await find(rig)
    assert isinstance(verdict, Found) and len(verdict.also) == 1


async def test_listings_that_disagree_are_not_absent(rig: Rig) -> None:
    add(rig, "Hm.", count=150)
    rig.fault(f.OrderChanged(shift=3), "GET", REVIEWS, nth=1, times=2)
    assert reason(await find(rig)) == "listing_changed"
    assert isinstance(await find(rig), Absent)


async def test_a_review_that_was_begun_and_not_submitted_is_ours_in_doubt(rig: Rig) -> None:
    pending = {"id": 5, "user": {"id": BOT.id}, "body": BODY, "state": "PENDING", "html_url": "x"}
    rig.fault(f.StatusBefore(200, body=[pending]), "GET", REVIEWS, times=2)
    assert reason(await find(rig)) == "marker_missing"


@pytest.mark.parametrize("path", ["/user", f"/repos/{REPO}", PULL, REVIEWS])
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
    assert reason(await find(rig)) == why
    assert isinstance(await find(rig), Absent)


async def test_limits_texts_and_compensation() -> None:
    tool = github.create_review
    place = {"repo": REPO, "number": NUMBER, "event": "APPROVE"}
    assert tool.refusal({**place, "body": " "}) and tool.refusal({**place, "body": "x" * 70_000})
    assert tool.refusal({**place, "body": "x", "number": 0}) and tool.refusal({**place, "body": "x"}) is None
    assert tool.target_text({**place, "body": "x"}) == PLACE
    assert tool.compensate is not None
    undone = tool.compensate(Receipt(resource_id="5"), repo=REPO, number=NUMBER, event="APPROVE")
    assert undone.tool is github.dismiss_review and undone.arguments["review_id"] == 5  # type: ignore[attr-defined]  # a call
    assert tool.compensate(Receipt(resource_id="5"), repo=REPO, number=NUMBER, event="COMMENT") is None
    assert github.dismiss_review.refusal({**place, "review_id": 0, "message": "x"})
    assert github.dismiss_review.refusal({**place, "review_id": 1, "message": ""})


async def one_thread(seed: int) -> str:
    """A review under a fault and a look under another one, judged by what the World holds."""
    forget_accounts()
    dice = random.Random(seed)
    rig = virtual_rig()
    add(rig, "Hm.", author=Account("stranger", 1), count=dice.choice([0, 5, 99, 100, 101, 210]))
    marked = f"{BODY}\n\n{SIGNER.sign(rig.op(step='other'), '', PLACE, str(BOT.id)).strip()}"
    add(rig, marked, count=dice.randint(0, 2))
    sends = [None, f.LostRequest(), f.LostReply(), f.StatusBefore(502), f.StatusAfter(502), f.Late(dice.uniform(1, 40))]
    send = dice.choice(sends)
    if send is not None:
        rig.fault(send, path=REVIEWS)
    if dice.random() < 0.8:
        with suppress(InDoubt, NotSent, Refused):
            await create(rig)
    rig.pass_time(github.SETTLE_SECONDS + 15)
    looks = [None, f.StaleListing(dice.uniform(0, 30)), f.OrderChanged(shift=7), f.StatusBefore(404), f.BadJson()]
    look = dice.choice(looks)
    if look is not None:
        rig.fault(look, "GET", REVIEWS, times=dice.choice([1, 2]))
    verdict = await find(rig)
    real = {str(e.resource_id) for e in rig.world.effects("run_1:step_1")}
    match verdict:
        case Found(receipt=receipt, also=also):
            assert {receipt.resource_id, *(other.resource_id for other in also)} == real, f"wrong found, seed {seed}"
        case Absent():
            assert not real, f"wrong absent, seed {seed}"
    return type(verdict).__name__


async def test_no_wrong_absent_and_no_wrong_found() -> None:
    ends = Counter([await one_thread(seed) for seed in range(SEEDS)])
    assert min(ends["Found"], ends["Absent"], ends["Undetermined"]) >= 8, ends
