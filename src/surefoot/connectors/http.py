"""A POST to any HTTP service that keeps an Idempotency-Key: `http.post(…)` makes a tool of it.

The operation key goes out in the service's header, the same in all attempts. What a reply means:

    2xx                        a receipt: the id is read at `id_path`. A replay of the first answer is the same one.
                               Without an id there it is in doubt: the same key asks for the first answer again
    `still_running` (409)      the service knows the key and has not finished: in doubt, asked again later
    `other_payload` (422)      the service knows the key with another body, or does not take this one: refused; in
                               doubt once an earlier attempt may have been sent
    everything else            as in `surefoot.http`

After doubt the same bytes go out under the same key while the service keeps it (`key_lifetime`, less a margin of a
tenth, an hour at most). After that the lookup answers, if one is given, else a person is asked: nothing is sent again.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TypedDict, Unpack
from urllib.parse import urlsplit

import msgspec

from surefoot import effects
from surefoot.agent.declaring import Display
from surefoot.agent.tools import AccountFunction, ApprovalChoice, Arguments, Tool, tool
from surefoot.connectors.http_schema import parameters_of
from surefoot.effects import InDoubt, LookupFunction, Operation, Receipt, Refused
from surefoot.http import Response, client

KEY_CHARACTERS_MAX = 255
"""What services take at least; a longer operation key, or one with other characters, is sent as its SHA-256."""
STILL_RUNNING = (409,)
OTHER_PAYLOAD = (422,)

SHOWN_CHARACTERS_MAX = 20
"""A longer part of a path with letters and digits in it may be a token, as in the addresses of webhooks."""
SHOWN_CHARACTERS = 4
"""What is shown of such a part."""
_SHOWN_HASH_DIGITS = 8
_PLAIN_KEY = re.compile(rf"[!#-\[\]-~]{{1,{KEY_CHARACTERS_MAX}}}")
_NOTHING: Mapping[str, str] = MappingProxyType({})


class ToolOptions(TypedDict, total=False):
    """What the tool may be given besides; the meanings are those of `surefoot.tool`."""

    approval: ApprovalChoice
    identity: tuple[str, ...] | None
    timeout: float
    attempts: int
    compensate: Callable[..., object] | None
    key: Callable[..., str] | None
    display: Display
    precondition: Callable[..., object] | None
    version: str
    limits: Callable[[Arguments], str | None] | None
    prepare: Callable[[Arguments], Arguments] | None
    target: Callable[[Arguments], str] | None
    account: AccountFunction | None


class _Endpoint(msgspec.Struct, frozen=True):
    """Where and how a tool posts. Its repr holds no header, and of the URL what is no token."""

    url: str
    header: str
    quoted: bool
    credential: str | None
    authorization: str
    headers: Mapping[str, str]
    still_running: Collection[int]
    other_payload: Collection[int]
    id_path: str | None
    url_path: str | None
    keep: Mapping[str, str]

    def __repr__(self) -> str:
        return f"_Endpoint({shown_url(self.url)})"

    async def send(self, op: Operation, body: object) -> Receipt:
        """One attempt."""
        headers = {**self.headers, self.header: f'"{key_text(op.key)}"' if self.quoted else key_text(op.key)}
        if self.credential is not None:
            headers["Authorization"] = self.authorization.format(secret=_secret(op, self.credential))
        told = (*self.still_running, *self.other_payload)
        async with client(op, headers=headers) as http:
            reply = await http.post(self.url, json=body, allow=told)
        if reply.status in self.still_running:
            raise InDoubt(f"the service has not finished with this key ({reply.status})", status=reply.status)
        if reply.status in self.other_payload:
            text = f"the service does not take this body under this key ({reply.status})"
            raise (InDoubt if op.earlier_may_be_sent else Refused)(text, status=reply.status)
        return self._receipt(reply)

    def _receipt(self, reply: Response) -> Receipt:
        value = reply.json()
        found = None if self.id_path is None else value_at(value, self.id_path)
        named = isinstance(found, str | int) and not isinstance(found, bool) and str(found).strip() != ""
        if self.id_path is not None and not named:
            raise InDoubt(f"the service answered {reply.status} without an id at {self.id_path}", status=reply.status)
        url = None if self.url_path is None else value_at(value, self.url_path)
        output = {name: value_at(value, path) for name, path in self.keep.items()}
        return Receipt(
            resource_id=None if found is None else str(found),
            url=url if isinstance(url, str) else None,
            output=output or None,
        )


def post(
    name: str,
    *,
    url: str,
    parameters: Callable[..., object] | Mapping[str, object],
    key_lifetime: float | None,
    header: str = "Idempotency-Key",
    quoted: bool = False,
    credential: str | None = None,
    authorization: str = "Bearer {secret}",
    headers: Mapping[str, str] = _NOTHING,
    still_running: Collection[int] = STILL_RUNNING,
    other_payload: Collection[int] = OTHER_PAYLOAD,
    id_path: str | None = "id",
    url_path: str | None = None,
    keep: Mapping[str, str] = _NOTHING,
    lookup: LookupFunction | None = None,
    settle: float = 60.0,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> Tool:
    """A tool that posts JSON to `url` under the operation key: class idempotent, for `key_lifetime` seconds.

    `parameters` is a function or a JSON schema of an object. The function's signature and docstring are the tool's, and
    what it returns is the body; it is called anew for each attempt and has to return the same each time. Where it
    returns None, and for a schema, the arguments are the body; optional ones that are not given are left out.

    `quoted` sends the key as the IETF draft writes it, in quotes. `credential` names a secret, `authorization` says how
    it is sent. Paths such as "data.0.id" lead into the reply: to the id (None: this service has none), to a link, and
    to what is kept for the model (`keep`: name to path). Unless `target` says otherwise, people see the URL as
    `shown_url` gives it.

    Raises TypeError or ValueError for a declaration that could not be kept, as `surefoot.tool` does.
    """
    if not _is_address(url):
        raise ValueError(f"{name}: url is an http or https URL without a user name; a password goes into credential")
    if {*still_running} & {*other_payload}:
        raise ValueError(f"{name}: a status means still_running or other_payload, not both")
    if not _takes_secret(authorization):
        raise ValueError(f'{name}: authorization holds {{secret}} and no other field, as in "Bearer {{secret}}"')
    endpoint = _Endpoint(
        url, header, quoted, credential, authorization, headers, still_running, other_payload, id_path, url_path, keep
    )
    aim = f"POST {shown_url(url)}"
    options.setdefault("target", lambda arguments: aim)
    declare = tool(
        effect=effects.idempotent(key_lifetime=key_lifetime, lookup=lookup, settle=settle),
        name=name,
        description=description,
        credential=credential,
        **options,
    )
    return declare(_function(name, endpoint, parameters))


def _function(
    name: str, endpoint: _Endpoint, parameters: Callable[..., object] | Mapping[str, object]
) -> Callable[..., object]:
    """The tool's function, with the signature that the model gets."""
    given, optional = _given(name, parameters)

    def body_of(arguments: dict[str, object]) -> object:
        made = parameters(**arguments) if callable(parameters) else None
        plain = msgspec.to_builtins(arguments if made is None else made, str_keys=True, order="deterministic")
        if made is None:
            plain = {key: value for key, value in plain.items() if value is not None or key not in optional}
        return plain

    async def send(op: Operation, /, **arguments: object) -> Receipt:
        try:
            body = body_of(arguments)
        except Refused:
            raise
        except Exception as problem:
            # Nothing has begun: this is no doubt, whatever the function raises.
            raise Refused(f"the body of {name} cannot be made ({type(problem).__name__})") from None
        return await endpoint.send(op, body)

    if callable(parameters):
        # The types in the signature are read where the function was written.
        functools.update_wrapper(send, parameters)
    send.__name__ = name
    operation = inspect.Parameter("operation_", inspect.Parameter.POSITIONAL_ONLY, annotation=Operation)
    own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in given]
    signature = inspect.Signature([operation, *own])
    setattr(send, "__signature__", signature)  # noqa: B010 - functions have no such attribute for type checkers
    return send


def _given(
    name: str, parameters: Callable[..., object] | Mapping[str, object]
) -> tuple[list[inspect.Parameter], frozenset[str]]:
    if not callable(parameters):
        return parameters_of(name, parameters)
    given = list(inspect.signature(parameters).parameters.values())
    odd = [one.name for one in given if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    if odd:
        raise TypeError(f"{name}: parameter {odd[0]!r} cannot be passed by name; the model needs a schema")
    return given, frozenset(one.name for one in given if one.default is None)


def key_text(key: str) -> str:
    """The operation key as a header can carry it, and as every service takes it: visible ASCII, 255 characters."""
    if _PLAIN_KEY.fullmatch(key):
        return key
    return f"sha256-{hashlib.sha256(key.encode()).hexdigest()}"


def shown_url(url: str) -> str:
    """A URL as people see it and rows keep it, without what may be a token: the values of its query, and long parts of
    its path in which letters and digits mix. Where something is hidden, a hash stands for the whole: another URL is
    another target.
    """
    parts = urlsplit(url)
    path = "/".join(_shown_part(part) for part in parts.path.split("/"))
    names = [part.partition("=")[0] if "=" in part else "" for part in parts.query.split("&") if part]
    shown = f"{parts.scheme}://{parts.netloc}{path}" + ("?" if names else "") + "&".join(f"{one}=…" for one in names)
    if not names and path == parts.path:
        return shown
    return f"{shown} (sha256 {hashlib.sha256(url.encode()).hexdigest()[:_SHOWN_HASH_DIGITS]})"


def _shown_part(part: str) -> str:
    mixed = any(one.isdigit() for one in part) and any(one.isalpha() for one in part)
    return f"{part[:SHOWN_CHARACTERS]}…" if len(part) >= SHOWN_CHARACTERS_MAX and mixed else part


def _takes_secret(authorization: str) -> bool:
    try:
        return "{secret}" in authorization and bool(authorization.format(secret="-"))
    except (KeyError, IndexError, ValueError, AttributeError):
        return False


def _is_address(url: object) -> bool:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
    except ValueError:
        return False
    return parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def value_at(value: object, path: str) -> object:
    """What stands at a path such as "data.0.id" of a JSON value; None where there is nothing."""
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _secret(op: Operation, name: str) -> str:
    secret = (op.secret(name) or "").strip()
    if not secret:
        raise Refused(f"{name} is not set: give the worker the credential")
    return secret
