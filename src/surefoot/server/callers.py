"""Who calls, and what they may do. A doorman looks at each request and says whose it is; the rest asks the caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

import msgspec
from fastapi import Request

from surefoot.server.problems import Problem

Act = Literal["read", "start", "approve", "resolve", "evidence", "admin"]
ACTS: tuple[Act, ...] = ("read", "start", "approve", "resolve", "evidence", "admin")
DOING: Mapping[Act, str] = {
    "read": "read what there is",
    "start": "start runs or talk to them",
    "approve": "decide about calls",
    "resolve": "say what became of calls",
    "evidence": "report evidence",
    "admin": "do that",
}
"""What an act is, in words."""
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names by which a server on loopback may be called: a page elsewhere can point a name of its own at 127.0.0.1."""
FORWARDED = frozenset({"forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"})
"""What proxies add. A server without tokens is for this machine's user, not for whoever a proxy lets in."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Caller(msgspec.Struct, frozen=True):
    """Who made a request. Every query starts with `tenant`; decisions are recorded under `name`.

    `permissions` are acts, `approve` also narrowed: `approve:tool=NAME`, `approve:class=lookup`,
    `approve:permission=billing`. `admin` holds all. `source` says from where, for example `token:ci` or `session`.
    """

    tenant: str
    name: str
    permissions: frozenset[str]
    source: str

    def may(
        self, act: Act, *, tool: str | None = None, effect_class: str | None = None, permission: str | None = None
    ) -> bool:
        """Whether the caller may do this. An approval that names a `permission` needs that one, or admin."""
        if "admin" in self.permissions:
            return True
        if act != "approve":
            return act in self.permissions
        if permission is not None:
            return f"approve:permission={permission}" in self.permissions
        narrowed = {f"approve:tool={tool}", f"approve:class={effect_class}"}
        return "approve" in self.permissions or bool(narrowed & self.permissions)


class Doorman(Protocol):
    """Knows callers by their requests."""

    def tenants(self) -> Iterable[str]:
        """Whose runs this server works on: all tenants that `identify` can name."""
        ...

    async def identify(self, request: Request) -> Caller:
        """The caller. Raises Problem: 401 if nobody is named, 403 if the request may not be made in this way."""
        ...


class Loopback:
    """No tokens: whoever reaches this machine's own address is its user, with all permissions.

    A web page must not act in the user's name: the Host is this machine's, and a request that changes something comes
    from a page of this server or from no page at all.
    """

    def __init__(self, tenant: str, name: str) -> None:
        self._caller = Caller(tenant, name, frozenset(ACTS), "local")

    def tenants(self) -> Iterable[str]:
        """The one tenant."""
        return (self._caller.tenant,)

    async def identify(self, request: Request) -> Caller:
        """The machine's user. Raises Problem 403 (`foreign_host`, `foreign_origin`)."""
        host = request.headers.get("host", "")
        if name_of(host) not in LOOPBACK_HOSTS:
            raise Problem(403, "foreign_host", f"without tokens only this machine is served, not host {host!r}")
        if FORWARDED & {name.lower() for name in request.headers}:
            # Behind a proxy everybody would be this machine's user.
            raise Problem(403, "forwarded", "this request came through a proxy; make a token: `surefoot tokens create`")
        origin = request.headers.get("origin")
        if origin not in (None, f"{request.url.scheme}://{host}") and request.method not in SAFE_METHODS:
            raise Problem(403, "foreign_origin", "a page of another origin may not act here")
        if request.headers.get("sec-fetch-site", "none") == "cross-site":
            raise Problem(403, "foreign_origin", "a page of another site may not ask here")
        return self._caller


def name_of(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
