"""The doorman of a server with tokens: a bearer token, or the session of somebody who logged in on the page.

What a browser sends by itself, a cookie, is worth less than what a program sends on purpose. A request with a cookie
has to come from a page of this server: by a Host that is this server's (a name that somebody else points at this
address is none), by its Origin, and, where it may change something, with the CSRF token that only such a page can read.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from fastapi import Request

from surefoot.server.callers import LOOPBACK_HOSTS, SAFE_METHODS, Caller, name_of
from surefoot.server.problems import Problem
from surefoot.server.tokens import Holder, Tokens

COOKIE = "surefoot_session"
CSRF_HEADER = "X-CSRF-Token"
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="surefoot"'}


class TokenDoorman:
    """Knows callers by the tokens of the store and of the setting. Safe against other sites' pages."""

    def __init__(self, tokens: Tokens, tenants: Iterable[str], hosts: Iterable[str] = ()) -> None:
        """`tenants` are those that tokens were made for; `hosts` the names, without port, by which browsers call."""
        self.tokens = tokens
        self.hosts = LOOPBACK_HOSTS | {host.lower() for host in hosts}
        self._tenants = tuple(dict.fromkeys([*tenants, *(given.tenant for given in tokens.given)]))

    def tenants(self) -> Iterable[str]:
        """All tenants that a token is of."""
        return self._tenants

    async def identify(self, request: Request) -> Caller:
        """The caller. Raises Problem 401 (`not_signed_in`, `bad_token`, `session_over`), 403 (foreign, `bad_csrf`)."""
        return (await self.admit(request))[0]

    async def admit(self, request: Request) -> tuple[Caller, Holder]:
        """The caller, and what shows that it is this one. Raises as `identify`."""
        header = request.headers.get("authorization")
        if header is not None:
            return await self._by_token(request, header)
        cookie = request.cookies.get(COOKIE)
        if cookie is None:
            raise Problem(
                401, "not_signed_in", "send `Authorization: Bearer TOKEN`, or log in on the page", headers=CHALLENGE
            )
        return await self._by_session(request, cookie)

    async def _by_token(self, request: Request, header: str) -> tuple[Caller, Holder]:
        scheme, _, text = header.partition(" ")
        holder = await self.tokens.find(text.strip()) if scheme.lower() == "bearer" else None
        if holder is None:
            raise Problem(
                401,
                "bad_token",
                "the token is unknown, revoked or expired; `surefoot tokens create NAME` makes one",
                headers={"WWW-Authenticate": CHALLENGE["WWW-Authenticate"] + ', error="invalid_token"'},
            )
        return _caller(holder, f"token {holder.name} from {address_of(request)}"), holder

    async def _by_session(self, request: Request, cookie: str) -> tuple[Caller, Holder]:
        caller, holder = await self._session(request, cookie)
        if request.method not in SAFE_METHODS:
            given = request.headers.get(CSRF_HEADER, "")
            if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), csrf_of(holder).encode()):
                raise Problem(403, "bad_csrf", f"send the csrf of GET /v1/session as the header {CSRF_HEADER}")
        return caller, holder

    async def _session(self, request: Request, cookie: str) -> tuple[Caller, Holder]:
        self.check_own_page(request)
        holder = await self.tokens.find(cookie, "session")
        if holder is None:
            raise Problem(401, "session_over", "the session has ended; log in again", headers=CHALLENGE)
        return _caller(holder, f"the page, from {address_of(request)}"), holder

    async def by_cookie(self, request: Request) -> tuple[Caller, Holder] | None:
        """Whose session a request carries, for a page that checks its forms itself; None where it carries none.

        Raises Problem as `identify` does, the CSRF token aside.
        """
        cookie = request.cookies.get(COOKIE)
        return None if cookie is None else await self._session(request, cookie)

    def check_own_page(self, request: Request) -> None:
        """Raises Problem 403 where a browser asks in the name of another site (`foreign_host`, `foreign_origin`)."""
        check_own_page(request, self.hosts)


def check_own_page(request: Request, hosts: Collection[str]) -> None:
    """Raises Problem 403 unless a page of this server asks, under one of its names, or nobody's page (when reading)."""
    host = check_host(request, hosts)
    site = request.headers.get("sec-fetch-site")
    if site not in (None, "none", "same-origin"):
        raise Problem(403, "foreign_origin", "a page of another site may not ask here")
    if request.method in SAFE_METHODS:
        return
    origin = request.headers.get("origin")
    if origin is None and site is None:
        raise Problem(
            403,
            "origin_missing",
            "this is for pages of this server, whose browser says where a request comes from: the header Origin is "
            "missing. A program sends `Authorization: Bearer TOKEN` instead, and needs no session",
        )
    own = site == "same-origin" if origin is None else urlsplit(origin).netloc.lower() == host.lower()
    if not own:
        raise Problem(403, "foreign_origin", "a page of another origin may not act here")


def check_host(request: Request, hosts: Collection[str]) -> str:
    """The Host, if it is one of the server's names. Raises Problem 403 (`foreign_host`)."""
    host = request.headers.get("host", "")
    if name_of(host).lower() not in hosts:
        raise Problem(
            403, "foreign_host", f"this server is not called {host!r} by browsers; start it with --allow-host NAME"
        )
    return host


def csrf_of(session: Holder) -> str:
    """What a page of this server sends with everything that changes something: derived from the session's secret."""
    return hashlib.sha256(f"surefoot csrf {session.secret}".encode()).hexdigest()


def address_of(request: Request) -> str:
    """The address that the request came from, as far as the socket, or a trusted proxy, says."""
    return request.client.host if request.client else "an unknown address"


def _caller(holder: Holder, source: str) -> Caller:
    return Caller(holder.tenant, holder.name, holder.permissions, source)
