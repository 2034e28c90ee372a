"""Values: C046 to C051."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import os
from collections.abc import Callable

import msgspec
import pytest

from surefoot import Approval, Operation, Receipt, Surefoot, effects, http, tool
from surefoot.agent.model import ToolResultMessage, UserMessage
from surefoot.agent.tools import Tool
from surefoot.snapshot import RunSnapshot
from surefoot.testing.world import TOKEN
from tests.cases.rig import NUMBER, READ, REPO, Hand, Live, Script, Sim, calls_of, ended, object_of, read_pull, story

SECONDS = 20
BIG = 2512292042121000001


async def send(op: Operation, text: str) -> str:
    """The effect: one message, with the key."""
    async with http.client(op, base_url="https://bell.example") as client:
        headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": op.key}
        reply = await client.post("/mail/messages", json={"to": "x", "text": text}, headers=headers)
    return str(object_of(reply)["id"])


def returning(make: Callable[[], object]) -> Tool:
    """A tool with an effect that returns something awkward."""

    @tool(name="act", effect=effects.opaque, timeout=15)
    async def act(op: Operation) -> Receipt:
        """Act."""
        return Receipt(resource_id=await send(op, "act"), output=make())

    return act


async def run_of(sim: Sim, sf: Surefoot, text: str = "Act.") -> RunSnapshot:
    """The run's end: the effect was recorded, the call was made once, the model got its result."""
    run = await sf.wait((await sf.start("reviewer", text)).id)
    (step,) = calls_of(run)
    assert (run.status, step.status, step.attempt) == ("completed", "succeeded", 1)
    (effect,) = sim.ours(step.operation_key)
    assert step.external_resource_id == str(effect.resource_id) and len(sim.posts()) == 1
    return run


def output_of(run: RunSnapshot) -> object:
    """What is kept of the result, as people see it."""
    shown = calls_of(run)[0].output
    assert isinstance(shown, dict)
    return shown["output"]


def told(sim: Sim) -> str:
    """What the model was told of it."""
    result = sim.models[0].requests[1].messages[-1]
    assert isinstance(result, ToolResultMessage)
    result.content.encode()
    return result.content


@story
async def test_c046_nul_in_a_text_is_replaced_and_no_run_is_lost(sim: Sim) -> None:
    async with sim.surefoot(sim.agent([[("act", {})], "done"], returning(lambda: {"a\x00b": "c\x00d"}))) as sf:
        run = await run_of(sim, sf, "Read\x00this.")
        assert output_of(run) == {"a\ufffdb": "c\ufffdd"} and "\\u0000" not in told(sim)
        assert sim.models[0].requests[0].messages == (UserMessage("Read\ufffdthis."),)
        assert b"\\u0000" not in b"".join(m.body for m in await sf.messages(run.id))


@story
async def test_c046_nul_in_an_argument_is_refused_before_the_call(sim: Sim) -> None:
    """The model is told why; nothing is repaired silently."""

    @tool(effect=effects.opaque)
    async def say(op: Operation, text: str) -> Receipt:
        """Say something."""
        return Receipt(resource_id=await send(op, text))

    script: Script = [[("say", '{"text": "a\\u0000b"}')], [("say", {"text": "a b"})], "done"]
    async with sim.surefoot(sim.agent(script, say)) as sf:
        run = await sf.wait((await sf.start("reviewer", "Say it.")).id)
        refused, said = calls_of(run)
        assert (run.status, refused.error_code, said.status) == ("completed", "invalid_arguments", "succeeded")
        assert "NUL" in told(sim) or "U+0000" in told(sim)
        assert [json.loads(post.body)["text"] for post in sim.posts()] == ["a b"]


FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
FAMILIES = 14_000


@pytest.mark.parametrize("half", [False, True], ids=["whole", "with_lone_halves"])
def test_c047_a_long_output_is_cut_between_whole_characters(sim: Sim, half: bool) -> None:
    """The cut falls on every place inside an emoji and beside it: each call shifts the text by one."""

    @tool(effect=effects.read)
    async def long_text(shift: int) -> str:
        """98,000 code points of emoji, shifted."""
        return "x" * shift + FAMILY * FAMILIES + ("\ud83d" if half else "")

    @story
    async def play(sim: Sim) -> None:
        shifts = range(9)
        agent = sim.agent([[("long_text", {"shift": shift}) for shift in shifts], "done"], long_text)
        async with sim.surefoot(agent) as sf:
            run = await sf.wait((await sf.start("reviewer", "Read it.")).id)
            assert run.status == "completed"
            for shift, step in zip(shifts, calls_of(run), strict=True):
                step_text = str(step.output if isinstance(step.output, str) else content_of(step.output))
                kept, _, note = step_text.partition("\n[cut: ")
                assert note.startswith(f"{len(FAMILY) * FAMILIES + shift + half} characters")
                assert kept.startswith("x" * shift) and len(kept) > 30_000
                assert (len(kept) - shift) % len(FAMILY) == 0, "an emoji was taken apart"
                kept.encode()
            for result in sim.models[0].requests[1].messages[2:]:
                assert isinstance(result, ToolResultMessage)
                msgspec.json.decode(msgspec.json.encode(result.content))

    play(sim=sim)


def content_of(output: object) -> object:
    """A view with notes holds the output beside them."""
    assert isinstance(output, dict)
    return output["output"]


@pytest.mark.parametrize("at", range(59_996, 60_004))
def test_c047_a_long_diff_is_cut_between_whole_characters(sim: Sim, at: int) -> None:
    @story
    async def play(sim: Sim) -> None:
        head = "diff --git a/a b/a\n"
        sim.world.add_pull(REPO, NUMBER, diff=head + "+" * (at - len(head)) + "\U0001f600" * 10_000)
        async with sim.surefoot(sim.agent([[READ], "done"], read_pull)) as sf:
            run = await sf.wait((await sf.start("reviewer", "Read it.")).id)
            assert run.status == "completed"
        diff = json.loads(told(sim))["diff"]
        assert diff.encode().decode() == diff and 59_990 <= len(diff) <= 60_000

    play(sim=sim)


@story
async def test_c048_numbers_that_json_does_not_have_are_kept_in_a_form(sim: Sim) -> None:
    values = {"nan": math.nan, "inf": math.inf, "ninf": -math.inf, "zero": -0.0, "huge": float("1e400"), "int": 10**400}
    async with sim.surefoot(sim.agent([[("act", {})], "done"], returning(lambda: values))) as sf:
        run = await run_of(sim, sf)
        kept = output_of(run)
        assert isinstance(kept, dict) and kept["int"] == 10**400
        assert kept["nan"] == {"$float": "NaN"} and kept["inf"] == kept["huge"] == {"$float": "Infinity"}
        assert kept["ninf"] == {"$float": "-Infinity"} and math.copysign(1, kept["zero"]) == -1
        assert json.loads(told(sim))["output"] == kept


@tool(effect=effects.opaque, approval=Approval(), timeout=15)
async def pay(op: Operation, account: int) -> Receipt:
    """Pay into an account."""
    return Receipt(resource_id=await send_live(op, account))


async def send_live(op: Operation, account: int) -> str:
    """The same on a socket."""
    async with http.client(op, base_url=os.environ["GITHUB_API_URL"]) as client:
        headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": op.key}
        body = {"to": "bank", "text": f"pay {account}", "account": account}
        reply = await client.post("/mail/messages", json=body, headers=headers)
    return str(object_of(reply)["id"])


async def test_c049_all_digits_of_a_long_number_arrive_everywhere(live: Live, hand: Hand) -> None:
    script: Script = [[("pay", f'{{"account": {BIG}}}')], "done"]
    async with live.surefoot(live.agent(script, pay)) as sf:
        run = await sf.wait((await sf.start("reviewer", "Pay.")).id, timeout=SECONDS)
        (action,) = run.pending_actions
        assert calls_of(run)[0].input == action.arguments == {"account": BIG}
        assert isinstance(action.preview, dict) and action.preview["arguments"] == {"account": BIG}
        for words in (["actions", "list"], ["actions", "show", action.id], ["runs", "show", run.id, "--messages"]):
            document = json.dumps(await live.shell(*words))
            assert str(BIG) in document and str(BIG + 1) not in document and str(int(float(BIG))) not in document
        await hand.approve(action.id, "--hash", action.input_hash)
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
        (post,) = live.posts()
        assert run.status == "completed" and json.loads(post.body)["account"] == BIG and f"pay {BIG}" in post.body
        assert str(BIG) in str((await sf.messages(run.id))[1].body)


@pytest.mark.parametrize(
    ("written", "runs"), [("", True), (" ", True), ("null", True), ("{}", True), ("[]", False), ('"x"', False)]
)
def test_c050_arguments_of_a_tool_without_parameters(sim: Sim, written: str, runs: bool) -> None:
    @story
    async def play(sim: Sim) -> None:
        agent = sim.agent([[("act", written)], "done"], returning(lambda: "acted"))
        async with sim.surefoot(agent) as sf:
            run = await sf.wait((await sf.start("reviewer", "Act.")).id)
        (step,) = calls_of(run)
        assert run.status == "completed" and len(sim.posts()) == int(runs)
        result = sim.models[0].requests[1].messages[-1]
        assert isinstance(result, ToolResultMessage) and result.is_error != runs
        if runs:
            assert (step.status, step.input) == ("succeeded", {})
        else:
            assert step.error_code == "invalid_arguments" and "object" in result.content

    play(sim=sim)


class Credential:
    """Its repr must not be kept."""

    def __repr__(self) -> str:
        return "CANARY-repr"


@story
async def test_c051_results_that_are_no_json_are_converted_or_replaced_by_a_note(sim: Sim) -> None:
    zone = datetime.timezone(datetime.timedelta(hours=9))
    values = {
        "bytes": b"\x00\xff",
        "when": datetime.datetime(2027, 1, 1, 12, tzinfo=zone),
        "price": decimal.Decimal("12.10"),
        "names": {"b", "a"},
        "object": Credential(),
    }
    async with sim.surefoot(sim.agent([[("act", {})], "done"], returning(lambda: values))) as sf:
        run = await run_of(sim, sf)
        assert output_of(run) == {
            "bytes": {"$bytes": "AP8="},
            "when": "2027-01-01T12:00:00+09:00",
            "price": {"$decimal": "12.10"},
            "names": ["a", "b"],
            "object": {"$unserialisable": f"{__name__}.Credential"},
        }
        assert json.loads(told(sim))["output"] == output_of(run) and "CANARY" not in told(sim)


@story
async def test_c051_a_result_that_breaks_when_it_is_read_does_not_repeat_the_call(sim: Sim) -> None:
    class Broken(dict[str, object]):
        def items(self) -> object:  # type: ignore[override]  # that is what is broken
            raise RuntimeError("not to be read")

    class Property:
        def model_dump(self) -> object:
            raise RuntimeError("not to be read")

    def values() -> object:
        cycle: list[object] = []
        cycle.append(cycle)
        return [Broken(a=1), Property(), cycle, (n for n in range(3)), lambda: 1]

    async with sim.surefoot(sim.agent([[("act", {})], "done"], returning(values))) as sf:
        kept = output_of(await run_of(sim, sf))
        assert isinstance(kept, list) and len(kept) == 5
        assert kept[0] == {"a": 1} and "$cut" in str(kept[2])
        assert all("$unserialisable" in str(kept[place]) for place in (1, 3, 4))
