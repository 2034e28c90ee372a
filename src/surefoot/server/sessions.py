"""Logging in and out on the page: a token becomes a session in a cookie that no script can read."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response

from surefoot.server.callers import Caller
from surefoot.server.doorman import COOKIE, TokenDoorman, csrf_of
from surefoot.server.openapi import OPEN, described
from surefoot.server.problems import Problem
from surefoot.server.requests import read_json
from surefoot.server.service import service_of
from surefoot.server.tokens import Holder
from surefoot.server.wire import reply

SESSION_SECONDS = 43_200
LOGIN_BYTES_MAX = 4_096

router = APIRouter(prefix="/v1/session", tags=["identity"])


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token, to be shown once for a session."""

    token: str


class SessionView(msgspec.Struct, frozen=True):
    """Who the caller is. `csrf` goes into the header X-CSRF-Token of everything that the page changes."""

    tenant: str
    name: str
    permissions: list[str]
    csrf: str | None
    """None where the caller sent a token, or the server has no tokens."""
    can_log_out: bool


@router.get("", summary="Who am I", **described({200: SessionView}))
async def show(request: Request) -> Response:
    """The caller and what they may do."""
    doorman = service_of(request).doorman
    if isinstance(doorman, TokenDoorman):
        return reply(_view(*await doorman.admit(request)))
    return reply(_view(await doorman.identify(request), None))


@router.post(
    "", summary="Log in", **described({200: SessionView}, 409, reads=Login, bytes_max=LOGIN_BYTES_MAX, security=OPEN)
)
async def log_in(request: Request) -> Response:
    """Exchange a token for a session cookie, which lasts 12 hours and ends with its token."""
    doorman = _with_tokens(service_of(request).doorman)
    doorman.check_own_page(request)
    asked = await read_json(request, Login, LOGIN_BYTES_MAX)
    cookie = Response()
    session = await begin_session(request, doorman, asked.token, cookie)
    view = _view(Caller(session.tenant, session.name, session.permissions, "session"), session)
    return reply(view, headers={"Set-Cookie": cookie.headers["set-cookie"]})


async def begin_session(request: Request, doorman: TokenDoorman, token: str, answer: Response) -> Holder:
    """A session for whoever shows this token; `answer` gets its cookie. Raises Problem 401 (`bad_token`)."""
    holder = await doorman.tokens.find(token.strip())
    if holder is None:
        raise Problem(401, "bad_token", "the token is unknown, revoked or expired")
    _, text = await doorman.tokens.begin_session(holder, SESSION_SECONDS)
    session = await doorman.tokens.find(text, "session")
    if session is None:
        raise Problem(401, "bad_token", "the token has just ended")
    _set_cookie(request, answer, text, SESSION_SECONDS)
    return session


@router.delete("", summary="Log out", status_code=204, **described({204: None}, 409))
async def log_out(request: Request) -> Response:
    """End the session, also for whoever has copied the cookie. A token is no session: 409."""
    doorman = _with_tokens(service_of(request).doorman)
    _, holder = await doorman.admit(request)
    if holder.kind != "session":
        raise Problem(409, "no_session", "a token is no session; to end it: `surefoot tokens revoke`")
    await doorman.tokens.end(holder)
    answer = Response(status_code=204, headers={"Cache-Control": "no-store"})
    _set_cookie(request, answer, "", 0)
    return answer


def _with_tokens(doorman: object) -> TokenDoorman:
    if not isinstance(doorman, TokenDoorman):
        raise Problem(409, "no_tokens", "this server has no tokens: whoever reaches it on this machine is its user")
    return doorman


def _set_cookie(request: Request, answer: Response, text: str, seconds: int) -> None:
    # Strict: no other site can make a browser send it. Secure, as soon as the way to us is.
    public = service_of(request).options.public_url or ""
    secure = request.url.scheme == "https" or public.startswith("https:")
    answer.set_cookie(COOKIE, text, max_age=seconds, path="/", secure=secure, httponly=True, samesite="strict")


def _view(caller: Caller, holder: Holder | None) -> SessionView:
    session = holder if holder is not None and holder.kind == "session" else None
    return SessionView(
        caller.tenant,
        caller.name,
        sorted(caller.permissions),
        None if session is None else csrf_of(session),
        session is not None,
    )
