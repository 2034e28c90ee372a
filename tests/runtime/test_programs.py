"""What a program gives to Surefoot and to an agent: what could not work is refused at once, and says what to give."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from surefoot import Absent, Agent, Operation, Receipt, Surefoot, effects, tool, wait_for_signal
from surefoot.agent import starting
from surefoot.doctor import examine
from surefoot.errors import InvalidInput, NotAllowed, NotFound, WaitTimeout
from surefoot.testing import FakeModel


@tool(effect=effects.opaque)
async def send(op: Operation) -> Receipt:
    """Send something."""
    return Receipt(resource_id="1")


def _untouched() -> None:
    """A function, and no tool."""


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lease_seconds": 0}, "lease_seconds is 0: give seconds, at least 1"),
        ({"lease_seconds": math.nan}, "lease_seconds is nan"),
        ({"lease_seconds": math.inf}, "lease_seconds is inf"),
        ({"lease_seconds": "30"}, "lease_seconds is '30'"),
        ({"capacity": 0}, "capacity is 0"),
        ({"capacity": 1.5}, "capacity is 1.5"),
        ({"tenant": " "}, "tenant is a text that is not empty"),
        ({"throttle": "rate=1"}, r"give Throttle\(rate="),
        ({"log": None}, "log is None: give a function"),
        ({"store": None}, "store is a URL such as sqlite:///app.db, not None"),
        ({"agents": ["clerk"]}, r"'clerk' is no agent: give Agent\("),
        ({"agents": Agent("clerk", "openai:gpt-5")}, r"agents is a list, such as \[reviewer\], not one Agent"),
        ({"tools": send}, r"tools is a list, such as \[charge\], not one Tool"),
        ({"tools": [_untouched]}, r"is no tool; write @tool\(effect="),
    ],
)
def test_a_setting_that_could_not_work_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        Surefoot(**{"store": "sqlite:///never.db", **given})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"turns": 0}, "turns is a whole number, at least 1, not 0"),
        ({"turns": "40"}, "turns is a whole number, at least 1, not '40'"),
        ({"tokens": 0}, "tokens is a whole number"),
        ({"tokens": math.nan}, "tokens is a whole number"),
        ({"history_tokens": 1}, "history_tokens is a whole number, at least 200"),
        ({"seconds": math.nan}, "seconds is a positive number, or left out for no bound, not nan"),
        ({"seconds": math.inf}, "seconds is a positive number"),
        ({"dollars": -1}, "dollars is a positive number"),
        ({"model_timeout": 0}, "model_timeout is a positive number of seconds, not 0"),
        ({"model_timeout": math.inf}, "model_timeout is a positive number of seconds"),
        ({"model": None}, r"a model is a name such as .*, not None"),
        ({"model": " "}, "' ' is no model name"),
        ({"model": "gpt-5"}, "'gpt-5' is no model name; write provider and model with a colon"),
        ({"model": ["openai:gpt-5", ":gpt-5"]}, "':gpt-5' is no model name"),
        ({"model": SimpleNamespace(complete=print)}, "a model is a name such as .*, not SimpleNamespace"),
        ({"model": SimpleNamespace(complete=print, name=5)}, "a model is a name such as .*, not SimpleNamespace"),
        ({"model": ["openai:gpt-5", 5]}, "a model is a name"),
        ({"model": []}, "at least one model"),
        ({"tools": [_untouched]}, r"agent 'clerk': '_untouched' is no tool; write @tool\(effect="),
        ({"tools": [SimpleNamespace(key="sk-1")]}, "agent 'clerk': an object of type SimpleNamespace is no tool"),
    ],
)
def test_an_agent_that_could_not_work_is_refused(given: dict[str, Any], says: str) -> None:
    """A budget of NaN would bound nothing, and say nothing."""
    with pytest.raises((TypeError, ValueError), match=says):
        Agent(**{"name": "clerk", "model": FakeModel([]), **given})


async def test_what_is_no_call_and_nobody_are_refused(store_url: str) -> None:
    async with Surefoot(store_url) as sf:
        with pytest.raises(InvalidInput, match=r"perform takes a call, such as charge\.call\("):
            await sf.perform(send, key="1")  # type: ignore[arg-type]  # what users do
        with pytest.raises(InvalidInput, match="by is a text"):
            await sf.approve("act_1", by=None)  # type: ignore[arg-type]  # what users do
        with pytest.raises(InvalidInput, match=r"status is one of waiting, .*, not 'wating'"):
            await sf.actions(status="wating")


async def test_a_known_secret_is_no_key(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key stands in every row of the call, and goes out to the target."""
    monkeypatch.setenv("GITHUB_TOKEN", "a-token-that-is-known")
    async with Surefoot(store_url) as sf:
        with pytest.raises(InvalidInput, match="holds the secret GITHUB_TOKEN"):
            await sf.perform(send.call(), key="invoice a-token-that-is-known")
        assert not await sf.store.run_ids(sf.tenant)


async def test_a_secret_that_a_tool_declares_is_known_before_its_first_call(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool(effect=effects.opaque, credential="PAY_TOKEN_OF_OURS")
    async def pay(op: Operation) -> Receipt:
        """Pay."""
        return Receipt(resource_id=op.secret("PAY_TOKEN_OF_OURS"))

    monkeypatch.setenv("PAY_TOKEN_OF_OURS", "pay-token-of-ours")
    agent = Agent("clerk", FakeModel(["It is pay-token-of-ours."]), "", [pay])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start("clerk", "Is pay-token-of-ours right?")).id)
        said = [message.body for message in await sf.messages(run.id)]
    assert run.result == {"text": "It is [redacted:PAY_TOKEN_OF_OURS]."}
    assert len(said) == 2 and not any(b"pay-token-of-ours" in body for body in said)


@pytest.mark.sqlite_only("the store is a file")
async def test_a_store_has_one_keyring_by_whatever_name_it_is_reached(tmp_path: Path) -> None:
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "link.db").symlink_to("../real.db")
    for name in ("real.db", "aside/link.db"):
        async with Surefoot(f"sqlite:///{tmp_path}/{name}"):
            pass
    assert [path.name for path in tmp_path.rglob("*.secret")] == ["real.db.secret"]


async def test_what_a_run_waits_for_is_named(store_url: str) -> None:
    @tool(effect=effects.opaque, approval="always")
    async def ask(op: Operation) -> Receipt:
        """Do what a person allows."""
        return Receipt(resource_id="1")

    agent = Agent("clerk", FakeModel([[("ask", {})], "Done."]), "", [ask])
    async with Surefoot(store_url, [agent], worker=True, log=lambda line: None) as sf:
        run = await sf.wait((await sf.start("clerk", "Go.")).id)
        question = run.pending_actions[0].id
        with pytest.raises(NotAllowed, match=f"it goes on when {question} is answered"):
            await sf.retry(run.id)
        await sf.approve(question, by="ann")
        await sf.wait(run.id)
        with pytest.raises(WaitTimeout, match="is completed; what was waited for did not come before its end"):
            await sf.wait(run.id, until=lambda snapshot: False, timeout=0)


@pytest.mark.parametrize(("until", "comes"), [("completed", "completed"), ("waiting_for_user", "completed")])
async def test_a_status_is_waited_for_and_an_end_ends_that(store_url: str, until: str, comes: str) -> None:
    clerk = Agent("clerk", FakeModel(["Done."]))
    async with Surefoot(store_url, [clerk], worker=True, secret="k" * 32) as sf:
        run = await sf.start(clerk, "Do it.")
        assert (await sf.wait(run.id, until=until, timeout=20)).status == comes


async def test_a_status_is_waited_for_past_a_question(store_url: str) -> None:
    clerk = Agent("clerk", FakeModel([[("send", {})], "Sent."]), tools=[send.using(approval="always")])
    async with Surefoot(store_url, [clerk], worker=True, secret="k" * 32) as sf:
        run = await sf.start(clerk, "Send it.")
        asked = await sf.wait(run.id, until="waiting_for_user", timeout=20)
        waiting = asyncio.create_task(sf.wait(run.id, until="completed", timeout=20))
        await sf.approve(asked.pending_actions[0].id, by="anna")
        assert (await waiting).status == "completed"


@pytest.mark.parametrize("until", ["complete", "", 5, ["completed"]])
async def test_what_is_neither_a_status_nor_a_function_is_not_waited_for(store_url: str, until: Any) -> None:
    clerk = Agent("clerk", FakeModel(["Done."]))
    async with Surefoot(store_url, [clerk], secret="k" * 32) as sf:
        run = await sf.start(clerk, "Do it.")
        with pytest.raises(InvalidInput, match="status"):
            await sf.wait(run.id, until=until, timeout=20)


@pytest.mark.parametrize("timeout", [math.nan, -1, "5", True, 10**400])
async def test_a_time_that_is_none_is_no_time_to_wait(store_url: str, timeout: Any) -> None:
    """A wait of NaN seconds kept its whole event loop busy for ever."""
    async with Surefoot(store_url, [Agent("clerk", FakeModel(["done"]))]) as sf:
        run = await sf.start("clerk", "go")
        for waiting in (sf.wait(run.id, timeout=timeout), sf.wait(run.id, lambda snapshot: False, timeout)):
            with pytest.raises(InvalidInput, match="timeout is in seconds and not negative"):
                await asyncio.wait_for(waiting, 10)
        with pytest.raises(InvalidInput, match="timeout is in seconds and not negative"):
            await sf.perform(send.call(), key="once", timeout=timeout)


@pytest.mark.parametrize("after", [math.nan, -1, "1", True, 1.5, 10**30])
async def test_events_are_asked_for_behind_a_number(store_url: str, after: Any) -> None:
    async with Surefoot(store_url, [Agent("clerk", FakeModel(["done"]))]) as sf:
        run = await sf.start("clerk", "go")
        with pytest.raises(InvalidInput, match="after is the sequence of an event"):
            await asyncio.wait_for(anext(sf.events(run.id, after)), 10)


async def test_what_is_of_another_type_is_refused_by_its_name(store_url: str) -> None:
    wrong: Any = 5
    async with Surefoot(store_url, [Agent("clerk", FakeModel(["done"]))]) as sf:
        run = await sf.start("clerk", "go")
        with pytest.raises(NotFound, match="no agent '5' here; known: clerk"):
            await sf.start(wrong, "go")
        with pytest.raises(InvalidInput, match="metadata is a mapping"):
            await sf.start("clerk", "go", metadata=wrong)
        with pytest.raises(InvalidInput, match="a signal's name is a text"):
            await sf.signal(run.id, wrong)
        with pytest.raises(InvalidInput, match="the operation key is a text"):
            await sf.report(wrong, Absent(coverage="all"))


NOBODY: list[Any] = [None, 5, b"ann", ["ann"], "", " ", "x" * 501]


@pytest.mark.parametrize("by", NOBODY)
async def test_nobody_does_nothing(store_url: str, by: Any) -> None:
    """An event that names nobody could not be read again, and with it its run."""
    waits = Agent("waits", FakeModel([[("wait_for_signal", {"name": "paid"})], "Paid."]), tools=[wait_for_signal])
    async with Surefoot(store_url, [waits], worker=True) as sf:
        run = await sf.start(waits, "go")
        ended = await sf.start(waits, "go")
        await sf.cancel(ended.id)
        acts: dict[str, Callable[[], Awaitable[object]]] = {
            "start": lambda: sf.start(waits, "go", by=by),
            "perform": lambda: sf.perform(send.call(), key="1", by=by),
            "message": lambda: sf.message(run.id, "hello", by=by),
            "signal": lambda: sf.signal(run.id, "paid", by=by),
            "retry": lambda: sf.retry(ended.id, by=by),
            "cancel": lambda: sf.cancel(run.id, by=by),
            "reject": lambda: sf.reject(run.id, by=by),
        }
        for name, act in acts.items():
            with pytest.raises(InvalidInput, match="by is a text of 1 to 500 characters, and not blank"):
                await act()
            assert (await sf.snapshot(run.id)).can_cancel, name
        assert (await examine(sf.store, sf.tenant)).findings == []


async def test_a_name_that_no_store_can_hold_is_cleaned(store_url: str) -> None:
    waits = Agent("waits", FakeModel([[("wait_for_signal", {"name": "paid"})], "Paid."]), tools=[wait_for_signal])
    async with Surefoot(store_url, [waits]) as sf:
        run = await sf.start(waits, "go", by="ann\x00")
        assert run.created_by == "ann\ufffd"
        await sf.cancel(run.id, by="bob\ud800")
        assert [e.data["by"] async for e in sf.events(run.id) if e.type == "run_cancelled"] == ["bob\ufffd"]


async def test_evidence_and_outcomes_of_another_kind_are_refused(store_url: str) -> None:
    odd: Any = 81
    async with Surefoot(store_url) as sf:
        with pytest.raises(InvalidInput, match=r"evidence is Found\(Receipt\(…\)\), .*, not int"):
            await sf.report("run_1:step_1", odd)
        with pytest.raises(InvalidInput, match="source is a text"):
            await sf.report("run_1:step_1", Absent(coverage="all"), source=odd)
        for given in ({"external_resource_id": odd}, {"url": odd}):
            with pytest.raises(InvalidInput, match=r"is (the id of|a link to) what was made"):
                await sf.resolve("act_1", "happened", by="ann", **given)
        with pytest.raises(InvalidInput, match="a reason is a text, not int"):
            await sf.reject("act_1", by="ann", reason=odd)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"metadata": {"price": math.nan}}, r"^metadata\.price is not a finite number"),
        ({"metadata": {"a": [{1: 2}]}}, r"^metadata\.a\[0\] has a key of type int"),
        ({"key": "a\x00"}, "^a key holds the character NUL"),
    ],
)
async def test_what_is_wrong_is_called_by_its_name(store_url: str, given: dict[str, Any], says: str) -> None:
    agent = Agent("talks", FakeModel(["Hello."]))
    async with Surefoot(store_url, [agent]) as sf:
        with pytest.raises(InvalidInput, match=says):
            await sf.start(agent, "go", **given)


async def test_a_run_carries_so_many_metadata_and_no_more(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row of a list carries them. What an older store holds is read, and taken up, as it stands."""
    agent = Agent("talks", FakeModel([RuntimeError("broken"), "Hello."]))
    most = {"a": "x" * (starting.METADATA_BYTES_MAX - len(b'{"a":""}'))}
    more = {"a": most["a"] + "x"}
    async with Surefoot(store_url, [agent]) as sf:
        assert (await sf.start(agent, "go", metadata=most)).metadata == most
        with pytest.raises(InvalidInput, match=r"65537 bytes as JSON.*put large things into the input") as refused:
            await sf.start(agent, "go", metadata=more)
        assert refused.value.code == "too_large"
        with monkeypatch.context() as patched:
            patched.setattr(starting, "METADATA_BYTES_MAX", 1_000_000)
            old = await sf.start(agent, "go", metadata=more, key="once")
        # Whoever asks again after an upgrade would take it for a run that was never begun.
        assert (await sf.start(agent, "go", metadata=more, key="once")).id == old.id
        await sf.cancel(old.id, by="ann")
        again = await sf.retry(old.id)
        assert (await sf.snapshot(old.id)).metadata == again.metadata == more


async def test_a_start_in_a_conversation_whose_run_ends_just_then_goes_on_behind_it(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the end had written was a conflict of ours, told to whoever started."""
    agent = Agent("talks", FakeModel(["Hello."]))
    async with Surefoot(store_url, [agent]) as sf:
        first = await sf.start(agent, "go")
        read, ended = sf.store.conversation, list[str]()

        async def ends_behind(tenant_id: str, conversation_id: str) -> tuple[int, str | None]:
            found = await read(tenant_id, conversation_id)
            if not ended:
                ended.append(first.id)
                await sf.message(first.id, "And this.")
                await sf.cancel(first.id, by="ann")
            return found

        monkeypatch.setattr(sf.store, "conversation", ends_behind)
        second = await sf.start(agent, "again", conversation_id=first.conversation_id)
        texts = [json.loads(one.body) for one in await sf.messages(second.id)]
    assert ended and second.conversation_id == first.conversation_id
    assert "again" in str(texts[-1]), texts
