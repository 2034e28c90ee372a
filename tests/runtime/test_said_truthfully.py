"""What is said of a call is what is known: nothing was sent, a lookup was cancelled, a drive fails again and again."""

from __future__ import annotations

import asyncio

import pytest

from surefoot import (
    Absent,
    Agent,
    Approval,
    Found,
    Operation,
    Receipt,
    Surefoot,
    Undetermined,
    effects,
    errors,
    tool,
    waiters,
)
from surefoot.doctor import examine
from surefoot.runtime import failures as failures_module
from surefoot.runtime.held import Held
from surefoot.snapshot import RunSnapshot
from surefoot.testing.model import FakeModel
from tests.support import eventually

WAIT_SECONDS = 30.0


@pytest.fixture
def url(store_url: str) -> str:
    return store_url


@tool(effect=effects.opaque)
async def later(op: Operation) -> Receipt:
    """Say that it is not the time yet."""
    raise effects.Refused("too many", retry_after=3_600)


async def test_perform_that_gives_up_before_anything_was_sent_says_so(url: str) -> None:
    async with Surefoot(url, log=lambda line: None) as sf:
        with pytest.raises(errors.WaitTimeout, match=r"nothing of it was sent.*goes on") as given_up:
            await sf.perform(later.call(), key="one", timeout=1.0)
        assert given_up.value.code == "not_sent_yet"
        details = given_up.value.details
        (step,) = (await sf.snapshot(str(details["run_id"]))).steps
        assert (step.id, step.status, step.error_code) == (details["step_id"], "pending", "refused_for_now")


async def test_a_message_to_a_performed_call_is_refused_and_the_call_is_written_down(url: str) -> None:
    said: list[str] = []

    @tool(effect=effects.opaque)
    async def chatty(op: Operation) -> Receipt:
        """Be spoken to while at work."""
        async with Surefoot(url, log=lambda line: None) as other:
            for key in (None, "k"):
                with pytest.raises(errors.NotAllowed) as refused:
                    await other.message(op.run_id, "Be quick.", key=key)
                said.append(refused.value.code)
        return Receipt(resource_id="1")

    async with Surefoot(url, log=lambda line: None) as sf:
        receipt = await sf.perform(chatty.call(), key="one", timeout=WAIT_SECONDS)
    assert receipt.resource_id == "1" and said == ["no_conversation", "no_conversation"]


@tool(effect=effects.opaque, approval=Approval())
async def gated(op: Operation) -> Receipt:
    """Wait for a person."""
    return Receipt(resource_id="1")


async def test_perform_says_at_once_that_a_person_is_needed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters, "LOOK_AGAIN_SECONDS", 3_600.0)
    async with Surefoot(url, log=lambda line: None) as sf:
        async with asyncio.timeout(WAIT_SECONDS):
            with pytest.raises(errors.ApprovalPending):
                await sf.perform(gated.call(), key="one")


def _refused_for_now(run: RunSnapshot) -> bool:
    return any(step.error_code == "refused_for_now" for step in run.steps)


async def test_a_call_that_was_refused_for_now_is_not_listed_by_cancel(url: str) -> None:
    agent = Agent("a", FakeModel([[("later", {})], "end"]), "", [later])
    async with Surefoot(url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.start("a", "go")
        await sf.wait(run.id, until=_refused_for_now, timeout=WAIT_SECONDS)
        assert await sf.cancel(run.id) == ()
        (_, step) = (await sf.snapshot(run.id)).steps
        assert (step.status, step.error_code) == ("failed", "cancelled")


async def cancelled(op: Operation) -> Found | Absent | Undetermined:
    """A lookup whose own client cancels it."""
    raise asyncio.CancelledError("the pool was closed")


@tool(effect=effects.lookup(cancelled, settle=0.1), timeout=5)
async def doubtful(op: Operation) -> Receipt:
    """In doubt."""
    raise effects.InDoubt("no answer")


async def test_a_lookup_that_is_cancelled_is_not_called_a_time_out(url: str) -> None:
    async with Surefoot(url, log=lambda line: None) as sf:
        with pytest.raises(errors.OutcomeUnknown) as unknown:
            await sf.perform(doubtful.call(), key="one", timeout=3.0)
        (step,) = (await sf.snapshot(str(unknown.value.details["run_id"]))).steps
        (line, *_) = step.evidence
        assert line.verdict == "undetermined" and line.reason is not None
        assert "CancelledError: the pool was closed" in line.reason and "in time" not in line.reason


async def test_a_run_whose_drive_fails_again_and_again_says_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drives = 0

    async def broken(held: Held, step: object) -> list[str]:
        nonlocal drives
        drives += 1
        raise RuntimeError("a bug")

    monkeypatch.setattr(failures_module, "FAILURE_PAUSE_SECONDS_MAX", 0.05)
    agent = Agent("a", FakeModel([[("doubtful", {})], "end"]), "", [doubtful])
    lines: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr("surefoot.runtime.drive.settle_step", broken)
        async with Surefoot(url, [agent], worker=True, log=lines.append) as sf:
            run = await sf.start("a", "go")
            await eventually(lambda: "see surefoot doctor" in "\n".join(lines))
            blocked = await sf.snapshot(run.id)
            assert (blocked.status, blocked.error_code) == ("reconciling", "drive_failed")
            assert drives == failures_module.DRIVES_FAILED_MAX
            (finding,) = (await examine(sf.store, sf.tenant)).findings
            assert (finding.code, finding.run_id) == ("blocked", run.id)
            assert "drive_failed" in finding.text and "log" in finding.next
            with pytest.raises(errors.WaitTimeout):
                await sf.wait(run.id, until=lambda s: s.version > blocked.version, timeout=1.0)
            assert drives == failures_module.DRIVES_FAILED_MAX, "nobody tries it any more"
    async with Surefoot(url, [agent], worker=True, log=lines.append) as sf:  # mended
        run = await sf.wait(run.id, until=lambda s: bool(s.steps[-1].evidence), timeout=WAIT_SECONDS)
        assert run.error_code is None and (await examine(sf.store, sf.tenant)).findings == []


@tool(effect=effects.opaque)
async def silent(op: Operation) -> Receipt:
    """Never learn what became of it."""
    raise effects.InDoubt("no answer")


async def test_what_was_given_up_is_open_for_later_evidence_and_says_so(url: str) -> None:
    agent = Agent("a", FakeModel([[("silent", {})], "end"]), "", [silent])
    async with Surefoot(url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start("a", "go")).id, timeout=WAIT_SECONDS)
        (question,) = run.pending_actions
        await sf.resolve(question.id, "give_up", by="ann")
        run = await sf.wait(run.id, timeout=WAIT_SECONDS)
        step = run.steps[1]
        assert (run.status, step.status, step.resolution) == ("completed", "outcome_unknown", "given_up")
        with pytest.raises(errors.AlreadyDecided, match=r"give_up by ann.*report.*operation key") as late:
            await sf.resolve(question.id, "happened", by="bob", external_resource_id="r1")
        assert late.value.details["decision"] == "give_up" and step.id in str(late.value)
        assert step.operation_key is not None
        assert await sf.report(step.operation_key, Found(Receipt(resource_id="r1"), coverage="the bank's statement"))
        step = (await sf.snapshot(run.id)).steps[1]
        assert (step.status, step.external_resource_id, step.evidence[-1].source) == ("succeeded", "r1", "report")
        notes = [message for message in await sf.messages(run.id) if message.role == "note"]
        assert len([m for m in await sf.messages(run.id) if m.role == "tool_result"]) == 1, notes
