"""What a link leads to. GET and HEAD show, whoever follows it: mail scanners and previews too. Only a POST decides."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from typing import Literal
from urllib.parse import parse_qsl

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from surefoot.core.state import ActionKind
from surefoot.errors import AlreadyDecided, NotAllowed, NotFound, SurefootError
from surefoot.runtime.deciding import tell_refused
from surefoot.server import link_texts as t
from surefoot.server.callers import LOOPBACK_HOSTS, Caller
from surefoot.server.doorman import TokenDoorman, address_of, check_host, check_own_page, csrf_of
from surefoot.server.links import PATH, Link, read_link
from surefoot.server.people import ACT_OF
from surefoot.server.problems import Problem, problem_of
from surefoot.server.requests import read_body
from surefoot.server.service import Service, Tenant, service_of
from surefoot.server.sessions import begin_session
from surefoot.snapshot import ActionView, action_view
from surefoot.store.port import ActionRow
from surefoot.vocabulary import language_of

FORM_BYTES_MAX = 16_384
NONCE_BYTES = 16
FORM = "application/x-www-form-urlencoded"
DECIDABLE = (ActionKind.approve, ActionKind.duplicate)
HERE = "here"
"""Set on the second way in. A browser that comes from elsewhere sends no cookie; one that comes from here does."""

router = APIRouter(prefix=PATH.rstrip("/"), include_in_schema=False)


class Holding(msgspec.Struct, frozen=True):
    """A good link, and who decides by it: the person that it names, or whoever has logged in."""

    text: str
    link: Link
    tenant: Tenant
    row: ActionRow
    name: str | None
    source: str
    csrf: str | None = None
    refused: str | None = None
    """Why this person may not decide."""

    @property
    def path(self) -> str:
        """Where its form is sent."""
        return PATH + self.text


@router.api_route("/{text}", methods=["GET", "HEAD"])
async def show(request: Request, text: str) -> Response:
    """The action, with buttons where it waits. Changes nothing, whatever follows it."""
    language = language_of(request.headers.get("accept-language"))
    try:
        check_host(request, _hosts(service_of(request)))
        held = await _hold(request, text)
    except SurefootError as problem:
        return _refusal(problem, language)
    except Problem as problem:
        return _answer(t.page(language, t.text("refused", language), t.paragraph(problem.detail)), problem.status)
    if held.name is None:
        return _log_in_page(request, held, language)
    action = action_view(held.row, language)
    if action.status != "waiting":
        return _standing(action, language, 410)
    return _answer(t.page(language, action.display.text, *_question(held, action, language)), 200)


@router.post("/{text}")
async def decide(request: Request, text: str) -> Response:
    """The decision of a person, or their logging in. Answers with a page that says what was recorded."""
    language = language_of(request.headers.get("accept-language"))
    try:
        _check_page(service_of(request), request)
        raw = await read_body(request, FORM_BYTES_MAX)
        given = parse_qsl(raw.decode("utf-8", "replace"), max_num_fields=10)
        fields = dict(given)
        if len(fields) < len(given):
            raise Problem(400, "repeated_member", "the form says something twice; say it once")
        if "token" in fields:
            return await _log_in(request, text, fields["token"])
        return await _decide(await _hold(request, text), fields, language)
    except AlreadyDecided:
        held = await _hold(request, text)
        return _standing(action_view(held.row, language), language, 409)
    except SurefootError as problem:
        return _refusal(problem, language)
    except Problem as problem:
        return _answer(t.page(language, t.text("refused", language), t.paragraph(problem.detail)), problem.status)
    except ValueError:
        return _answer(t.page(language, t.text("refused", language)), 400)


async def _decide(held: Holding, fields: dict[str, str], language: str) -> Response:
    choice = _choice(fields.get("decision"))
    if held.name is None:
        raise Problem(401, "not_signed_in", "log in first")
    if held.refused is not None:
        about, ctx = f"run {held.row.run_id}", held.tenant.sf.context
        tell_refused(ctx, about, held.row.action.id, "", held.name, "not_permitted")
        raise Problem(403, "not_permitted", held.refused)
    if held.csrf is not None and not hmac.compare_digest(fields.get("csrf", "").encode(), held.csrf.encode()):
        raise Problem(403, "bad_csrf", "open the link again, and decide on its page")
    if held.row.action.kind not in DECIDABLE:
        raise Problem(409, "not_allowed", t.text("elsewhere", language))
    sf, key = held.tenant.sf, f"link:{fields.get('key', '')[:64]}" if fields.get("key") else None
    decision = sf.approve if choice == "approve" else sf.reject
    row = await decision(
        held.row.action.id,
        by=held.name,
        reason=fields.get("reason", "").strip()[:2_000] or None,
        input_hash=held.link.input_hash,
        key=key,
        source=held.source,
    )
    return _standing(action_view(row, language), language, 200)


def _choice(given: str | None) -> Literal["approve", "reject"]:
    if given == "approve" or given == "reject":
        return "approve" if given == "approve" else "reject"
    raise Problem(400, "wrong_decision", "the decision is approve or reject")


async def _hold(request: Request, text: str) -> Holding:
    """Raises NotAllowed (`link_forged`, `link_expired`), NotFound."""
    service = service_of(request)
    sf = service.own.sf
    link = read_link(sf.context.keyring, text, sf.doors.clock.now().wall)
    try:
        tenant = await service.tenant(link.tenant)  # our keyring has signed its name
    except NotFound:
        raise NotAllowed("this server does not work for the tenant of this link", code="link_forged") from None
    row = await tenant.sf.store.action(link.tenant, link.action_id)
    if row.action.input_hash != link.input_hash:
        raise NotAllowed("this link is for other content than the question has", code="link_forged")
    if link.person is not None:
        return Holding(text, link, tenant, row, link.person, f"a link, from {address_of(request)}")
    caller, csrf = await _caller(service, request)
    if caller is None or caller.tenant != link.tenant:
        return Holding(text, link, tenant, row, None, "")
    refused = await _why_not(caller, tenant, row, link)
    return Holding(text, link, tenant, row, caller.name, f"a link, on {caller.source}", csrf, refused)


async def _caller(service: Service, request: Request) -> tuple[Caller | None, str | None]:
    """Who has logged in, or the user of a machine without tokens; None for nobody, and for a way in from elsewhere."""
    doorman = service.doorman
    try:
        if not isinstance(doorman, TokenDoorman):
            return await doorman.identify(request), None
        found = await doorman.by_cookie(request)
    except Problem:
        return None, None
    return (None, None) if found is None else (found[0], csrf_of(found[1]))


async def _why_not(caller: Caller, tenant: Tenant, row: ActionRow, link: Link) -> str | None:
    step = await tenant.sf.store.step(link.tenant, row.action.step_id)
    fits = caller.may(
        ACT_OF[row.action.kind],
        tool=row.tool_name,
        effect_class=step.step.rules.effect.value,
        permission=row.action.permission,
    )
    if link.permission is not None:
        # Whatever the question is: who may only say what became of calls has not got a permission that somebody named.
        fits &= caller.may("approve", permission=link.permission)
    return None if fits else f"{caller.name} may not decide about this"


def _check_page(service: Service, request: Request) -> None:
    check_own_page(request, _hosts(service))
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != FORM:
        # What other pages can send besides is no form of ours.
        raise Problem(415, "not_a_form", f"a decision is the form of this page, {FORM}, not {media or 'of no type'}")


def _hosts(service: Service) -> Collection[str]:
    return service.doorman.hosts if isinstance(service.doorman, TokenDoorman) else LOOPBACK_HOSTS


async def _log_in(request: Request, text: str, token: str) -> Response:
    doorman = service_of(request).doorman
    if not isinstance(doorman, TokenDoorman):
        raise Problem(409, "no_tokens", "this server has no tokens")
    answer = RedirectResponse(f"{PATH}{text}?{HERE}=1", status_code=303, headers=t.HEADERS)
    await begin_session(request, doorman, token, answer)
    return answer


# Pages


def _question(held: Holding, action: ActionView, language: str) -> list[str]:
    parts = [t.action_part(action, language)]
    if held.refused is not None:
        return [*parts, t.paragraph(held.refused)]
    if held.row.action.kind not in DECIDABLE:
        return [*parts, t.paragraph(t.text("elsewhere", language)), t.link("/", t.text("inbox", language))]
    # A form that is sent twice is one decision; the page, opened again, is another form.
    nonce = held.tenant.sf.doors.entropy.token(NONCE_BYTES).hex()
    hidden = {"key": nonce} | ({"csrf": held.csrf} if held.csrf is not None else {})
    buttons = [("decision", word, t.text(word, language)) for word in ("approve", "reject")]
    parts.append(t.paragraph(t.text("as", language, name=held.name or "")))
    return [*parts, t.form(held.path, hidden, t.reason_field(language), buttons)]


def _log_in_page(request: Request, held: Holding, language: str) -> Response:
    """The content is not shown to whoever has the link. First the browser comes again from here, with its cookie."""
    if HERE not in request.query_params:
        again = f"{held.path}?{HERE}=1"
        title = t.text("log_in", language)
        return _answer(t.page(language, title, t.link(again, t.text("enter", language)), refresh=again), 200)
    fields = t.form(held.path, {}, t.token_field(language), [("go", "1", t.text("enter", language))])
    return _answer(t.page(language, t.text("log_in", language), fields), 401)


def _standing(action: ActionView, language: str, status: int) -> Response:
    title = t.text("recorded", language)
    if action.decision is None:
        return _answer(t.page(language, action.display.text), status)
    told = t.text(
        "decided", language, decision=action.display.text, name=action.decided_by or "", at=action.decided_at or ""
    )
    return _answer(t.page(language, title, t.paragraph(told), t.link("/", t.text("inbox", language))), status)


def _refusal(problem: SurefootError, language: str) -> Response:
    status = {"link_forged": 403, "link_expired": 410, "action_expired": 410}.get(problem.code)
    known = problem.code in t.TEXTS
    words = t.text(problem.code, language) if known else str(problem)
    page = t.page(language, t.text("refused", language), t.paragraph(words), t.link("/", t.text("inbox", language)))
    return _answer(page, problem_of(problem).status if status is None else status)


def _answer(content: str, status: int) -> Response:
    return HTMLResponse(content, status, t.HEADERS)
