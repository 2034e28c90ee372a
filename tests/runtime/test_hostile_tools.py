"""Whatever a tool or a lookup returns, raises or declares: one sorted outcome, no endless loop, no dead worker."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Callable
from typing import NoReturn

import pytest

from surefoot import Absent, Found, Operation, Receipt, Surefoot, ToolCall, Undetermined, effects, tool
from surefoot.core.policy import careful_rules
from surefoot.core.state import EffectClass, Rules
from surefoot.errors import InvalidInput, OutcomeUnknown, PerformFailed, WaitTimeout

_calls: list[int] = []
_verdicts: dict[str, object] = {
    "a number as reason": Undetermined(503),  # type: ignore[arg-type]  # what users do
    "no reason": Undetermined(None),  # type: ignore[arg-type]
    "no receipt": Found({"id": 1}),  # type: ignore[arg-type]
    "also is one receipt": Found(Receipt(resource_id="r1"), also=Receipt(resource_id="r2")),  # type: ignore[arg-type]
    "also is None": Found(Receipt(resource_id="r1"), also=None),  # type: ignore[arg-type]
    "nothing": None,
}


async def _find(op: Operation, verdict: str) -> object:
    return _verdicts[verdict]


@tool(effect=effects.lookup(_find, settle=0.0))  # type: ignore[arg-type]  # answers anything
async def doubtful(verdict: str) -> NoReturn:
    """Act and say nothing."""
    raise effects.InDoubt("no answer")


class _NoTruth(str):
    def __bool__(self) -> bool:
        raise RuntimeError("no truth value")


_WAITS: dict[str, object] = {"inf": math.inf, "nan": math.nan, "word": "soon", "past": -5.0, "none": 0.0}


@tool(effect=effects.opaque)
async def refusing(wait: str) -> NoReturn:
    """Refuse for now."""
    _calls.append(1)
    raise effects.Refused("not now", retry_after=_WAITS[wait])  # type: ignore[arg-type]


@tool(effect=effects.opaque)
async def receipt_with_odd_news() -> Receipt:
    """Act, with bad news."""
    return Receipt(resource_id="r1", error=_NoTruth("bad news"))


@tool(effect=effects.opaque, timeout=20)
def exhausted() -> int:
    """Ask an empty iterator."""
    return next(iter(()))


@tool(effect=effects.opaque)
async def quitting() -> NoReturn:
    """Try to end the worker."""
    raise SystemExit(3)


@pytest.fixture
def url(store_url: str) -> str:
    return store_url


async def _unknown(sf: Surefoot, call: ToolCall) -> None:
    with pytest.raises(OutcomeUnknown):
        await sf.perform(call, timeout=25)


@pytest.mark.parametrize("verdict", ["a number as reason", "no reason", "no receipt", "nothing"])
async def test_a_malformed_verdict_is_undetermined_and_a_person_is_asked(url: str, verdict: str) -> None:
    async with Surefoot(url) as sf:
        await _unknown(sf, doubtful.call(verdict=verdict))
        evidence = await sf.store.evidence(sf.tenant, (await sf.store.run_ids(sf.tenant))[0])
        assert evidence and {line.verdict for line in evidence} == {"undetermined"}
        assert [a.action.kind.value for a in await sf.actions(status="waiting")] == ["resolve"]


@pytest.mark.parametrize("verdict", ["also is one receipt", "also is None"])
async def test_what_was_found_stays_found(url: str, verdict: str) -> None:
    async with Surefoot(url) as sf:
        assert (await sf.perform(doubtful.call(verdict=verdict), timeout=10)).resource_id == "r1"


@pytest.mark.parametrize("wait", list(_WAITS))
async def test_a_refusal_for_now_is_not_repeated_without_end(url: str, wait: str) -> None:
    _calls.clear()
    async with Surefoot(url) as sf:
        with pytest.raises(WaitTimeout, match="nothing of it was sent"):
            await sf.perform(refusing.call(wait=wait), timeout=1.5)
        run_id = (await sf.store.run_ids(sf.tenant))[0]
        assert len(_calls) <= 4
        snapshot = await sf.snapshot(run_id)
        assert snapshot.steps[0].status == "pending", "a certain refusal is no doubt"
        assert [event.type async for event in _until_now(sf, run_id)]


async def _until_now(sf: Surefoot, run_id: str):  # type: ignore[no-untyped-def]
    await sf.cancel(run_id)
    async for event in sf.events(run_id):
        yield event


async def test_a_receipt_with_odd_news_is_a_receipt(url: str) -> None:
    async with Surefoot(url) as sf:
        assert (await sf.perform(receipt_with_odd_news.call(), timeout=10)).resource_id == "r1"


@pytest.mark.parametrize("odd", [exhausted, quitting])
async def test_odd_exceptions_are_doubt_at_once_and_the_worker_goes_on(url: str, odd: object) -> None:
    async with Surefoot(url) as sf:
        await _unknown(sf, odd.call())  # type: ignore[attr-defined]
        assert (await sf.perform(receipt_with_odd_news.call(), timeout=10)).resource_id == "r1"


def test_a_lookup_that_is_gone_makes_the_old_call_opaque() -> None:
    then = Rules(effect=EffectClass.lookup, has_lookup=True)
    assert careful_rules(Rules(effect=EffectClass.read), then).effect is EffectClass.opaque
    kept = careful_rules(Rules(effect=EffectClass.read, has_lookup=True), then)
    assert kept.effect is EffectClass.lookup and kept.has_lookup


@pytest.mark.parametrize("key", ["", " ", "\0", "\ud800", "x" * 2_000])
async def test_a_key_that_is_none_is_refused(url: str, key: str) -> None:
    async with Surefoot(url) as sf:
        with pytest.raises(InvalidInput):
            await sf.perform(receipt_with_odd_news.call(), key=key)
        with pytest.raises(InvalidInput):
            await sf.perform(receipt_with_odd_news.call(), timeout=math.nan)
        assert not await sf.store.run_ids(sf.tenant)


def test_declarations_that_cannot_be_kept_are_refused() -> None:
    for settle in (math.nan, math.inf, -1.0):
        with pytest.raises(ValueError):
            effects.lookup(_find, settle=settle)  # type: ignore[arg-type]
        with pytest.raises(ValueError):
            effects.idempotent(key_lifetime=60, settle=settle)
    with pytest.raises(ValueError):
        effects.idempotent(key_lifetime=math.nan)
    with pytest.raises(TypeError):
        effects.lookup(None)  # type: ignore[arg-type]
    for change in ({"timeout": math.inf}, {"timeout": "5"}, {"attempts": 1.5}, {"attempts": math.nan}):
        with pytest.raises(ValueError):
            doubtful.using(**change)


def _traced(function: Callable[..., object]) -> Callable[..., object]:
    """A decorator as they are written: nobody can see any more that `function` is async."""

    @functools.wraps(function)
    def traced(*args: object, **kwargs: object) -> object:
        return function(*args, **kwargs)

    return traced


class _Sender:
    def __init__(self, sent: list[str]) -> None:
        self.sent = sent

    async def __call__(self, op: Operation) -> Receipt:
        """Send."""
        self.sent.append(op.key)
        return Receipt(resource_id="r1")

    def pages(self, op: Operation) -> object:
        """Send, and yield."""
        return (f"{op.key} {number}" for number in range(3) if not self.sent)


@pytest.mark.parametrize("hidden", ["a decorator", "an object"])
async def test_a_call_that_hides_that_it_is_async_is_made(url: str, hidden: str) -> None:
    sent: list[str] = []
    sender = _Sender(sent)
    send = tool(effect=effects.opaque, name="send")(_traced(sender.__call__) if hidden == "a decorator" else sender)
    async with Surefoot(url) as sf:
        receipt = await sf.perform(send.call(), key="1", timeout=10)
    assert isinstance(receipt, Receipt) and receipt.resource_id == "r1"
    assert sent == ["send:1"]


async def test_a_hidden_async_call_is_bounded_by_its_time_out(url: str) -> None:
    ended: list[str] = []

    async def hang() -> None:
        """Never answer."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("told to stop")

    async with Surefoot(url) as sf:
        await _unknown(sf, tool(effect=effects.opaque, timeout=0.1)(_traced(hang)).call())
        assert ended == ["told to stop"]


async def test_a_generator_that_was_returned_is_no_success(url: str) -> None:
    sent: list[str] = []
    async with Surefoot(url) as sf:
        await _unknown(sf, tool(effect=effects.opaque)(_Sender(sent).pages).call())
        with pytest.raises(PerformFailed) as failed:
            await sf.perform(tool(effect=effects.read, name="read")(_Sender(sent).pages).call(), timeout=10)
    assert failed.value.details["error_code"] == "tool_error" and not sent


async def _find_by_key(op: Operation) -> Absent | Found:
    return Found(Receipt(resource_id=op.key))


async def test_a_look_needs_only_the_arguments_that_it_names() -> None:
    @tool(effect=effects.lookup(_find_by_key))
    async def changed(y: int) -> Receipt:
        """Take another parameter than before."""
        return Receipt()

    look = changed.make_lookup(_operation(), {"x": 1})
    found = await look()  # type: ignore[misc]
    assert isinstance(found, Found) and found.receipt.resource_id == "k"


def _operation() -> Operation:
    operation = object.__new__(Operation)
    operation.key = "k"
    return operation


async def test_a_failed_call_says_so(url: str) -> None:
    @tool(effect=effects.opaque)
    async def refused() -> NoReturn:
        """Refuse for good."""
        raise effects.Refused("no")

    async with Surefoot(url) as sf:
        with pytest.raises(PerformFailed):
            await sf.perform(refused.call(), timeout=10)
