"""Tools: a function, what its effect on the outside is, who must approve it, and how it is recognised again.

Everything that can be checked is checked when the module is imported: a missing effect, a lookup that asks for an
argument which the tool does not have, a type without a schema.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypedDict, Unpack

import msgspec

from surefoot.agent.declaring import (
    Display,
    aimed_at,
    asked,
    check_display,
    check_in_place,
    holds,
    plain_text,
    plain_texts,
    prepared,
    refused_by,
)
from surefoot.agent.schema import Parameters, accepted, check_names, read_parameters
from surefoot.core.canonical import ENCODER
from surefoot.core.policy import is_seconds
from surefoot.core.state import WaitsFor
from surefoot.core.throttle import Throttle
from surefoot.core.values import check_key, check_plain, digest, parse_arguments
from surefoot.effects import Effect, LookupFunction, Operation, Receipt, with_settle
from surefoot.errors import InvalidInput
from surefoot.runtime.background import in_place
from surefoot.runtime.execute import is_async

if TYPE_CHECKING:
    # Defaults of type variables, so that `Tool` alone is a full type; typing has them from Python 3.13 on.
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=object, covariant=True)
    Q = ParamSpec("Q")
    S = TypeVar("S")
    T = TypeVar("T")
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R", covariant=True)
    Q = ParamSpec("Q")
    S = TypeVar("S")
    T = TypeVar("T")

TIMEOUT_SECONDS = 30.0
TIMEOUT_SECONDS_MAX = 7 * 86_400.0
ATTEMPTS = 8
APPROVAL_EXPIRES_SECONDS = 604_800.0
"""Seven days."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_EFFECT_CHOICES = (
    "effects.read (changes nothing outside), effects.idempotent(key_lifetime=…) (the target drops repeats of the key), "
    "effects.lookup(function, settle=…) (the target can be searched for the key), effects.opaque (neither)"
)
Arguments = Mapping[str, object]
AccountFunction = Callable[[Operation], Awaitable[str]]
_NO_DISPLAY: Display = MappingProxyType({})


DECLARED: dict[tuple[str, str], Tool] = {}
"""Tools by name as they were first declared in this process: what a run of kind perform finds its tool by."""


class Approval(msgspec.Struct, frozen=True):
    """A person has to approve each call, or each for which `when(**arguments)` is true.

    `permission` is what the person needs; `expires` is in seconds, 7 days by default. An exception in `when` means yes.
    Raises ValueError for an expiry that is not positive, or longer than a hundred years.
    """

    when: Callable[..., bool] | None = None
    permission: str | None = None
    expires: float = APPROVAL_EXPIRES_SECONDS

    def __post_init__(self) -> None:
        """Refuse an expiry that no person could meet."""
        if not is_seconds(self.expires):
            raise ValueError("Approval(expires=…) is in seconds and positive, 100 years at most; default 7 days")
        if self.permission is not None:
            permission = plain_text("Approval(permission=…)", "it", self.permission, 'a name such as "billing"')
            msgspec.structs.force_setattr(self, "permission", permission)


ApprovalChoice = Literal["never", "always"] | Approval


class Changes(TypedDict, total=False):
    """What `Tool.using` may change; the meanings are those of `tool`, `settle` is that of the effect, in seconds."""

    effect: Effect
    settle: float
    approval: ApprovalChoice
    identity: tuple[str, ...] | None
    timeout: float
    attempts: int
    compensate: Callable[..., object] | None
    key: Callable[..., str] | None
    display: Display
    precondition: Callable[..., object] | None
    name: str
    version: str
    description: str
    starts_programs: bool
    limits: Callable[[Arguments], str | None] | None
    throttle: Throttle | None
    prepare: Callable[[Arguments], Arguments] | None
    target: Callable[[Arguments], str] | None
    credential: str | None
    account: AccountFunction | None


class Tool(msgspec.Struct, Generic[P, R], frozen=True, eq=False, kw_only=True):
    """A declared tool. Made by `@tool(effect=…)`, changed by `using`; calling it calls its function, nothing more."""

    function: Callable[P, R]
    parameters: Parameters
    name: str
    effect: Effect
    description: str = ""
    version: str = "1"
    approval: Approval | None = None
    """None: no person is asked."""
    identity: tuple[str, ...] | None = None
    """Arguments by which the same action is recognised; None means all."""
    timeout: float = TIMEOUT_SECONDS
    """Seconds that one attempt may take."""
    attempts: int = ATTEMPTS
    """How many attempts may have been sent or may have killed the worker."""
    compensate: Callable[..., object] | None = None
    """`compensate(receipt, …)` returns the `ToolCall` that undoes a duplicate; offered, never run unasked."""
    key: Callable[..., str] | None = None
    """`key(**arguments)`: the business identity that the operation key is derived from."""
    display: Display = _NO_DISPLAY
    precondition: Callable[..., object] | None = None
    """`precondition(op, **arguments)`: its JSON value is shown at approval and compared before the send."""
    starts_programs: bool = False
    """The tool starts programs of its own, which may outlive the worker."""
    limits: Callable[[Arguments], str | None] | None = None
    """`limits(arguments)`: a text that refuses the call before anybody is asked, or None."""
    throttle: Throttle | None = None
    """What bounds its calls over all workers of a tenant."""
    prepare: Callable[[Arguments], Arguments] | None = None
    """`prepare(arguments)`: the arguments in their one normal form, before they are hashed and shown."""
    target: Callable[[Arguments], str] | None = None
    """`target(arguments)`: what the call acts on, such as "acme/app#128"."""
    credential: str | None = None
    """The name of the secret that the tool acts with, such as "GITHUB_TOKEN"; never its value."""
    account: AccountFunction | None = None
    """`await account(op)`: the account that the credential resolves to; "" where that can never be told."""
    waits_for: WaitsFor | None = None
    """The call waits for something and its function is never called: `wait_for_signal`, an agent as a tool."""
    agent: object | None = None
    """The agent that works on each call in a run of its own (`Agent.as_tool`)."""
    is_async: bool = False
    """Read from the function: a coroutine function is awaited, any other is called in a thread."""

    def __post_init__(self) -> None:
        """Check what only goes wrong at the worst moment otherwise."""
        _check_tool(self)
        for name, text in plain_texts(f"tool {self.name!r}", self).items():
            msgspec.structs.force_setattr(self, name, text)
        msgspec.structs.force_setattr(self, "is_async", is_async(self.function))

    def __repr__(self) -> str:
        return f"Tool({self.name!r}, effect={self.effect.name!r}, version={self.version!r})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The bare function, without any guarantee: for unit tests of the tool's own code."""
        return self.function(*args, **kwargs)

    @property
    def parameters_schema(self) -> dict[str, object]:
        """JSON schema of the arguments: a closed object without `$ref`."""
        return self.parameters.schema

    @property
    def lookup(self) -> LookupFunction | None:
        """The effect's lookup function, if it has one."""
        return self.effect.lookup

    @property
    def place(self) -> str:
        """Where its function stands, such as "billing.send_invoice": the same for copies, and where it was mended."""
        return f"{self.function.__module__}.{getattr(self.function, '__qualname__', type(self.function).__qualname__)}"

    def using(self, **changes: Unpack[Changes]) -> Tool[P, R]:
        """A configured copy. Raises TypeError or ValueError as `tool` does."""
        settled: dict[str, object] = {key: value for key, value in changes.items() if key not in ("settle", "approval")}
        if "approval" in changes:
            settled["approval"] = _approval(changes["approval"])
        if "settle" in changes:
            settled["effect"] = with_settle(changes.get("effect", self.effect), changes["settle"])
        unknown = sorted(set(settled) - set(Changes.__annotations__))
        if unknown:
            raise TypeError(f"tool {self.name!r}: using() cannot change {', '.join(unknown)}")
        return msgspec.structs.replace(self, **settled)

    def call(self, **arguments: object) -> ToolCall:
        """A checked call for `perform`: Python values, converted to the JSON-ready arguments that are stored.

        Raises InvalidInput, naming the parameter.
        """
        try:
            plain = msgspec.to_builtins(arguments, str_keys=True, order="deterministic")
        except (TypeError, ValueError, RecursionError) as problem:
            raise InvalidInput(f"{self.name}: an argument cannot be written as JSON ({problem})") from None
        return ToolCall(self, self.check_arguments(plain))

    def check_arguments(self, raw: str | Mapping[str, object] | None) -> dict[str, object]:
        """The arguments JSON-ready, defaults filled in: what is hashed, shown, approved and bound.

        '', blanks and null mean none. Raises InvalidInput with a text that the model can use; nothing is repaired.
        """
        try:
            given = parse_arguments(raw or "") if raw is None or isinstance(raw, str) else check_plain(dict(raw))
            plain = self.parameters.normal(given)
            if self.prepare is not None:
                plain = self.parameters.normal(check_plain(prepared(self.prepare, plain)))
        except InvalidInput as problem:
            raise InvalidInput(f"{self.name}: {problem}", details=problem.details) from None
        return plain

    def bind(self, arguments: Arguments) -> dict[str, object]:
        """Checked arguments as the Python values of the function's parameters. Raises InvalidInput."""
        return self.parameters.convert(arguments)

    def make_call(self, op: Operation, arguments: Arguments) -> Callable[[], object]:
        """The call itself, arguments bound now; an async tool's gives a coroutine. Raises InvalidInput."""
        values, first = self.bind(arguments), (op,) if self.parameters.takes_operation else ()
        function: Callable[..., object] = self.function
        return lambda: function(*first, **values)

    def make_lookup(self, op: Operation, arguments: Arguments) -> Callable[[], object]:
        """The effect's lookup as a call; the result may be awaitable. Raises InvalidInput; needs a lookup."""
        assert self.effect.lookup is not None, f"tool {self.name!r} has no lookup"
        return self._with_operation(self.effect.lookup, op, arguments)

    def make_precondition(self, op: Operation, arguments: Arguments) -> Callable[[], object]:
        """The precondition as a call; the result may be awaitable. Raises InvalidInput; needs a precondition."""
        assert self.precondition is not None, f"tool {self.name!r} has no precondition"
        return self._with_operation(self.precondition, op, arguments)

    def make_compensation(self, receipt: Receipt, arguments: Arguments) -> object:
        """What undoes the effect of `receipt`, by the tool's own function: a ToolCall, or None. Needs `compensate`."""
        assert self.compensate is not None, f"tool {self.name!r} has no compensation"
        return in_place(self.compensate, receipt, **self._told(self.compensate, arguments))

    def _with_operation(
        self, function: Callable[..., object], op: Operation, arguments: Arguments
    ) -> Callable[[], object]:
        values = self._told(function, arguments)
        return lambda: function(op, **values)

    def _told(self, function: Callable[..., object], arguments: Arguments) -> dict[str, object]:
        """Those of the arguments that a function with one parameter of its own before them asks for."""
        try:
            bound = self.bind(arguments)
        except InvalidInput:
            # The parameters have changed since the call: the look gets the arguments of then, as they were sent.
            bound = dict(arguments)
        return accepted(function, bound, skip=1)

    def needs_approval(self, arguments: Arguments) -> bool:
        """Whether a person must approve this call. An exception in `when` means yes."""
        if self.approval is None or self.approval.when is None:
            return self.approval is not None
        when = self.approval.when
        return holds(lambda: when(**accepted(when, self.bind(arguments))))

    def refusal(self, arguments: Arguments) -> str | None:
        """Why the tool's limits refuse these arguments, for the model; None if they do not. Asked before approval."""
        if self.limits is None:
            return None
        return refused_by(self.limits, arguments, self.name)

    def operation_key(self, arguments: Arguments) -> str | None:
        """`<tool>:<key>` from the tool's key function, or None where the tool has none.

        Raises InvalidInput for a key that is not a text under the rule for keys (`check_key`).
        """
        if self.key is None:
            return None
        key: object = asked(self.key, **accepted(self.key, self.bind(arguments)))
        check_key("" if key is None else key, f"{self.name}: what its key function returns")
        return f"{self.name}:{key}"

    def identity_hash(self, arguments: Arguments) -> str:
        """SHA-256 over tool name and identity arguments, checked ones: equal for what counts as the same action."""
        told = arguments if self.identity is None else {name: arguments.get(name) for name in self.identity}
        return digest(ENCODER.encode([self.name, told]))

    def target_text(self, arguments: Arguments) -> str:
        """What the call acts on, such as "acme/app#128"; '' where the tool does not say or its function raises."""
        return "" if self.target is None else aimed_at(self.target, arguments)


class Declare(Protocol):
    """What `tool(…)` returns: it makes a function the tool, with the function's own types."""

    def __call__(self, function: Callable[Q, S], /) -> Tool[Q, S]:
        """The tool; calling it calls the function."""
        ...


class ToolCall(msgspec.Struct, frozen=True, eq=False):
    """One tool with checked arguments."""

    tool: Tool
    arguments: dict[str, object]


def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    effect: Effect | None = None,
    approval: ApprovalChoice = "never",
    identity: tuple[str, ...] | None = None,
    timeout: float = TIMEOUT_SECONDS,
    attempts: int = ATTEMPTS,
    compensate: Callable[..., object] | None = None,
    key: Callable[..., str] | None = None,
    display: Display = _NO_DISPLAY,
    precondition: Callable[..., object] | None = None,
    name: str | None = None,
    version: str = "1",
    description: str | None = None,
    starts_programs: bool = False,
    limits: Callable[[Arguments], str | None] | None = None,
    throttle: Throttle | None = None,
    prepare: Callable[[Arguments], Arguments] | None = None,
    target: Callable[[Arguments], str] | None = None,
    credential: str | None = None,
    account: AccountFunction | None = None,
) -> Declare:
    """Declare a function as a tool. `effect` says how the world may be asked about a call, and has no default.

    The docstring is what the model reads; the schema comes from the types; an Operation, if wanted, is the first
    positional parameter. `timeout` is in seconds and holds for one attempt. `key`, `precondition`, `compensate` and
    `Approval(when=…)` get the arguments by name, those that they name; `limits`, `prepare` and `target` get them as one
    mapping. `limits` returns a text that refuses the call before anybody is asked, or None; `throttle` bounds how many
    calls begin and are under way over all workers; `prepare` returns the arguments in their one normal form and must
    not change its own result.

    Raises TypeError or ValueError, naming tool and parameter, for a declaration that could not be kept.
    """
    if function is not None or not isinstance(effect, Effect):
        raise TypeError(_effect_fault(function, effect))
    declared: Effect = effect

    def declare(declaring: Callable[Q, S], /) -> Tool[Q, S]:
        if isinstance(declaring, Tool):
            raise TypeError(f"{declaring.name!r} is a tool already; tool.using(…) gives a configured copy")
        parameters = read_parameters(declaring, sys._getframe(1).f_locals)
        made = Tool(
            function=declaring,
            parameters=parameters,
            name=parameters.function_name if name is None else name,
            effect=declared,
            description=parameters.description if description is None else description,
            version=version,
            approval=_approval(approval),
            identity=identity,
            timeout=timeout,
            attempts=attempts,
            compensate=compensate,
            key=key,
            display=display,
            precondition=precondition,
            starts_programs=starts_programs,
            limits=limits,
            throttle=throttle,
            prepare=prepare,
            target=target,
            credential=credential,
            account=account,
        )
        DECLARED.setdefault((made.name, made.place), made)
        return made

    return declare


def _effect_fault(function: object, effect: object) -> str:
    named = f"tool {getattr(function, '__name__', '')!r}: " if function is not None else "@tool: "
    if effect is None:
        return f"{named}effect= is missing; write @tool(effect=…) with one of {_EFFECT_CHOICES}"
    return f"{named}effect= is a {type(effect).__name__}, not a declared effect; it is one of {_EFFECT_CHOICES}"


def _approval(choice: ApprovalChoice | None) -> Approval | None:
    if choice is None or choice == "never":
        return None
    if choice == "always":
        return Approval()
    if isinstance(choice, Approval):
        return choice
    raise TypeError(f'approval= is "never", "always" or Approval(when=…, permission=…, expires=…), not {choice!r}')


# ---- checks at definition


def _check_tool(tool: Tool[..., object]) -> None:
    where = f"tool {tool.name!r}"
    if not isinstance(tool.name, str) or _NAME.fullmatch(tool.name) is None:
        raise ValueError(f"{where}: a name has letters, digits, _ and -, at most 64, and does not begin with a digit")
    if not is_seconds(tool.timeout) or not 0 < tool.timeout < TIMEOUT_SECONDS_MAX:
        raise ValueError(f"{where}: timeout is in seconds and positive, and less than {TIMEOUT_SECONDS_MAX:g}")
    if not isinstance(tool.attempts, int) or isinstance(tool.attempts, bool) or tool.attempts < 1:
        raise ValueError(f"{where}: attempts is at least 1, and a whole number")
    if inspect.isgeneratorfunction(tool.function) or inspect.isasyncgenfunction(tool.function):
        raise TypeError(f"{where}: a generator cannot be a tool; return one value")
    _check_identity(where, tool)
    check_display(where, tool.display)
    names = tool.parameters.names
    check_names(where, "lookup", tool.effect.lookup, names, skip=1)
    check_names(where, "precondition", tool.precondition, names, skip=1)
    check_names(where, "compensate", tool.compensate, names, skip=1, first="receipt")
    check_names(where, "key", tool.key, names)
    when = tool.approval.when if tool.approval else None
    check_names(where, "Approval(when=…)", when, names)
    in_place = {"Approval(when=…)": when, "key": tool.key, "compensate": tool.compensate}
    check_in_place(where, {**in_place, "limits": tool.limits, "prepare": tool.prepare, "target": tool.target})
    if not isinstance(tool.starts_programs, bool):
        raise TypeError(f"{where}: starts_programs is True or False, not {tool.starts_programs!r}")


def _check_identity(where: str, tool: Tool[..., object]) -> None:
    if isinstance(tool.identity, str):
        raise TypeError(f'{where}: identity is a tuple of argument names; write identity=("{tool.identity}",)')
    missing = [name for name in tool.identity or () if name not in tool.parameters.names]
    if missing:
        raise TypeError(f"{where}: identity names {missing[0]!r}, which is not one of its parameters")
