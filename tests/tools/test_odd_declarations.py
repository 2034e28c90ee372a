"""Names, texts and numbers of a declaration that are none: refused where it is written, or written down so that it can
be read again."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum

import pytest

from surefoot import Agent, Approval, Operation, Receipt, Surefoot, Tool, effects, tool
from surefoot.core.throttle import Throttle
from surefoot.doctor import examine
from surefoot.testing.model import FakeModel

Make = Callable[[object], object]


class Word(str):
    """A text of a program's own kind."""


class Named(StrEnum):
    """Names of a program's own."""

    one = "one"


class Number(float):
    """As those of numpy: a float, and of another kind."""


def _tool(**changes: object) -> Tool:
    @tool(effect=effects.opaque)
    async def act(op: Operation) -> Receipt:
        """Act."""
        return Receipt(resource_id="1")

    return act.using(**changes)  # type: ignore[arg-type]  # what users do


def _agent(*tools: Tool, **changes: object) -> Agent:
    return Agent("actor", FakeModel([[("act", {})], "done"]), tools=tools or (_tool(),), **changes)  # type: ignore[arg-type]


_REFUSED: dict[str, tuple[Make, tuple[object, ...]]] = {
    "Agent(version)": (lambda v: _agent(version=v), (None, 1, 1.0, b"1", "", " ", "a\x00b", "a\ud800", "v" * 1_001)),
    "Agent(instructions)": (lambda v: _agent(instructions=v), (None, 1, b"x", ["a"])),
    "Agent(turns)": (lambda v: _agent(turns=v), (None, True, 1.5, "3", 0)),
    "tool(version)": (lambda v: _tool(version=v), (None, 1, "a\x00b", "a\ud800", "v" * 1_001)),
    "tool(description)": (lambda v: _tool(description=v), (1, b"x")),
    "tool(credential)": (lambda v: _tool(credential=v), (1, b"x", "a\x00b", "a\ud800")),
    "tool(timeout)": (lambda v: _tool(timeout=v), (None, True, "5", math.nan, math.inf, 0, -1)),
    "tool(attempts)": (lambda v: _tool(attempts=v), (None, True, 2.5, 0)),
    "tool(starts_programs)": (lambda v: _tool(starts_programs=v), (None, 1, "yes")),
    "tool(display)": (lambda v: _tool(display={"doing": {"en": v}}), (None, 1, b"x")),
    "Approval(permission)": (lambda v: Approval(permission=v), (1, 1.5, b"x", ["a"], "", "a\x00b", "a\ud800")),  # type: ignore[arg-type]
    "Throttle(name)": (lambda v: Throttle(at_once=1, name=v), (1, b"x", ["a"], " ", "a\x00b", "a\ud800", "v" * 501)),  # type: ignore[arg-type]
    "Throttle(rate)": (lambda v: Throttle(rate=v), (10**30, 1e300, "5", True)),  # type: ignore[arg-type]
    "Throttle(burst)": (lambda v: Throttle(rate=1.0, burst=v), (10**30, True)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("make", "value"), [(make, v) for make, values in _REFUSED.values() for v in values])
def test_what_could_not_be_kept_is_refused_where_it_is_written(make: Make, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        make(value)


_TAKEN: dict[str, Callable[[], Agent]] = {
    "own texts": lambda: _agent(_tool(version=Word("2"), credential=Named.one), version=Word("3")),
    "own name": lambda: Agent(Word("actor"), FakeModel([[("act", {})], "done"]), Word("Act."), [_tool()]),
    "own numbers": lambda: _agent(_tool(timeout=Number(5.0)), seconds=Number(60.0), dollars=Number(1.0)),
    "own settle": lambda: _agent(_tool(effect=effects.lookup(lambda op: None, settle=Number(5.0)))),  # type: ignore[arg-type, return-value]
    "own key lifetime": lambda: _agent(_tool(effect=effects.idempotent(key_lifetime=Number(5.0)))),
    "own throttle": lambda: _agent(_tool(throttle=Throttle(at_once=1, name=Word("one")))),
    "odd description": lambda: _agent(_tool(description="a\x00b\ud800"), instructions="a\x00b\ud800"),
    "odd limits": lambda: _agent(_tool(limits=lambda arguments: Word("too \ud800 much"))),
}


@pytest.mark.parametrize("name", _TAKEN)
async def test_what_is_taken_can_be_read_again(store_url: str, name: str) -> None:
    agent = _TAKEN[name]()
    async with Surefoot(store_url, [agent], worker=True) as sf:
        run = await sf.wait((await sf.start(agent, "Act.")).id, timeout=30.0)
        assert run.status == "completed"
        assert (await examine(sf.store, sf.tenant)).findings == []


@pytest.mark.parametrize("said", ["a\ud800", "a\x00b", Word("x"), {"a\ud800": Word("x")}])
async def test_what_is_asked_of_a_person_can_be_read_again(store_url: str, said: object) -> None:
    asks = _tool(approval=Approval(permission=Named.one, expires=Number(60.0)), precondition=lambda op: said)
    async with Surefoot(store_url, [_agent(asks)], worker=True) as sf:
        run = await sf.wait((await sf.start("actor", "Act.")).id, timeout=30.0)
        assert run.status == "waiting_for_user"
        await sf.approve(run.pending_actions[0].id, by="ann")
        run = await sf.wait(run.id, timeout=30.0)
        assert (run.status, len(run.steps)) == ("completed", 3), "asked once, and not of something else each time"
        assert (await examine(sf.store, sf.tenant)).findings == []
