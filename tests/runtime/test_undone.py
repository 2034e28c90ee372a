"""A person decides that a double is undone: once for each effect, and whoever has the code does it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys

import msgspec
import pytest

from surefoot import Absent, Found, Operation, Receipt, Surefoot, ToolCall, effects, tool
from surefoot.agent import undoing
from surefoot.agent.tools import Tool
from surefoot.connectors import github
from surefoot.core import facts
from surefoot.core.people import Decision
from surefoot.errors import NotAllowed, PerformFailed
from surefoot.runtime.deciding import decide_about
from surefoot.store.port import ActionRow
from tests.places import Place
from tests.support import eventually

REFUNDS: list[str] = []


@tool(effect=effects.opaque)
async def refund(op: Operation, charge_id: str) -> Receipt:
    """Give the money back."""
    REFUNDS.append(charge_id)
    return Receipt(resource_id=f"refund of {charge_id}")


def _undo(receipt: Receipt, cents: int) -> ToolCall:
    return refund.call(charge_id=str(receipt.resource_id))


def _find(op: Operation, cents: int) -> Absent:
    return Absent(coverage="nobody looks")


@tool(effect=effects.lookup(_find, settle=0.1), compensate=_undo)
async def charge(op: Operation, cents: int, note: str = "") -> Receipt:
    """Charge a card."""
    return Receipt(resource_id="c1")


async def _charged_again(sf: Surefoot, *charges: str) -> str:
    """The open question after further charges under the same key have come to light."""
    for one in charges:
        await sf.report("charge:81", Found(Receipt(resource_id=one)))
    (asked,) = await sf.actions(status="waiting")
    return asked.action.id


async def _nothing_noted(sf: Surefoot, but: int = 0) -> None:
    async with asyncio.timeout(20):
        while len(await sf.store.marks(sf.tenant, "undo", 10)) > but:
            await sf.store.changed(sf.store.change_count(), 0.1)


def _shown(asked: ActionRow) -> object:
    return msgspec.json.decode(asked.preview, type=dict[str, object])["effects"]


async def test_the_question_shows_every_effect_with_its_link(store_url: str) -> None:
    """A person is told to look at both: what is to be undone stood in an event alone."""
    async with Surefoot(store_url, tools=[charge, refund], log=lambda line: None) as sf:
        await sf.perform(charge.call(cents=900), key="81")
        await sf.report("charge:81", Found(Receipt(resource_id="c2", url="https://pay.example/c2")))
        (asked,) = await sf.actions(status="waiting")
        first, second = {"id": "c1", "url": None}, {"id": "c2", "url": "https://pay.example/c2"}
        assert _shown(asked) == [first, second]
        assert await sf.perform(charge.call(cents=900), key="81") == Receipt("c1")
        await sf.report("charge:81", Found(Receipt(resource_id="c3")))
        (wider,) = await sf.actions(status="waiting")
        assert [item["id"] for item in _shown(wider)] == ["c1", "c2", "c3"]  # type: ignore[attr-defined]  # a list
        with pytest.raises(NotAllowed) as refused:
            await sf.approve(asked.action.id, by="anna")
        assert (refused.value.code, refused.value.details["why"]) == ("action_expired", "superseded")
        assert REFUNDS == []


@pytest.mark.parametrize("fails", [False, True])
async def test_what_an_earlier_question_showed_is_shown_again_with_its_link(store_url: str, fails: bool) -> None:
    """Only the newest one had it: a person who is to look at all of them could not."""

    @tool(effect=effects.lookup(_find, settle=0.1), compensate=_undo, name="charge")
    async def refused(op: Operation, cents: int) -> Receipt:
        """Charge a card; the bank says no."""
        raise effects.Refused("no")

    used = refused if fails else charge
    async with Surefoot(store_url, tools=[used, refund], log=lambda line: None) as sf:
        with contextlib.suppress(PerformFailed):
            await sf.perform(used.call(cents=900), key="81")
        for number in (2, 3, 4):
            await sf.report("charge:81", Found(Receipt(f"c{number}", f"https://pay.example/c{number}")))
            (asked,) = await sf.actions(status="waiting")
            if number == 3:
                await sf.reject(asked.action.id, by="anna")
    shown = {one["id"]: one["url"] for one in _shown(asked)}  # type: ignore[attr-defined]  # a list
    assert shown == {**({} if fails else {"c1": None}), **{f"c{n}": f"https://pay.example/c{n}" for n in (2, 3, 4)}}


async def test_a_process_without_the_code_asks_for_either_way(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know whether the tool undoes anything."""
    async with Surefoot(store_url, tools=[charge, refund], log=lambda line: None) as sf:
        for key in ("81", "82"):
            await sf.perform(charge.call(cents=900), key=key)
        await sf.report("charge:82", Found(Receipt(resource_id="c3")))
    monkeypatch.setattr("surefoot.app.DECLARED", {})
    async with Surefoot(store_url, log=lambda line: None) as sf:
        await sf.report("charge:81", Found(Receipt(resource_id="c2")))
        known, unknown = [msgspec.json.decode(row.preview)["text"] for row in await sf.actions(status="waiting")]
    assert known.endswith("Undo it?")
    assert unknown.endswith("Undo it? If its tool cannot, undo it yourself before you approve.")


@pytest.fixture(autouse=True)
def _no_refunds() -> None:
    REFUNDS.clear()


async def test_each_effect_is_undone_once_however_often_doubles_come_to_light(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undoing, "LOOK_SECONDS", 0.1)
    async with Surefoot(store_url, tools=[charge, refund], worker=True, log=lambda line: None) as sf:
        await sf.perform(charge.call(cents=900), key="81")
        first = await _charged_again(sf, "c2")
        await sf.approve(first, by="anna", key="1")
        await sf.approve(first, by="anna", key="1")
        await eventually(lambda: REFUNDS == ["c2"])
        await sf.approve(await _charged_again(sf, "c3", "c 4"), by="anna")
        await eventually(lambda: len(REFUNDS) == 3)
        await sf.approve(await _charged_again(sf, "c5"), by="anna")
        await eventually(lambda: len(REFUNDS) == 4)
        assert sorted(REFUNDS) == ["c 4", "c2", "c3", "c5"]
        await _nothing_noted(sf)


async def test_what_could_not_be_undone_is_tried_again_by_a_later_decision_and_not_before(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undoing, "LOOK_SECONDS", 0.1)
    refused: list[str] = []

    @tool(effect=effects.opaque)
    async def give_back(op: Operation, charge_id: str) -> Receipt:
        """Give the money back; the first time the bank refuses."""
        if not refused:
            refused.append(charge_id)
            raise effects.Refused("not today")
        REFUNDS.append(charge_id)
        return Receipt(resource_id=f"refund of {charge_id}")

    def undo(receipt: Receipt) -> ToolCall:
        return give_back.call(charge_id=str(receipt.resource_id))

    charged = charge.using(compensate=undo)
    async with Surefoot(store_url, tools=[charged, give_back], worker=True, log=lambda line: None) as sf:
        await sf.perform(charged.call(cents=900), key="81")
        first = await _charged_again(sf, "c2")
        await sf.approve(first, by="anna")
        await _nothing_noted(sf)
        assert len(await sf.store.marks(sf.tenant, "not_undone", 10)) == 1 and (refused, REFUNDS) == (["c2"], [])
        await sf.approve(await _charged_again(sf, "c3"), by="anna")
        await _nothing_noted(sf)
    assert (refused, sorted(REFUNDS)) == (["c2"], ["c2", "c3"])


async def test_what_is_decided_where_the_code_is_not_is_undone_by_a_worker_that_has_it(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undoing, "LOOK_SECONDS", 0.1)
    async with Surefoot(store_url, tools=[charge, refund], log=lambda line: None) as sf:
        await sf.perform(charge.call(cents=900), key="81")
        action_id = await _charged_again(sf, "c2")
        # A process of its own, which knows neither tool.
        words = [sys.executable, "-m", "surefoot", "actions", "approve", action_id, "--store", store_url]
        said = subprocess.run(words, capture_output=True, text=True, timeout=60, env=os.environ)
        assert said.returncode == 0 and "a worker that has it undoes this" in said.stderr, said
        assert REFUNDS == []
        async with Surefoot(store_url, tools=[charge, refund], worker=True, log=lambda line: None) as worker:
            await eventually(lambda: REFUNDS == ["c2"])
            await _nothing_noted(worker)


async def test_what_is_rejected_is_left_as_it_is(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undoing, "LOOK_SECONDS", 0.1)
    async with Surefoot(store_url, tools=[charge, refund], worker=True, log=lambda line: None) as sf:
        await sf.perform(charge.call(cents=900), key="81")
        action_id = await _charged_again(sf, "c2")
        await sf.store.mark(sf.tenant, "undo", action_id, "")  # as somebody leaves it who dies before the decision
        await sf.reject(action_id, by="anna")
        await _nothing_noted(sf)
        assert REFUNDS == []


async def test_what_nobody_here_can_undo_holds_up_nothing_else(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes of other code, or of questions without an answer, stood in front for ever."""
    monkeypatch.setattr(undoing, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(undoing, "AT_ONCE_MAX", 2)
    away = charge.using(name="charge_elsewhere")
    async with Surefoot(store_url, tools=[charge, away], log=lambda line: None) as sf:
        for number in range(4):
            await sf.perform(away.call(cents=900), key=str(number))
            await sf.report(f"charge_elsewhere:{number}", Found(Receipt(resource_id=f"e{number}")))
        for asked in await sf.actions(status="waiting"):
            await decide_about(sf.context, asked.action.id, Decision("approve", "ann"))
        await sf.perform(charge.call(cents=900), key="81")
        await decide_about(sf.context, await _charged_again(sf, "c2"), Decision("approve", "ann"))
    monkeypatch.setattr("surefoot.app.DECLARED", {})  # the worker's process does not know the other tool
    async with Surefoot(store_url, tools=[charge, refund], worker=True, log=lambda line: None) as worker:
        await eventually(lambda: REFUNDS == ["c2"], "the refund")
        await _nothing_noted(worker, but=4)
        assert len(await worker.store.marks(worker.tenant, "undo", 10)) == 4


async def test_what_is_to_be_undone_is_kept_for_whoever_has_the_code(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was decided, and pruned before a worker came that could do it."""
    monkeypatch.setattr(undoing, "LOOK_SECONDS", 0.1)
    async with Surefoot(store_url, tools=[charge], log=lambda line: None) as sf:
        await sf.perform(charge.call(cents=900), key="81")
        await decide_about(sf.context, await _charged_again(sf, "c2"), Decision("approve", "ann"))
        wall = sf.store.now().wall + 1_000.0
        counts = await sf.store.prune(sf.tenant, wall, blobs_before=wall)
        assert (counts["runs"], counts["blobs"], counts["marks"]) == (0, 0, 0)
    async with Surefoot(store_url, tools=[charge, refund], worker=True, log=lambda line: None) as worker:
        await eventually(lambda: REFUNDS == ["c2"], "the refund")
        await _nothing_noted(worker)
        wall = worker.store.now().wall + 1_000.0
        assert (await worker.store.prune(worker.tenant, wall, blobs_before=wall))["runs"] >= 1


def test_each_github_tool_undoes_what_it_was_called_with() -> None:
    """The function is told the arguments that it names, as a lookup is, and not all of the call's."""
    place = {"repo": "acme/app"}
    calls: list[tuple[Tool, dict[str, object]]] = [
        (github.create_issue_comment, {**place, "issue_number": 1, "body": "x"}),
        (github.create_issue, {**place, "title": "x", "body": ""}),
        (github.create_review, {**place, "number": 1, "body": "x", "event": "APPROVE"}),
    ]
    for made, arguments in calls:
        assert isinstance(made.make_compensation(Receipt(resource_id="5"), made.check_arguments(arguments)), ToolCall)


def test_a_compensation_that_could_not_be_made_is_refused_where_it_is_declared() -> None:
    def asks(receipt: Receipt, euros: int) -> ToolCall:
        return refund.call(charge_id=str(euros))

    async def awaits(receipt: Receipt) -> ToolCall:
        return refund.call(charge_id="c1")

    def takes_nothing() -> ToolCall:
        return refund.call(charge_id="c1")

    for function, why in ((asks, "euros"), (awaits, "compensate is called in place"), (takes_nothing, "the receipt")):
        with pytest.raises(TypeError, match=why):
            charge.using(compensate=function)


async def test_what_an_older_version_wrote_down_of_a_person_with_a_long_name_is_undone(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names had no bound then; the decision stands, and has to be carried out."""
    monkeypatch.setattr(undoing, "LOOK_SECONDS", 0.1)
    async with Surefoot(store_url, log=lambda line: None) as sf:
        await sf.perform(charge.call(cents=900), key="81")
        asked = await _charged_again(sf, "c2")
        with monkeypatch.context() as patched:
            patched.setattr(facts, "NAME_CHARACTERS_MAX", 10_000)
            await decide_about(sf.context, asked, Decision("approve", "ann " * 200))
    assert REFUNDS == []
    async with Surefoot(store_url, tools=[charge, refund], worker=True, log=lambda line: None) as worker:
        await eventually(lambda: bool(REFUNDS), "the refund")
        await _nothing_noted(worker)
    assert REFUNDS == ["c2"]


async def test_a_decision_that_cannot_be_read_holds_up_no_other(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undoing, "LOOK_SECONDS", 0.1)
    async with Surefoot(place.url, tools=[charge, refund], log=lambda line: None) as sf:
        for key in ("81", "82"):
            await sf.perform(charge.call(cents=900), key=key)
            await sf.report(f"charge:{key}", Found(Receipt(resource_id=f"c{key}")))
        damaged, other = [row.action.id for row in await sf.actions(status="waiting")]
        for action_id in (damaged, other):
            # Decided where the code is not.
            await decide_about(sf.context, action_id, Decision("approve", "anna"))
        assert place.execute("UPDATE pending_action SET preview = '{' WHERE id = ?", damaged)
    lines: list[str] = []
    async with Surefoot(place.url, tools=[charge, refund], worker=True, log=lines.append) as sf:
        await eventually(lambda: REFUNDS == ["c82"])
        assert any(damaged in line and "cannot be read" in line for line in lines)
        assert place.execute("UPDATE pending_action SET preview = '{}' WHERE id = ?", damaged)
        await eventually(lambda: sorted(REFUNDS) == ["c81", "c82"])
        await _nothing_noted(sf)
