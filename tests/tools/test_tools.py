from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from surefoot import effects
from surefoot.agent.tools import APPROVAL_EXPIRES_SECONDS, Approval, Tool, ToolCall, tool
from surefoot.core.marker import Keyring
from surefoot.core.throttle import Throttle
from surefoot.doors import HttpDoor
from surefoot.effects import Absent, Found, Operation, Receipt
from surefoot.errors import InvalidInput
from surefoot.signing import KeyringSigner


class NoSecrets:
    def get(self, name: str) -> str | None:
        return None


class NoDoor:
    def transport(self, op: Operation) -> object:
        raise AssertionError("nothing is sent here")


def operation(key: str = "run_1:step_2", step_id: str = "step_2") -> Operation:
    door: HttpDoor = NoDoor()  # type: ignore[assignment]  # a door that nobody may go through
    return Operation(
        key=key,
        tool="send_invoice",
        run_id="run_1",
        step_id=step_id,
        call_id="call_1",
        attempt=1,
        first_sent_at=None,
        search_from=0.0,
        tenant_id="default",
        first_byte_before=1.0,
        last_byte_before=2.0,
        effect="lookup",
        looking=False,
        earlier_may_be_sent=False,
        door=door,
        signer=KeyringSigner(Keyring([b"k" * 32])),
        secrets=NoSecrets(),
    )


async def find_invoice(op: Operation, invoice_id: str, amount_cents: int) -> Found | Absent:
    return Absent(coverage=f"{op.key} {invoice_id} {amount_cents}")


@tool(
    effect=effects.lookup(find_invoice, settle=30),
    approval=Approval(permission="billing", expires=3_600),
    identity=("invoice_id",),
)
async def send_invoice(op: Operation, invoice_id: str, amount_cents: int = 900) -> Receipt:
    """Send an invoice to its customer."""
    return Receipt(resource_id=f"{op.key}/{invoice_id}/{amount_cents}")


def test_a_tool_has_what_was_declared_and_the_documented_defaults() -> None:
    assert (send_invoice.name, send_invoice.version) == ("send_invoice", "1")
    assert send_invoice.description == "Send an invoice to its customer."
    assert (send_invoice.timeout, send_invoice.attempts) == (30, 8)
    assert send_invoice.lookup is find_invoice
    assert send_invoice.effect.settle == 30
    assert effects.lookup(find_invoice).settle == 60
    assert send_invoice.approval == Approval(permission="billing", expires=3_600)
    assert Approval().expires == APPROVAL_EXPIRES_SECONDS == 7 * 24 * 3_600
    assert send_invoice.is_async


async def test_a_tool_is_called_as_its_function_and_by_stored_arguments() -> None:
    op = operation()
    assert (await send_invoice(op, "81", amount_cents=5)).resource_id == "run_1:step_2/81/5"
    made = send_invoice.make_call(op, send_invoice.check_arguments('{"invoice_id": "81"}'))()
    assert inspect.isawaitable(made)
    assert await made == Receipt(resource_id="run_1:step_2/81/900")
    looked = send_invoice.make_lookup(op, {"invoice_id": "81", "amount_cents": 7})()
    assert inspect.isawaitable(looked)
    assert await looked == Absent(coverage="run_1:step_2 81 7")


def test_call_checks_python_values_at_once() -> None:
    call = send_invoice.call(invoice_id="81", amount_cents=900)
    assert isinstance(call, ToolCall)
    assert call.tool is send_invoice
    assert call.arguments == {"invoice_id": "81", "amount_cents": 900}
    for wrong in ({"invoice_id": 81}, {"invoice": "81"}, {"invoice_id": object()}, {"invoice_id": "a\x00"}, {}):
        with pytest.raises(InvalidInput, match=r"^send_invoice: "):
            send_invoice.call(**wrong)
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidInput):
        send_invoice.call(invoice_id=loop)


def test_a_missing_effect_names_the_choices() -> None:
    async def send(x: str) -> None: ...

    makers: list[Callable[[], object]] = [
        lambda: tool(),
        lambda: tool(send),
        lambda: tool(effect=None),
        lambda: tool(approval="always"),
    ]
    for make in makers:
        with pytest.raises(TypeError) as refused:
            make()
        for choice in ("effects.read", "effects.idempotent(", "effects.lookup(", "effects.opaque"):
            assert choice in str(refused.value)
    with pytest.raises(TypeError, match="effect= is a function, not a declared effect"):
        tool(effect=effects.idempotent)  # type: ignore[arg-type]  # the point of the test


def _declared(**options: object) -> Tool:
    def sample(invoice_id: str, amount_cents: int = 1) -> str:
        return invoice_id

    made = tool(effect=options.pop("effect", effects.opaque), **options)(sample)  # type: ignore[arg-type]  # wrong on purpose
    assert isinstance(made, Tool)
    return made


def _lookup_without_operation() -> Absent:
    return Absent(coverage="")


def _lookup_of_more(op: Operation, invoice_id: str, colour: str) -> Absent:
    return Absent(coverage="")


async def _asynchronous(invoice_id: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"effect": effects.lookup(_lookup_of_more)}, "its lookup asks for 'colour', which the tool does not have"),
        ({"effect": effects.lookup(_lookup_without_operation)}, "its lookup takes the Operation"),
        ({"effect": effects.idempotent(key_lifetime=1, lookup=_lookup_of_more)}, "asks for 'colour'"),
        ({"precondition": lambda op, colour: colour}, "its precondition asks for 'colour'"),
        ({"key": lambda number: number}, "its key asks for 'number'"),
        ({"approval": Approval(when=lambda number: True)}, "when=…\\) asks for 'number'"),
        ({"approval": True}, '"never", "always" or Approval'),
        ({"identity": ("number",)}, "identity names 'number'"),
        ({"identity": "invoice_id"}, r'identity=\("invoice_id",\)'),
        ({"name": "1st"}, "a name has letters"),
        ({"name": "x" * 65}, "a name has letters"),
        ({"name": "größe"}, "a name has letters"),
        ({"timeout": 0}, "timeout is in seconds and positive"),
        ({"timeout": float("nan")}, "timeout is in seconds and positive"),
        ({"attempts": 0}, "attempts is at least 1"),
        ({"version": ""}, "version is a text"),
        ({"credential": ""}, "credential is the name of a secret"),
        ({"limits": _asynchronous}, r"limits is called in place: write it with `def`"),
        ({"prepare": _asynchronous}, r"prepare is called in place: write it with `def`"),
        ({"target": _asynchronous}, r"target is called in place: write it with `def`"),
        ({"key": _asynchronous}, r"key is called in place: write it with `def`"),
        ({"approval": Approval(when=_asynchronous)}, r"when=…\) is called in place"),  # type: ignore[arg-type]  # its point
        ({"limits": "100"}, "limits is a function"),
        ({"display": {"doing": {"zh-CN": "x"}}}, "display is"),
        ({"display": {"done": {"en": "x"}}}, "display is"),
    ],
)
def test_a_declaration_that_could_not_be_kept_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        _declared(**options)
    assert _declared().name == "sample"


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, 1e308, 10**400, True, "60"])
def test_a_time_that_no_store_could_hold_is_refused(seconds: Any) -> None:
    """One of infinity was taken, and stored as something that nobody could read: its run stood still for ever."""
    for make in (
        lambda: Approval(expires=seconds),
        lambda: effects.lookup(_lookup_of_more, settle=seconds),
        lambda: effects.idempotent(key_lifetime=seconds),
        lambda: send_invoice.using(settle=seconds),
    ):
        with pytest.raises(ValueError, match="in seconds"):
            make()
    with pytest.raises(ValueError, match="seconds and positive"):
        Approval(expires=0)
    assert effects.lookup(_lookup_of_more, settle=0).settle == 0


@pytest.mark.parametrize(
    "given", [{"rate": 10**400}, {"rate": "5"}, {"rate": True}, {"at_once": 1.5}, {"at_once": "1"}]
)
def test_a_throttle_of_no_numbers_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="rate and per are positive"):
        Throttle(**given)


def test_a_generator_or_a_tool_cannot_be_a_tool() -> None:
    def pages() -> object:
        yield 1

    with pytest.raises(TypeError, match="a generator cannot be a tool"):
        tool(effect=effects.read)(pages)
    with pytest.raises(TypeError, match="is a tool already"):
        tool(effect=effects.read)(send_invoice)


def test_using_gives_a_configured_copy() -> None:
    copy = send_invoice.using(approval="always", settle=5, timeout=15, attempts=3, identity=None, name="send")
    assert copy.approval == Approval()
    assert copy.effect == effects.lookup(find_invoice, settle=5)
    assert (copy.timeout, copy.attempts, copy.identity, copy.name) == (15, 3, None, "send")
    assert copy.using(approval="never").approval is None
    assert copy.using(effect=effects.opaque, settle=2).effect.settle == 2
    assert send_invoice.effect.settle == 30
    assert send_invoice.approval is not None
    with pytest.raises(ValueError, match="attempts"):
        send_invoice.using(attempts=0)
    with pytest.raises(ValueError, match="settle"):
        send_invoice.using(settle=-1)
    with pytest.raises(TypeError, match="cannot change colour"):
        send_invoice.using(colour="red")  # type: ignore[call-arg]  # the point of the test
    with pytest.raises(AttributeError):
        send_invoice.timeout = 1  # type: ignore[misc]  # the point of the test


def _raising(**arguments: object) -> bool:
    raise RuntimeError("secret-canary")


def test_whether_approval_is_needed() -> None:
    arguments = {"invoice_id": "81", "amount_cents": 5}
    assert not _declared().needs_approval(arguments)
    assert _declared(approval="always").needs_approval(arguments)
    gated = _declared(approval=Approval(when=lambda amount_cents: amount_cents > 4))
    assert gated.needs_approval(arguments)
    assert not gated.needs_approval({"invoice_id": "81", "amount_cents": 4})
    assert _declared(approval=Approval(when=_raising)).needs_approval(arguments)


def test_limits_come_with_a_text_before_anybody_is_asked() -> None:
    def limits(arguments: Mapping[str, object]) -> str | None:
        return "the amount is too large" if arguments["amount_cents"] == 5 else None

    limited = _declared(limits=limits)
    assert limited.refusal({"invoice_id": "81", "amount_cents": 5}) == "the amount is too large"
    assert limited.refusal({"invoice_id": "81", "amount_cents": 6}) is None
    assert _declared().refusal({"invoice_id": "81"}) is None
    assert (
        _declared(limits=lambda arguments: 1 / 0).refusal({})
        == "sample: its limits could not be checked (ZeroDivisionError)"
    )


@pytest.mark.parametrize("answer", [5, True, ["no"], object()])
def test_limits_and_forms_of_another_kind_refuse_the_call(answer: object) -> None:
    # They are asked while a model's answer is taken in: an error there would be blamed on the model, and repeated.
    refusal = _declared(limits=lambda arguments: answer).refusal({})
    assert refusal == f"sample: its limits answered {type(answer).__name__}, not a text or None"
    assert _declared(limits=lambda arguments: " ").refusal({}) == "sample: its limits refuse these arguments"
    for form in (answer, None):
        with pytest.raises(
            InvalidInput, match=f"sample: its prepare answered {type(form).__name__}, not the arguments"
        ):
            _declared(prepare=lambda arguments, form=form: form).check_arguments('{"invoice_id": "81"}')


def test_a_target_is_a_short_text() -> None:
    assert _declared(target=lambda arguments: 128).target_text({}) == "128"
    for none in (None, object(), ""):
        assert _declared(target=lambda arguments, none=none: none).target_text({}) == ""
    long = _declared(target=lambda arguments: "x" * 5_000).target_text({})
    assert len(long) == 1_000 and long.startswith("xxx")


def test_business_keys() -> None:
    arguments = {"invoice_id": "81", "amount_cents": 5}
    assert _declared().operation_key(arguments) is None
    assert _declared(key=lambda invoice_id: f"invoice-{invoice_id}").operation_key(arguments) == "sample:invoice-81"
    wrong: list[Callable[..., object]] = [lambda: "", lambda: 7, lambda: "x" * 501, lambda: "a\x00", _raising]
    for function in wrong:
        with pytest.raises(InvalidInput):
            _declared(key=function).operation_key(arguments)


def test_the_same_action_is_recognised_by_identity() -> None:
    one, two = {"invoice_id": "81", "amount_cents": 5}, {"invoice_id": "81", "amount_cents": 6}
    assert send_invoice.identity_hash(one) == send_invoice.identity_hash(two)
    assert _declared().identity_hash(one) != _declared().identity_hash(two)
    assert _declared(name="a").identity_hash(one) != _declared(name="b").identity_hash(one)


def test_prepare_gives_the_one_normal_form_that_is_hashed() -> None:
    def prepare(arguments: Mapping[str, object]) -> Mapping[str, object]:
        return {**arguments, "invoice_id": str(arguments["invoice_id"]).strip()}

    prepared = _declared(prepare=prepare)
    assert prepared.check_arguments('{"invoice_id": " 81 "}') == {"invoice_id": "81", "amount_cents": 1}
    with pytest.raises(InvalidInput, match=r"^sample: .*ZeroDivisionError"):
        _declared(prepare=lambda arguments: 1 / 0).check_arguments('{"invoice_id": "81"}')
    with pytest.raises(InvalidInput, match="argument invoice_id"):
        _declared(prepare=lambda arguments: {"invoice_id": 7}).check_arguments('{"invoice_id": "81"}')


def test_target_and_precondition() -> None:
    aimed = _declared(
        target=lambda arguments: f"shop/{arguments['invoice_id']}",
        precondition=lambda op, invoice_id: (op.key, invoice_id),
    )
    assert aimed.target_text({"invoice_id": "81"}) == "shop/81"
    assert aimed.target_text({}) == ""
    assert aimed.make_precondition(operation(), {"invoice_id": "81"})() == ("run_1:step_2", "81")
    assert _declared().target_text({}) == ""


def test_lookups_get_what_they_name() -> None:
    def narrow(op: Operation, invoice_id: str, pages: int = 3) -> Absent:
        return Absent(coverage=f"{invoice_id} {pages}")

    def wide(op: Operation, **arguments: object) -> Absent:
        return Absent(coverage=arguments)

    arguments = {"invoice_id": "81", "amount_cents": 5}
    assert _declared(effect=effects.lookup(narrow)).make_lookup(operation(), arguments)() == Absent(coverage="81 3")
    assert _declared(effect=effects.lookup(wide)).make_lookup(operation(), arguments)() == Absent(coverage=arguments)


def test_an_operation_is_found_by_annotation_or_by_name() -> None:
    def by_text(o: effects.Operation, x: str) -> None: ...
    def by_name(op, x: str) -> None: ...  # type: ignore[no-untyped-def]  # users write this
    def optional(op: Operation | None, x: str) -> None: ...
    def no_operation(op: str, x: str) -> None: ...

    taken = [tool(effect=effects.read)(each).parameters for each in (by_text, by_name, optional, no_operation)]
    assert [each.takes_operation for each in taken] == [True, True, True, False]
    assert [each.names for each in taken] == [("x",), ("x",), ("x",), ("op", "x")]


def test_a_sync_tool_is_not_async_and_its_repr_is_short() -> None:
    assert not _declared().is_async
    assert repr(send_invoice) == "Tool('send_invoice', effect='lookup', version='1')"


# ---- the marker through an operation


def test_c013_and_c014_operations_sign_and_recognise_their_own_marker() -> None:
    mine, other = operation(), operation("run_1:step_3", "step_3")
    signed = mine.sign("Looks good.", place="acme/app#128", account="bot")
    assert mine.matches(signed, place="acme/app#128", account="bot")
    assert mine.scan(signed, place="acme/app#129", account="bot") == "forged"
    assert mine.scan(signed, place="acme/app#128", account="someone") == "forged"
    assert other.scan(signed, place="acme/app#128", account="bot") == "none"
    copied = other.sign(signed, place="acme/app#128", account="bot")
    assert mine.scan(copied, place="acme/app#128", account="bot") == "none"
    assert other.matches(copied, place="acme/app#128", account="bot")


def test_a_coroutine_function_behind_a_tool_runs() -> None:
    assert asyncio.run(send_invoice(operation(), "81")).resource_id == "run_1:step_2/81/900"
