"""The attempts of a step go out under one account, and none where it is not known whose the credential is."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import Absent, Agent, Found, Operation, Receipt, Surefoot, Throttle, effects, tool
from surefoot.agent.tools import Tool
from surefoot.errors import WaitTimeout
from surefoot.runtime.drive import Driver
from surefoot.testing.model import FakeModel
from tests.cases.rig import Sim, calls_of, ended, story


def clerk(pay: Tool) -> Agent:
    """The agent that pays once."""
    return Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])


@story
async def test_a_credential_of_another_account_is_asked_about_now_and_then(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent under it, and nobody spins until it belongs to the right one again."""
    sent: list[int] = []
    accounts, asked = ["ann"], 0
    sim.broken.add("I1")  # this target stands outside of the World

    async def whose(op: Operation) -> str:
        nonlocal asked
        asked += 1
        return accounts[-1]

    @tool(effect=effects.opaque, credential="TOKEN", account=whose)
    async def pay(op: Operation) -> Receipt:
        """Pay; the first time the target is busy."""
        sent.append(op.attempt)
        if len(sent) == 1:
            accounts.append("bob")
            raise effects.Refused("busy", retry_after=1.0)
        return Receipt(resource_id="p-1")

    looks = 0
    advance = Driver._advance

    async def counted(driver: Driver) -> None:
        nonlocal looks
        looks += 1
        await advance(driver)

    agent = clerk(pay)
    worker = sim.worker(agent)
    async with sim.surefoot(agent, worker=False) as sf:
        run = await sf.start(agent, "Pay.")
        await sim.until(lambda: sent)
        await sim.pass_time(0.1)
        worker.kill()
        monkeypatch.setattr(Driver, "_advance", counted)
        sim.worker(agent, name="other")
        await sim.pass_time(600)
        assert sent == [1]
        assert looks < 100, f"it was looked at {looks} times, and for the account {asked} times"
        accounts.append("ann")
        await sim.pass_time(120)
        run = await sf.snapshot(run.id)
    assert (run.status, sent) == ("completed", [1, 2])


@story
async def test_nothing_is_sent_again_while_it_is_not_known_whose_the_credential_is(sim: Sim) -> None:
    """A target drops repeats of a key within an account: under another one it would act a second time."""
    sent: list[tuple[str, int]] = []
    account, away = "ann", False
    sim.broken.add("I1")  # this target stands outside of the World

    async def whose(op: Operation) -> str:
        if away:
            raise effects.InDoubt("the target does not say")
        return account

    @tool(effect=effects.idempotent(key_lifetime=None), credential="TOKEN", account=whose)
    async def pay(op: Operation) -> Receipt:
        """Pay; the first reply does not come before the worker dies."""
        sent.append((account, op.attempt))
        if len(sent) == 1:
            await asyncio.get_running_loop().create_future()
        return Receipt(resource_id="p-1")

    agent = clerk(pay)
    worker = sim.worker(agent)
    async with sim.surefoot(agent, worker=False) as sf:
        run = await sf.start(agent, "Pay.")
        await sim.until(lambda: sent)
        worker.kill()
        account, away = "bob", True
        sim.worker(agent, name="other")
        await sim.pass_time(120)
        assert sent == [("ann", 1)]
        assert (await sf.snapshot(run.id)).pending_actions == []
        account, away = "ann", False
        await sim.pass_time(120)
        run = await sf.snapshot(run.id)
    assert (run.status, sent) == ("completed", [("ann", 1), ("ann", 2)])


@story
async def test_a_read_that_names_no_account_goes_on_in_another_process(sim: Sim) -> None:
    """Beside it, another tool has said whose their credential is."""
    sent: list[str] = []
    sim.broken.add("I1")  # this target stands outside of the World

    async def whose(op: Operation) -> str:
        return "ann"

    @tool(effect=effects.opaque, credential="TOKEN", account=whose)
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append("pay")
        return Receipt(resource_id="p-1")

    @tool(effect=effects.read, credential="TOKEN")
    async def look(op: Operation) -> str:
        """Look; the first reply does not come before the worker dies."""
        sent.append("look")
        if sent.count("look") == 1:
            await asyncio.get_running_loop().create_future()
        return "paid"

    agent = Agent("clerk", FakeModel([[("pay", {})], [("look", {})], "Paid."]), tools=[pay, look])
    worker = sim.worker(agent)
    async with sim.surefoot(agent, worker=False) as sf:
        run = await sf.start(agent, "Pay.")
        await sim.until(lambda: "look" in sent)
        worker.kill()
        sim.worker(agent, name="other")
        run = await sf.wait(run.id, timeout=60)
    assert (run.status, sent) == ("completed", ["pay", "look", "look"])


def _under(account: object, sent: list[int]) -> Tool:
    async def whose(op: Operation) -> str:
        return account  # type: ignore[return-value]  # what people write

    @tool(effect=effects.opaque, credential="TOKEN", account=whose)
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        sent.append(op.attempt)
        return Receipt(resource_id="p-1")

    return pay


@pytest.mark.parametrize(("account", "kept"), [(42, "42"), ("a\ud800", "a\ufffd"), ("", None)])
async def test_what_an_account_is_told_as_is_kept_as_a_text(store_url: str, account: object, kept: str | None) -> None:
    sent: list[int] = []
    async with Surefoot(store_url, log=lambda line: None) as sf:
        receipt = await sf.perform(_under(account, sent).call(), key="81", timeout=20)
        row = await sf.store.step_by_key(sf.tenant, "pay:81")
    assert (receipt.resource_id, sent) == ("p-1", [1])
    assert row is not None and [attempt.account for attempt in row.step.attempts] == [kept]


@pytest.mark.parametrize("account", [b"ann", ["ann"], True, 4.2, None])
async def test_an_account_that_is_no_text_is_not_known_and_said_so(store_url: str, account: object) -> None:
    """None counted as one that cannot be told: an absence was believed under another, and the call was made twice."""
    sent: list[int] = []
    lines: list[str] = []
    async with Surefoot(store_url, log=lines.append) as sf:
        with pytest.raises(WaitTimeout, match="account_unknown"):
            await sf.perform(_under(account, sent).call(), key="81", timeout=0.5)
    assert sent == [] and f"gave {type(account).__name__}, no text" in lines[0]
    assert not any("driving it failed" in line for line in lines)


@story
async def test_the_longer_an_account_is_not_known_the_more_rarely_it_is_asked_for(sim: Sim) -> None:
    """Each call that waited for it asked, and wrote a commit, every second and a half for as long as that took."""
    sim.broken.add("I1")  # this target stands outside of the World
    asked: list[float] = []

    async def whose(op: Operation) -> str:
        asked.append(sim.machine.clock.elapsed)
        if asked[-1] < 7_200.0:
            raise OSError("the target is away")
        return "ann"

    @tool(effect=effects.opaque, credential="TOKEN", account=whose)
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        return Receipt(resource_id="p-1")

    async with sim.surefoot(clerk(pay)) as sf:
        run = await sf.wait((await sf.start("clerk", "Pay.")).id, timeout=8_000.0)
    assert run.status == "completed"
    assert len([at for at in asked if at < 30.0]) > 3, "it is asked again at once"
    assert len([at for at in asked if at >= 3_600.0]) <= 61 and run.version < 150
    assert asked[-1] < 7_200.0 + 61.0


@story
@pytest.mark.parametrize("known", [True, False])
async def test_absence_is_not_earned_under_another_account(sim: Sim, known: bool) -> None:
    """The look shows what that one may see. It was believed, and the call made again once the credential was right."""
    sim.broken.add("I1")  # this target stands outside of the World
    there: dict[str, list[str]] = {"ann": [], "bob": []}
    account = "ann"

    async def whose(op: Operation) -> str:
        if not account:
            raise OSError("the target is away")
        return account

    async def find(op: Operation) -> Found | Absent:
        made = there[account or "bob"]
        return Found(Receipt(resource_id=made[0])) if made else Absent(coverage=f"everything of {account}")

    @tool(effect=effects.lookup(find, settle=5.0), account=whose, credential="BANK_TOKEN")
    async def pay(op: Operation) -> Receipt:
        """Pay; the first reply is lost."""
        nonlocal account
        there[account].append(f"p-{op.attempt}")
        if op.attempt == 1:
            account = "bob" if known else ""
            raise effects.InDoubt("the reply is lost")
        return Receipt(resource_id=f"p-{op.attempt}")

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."], by="call"), tools=[pay])
    async with sim.surefoot(agent) as sf:
        run_id = (await sf.start(agent, "Pay.")).id
        await sim.pass_time(60.0)
        (step,) = calls_of(await sf.snapshot(run_id))
        assert step.status == "outcome_unknown"
        assert step.evidence[-1].reason == ("account_changed" if known else "account_unknown")
        account = "ann"
        run = await sf.wait(run_id, until=ended, timeout=3_600.0)
    assert (run.status, there) == ("completed", {"ann": ["p-1"], "bob": []})


@story
async def test_absence_is_not_earned_where_the_account_was_another_one_during_the_look(sim: Sim) -> None:
    """The credential was put right before the look had ended: what it had shown was another place all the same."""
    sim.broken.add("I1")  # this target stands outside of the World
    there: dict[str, list[str]] = {"ann": [], "bob": []}
    account, put_right_at = "ann", sim.machine.clock.elapsed + 10.0

    async def whose(op: Operation) -> str:
        return account

    async def find(op: Operation) -> Found | Absent:
        nonlocal account
        made = list(there[account])
        await sim.pass_time(1.0)
        if sim.machine.clock.elapsed > put_right_at:
            account = "ann"
        return Found(Receipt(resource_id=made[0])) if made else Absent(coverage="everything")

    @tool(effect=effects.lookup(find, settle=5.0), account=whose, credential="BANK_TOKEN")
    async def pay(op: Operation) -> Receipt:
        """Pay; the first reply is lost."""
        nonlocal account
        there[account].append(f"p-{op.attempt}")
        if op.attempt == 1:
            account = "bob"
            raise effects.InDoubt("the reply is lost")
        return Receipt(resource_id=f"p-{op.attempt}")

    async with sim.surefoot(clerk(pay)) as sf:
        run = await sf.wait((await sf.start("clerk", "Pay.")).id, until=ended, timeout=3_600.0)
    assert (run.status, there) == ("completed", {"ann": ["p-1"], "bob": []})


@story
async def test_a_call_that_waited_for_its_throttle_begins_under_no_account_that_is_not_known(sim: Sim) -> None:
    """A look at another call found it unknown meanwhile: begun without one, it was looked for under any, and absent."""
    sim.broken.add("I1")  # this target stands outside of the World
    there: dict[str, list[str]] = {"ann": [], "bob": []}
    account = "ann"

    async def whose(op: Operation) -> str:
        if not account:
            raise OSError("the target is away")
        return account

    async def find(op: Operation, bill: str) -> Found | Absent:
        made = bill in there[account or "bob"]
        return Found(Receipt(resource_id=bill)) if made else Absent(coverage=f"everything of {account}")

    slow = Throttle(rate=1, per=8.0)

    @tool(effect=effects.lookup(find, settle=5.0), account=whose, credential="BANK_TOKEN", throttle=slow)
    async def pay(op: Operation, bill: str) -> Receipt:
        """Pay; the first reply for each bill is lost, and the credential is another one from then on, or unknown."""
        nonlocal account
        there[account or "ann"].append(bill)
        if op.attempt == 1:
            account = "bob" if bill == "p-2" else ""
            raise effects.InDoubt("the reply is lost")
        return Receipt(resource_id=bill)

    bills = [("pay", {"bill": "p-1"}), ("pay", {"bill": "p-2"})]
    agent = Agent("clerk", FakeModel([bills, "Paid."], by="call"), tools=[pay])
    async with sim.surefoot(agent) as sf:
        run_id = (await sf.start(agent, "Pay.")).id
        await sim.pass_time(60.0)
        account = "ann"
        await sim.until(lambda: "p-2" in there["ann"])
        await sim.pass_time(60.0)
        account = "ann"
        run = await sf.wait(run_id, until=ended, timeout=3_600.0)
    assert (run.status, there) == ("completed", {"ann": ["p-1", "p-2"], "bob": []})


@story
async def test_an_account_that_is_never_told_holds_up_no_look(sim: Sim) -> None:
    """Neither the look nor the question came: a function that waited for ever was waited for."""
    sim.broken.add("I1")  # this target stands outside of the World
    there: list[str] = []
    finds = True

    async def whose(op: Operation) -> str:
        if there:
            await asyncio.get_running_loop().create_future()
        return "ann"

    async def find(op: Operation) -> Found | Absent:
        return Found(Receipt(resource_id=there[0])) if finds else Absent(coverage="everything")

    @tool(effect=effects.lookup(find, settle=5.0), account=whose, credential="BANK_TOKEN")
    async def pay(op: Operation) -> Receipt:
        """Pay; the reply is lost."""
        there.append(f"p-{op.attempt}")
        raise effects.InDoubt("the reply is lost")

    async with sim.surefoot(clerk(pay)) as sf:
        run = await sf.wait((await sf.start("clerk", "Pay.")).id, until=ended, timeout=600.0)
        assert (run.status, there) == ("completed", ["p-1"])
        there.clear()
        finds = False
        run_id = (await sf.start("clerk", "Pay.")).id
        await sim.pass_time(1_200.0)
        run = await sf.snapshot(run_id)
    assert (run.status, there) == ("waiting_for_user", ["p-1"])
    assert [asked.kind for asked in run.pending_actions] == ["resolve"]


@story
async def test_a_key_is_not_sent_again_under_another_account(sim: Sim) -> None:
    """The target drops repeats within one account. Whose the credential is was asked before the first send alone."""
    sim.broken.add("I1")  # this target stands outside of the World
    there: dict[str, dict[str, str]] = {"ann": {}, "bob": {}}
    account = "ann"

    async def whose(op: Operation) -> str:
        return account

    @tool(effect=effects.idempotent(key_lifetime=None), account=whose, credential="BANK_TOKEN")
    async def pay(op: Operation) -> Receipt:
        """Pay; the first reply is lost."""
        nonlocal account
        made = there[account].setdefault(op.key, f"p-{op.attempt}")
        if op.attempt == 1:
            account = "bob"
            raise effects.InDoubt("the reply is lost")
        return Receipt(resource_id=made)

    async with sim.surefoot(clerk(pay)) as sf:
        run = await sf.start("clerk", "Pay.")
        run = await sf.wait(run.id, until=lambda r: ended(r) or bool(r.pending_actions), timeout=600.0)
        (asked,) = run.pending_actions
        assert (asked.kind, [len(made) for made in there.values()]) == ("resolve", [1, 0])
        await sf.resolve(asked.id, "happened", by="ann", external_resource_id="p-1")
        run = await sf.wait(run.id, until=ended, timeout=600.0)
    assert (run.status, [list(made.values()) for made in there.values()]) == ("completed", [["p-1"], []])


@story
async def test_what_a_person_has_denied_is_not_sent_again_under_another_account(sim: Sim) -> None:
    """It was approved for one account. The step waits until the credential is that one's again."""
    sim.broken.add("I1")  # this target stands outside of the World
    sent: list[str] = []
    account = "ann"

    async def whose(op: Operation) -> str:
        return account

    @tool(effect=effects.opaque, account=whose, credential="BANK_TOKEN")
    async def pay(op: Operation) -> Receipt:
        """Pay; the first reply is lost."""
        sent.append(account)
        if op.attempt == 1:
            raise effects.InDoubt("the reply is lost")
        return Receipt(resource_id=f"p-{op.attempt}")

    @tool(effect=effects.read)
    async def watch(op: Operation) -> str:
        """Keep the run driven by this worker."""
        await sim.pass_time(400.0)
        return "seen"

    agent = Agent("clerk", FakeModel([[("pay", {}), ("watch", {})], "Paid."]), tools=[pay, watch.using(timeout=900)])
    async with sim.surefoot(agent) as sf:
        run = await sf.start("clerk", "Pay.")
        run = await sf.wait(run.id, until=lambda r: bool(r.pending_actions), timeout=60.0)
        account = "bob"
        await sf.resolve(run.pending_actions[0].id, "did_not_happen", by="cid")
        await sim.pass_time(120.0)
        assert sent == ["ann"]
        account = "ann"
        run = await sf.wait(run.id, until=ended, timeout=3_600.0)
    assert (run.status, sent) == ("completed", ["ann", "ann"])


@story
async def test_a_persons_word_about_a_key_counts_though_the_credential_is_anothers(sim: Sim) -> None:
    """The key is no reason to send there. A second question took no answer then, and the run stood still for ever."""
    sim.broken.add("I1")  # this target stands outside of the World
    made: dict[str, str] = {}
    account = "ann"

    async def whose(op: Operation) -> str:
        return account

    @tool(effect=effects.idempotent(key_lifetime=None), account=whose, credential="BANK_TOKEN")
    async def pay(op: Operation) -> Receipt:
        """Pay; the first request is lost."""
        nonlocal account
        if op.attempt == 1:
            account = "bob"
            raise effects.InDoubt("the request is lost")
        return Receipt(resource_id=made.setdefault(account, f"p-{op.attempt}"))

    async with sim.surefoot(clerk(pay)) as sf:
        run = await sf.start("clerk", "Pay.")
        run = await sf.wait(run.id, until=lambda r: ended(r) or bool(r.pending_actions), timeout=600.0)
        await sf.resolve(run.pending_actions[0].id, "did_not_happen", by="cid")
        await sim.pass_time(150.0)
        assert (made, (await sf.snapshot(run.id)).pending_actions) == ({}, [])
        account = "ann"
        run = await sf.wait(run.id, until=ended, timeout=3_600.0)
    assert (run.status, list(made)) == ("completed", ["ann"])
