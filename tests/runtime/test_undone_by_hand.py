"""What a person has decided to undo, and no call can: a person is asked anew, and nothing is tried for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from surefoot import Absent, Found, Operation, Receipt, Surefoot, ToolCall, effects, tool
from surefoot.agent import undoing
from surefoot.agent.tools import Tool
from surefoot.core.people import Decision
from surefoot.doctor import examine
from surefoot.errors import PerformFailed
from surefoot.runtime.deciding import decide_about
from surefoot.store.port import ActionRow
from tests.support import eventually

SENT: list[str] = []
REFUNDS: list[str] = []


def _limit(arguments: object) -> str | None:
    return "only p1 can be given back" if "p1" not in str(arguments) else None


@tool(effect=effects.opaque, limits=_limit)
async def refund(op: Operation, payment: str) -> Receipt:
    """Give it back."""
    REFUNDS.append(payment)
    return Receipt(resource_id=f"refund of {payment}")


def _undo(receipt: Receipt) -> ToolCall:
    return refund.call(payment=str(receipt.resource_id))


def _misspelt(receipt: Receipt) -> ToolCall:
    return refund.call(paymnt=str(receipt.resource_id))


def _raises(receipt: Receipt) -> ToolCall:
    raise KeyError("no such payment")


def _text(receipt: Receipt) -> str:
    return "refund it"


def _find(op: Operation) -> Absent:
    return Absent(coverage="nobody looks")


@tool(effect=effects.lookup(_find, settle=0.1), compensate=_undo)
async def pay(op: Operation) -> Receipt:
    """Pay; the first one is refused."""
    SENT.append(op.step_id)
    if len(SENT) == 1:
        raise effects.Refused("no")
    return Receipt(resource_id="new")


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    SENT.clear()
    REFUNDS.clear()
    monkeypatch.setattr(undoing, "LOOK_SECONDS", 0.1)


async def _found(sf: Surefoot, used: Tool, *payments: str) -> str:
    """The question about payments that came to light behind a failure."""
    with pytest.raises(PerformFailed):
        await sf.perform(used.call(), key="81")
    first, *others = [Receipt(one, f"https://bank.example/{one}") for one in payments]
    await sf.report("pay:81", Found(first, also=tuple(others)))
    (asked,) = await sf.actions(status="waiting")
    return asked.action.id


async def _asked_anew(sf: Surefoot) -> ActionRow:
    """The question that comes behind a decision."""
    async with asyncio.timeout(20):
        while not (asked := await sf.actions(status="waiting")) or await sf.store.marks(sf.tenant, "undo", 10):
            await sf.store.changed(sf.store.change_count(), 0.1)
    (one,) = asked
    return one


def _preview(asked: ActionRow) -> dict[str, object]:
    return msgspec.json.decode(asked.preview, type=dict[str, object])


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_undo, "only p1 can be given back"),
        (_misspelt, "paymnt"),
        (_raises, "KeyError"),
        (_text, "no call, but str"),
    ],
)
@pytest.mark.parametrize("frees", [True, False])
async def test_an_undoing_that_cannot_begin_comes_back_as_a_question_to_undo_it_by_hand(
    store_url: str, function: Callable[..., object], why: str, frees: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was tried again every 30 seconds for ever, the key held, and nobody was asked."""
    if function is _raises:
        monkeypatch.setattr(undoing, "OTHERS_SECONDS", 0.0)  # else code that was mended may come
    used = pay.using(compensate=function)
    async with Surefoot(store_url, tools=[used, refund], worker=True, log=lambda line: None) as sf:
        await sf.approve(await _found(sf, used, "p2"), by="ann")
        asked = await _asked_anew(sf)
        shown = _preview(asked)
        assert asked.action.kind == "duplicate" and "undo it yourself, then approve" in str(shown["text"])
        assert why in str(shown["warnings"])
        assert shown["effects"] == [{"id": "p2", "url": "https://bank.example/p2"}]
        await (sf.approve if frees else sf.reject)(asked.action.id, by="ann")
        receipt = await sf.perform(used.call(), key="81")
        assert await sf.store.marks(sf.tenant, "undo", 10) == [] == [*await sf.actions(status="waiting")]
    assert (receipt.resource_id, len(SENT), REFUNDS) == (("new", 2, []) if frees else ("p2", 1, []))


async def test_what_could_be_undone_is_and_the_question_is_about_the_rest_alone(store_url: str) -> None:
    """Left as it is, the rest is the key's answer: not what was given back."""
    async with Surefoot(store_url, tools=[pay, refund], worker=True, log=lambda line: None) as sf:
        await sf.approve(await _found(sf, pay, "p1", "p2"), by="ann")
        asked = await _asked_anew(sf)
        assert _preview(asked)["effects"] == [{"id": "p2", "url": "https://bank.example/p2"}]
        await sf.reject(asked.action.id, by="ann")
        receipt = await sf.perform(pay.call(), key="81")
    assert (receipt.resource_id, receipt.url, REFUNDS) == ("p2", "https://bank.example/p2", ["p1"])


async def test_several_workers_and_deaths_ask_once(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever had asked anew, and died before it was forgotten, asks no second time; nor once that is answered."""
    async with Surefoot(store_url, tools=[pay, refund], log=lambda line: None) as sf:
        first = await _found(sf, pay, "p2")

        async def dies(*about: object) -> None:
            raise OSError("the process is gone")

        with monkeypatch.context() as patched:
            patched.setattr(sf.store, "unmark", dies)
            await sf.approve(first, by="ann")
        (asked,) = await sf.actions(status="waiting")
        assert asked.action.id != first and await sf.store.marks(sf.tenant, "undo", 10) == [first]
        async with Surefoot(store_url, tools=[pay, refund], worker=True, log=lambda line: None) as other:
            assert (await _asked_anew(other)).action.id == asked.action.id
            await sf.store.mark(sf.tenant, "undo", first, "")
            await sf.reject(asked.action.id, by="ann")
            async with asyncio.timeout(20):
                while await sf.store.marks(sf.tenant, "undo", 10):
                    await sf.store.changed(sf.store.change_count(), 0.1)
            assert [*await sf.actions(status="waiting")] == []


async def test_a_compensation_that_was_dropped_is_told_by_the_doctor_and_asked_about(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key was held for ever, and a line in the log was all that anybody could see."""
    async with Surefoot(store_url, tools=[pay], log=lambda line: None) as sf:
        first = await _found(sf, pay, "p2")
        # Decided where the code is not.
        await decide_about(sf.context, first, Decision("approve", "ann"))
        assert (await examine(sf.store, sf.tenant)).findings == []
        monkeypatch.setattr("surefoot.doctor.STUCK_SECONDS", 0.0)
        (finding,) = (await examine(sf.store, sf.tenant)).findings
        assert finding.code == "not_undone" and first in finding.text and "pay" in finding.next
    monkeypatch.setattr("surefoot.app.DECLARED", {})
    lines: list[str] = []
    bare = pay.using(compensate=None)
    async with Surefoot(store_url, tools=[bare, refund], worker=True, log=lines.append) as sf:
        # Other code may be at work beside it.
        await eventually(lambda: any("does not say here how it is undone" in line for line in lines))
        assert [*await sf.actions(status="waiting")] == []
        monkeypatch.setattr(undoing, "OTHERS_SECONDS", 0.0)
        asked = await _asked_anew(sf)
        shown = _preview(asked)
        assert "undo it yourself, then approve" in str(shown["text"]) and "not say any more" in str(shown["warnings"])
        assert (await examine(sf.store, sf.tenant)).findings == []
        await sf.approve(asked.action.id, by="ann")
        receipt = await sf.perform(bare.call(), key="81")
    assert (receipt.resource_id, len(SENT), REFUNDS) == ("new", 2, [])


async def test_what_a_person_is_asked_to_undo_is_not_begun_by_code_that_comes_later(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had asked anew died before that was written down: undone by both, it would be given back twice."""
    async with Surefoot(store_url, tools=[pay, refund], log=lambda line: None) as sf:
        first = await _found(sf, pay, "p2")

        async def dies(*about: object) -> None:
            raise OSError("the process is gone")

        with monkeypatch.context() as patched:
            patched.setattr(sf.store, "unmark", dies)
            await sf.approve(first, by="ann")
        await sf.store.unmark(sf.tenant, "not_undone", first)
    monkeypatch.setattr("surefoot.app.DECLARED", {})
    mended = refund.using(limits=None)
    used = pay.using(compensate=lambda receipt: mended.call(payment=str(receipt.resource_id)))
    async with Surefoot(store_url, tools=[used, mended], worker=True, log=lambda line: None) as sf:
        asked = await _asked_anew(sf)
        assert asked.action.id != first and REFUNDS == []
        await sf.approve(asked.action.id, by="ann")
        await sf.perform(used.call(), key="81")
    assert (len(SENT), REFUNDS) == (2, [])
