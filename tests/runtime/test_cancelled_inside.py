"""User code that ends by a CancelledError of its own, though nobody told it to stop: a pool that was closed, say; or by
what ends a process.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from surefoot import Agent, Approval, Found, Operation, Receipt, Surefoot, ToolCall, effects, tool
from surefoot.agent import undoing
from surefoot.agent.model import ModelRequest
from surefoot.snapshot import RunSnapshot
from surefoot.testing.model import FakeModel
from tests.cases.rig import ended
from tests.support import eventually

SECONDS = 20
ODD = [asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit]


def moved(run: RunSnapshot) -> bool:
    return ended(run) or bool(run.pending_actions)


@pytest.mark.parametrize("odd", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
async def test_a_model_that_is_stopped_from_inside_is_asked_again(store_url: str, odd: type[BaseException]) -> None:
    asked: list[int] = []

    async def answer(request: ModelRequest) -> str:
        asked.append(len(asked))
        if len(asked) == 1:
            raise odd
        return "Done."

    agent = Agent("clerk", FakeModel([answer, answer], by="call"))
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Go.")).id, until=moved, timeout=SECONDS)
    assert (run.status, len(asked)) == ("completed", 2)


@pytest.mark.parametrize("odd", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
async def test_an_account_that_is_stopped_from_inside_is_not_known_yet(
    store_url: str, odd: type[BaseException]
) -> None:
    asked, lines = list[int](), list[str]()

    async def whose(op: Operation) -> str:
        asked.append(len(asked))
        if len(asked) == 1:
            raise odd
        return "ann"

    @tool(effect=effects.opaque, account=whose, credential="TOKEN")
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        return Receipt(resource_id="p-1")

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, log=lines.append) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, until=moved, timeout=SECONDS)
    assert (run.status, len(asked)) == ("completed", 2)
    assert [line for line in lines if "the account is not known yet" in line]


@pytest.mark.parametrize("odd", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
async def test_a_precondition_that_is_stopped_from_inside_is_unreadable(
    store_url: str, odd: type[BaseException]
) -> None:
    async def holds(op: Operation) -> str:
        raise odd

    @tool(effect=effects.opaque, approval="always", precondition=holds)
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        return Receipt(resource_id="p-1")

    agent = Agent("clerk", FakeModel([[("pay", {})], "Paid."]), tools=[pay])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, until=moved, timeout=SECONDS)
    (asked,) = run.pending_actions
    assert "unreadable" in str(asked.preview)


class Declared:
    """What a declaration may ask, each by a function that ends what calls it."""

    def __init__(self, odd: type[BaseException]) -> None:
        self.odd = odd
        self.paid = list[str]()

    def limits(self, arguments: object) -> str | None:
        raise self.odd

    def prepare(self, arguments: object) -> dict[str, object]:
        raise self.odd

    def key(self) -> str:
        raise self.odd

    def when(self) -> bool:
        raise self.odd

    def target(self, arguments: object) -> str:
        raise self.odd

    async def run(self, store_url: str, **more: object) -> RunSnapshot:
        """A run whose model wants to pay once, with a tool that is declared with `more`."""

        @tool(effect=effects.opaque)
        async def pay(op: Operation) -> Receipt:
            """Pay."""
            self.paid.append(op.step_id)
            return Receipt(resource_id="p-1")

        declared = pay.using(**more)  # type: ignore[arg-type]  # functions of the right kinds, by their names
        agent = Agent("clerk", FakeModel([[("pay", {})], "Done."], by="call"), tools=[declared])
        async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
            return await sf.wait((await sf.start(agent, "Pay.")).id, until=moved, timeout=SECONDS)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("asked", ["limits", "prepare", "key"])
async def test_what_judges_arguments_and_ends_what_calls_it_refuses_the_call(
    store_url: str, asked: str, odd: type[BaseException]
) -> None:
    declared = Declared(odd)
    run = await declared.run(store_url, **{asked: getattr(declared, asked)})
    assert (run.status, run.steps[1].status, declared.paid) == ("completed", "failed", [])


@pytest.mark.parametrize("odd", ODD)
async def test_a_condition_that_ends_what_calls_it_means_that_a_person_is_asked(
    store_url: str, odd: type[BaseException]
) -> None:
    declared = Declared(odd)
    run = await declared.run(store_url, approval=Approval(when=declared.when))
    (asked,) = run.pending_actions
    assert (asked.kind, declared.paid) == ("approve", [])


@pytest.mark.parametrize("odd", ODD)
async def test_a_target_that_ends_what_calls_it_is_not_told(store_url: str, odd: type[BaseException]) -> None:
    declared = Declared(odd)
    run = await declared.run(store_url, target=declared.target)
    assert (run.status, len(declared.paid)) == ("completed", 1)


@pytest.mark.parametrize("odd", ODD)
async def test_a_type_whose_check_ends_what_calls_it_refuses_the_arguments(
    store_url: str, odd: type[BaseException]
) -> None:
    @dataclass
    class Amount:
        cents: int

        def __post_init__(self) -> None:
            if self.cents < 0:
                raise odd

    paid = list[int]()

    @tool(effect=effects.opaque)
    async def pay(amount: Amount) -> Receipt:
        """Pay."""
        paid.append(amount.cents)
        return Receipt(resource_id="p-1")

    results = [[("final_result", {"cents": cents})] for cents in (-2, 3)]
    answers = FakeModel([[("pay", {"amount": {"cents": -1}})], *results], by="call")
    agent = Agent("clerk", answers, tools=[pay], output=Amount)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, until=moved, timeout=SECONDS)
    assert (run.status, run.result, paid) == ("completed", {"cents": 3}, [])
    assert [step.status for step in run.steps if step.tool_name == "pay"] == ["failed"]


@pytest.mark.parametrize("odd", ODD)
async def test_a_result_whose_pydantic_check_ends_what_calls_it_is_refused(
    store_url: str, odd: type[BaseException]
) -> None:
    class Amount:
        """As much of a pydantic model as is used of one."""

        def __init__(self, given: dict[str, object]) -> None:
            self.given = given

        @classmethod
        def model_json_schema(cls) -> dict[str, object]:
            return {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}

        @classmethod
        def model_validate(cls, given: dict[str, object]) -> Amount:
            if given["cents"] == -2:
                raise odd
            return cls(given)

        def model_dump(self, *, mode: str) -> object:
            return self.given

    answers = [[("final_result", {"cents": cents})] for cents in (-2, 3)]
    agent = Agent("clerk", FakeModel(answers, by="call"), output=Amount)
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start(agent, "Pay.")).id, until=moved, timeout=SECONDS)
    assert (run.status, run.result) == ("completed", {"cents": 3})


@pytest.mark.parametrize("odd", ODD)
async def test_a_compensation_that_ends_what_calls_it_is_tried_again(
    store_url: str, odd: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undoing, "LOOK_SECONDS", 0.05)
    asked, undone = list[str](), list[str]()

    @tool(effect=effects.opaque)
    async def refund(charge_id: str) -> Receipt:
        """Give it back."""
        undone.append(charge_id)
        return Receipt(resource_id="r-1")

    def undo(receipt: Receipt) -> ToolCall:
        asked.append(str(receipt.resource_id))
        if len(asked) < 3:
            raise odd
        return refund.call(charge_id=str(receipt.resource_id))

    @tool(effect=effects.opaque, compensate=undo)
    async def charge() -> Receipt:
        """Charge a card."""
        return Receipt(resource_id="c1")

    async with Surefoot(store_url, tools=[charge, refund], worker=True, log=lambda line: None) as sf:
        await sf.perform(charge.call(), key="81")
        await sf.report("charge:81", Found(Receipt(resource_id="c2")))
        (question,) = await sf.actions(status="waiting")
        row = await sf.approve(question.action.id, by="ann")
        assert row.action.decision == "approve"
        await eventually(lambda: undone == ["c2"])


@pytest.mark.parametrize("odd", ODD[:3])
async def test_a_log_and_a_model_that_end_what_calls_them_keep_nothing_from_its_end(
    store_url: str, odd: type[BaseException]
) -> None:
    """A line of the log ended the driver, and a closing that failed left a second model open."""
    closed: list[str] = []

    class Kept(FakeModel):
        async def aclose(self) -> None:
            closed.append(self.name)
            raise odd

    def log(line: str) -> None:
        raise odd

    async def answer(request: ModelRequest) -> str:
        if len(asked) < 2:
            asked.append(len(asked))
            raise ValueError("it says so in a line of the log")
        return "Done."

    asked: list[int] = []
    agents = [Agent(name, Kept([answer, answer, answer], by="call")) for name in ("one", "two")]
    async with Surefoot(store_url, agents, worker=True, log=log) as sf:
        for agent in agents:
            run = await sf.wait((await sf.start(agent, "Go.")).id, until=moved, timeout=SECONDS)
            assert run.status == "completed"
    assert len(closed) == 2
