"""R16: the lookup against generated threads and faults, judged by what the World really holds."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import pytest

from surefoot.connectors.github import SETTLE_SECONDS
from surefoot.effects import Absent, Found, InDoubt, NotSent, Refused, Undetermined
from surefoot.testing import faults as f
from surefoot.testing.world import BOT
from tests.github.rig import BODY, COMMENTS, NUMBER, PLACE, REPO, SIGNER, Rig, forget_accounts, virtual_rig

ISSUE = f"/repos/{REPO}/issues/{NUMBER}"
THREADS = 400
SIZES = [0, 1, 5, 60, 99, 100, 101, 150, 199, 200, 230]


def populate(rig: Rig, dice: random.Random) -> None:
    """Older comments of strangers and ours, some with texts and markers that could be taken for ours."""
    large = dice.random() < 0.02
    rig.world.add_comments(REPO, NUMBER, dice.randint(300, 2_500) if large else dice.choice(SIZES))
    tempting = [
        ("stranger", f"{BODY}\n\n{rig.marker(account=str(BOT.id))}"),
        ("stranger", BODY),
        (BOT.login, f"{BODY}\n\n{rig.marker(step='other', account=str(BOT.id))}"),
        (BOT.login, "Something else"),
    ]
    for author, text in dice.sample(tempting, dice.randint(0, len(tempting))):
        rig.world.add_comment(REPO, NUMBER, text, author=author)


def send_fault(dice: random.Random) -> f.AnyFault | None:
    """What happens to the POST."""
    faults: list[f.AnyFault | None] = [
        None,
        f.LostRequest(),
        f.LostReply(),
        f.StatusBefore(502),
        f.StatusAfter(502),
        f.StatusBefore(429),
        f.Hang(),
        f.Hang(applied=True),
        f.ResetMidBody(),
        f.BadJson(),
        f.Late(dice.uniform(0.1, 40)),
    ]
    return dice.choice(faults)


def disturb(rig: Rig, dice: random.Random) -> str:
    """What stands in the lookup's way; the name of it."""
    stale = f.StaleListing(dice.uniform(0, 30))
    repo = f"/repos/{REPO}"
    name, path, fault = dice.choice(
        [
            ("none", COMMENTS, None),
            ("none", COMMENTS, None),
            ("stale listing", COMMENTS, stale),
            ("stale count", ISSUE, f.StaleCount(dice.uniform(0, 30))),
            ("turned", COMMENTS, f.OrderChanged(shift=dice.randint(1, 60))),
            ("newest first", COMMENTS, f.OrderChanged(newest_first=True)),
            ("404", dice.choice([repo, ISSUE, COMMENTS]), f.StatusBefore(404)),
            ("410", ISSUE, f.StatusBefore(410)),
            ("403", COMMENTS, f.StatusBefore(403)),
            ("500", COMMENTS, f.StatusBefore(500)),
            ("cut", COMMENTS, f.BadJson()),
            ("renamed", repo, f.Change("rename_repo", {"repo": REPO, "to_repo": "acme/elsewhere"})),
            ("deleted issue", ISSUE, f.Change("delete_issue", {"repo": REPO, "number": NUMBER})),
        ]
    )
    if fault is not None:
        once = isinstance(fault, f.Change) or dice.random() < 0.5
        rig.fault(
            fault,
            "GET",
            path,
            nth=1 if isinstance(fault, f.Change) else dice.choice([1, 1, 2]),
            times=1 if once else None,
        )
    return name


async def one_thread(seed: int) -> tuple[str, str]:
    """Send under a fault, wait for the settle time, look under a fault, and judge. What it was and what came out."""
    forget_accounts()
    dice = random.Random(seed)
    rig = virtual_rig(deletion_events=dice.random() < 0.5)
    populate(rig, dice)
    rig.pass_time(dice.uniform(0, 100))
    rig.sent_at = rig.clock.now().wall
    fault = send_fault(dice)
    if fault is not None:
        rig.fault(fault)
    if dice.random() < 0.8:
        with suppress(InDoubt, NotSent, Refused):
            await rig.create()
    rig.pass_time(SETTLE_SECONDS + 15)
    disturbance = disturb(rig, dice)
    verdict = await rig.find()
    real = {str(entry.resource_id) for entry in rig.world.effects("run_1:step_1") if entry.account == BOT.login}
    match verdict:
        case Found(receipt=receipt, also=also):
            assert {receipt.resource_id, *(other.resource_id for other in also)} == real, f"wrong found, seed {seed}"
        case Absent():
            assert not real, f"wrong absent, seed {seed}"
    if disturbance == "none":
        assert not isinstance(verdict, Undetermined), f"needless doubt, seed {seed}: {verdict}"
    return disturbance, type(verdict).__name__


@pytest.mark.parametrize("block", range(4))
async def test_r16_no_wrong_absent_and_no_wrong_found(block: int) -> None:
    seeds = range(block * THREADS // 4, (block + 1) * THREADS // 4)
    seen = Counter([await one_thread(seed) for seed in seeds])
    ends = Counter(verdict for (_, verdict), count in seen.items() for _ in range(count))
    assert min(ends["Found"], ends["Absent"], ends["Undetermined"]) >= 10, seen


async def test_r16_the_judge_sees_a_wrong_absent(rig: Rig) -> None:
    """A lookup of one page, as C007 describes it, would be caught by the same judgement."""
    rig.world.add_comments(REPO, NUMBER, 150)
    rig.world.add_comment(REPO, NUMBER, SIGNER.sign(rig.op(), BODY, PLACE, str(BOT.id)), author=BOT.login)
    listed = rig.world.comments(REPO, NUMBER)[:100]
    assert not any("run_1:step_1" in comment.body for comment in listed)
    assert isinstance(await rig.find(), Found)
