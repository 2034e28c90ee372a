"""http.post: declaration, key and body, what each reply means, and what follows from the key's lifetime."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import pairwise

import msgspec
import pytest

from surefoot import effects
from surefoot.agent.tools import Tool
from surefoot.connectors import http
from surefoot.effects import Absent, Found, InDoubt, Operation, Receipt, Refused, Verdict
from surefoot.errors import InvalidInput
from surefoot.snapshot import RunSnapshot
from surefoot.testing import faults as f
from surefoot.testing.world import World
from tests.cases.rig import DAY, Script, calls_of
from tests.connectors.probes import CHARGES, charge, charging
from tests.connectors.rig import ToolSim
from tests.github.rig import Rig, virtual_rig

ARGUMENTS = {"amount_cents": 900, "customer": "C1"}
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1, "description": "In cents."},
        "currency": {"enum": ["eur", "usd"]},
        "note": {"type": "string", "maxLength": 5},
        "lines": {
            "type": "array",
            "maxItems": 2,
            "items": {"type": "object", "properties": {"x-id": {"type": "string"}}},
        },
        "split": {"type": "boolean", "default": False},
        "share": {"type": ["number", "null"]},
        "extra": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["amount", "currency", "share"],
}


def op_of(rig: Rig, key: str = "run_1:step_1", attempt: int = 1) -> Operation:
    """An operation of class idempotent."""
    op = rig.op(effect="idempotent", attempt=attempt)
    op.key = key
    return op


async def send(tool: Tool, rig: Rig, arguments: Mapping[str, object], **more: object) -> Receipt:
    """One attempt, as the runtime makes it."""
    done = tool.make_call(op_of(rig, **more), tool.check_arguments(arguments))()  # type: ignore[arg-type]  # as given
    receipt = await done  # type: ignore[misc]  # an async tool
    assert isinstance(receipt, Receipt)
    return receipt


def sent(world: World) -> list[tuple[str, object]]:
    """Keys and bodies, in order."""
    return [(r.headers["idempotency-key"], msgspec.json.decode(r.body)) for r in world.requests("POST")]


def test_the_declaration_says_it_all() -> None:
    tool = charging(approval="always")
    assert (tool.name, tool.effect.name, tool.effect.key_lifetime) == ("charge", "idempotent", DAY)
    assert tool.description == "Charge a customer." and tool.credential == "GITHUB_TOKEN"
    assert tool.parameters_schema["required"] == ["amount_cents", "customer"]
    assert tool.target_text(ARGUMENTS) == f"POST {CHARGES}" and tool.approval is not None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://api.example.com/v1/mails", "https://api.example.com/v1/mails"),
        ("https://x.example/hooks?token=CANARY7&CANARY7", "https://x.example/hooks?token=…&=… (sha256 "),
        ("https://hooks.example/services/T024/B024/xCANARY7xxxxxxxxxxxxxx", "/services/T024/B024/xCAN… (sha256 "),
        ("https://api.example/bot12345678:CANARY7xxxxxxxxx/send", "/bot1…/send (sha256 "),
        ("https://x.example/a#CANARY7", "https://x.example/a"),
    ],
)
def test_what_may_be_a_token_in_the_url_is_not_shown(url: str, shown: str) -> None:
    target = charging(url=url).target_text(ARGUMENTS)
    assert shown in target and "CANARY7" not in target
    other = charging(url=url.replace("CANARY7", "CANARY8")).target_text(ARGUMENTS)
    assert (other == target) == ("sha256" not in shown), "another URL is another target"
    assert charging(url=url, target=lambda arguments: "the shop").target_text(ARGUMENTS) == "the shop"


def test_an_endpoint_shows_neither_its_headers_nor_a_token_in_its_url() -> None:
    tool = charging(url="https://x.example/a?key=CANARY7", headers={"X-Key": "CANARY8"})
    cells = [cell.cell_contents for cell in tool.function.__closure__ or ()]
    shown = [repr(one) for one in cells if type(one).__name__ == "_Endpoint"]
    assert shown and "CANARY" not in "".join(shown) and "x.example" in shown[0]


async def test_the_function_makes_the_body_and_the_key_is_the_operations() -> None:
    rig = virtual_rig()
    receipt = await send(charging(keep={"cents": "amount"}), rig, ARGUMENTS)
    assert sent(rig.world) == [("run_1:step_1", {"amount": 900, "customer": "C1"})]
    assert receipt.output == {"cents": 900} and str(receipt.resource_id).isdecimal()


async def test_a_body_that_cannot_be_made_is_no_doubt() -> None:
    rig = virtual_rig()

    def broken(amount_cents: int, customer: str) -> dict[str, object]:
        return {"customer": ARGUMENTS["CANARY7"]}

    def odd(amount_cents: int, customer: str) -> object:
        return {"customer": object()}

    def picky(amount_cents: int, customer: str) -> object:
        raise Refused("no such customer")

    for function, text in ((broken, "KeyError"), (odd, "TypeError"), (picky, "no such customer")):
        tool = http.post("charge", url=CHARGES, parameters=function, key_lifetime=DAY)
        with pytest.raises(Refused, match=text) as refused:
            await send(tool, rig, ARGUMENTS)
        assert "CANARY" not in str(refused.value)
    assert rig.world.requests() == []


async def test_the_same_key_is_the_same_receipt() -> None:
    rig = virtual_rig()
    first, second = await send(charging(), rig, ARGUMENTS), await send(charging(), rig, ARGUMENTS, attempt=2)
    assert first == second and len(rig.world.charges) == 1


async def test_a_schema_makes_the_body_of_the_arguments() -> None:
    rig = virtual_rig()
    tool = http.post("charge", url=CHARGES, parameters=SCHEMA, key_lifetime=DAY, credential="GITHUB_TOKEN")
    given = {"amount": 1, "currency": "eur", "share": None, "lines": [{"x-id": "a"}, {}], "extra": {"a-b": "c"}}
    await send(tool, rig, given)
    assert sent(rig.world)[0][1] == {**given, "split": False}, (
        "what was not given is left out, null that was given stays"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"amount": 0},
        {"amount": 1.5},
        {"currency": "gbp"},
        {"note": "longer"},
        {"lines": [{}, {}, {}]},
        {"lines": [{"y": 1}]},
        {"extra": {"a": 1}},
        {"other": 1},
    ],
)
def test_a_schema_is_checked(wrong: dict[str, object]) -> None:
    tool = http.post("charge", url=CHARGES, parameters=SCHEMA, key_lifetime=DAY)
    with pytest.raises(InvalidInput):
        tool.check_arguments({"amount": 1, "currency": "eur", "share": 1, **wrong})


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "array"}, "object"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "ref"),
        ({"type": "object", "properties": {"a": {"oneOf": []}}}, "oneOf"),
        ({"type": "object", "properties": {"a": {"type": "text"}}}, "text"),
        ({"type": "object", "properties": {"a": {"enum": [1.5]}}}, "enum"),
        ({"type": "object", "properties": {"a-b": {}}}, "a-b"),
        ({"type": "object", "required": ["a"]}, "required"),
        ({"type": "object", "additionalProperties": True}, "closed"),
    ],
)
def test_what_cannot_be_checked_is_refused_at_definition(schema: dict[str, object], word: str) -> None:
    with pytest.raises(TypeError, match=word):
        http.post("charge", url=CHARGES, parameters=schema, key_lifetime=DAY)


def test_other_mistakes_are_refused_at_definition() -> None:
    with pytest.raises(ValueError, match="key_lifetime"):
        charging(key_lifetime=0)
    for url in ("https://anna:secret@x.example/", "ftp://x.example/", "x.example/a", "https:///a", "http://[x/"):
        with pytest.raises(ValueError, match="url is"):
            charging(url=url)
    with pytest.raises(ValueError, match="not both"):
        charging(still_running=(422,))
    for authorization in ("Bearer abc", "Key {id}:{secret}", "{} {secret}", "{secret} {", "{secret.name}{secret}"):
        with pytest.raises(ValueError, match="secret"):
            charging(authorization=authorization)
    with pytest.raises(TypeError, match="by name"):
        http.post("charge", url=CHARGES, parameters=lambda *amounts: None, key_lifetime=DAY)


async def test_keys_that_no_header_carries_are_hashed_and_quoted_on_demand() -> None:
    rig = virtual_rig()
    for key in ("run_1:step_1", "charge:Rechnung 界", 'a"b', "x" * 256, "a\\b", "a b"):
        await send(charging(quoted=True), rig, ARGUMENTS, key=key)
    keys = [key for key, _ in sent(rig.world)]
    assert keys[0] == '"run_1:step_1"' and len(set(keys)) == 6
    assert all(key.startswith('"sha256-') and len(key) <= 257 for key in keys[1:])


REPLIES = [
    (f.StatusBefore(409), InDoubt, InDoubt),
    (f.StatusBefore(422), Refused, InDoubt),
    (f.StatusBefore(400), Refused, Refused),
    (f.StatusBefore(401), Refused, Refused),
    (f.StatusBefore(429), Refused, Refused),
    (f.StatusBefore(500), InDoubt, InDoubt),
    (f.StatusBefore(503, headers={"Retry-After": "5"}), InDoubt, InDoubt),
    (f.StatusBefore(200, body={"ok": True}), InDoubt, InDoubt),
    (f.StatusBefore(200, body={"id": ""}), InDoubt, InDoubt),
    (f.BadJson(), InDoubt, InDoubt),
    (f.EmptyBody(), InDoubt, InDoubt),
]


@pytest.mark.parametrize(("fault", "first", "later"), REPLIES)
async def test_what_a_reply_means(fault: f.AnyFault, first: type[Exception], later: type[Exception]) -> None:
    for attempt, expected in ((1, first), (2, later)):
        rig = virtual_rig()
        rig.fault(fault, path="/billing/charges")
        with pytest.raises(expected):
            await send(charging(), rig, ARGUMENTS, attempt=attempt)


async def test_a_service_that_says_it_differently() -> None:
    """Resend, for one, answers 409 to another body under a known key."""
    rig = virtual_rig()
    rig.fault(f.StatusBefore(409), path="/billing/charges")
    with pytest.raises(Refused) as refused:
        await send(charging(still_running=(), other_payload=(409,)), rig, ARGUMENTS)
    assert refused.value.status == 409


async def test_a_path_leads_to_the_id_and_none_needs_none() -> None:
    rig = virtual_rig()
    deep = {"data": [{"id": 5, "link": "https://x.example.com/5"}]}
    rig.fault(f.StatusBefore(200, body=deep), path="/billing/charges", times=2)
    receipt = await send(charging(id_path="data.0.id", url_path="data.0.link"), rig, ARGUMENTS)
    assert (receipt.resource_id, receipt.url) == ("5", "https://x.example.com/5")
    assert await send(charging(id_path=None), rig, ARGUMENTS) == Receipt()


@pytest.mark.parametrize("none", [False, True, None, "", " ", 1.5, {}, []])
async def test_what_names_nothing_is_no_id(none: object) -> None:
    rig = virtual_rig()
    rig.fault(f.StatusBefore(200, body={"id": none}), path="/billing/charges")
    with pytest.raises(InDoubt, match="without an id at id"):
        await send(charging(), rig, ARGUMENTS)


async def test_a_missing_credential_is_refused() -> None:
    rig = virtual_rig()
    with pytest.raises(Refused, match="PAY_TOKEN"):
        await send(charging(credential="PAY_TOKEN"), rig, ARGUMENTS)
    assert rig.world.requests() == []


# The key's lifetime, in whole stories


async def find_charge(op: Operation, customer: str) -> Verdict:
    """A lookup for tests: what it answers stands in `ANSWER`."""
    return ANSWER[0]


ANSWER: list[Verdict] = [Absent(coverage="everything")]


def story(sim: ToolSim, tool: Tool, *, down_seconds: float, fault: f.AnyFault) -> RunSnapshot:
    """A charge whose first reply is lost; the worker is away for a while and another one comes. What it ended in."""
    sim.world.faults.add(f.Rule(fault, path="/billing/charges"))
    ends: list[RunSnapshot] = []

    async def play() -> None:
        script: Script = [[("charge", ARGUMENTS)], "done"]
        first = sim.worker(sim.agent(script, tool), name="one")
        async with sim.surefoot(sim.agent(script, tool), worker=False) as sf:
            run = await sf.start("reviewer", "Charge them.")
            await sim.until(lambda: sim.world.requests("POST"))
            first.kill()
            await sim.pass_time(down_seconds)
            sim.worker(sim.agent(script, tool), name="two")
            ends.append(await sf.wait(run.id))

    sim.play(play)
    return ends[0]


@pytest.mark.parametrize("down_seconds", [0.0, 3_000.0])
def test_inside_the_lifetime_the_same_key_and_bytes_go_out_again(sim: ToolSim, down_seconds: float) -> None:
    run = story(sim, charging(key_lifetime=3_600), down_seconds=down_seconds, fault=f.LostReply())
    first, second = sim.world.requests("POST")
    assert (first.headers["idempotency-key"], first.body) == (second.headers["idempotency-key"], second.body)
    (step,) = calls_of(run)
    assert (step.status, step.attempt, len(sim.world.charges)) == ("succeeded", 2, 1)


def test_after_the_lifetime_a_person_is_asked(sim: ToolSim) -> None:
    sim.world.key_lifetime_seconds = 3_600
    run = story(sim, charging(key_lifetime=3_600), down_seconds=3_400.0, fault=f.LostReply())
    (step,) = calls_of(run)
    assert step.status == "outcome_unknown" and len(sim.world.requests("POST")) == 1, "the margin counts too"
    assert [action.kind for action in run.pending_actions] == ["resolve"]


@pytest.mark.parametrize(
    ("verdict", "requests", "resolution"),
    [(Found(Receipt(resource_id="9")), 1, "found"), (Absent(coverage="everything"), 2, None)],
)
def test_after_the_lifetime_it_is_looked_up(
    sim: ToolSim, monkeypatch: pytest.MonkeyPatch, verdict: Verdict, requests: int, resolution: str | None
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ANSWER", [verdict])
    fault = f.LostReply() if requests == 1 else f.LostRequest()
    tool = charging(key_lifetime=3_600, lookup=find_charge, settle=5.0)
    run = story(sim, tool, down_seconds=4_000.0, fault=fault)
    (step,) = calls_of(run)
    assert (step.status, step.resolution) == ("succeeded", resolution)
    assert len(sim.world.requests("POST")) == requests and len(sim.world.charges) == 1


def test_one_that_is_still_running_is_asked_again_until_it_is_done(sim: ToolSim) -> None:
    sim.world.faults.add(f.Rule(f.StatusBefore(409), path="/billing/charges", nth=2, times=3))
    run = story(sim, charging(), down_seconds=0.0, fault=f.LostReply())
    (step,) = calls_of(run)
    assert step.status == "succeeded" and len(sim.world.charges) == 1
    times = [request.at for request in sim.world.requests("POST")]
    assert len(times) == 5 and all(b - a > 0.5 for a, b in pairwise(times[1:])), "with back-off"


def test_declared_by_hand_it_is_an_effect_like_others() -> None:
    assert charging().effect == effects.idempotent(key_lifetime=DAY)
    assert charge(1, "C") == {"amount": 1, "customer": "C"}
