"""How the world may be asked about a call: effect classes, ends of a call, lookup verdicts, and the operation itself.

The declaration is required on every tool. Where it cannot be known, `opaque` is the careful choice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import msgspec

from surefoot.core.policy import is_seconds

if TYPE_CHECKING:
    from surefoot.doors import HttpDoor

EffectName = Literal["read", "idempotent", "lookup", "opaque"]


class Receipt(msgspec.Struct, frozen=True):
    """The target acted. `error` is bad news for the model in a receipt that is nevertheless a receipt."""

    resource_id: str | None = None
    url: str | None = None
    output: object = None
    error: str | None = None


class Found(msgspec.Struct, frozen=True):
    """A lookup's verdict: the effect exists. `also` names further effects of the same key (a duplicate)."""

    receipt: Receipt
    also: tuple[Receipt, ...] = ()
    coverage: str | Mapping[str, object] = ""


class Absent(msgspec.Struct, frozen=True):
    """A lookup's verdict: the effect does not exist, and `coverage` says how that was made sure.

    The runtime still demands the settle time and the end of every attempt before it believes this.
    """

    coverage: str | Mapping[str, object]


class Undetermined(msgspec.Struct, frozen=True):
    """A lookup's verdict: cannot tell. An exception inside a lookup means the same."""

    reason: str
    coverage: str | Mapping[str, object] = ""


Verdict = Found | Absent | Undetermined
LookupFunction = Callable[..., Awaitable[Verdict] | Verdict]


class Refused(Exception):
    """Raise in a tool where the target certainly did not act.

    `retry_after` (seconds) says that it may be tried again then, on the same step. `status` is the HTTP status if there
    is one: 409, 412 and 422 count as doubt once an earlier attempt of the step may have been sent.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.status = status


class InDoubt(Exception):
    """Raise in a tool where the target may have acted. Any unknown exception of an effectful tool means this."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class NotSent(Exception):
    """Raised by `surefoot.http` only: no byte of the request left this process."""


class Effect(msgspec.Struct, frozen=True):
    """A declared effect class with its parameters; made by the four names below, never by hand."""

    name: EffectName
    lookup: LookupFunction | None = None
    settle: float = 60.0
    """Seconds after the last possible byte before an absent may be believed."""
    key_lifetime: float | None = None
    """Seconds for which the target drops repeats of the key (None: for ever). Meaningful for `idempotent` only."""


read = Effect("read")
"""The call changes nothing outside. After doubt it is called again (at least once)."""

opaque = Effect("opaque")
"""The target can neither drop repeats nor be searched. After doubt a person is asked; never resent alone."""


def idempotent(*, key_lifetime: float | None, lookup: LookupFunction | None = None, settle: float = 60.0) -> Effect:
    """The target drops repeats of our key for `key_lifetime` seconds (None: for ever).

    After doubt the same bytes go out under the same key inside the lifetime, less a margin; after it the lookup
    answers, or a person does.

    Raises ValueError for a lifetime that is not positive, or longer than a hundred years.
    """
    if key_lifetime is not None and not is_seconds(key_lifetime):
        raise ValueError("key_lifetime is in seconds and positive, or None where the target keeps keys for ever")
    _check_settle(settle)
    return Effect("idempotent", lookup=lookup, settle=settle, key_lifetime=key_lifetime)


def lookup(function: LookupFunction, *, settle: float = 60.0) -> Effect:
    """The target can be searched for our key: `function(op, **arguments)` answers Found, Absent or Undetermined.

    `settle` is in seconds: how long after the last possible byte an absent may be believed.

    Raises ValueError for a negative settle, or one longer than a hundred years.
    """
    if not callable(function):
        raise TypeError("effects.lookup takes the function that searches the target; without one the class is opaque")
    _check_settle(settle)
    return Effect("lookup", lookup=function, settle=settle)


def _check_settle(settle: object) -> None:
    if not is_seconds(settle, or_none=True):
        raise ValueError("settle is in seconds, not negative, and at most a hundred years")


def with_settle(effect: Effect, settle: float) -> Effect:
    """The same with another settle, in seconds. Raises ValueError as `lookup` does."""
    _check_settle(settle)
    return msgspec.structs.replace(effect, settle=float(settle))


class Operation:
    """One call as its tool sees it: the key to send, when it was first sent, and how to sign a marker.

    `search_from` is a wall-clock time in seconds since 1970: the earliest send less 15 minutes. Attributes: key, tool,
    run_id, step_id, call_id, attempt, first_sent_at, search_from, tenant_id.
    """

    __slots__ = (
        "_door",
        "_notes",
        "_secrets",
        "_signer",
        "attempt",
        "call_id",
        "earlier_may_be_sent",
        "effect",
        "first_byte_before",
        "first_sent_at",
        "key",
        "last_byte_before",
        "looking",
        "run_id",
        "search_from",
        "step_id",
        "tenant_id",
        "tool",
    )  # fmt: skip

    def __init__(
        self,
        *,
        key: str,
        tool: str,
        run_id: str,
        step_id: str,
        call_id: str,
        attempt: int,
        first_sent_at: float | None,
        search_from: float,
        tenant_id: str,
        first_byte_before: float,
        last_byte_before: float,
        effect: EffectName,
        looking: bool,
        earlier_may_be_sent: bool,
        door: HttpDoor,
        signer: Signer,
        secrets: SecretSource,
    ) -> None:
        self.key = key
        self.tool = tool
        self.run_id = run_id
        self.step_id = step_id
        self.call_id = call_id
        self.attempt = attempt
        self.first_sent_at = first_sent_at
        self.search_from = search_from
        self.tenant_id = tenant_id
        self.first_byte_before = first_byte_before
        """Boot clock, seconds: no request of this attempt starts later."""
        self.last_byte_before = last_byte_before
        """Boot clock, seconds: nothing of this attempt is written later."""
        self.effect: EffectName = effect
        self.looking = looking
        """True inside a lookup or a precondition: such a request is a read, whatever the tool's class is."""
        self.earlier_may_be_sent = earlier_may_be_sent
        self._door = door
        self._signer = signer
        self._secrets = secrets
        self._notes: dict[str, object] = {}

    def sign(self, text: str, *, place: str = "", account: str = "") -> str:
        """`text` with this operation's marker behind it; a marker that a model or user wrote into `text` is removed.

        `place` (for example "acme/app#128") and `account` are covered by the MAC and must be given again to `matches`.
        """
        return self._signer.sign(self, text, place, account)

    def matches(self, text: str, *, place: str = "", account: str = "") -> bool:
        """True if `text` holds this operation's marker with a MAC of our keyring for `place` and `account`."""
        return self._signer.scan(self, text, place, account) == "ours"

    def scan(self, text: str, *, place: str = "", account: str = "") -> Literal["ours", "forged", "none"]:
        """What `text` holds: our marker, our key with a MAC that does not fit, or nothing of this operation."""
        return self._signer.scan(self, text, place, account)

    def secret(self, name: str) -> str | None:
        """The secret called `name` (an environment variable by default), known to redaction from here on."""
        return self._secrets.get(name)

    def know_secret(self, name: str, value: str) -> None:
        """Make a secret known to redaction that came from elsewhere: a file, or a token that was just issued."""
        if isinstance(self._secrets, SecretKeeper):
            self._secrets.add(name, value)


class Signer(Protocol):
    """Makes and checks markers with the keyring; the runtime hands one to every operation."""

    def sign(self, op: Operation, text: str, place: str, account: str) -> str:
        """`text` without foreign markers and with this operation's."""
        ...

    def scan(self, op: Operation, text: str, place: str, account: str) -> Literal["ours", "forged", "none"]:
        """What `text` holds of this operation."""
        ...


class SecretSource(Protocol):
    """Resolves names of secrets in the tool process; remembers the values so that every exit can redact them."""

    def get(self, name: str) -> str | None:
        """The value of the secret `name`, or None. The value is known to redaction from here on."""
        ...


@runtime_checkable
class SecretKeeper(Protocol):
    """A source that can also be told of secrets; those of the runtime are."""

    def add(self, name: str, value: str) -> None:
        """Know `value` under `name` from here on, so that every exit redacts it."""
        ...
