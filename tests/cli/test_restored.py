"""A copy of the store is put back: what it shows as not begun is looked up or asked about, never sent blindly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from surefoot import Absent, Found, Operation, Receipt, Surefoot, ToolCall, effects, tool
from surefoot.agent import undoing
from surefoot.agent.tools import Tool
from surefoot.core.people import Decision
from surefoot.runtime.deciding import decide_about
from tests.cli.rig import Cli


def _step(cli: Cli, run_id: str) -> dict[str, object]:
    steps = cli.json("runs", "show", run_id).record()["steps"]
    assert isinstance(steps, list)
    (step,) = [step for step in steps if step["type"] == "tool_call"]
    assert isinstance(step, dict)
    return step


@pytest.mark.parametrize("restored", [True, False])
def test_an_approved_call_that_was_sent_after_the_copy_is_found(cli: Cli, restored: bool) -> None:
    run_id, action_id = cli.asked("patient")
    assert cli.run("actions", "approve", action_id).code == 0
    cli.place.save()
    cli.work("patient")
    assert _step(cli, run_id)["status"] == "succeeded" and len(cli.sent) == 1
    cli.place.put_back()
    assert _step(cli, run_id)["status"] == "pending", "the copy does not know that it was sent"
    if restored:
        answer = cli.json("db", "restored")
        assert answer.code == 0
        assert answer.record() == {
            "counted_as_sent": [_step(cli, run_id)["id"]], "approvals_to_check": [], "runs_under_way": [run_id],
            "unreadable": [],
        }  # fmt: skip
        assert (_step(cli, run_id)["status"], _step(cli, run_id)["error_code"]) == ("outcome_unknown", "restored")
        again = cli.json("db", "restored").record()
        assert again["counted_as_sent"] == [] and "possibly sent: none" in cli.run("db", "restored").out
    cli.work("patient")
    step = _step(cli, run_id)
    assert (step["status"], step["external_resource_id"]) == ("succeeded", "note-1")
    assert len(cli.sent) == (1 if restored else 2), "without the command it is the blind send that the manual warns of"
    assert cli.json("doctor").code == 0


def test_what_was_not_sent_after_all_is_proven_absent_and_sent(cli: Cli) -> None:
    run_id, action_id = cli.asked("writer")
    assert cli.run("actions", "approve", action_id).code == 0
    cli.place.save()
    cli.place.put_back()
    assert cli.json("db", "restored").code == 0
    cli.work("writer")
    assert _step(cli, run_id)["status"] == "succeeded" and len(cli.sent) == 1


def test_an_approval_that_waits_is_named(cli: Cli) -> None:
    run_id, action_id = cli.asked("writer")
    cli.place.save()
    cli.place.put_back()
    answer = cli.json("db", "restored").record()
    assert answer == {
        "counted_as_sent": [], "approvals_to_check": [action_id], "runs_under_way": [run_id], "unreadable": [],
    }  # fmt: skip
    assert action_id in cli.run("db", "restored").out


@pytest.mark.parametrize("column", ["limits", "signals", "queued"])
def test_a_run_that_cannot_be_read_keeps_no_other_from_being_counted(cli: Cli, column: str) -> None:
    (damaged, _), (run_id, action_id) = cli.asked("writer"), cli.asked("writer")
    assert cli.run("actions", "approve", action_id).code == 0
    cli.place.save()
    cli.place.put_back()
    assert cli.place.execute(f"UPDATE run SET {column} = '{{' WHERE id = ?", damaged)
    answer = cli.json("db", "restored")
    assert answer.code == 0 and answer.record()["unreadable"] == [damaged]
    assert answer.record()["counted_as_sent"] == [_step(cli, run_id)["id"]]
    assert damaged in cli.run("db", "restored").out


REFUNDS: list[str] = []


@tool(effect=effects.opaque)
async def refund(op: Operation, payment: str) -> Receipt:
    """Give it back."""
    REFUNDS.append(payment)
    return Receipt(resource_id=f"refund of {payment}")


def _undo(receipt: Receipt) -> ToolCall:
    return refund.call(payment=str(receipt.resource_id))


def _find(op: Operation) -> Absent:
    return Absent(coverage="nobody looks")


@tool(effect=effects.lookup(_find, settle=0.1), compensate=_undo)
async def pay(op: Operation) -> Receipt:
    """Pay."""
    return Receipt(resource_id="p1")


def _play(cli: Cli, act: Callable[[Surefoot], Awaitable[str]], *, worker: bool = False) -> str:
    """What it says of a Surefoot with these tools."""

    async def main() -> str:
        secret = cli.environment.get("SUREFOOT_SECRET")
        known: list[Tool] = [pay, refund]
        async with Surefoot(cli.place.url, tools=known, worker=worker, secret=secret, log=lambda line: None) as sf:
            return await act(sf)

    return asyncio.run(main())


async def _doubled(sf: Surefoot) -> str:
    await sf.perform(pay.call(), key="81")
    await sf.report("pay:81", Found(Receipt(resource_id="p2")))
    (asked,) = await sf.actions(status="waiting")
    return asked.action.id


async def _all_undone(sf: Surefoot) -> str:
    async with asyncio.timeout(20):
        while await sf.store.marks(sf.tenant, "undo", 10):
            await sf.store.changed(sf.store.change_count(), 0.1)
    return " ".join([one.action.id for one in await sf.actions(status="waiting")])


@pytest.mark.parametrize("decided", [True, False])
def test_what_was_undone_after_the_copy_is_not_undone_again_without_a_word(
    cli: Cli, decided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy shows it as decided and not begun, or as asked: it was begun, or not named as what to look at."""
    monkeypatch.setattr(undoing, "LOOK_SECONDS", 0.1)
    REFUNDS.clear()
    action_id = _play(cli, _doubled)

    async def decide(sf: Surefoot) -> str:
        await decide_about(sf.context, action_id, Decision("approve", "ann"))
        return ""

    if decided:
        _play(cli, decide)
    cli.place.save()
    if not decided:
        _play(cli, decide)
    _play(cli, _all_undone, worker=True)
    assert REFUNDS == ["p2"]
    cli.place.put_back()
    first, again = [cli.json("db", "restored").record()["approvals_to_check"] for _ in range(2)]
    assert isinstance(first, list) and first == again and len(first) == 1
    named = str(first[0])
    assert (named != action_id) == decided
    assert _play(cli, _all_undone, worker=True) == named and REFUNDS == ["p2"]
    shown = cli.json("actions", "show", named).out
    assert ("look at the target first" in shown) == decided
    assert cli.run("actions", "approve", named).code == 0
    if decided:
        assert _play(cli, _all_undone, worker=True) == "" and REFUNDS == ["p2"]
