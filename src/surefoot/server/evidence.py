"""Endpoints of evidence: what GitHub tells us, and what programs of yours know about a call that may have been sent."""

from __future__ import annotations

from typing import Literal

import msgspec
from fastapi import APIRouter, Request, Response

from surefoot.app import Surefoot
from surefoot.core.canonical import digest
from surefoot.core.facts import check_id, check_link, check_reason
from surefoot.effects import Absent, Found, Receipt, Undetermined
from surefoot.server import signatures, webhooks
from surefoot.server.deliveries import Delivery
from surefoot.server.openapi import BY_GITHUB, BY_PAGE, BY_STANDARD, BY_TOKEN, described
from surefoot.server.problems import Problem
from surefoot.server.requests import check_json, checked, decode_json, read_body, visit
from surefoot.server.service import Service, service_of
from surefoot.server.wire import reply

BODY_BYTES_MAX = 1_048_576
KEY_CHARACTERS_MAX = 1_000

router = APIRouter(tags=["evidence"])


class Delivered(msgspec.Struct, frozen=True):
    """What a delivery came to. `settled`: a step that was open is known now; the others changed nothing."""

    outcome: Literal["settled", "known", "repeated", "ignored", "too_old"]


class Reported(msgspec.Struct, frozen=True):
    """Evidence about one call, named by its operation key."""

    key: str
    verdict: Literal["found", "absent", "undetermined"]
    resource_id: str | None = None
    """With `found`: the id of what the call made."""
    url: str | None = None
    output: object = None
    """With `found`: what the model is told."""
    reason: str | None = None
    coverage: dict[str, object] = {}
    """How it was looked up."""


class Recorded(msgspec.Struct, frozen=True):
    """Whether the evidence was new. An absent one settles nothing by itself: the step is looked up the sooner."""

    key: str
    new: bool


@router.post(
    "/v1/webhooks/github",
    summary="A delivery of GitHub's",
    **described({200: Delivered}, 404, reads=Delivery, bytes_max=BODY_BYTES_MAX, security=[BY_GITHUB]),
)
async def github(request: Request) -> Response:
    """Evidence from GitHub, signed with X-Hub-Signature-256 under SUREFOOT_GITHUB_WEBHOOK_SECRET.

    `issue_comment` (created), `pull_request_review` (submitted) and `issues` (opened) of our account with our marker
    settle their step at once. So do `pull_request` (closed, merged with the approved head), and `issues` or
    `pull_request` (closed, labeled) by our account, for a step in doubt that asks for just that. Everything else is
    acknowledged and ignored.
    """
    service = service_of(request)
    secrets = service.options.github_secrets
    if not secrets:
        raise Problem(404, "no_webhook_secret", "set SUREFOOT_GITHUB_WEBHOOK_SECRET to what GitHub signs with")
    raw = await read_body(request, BODY_BYTES_MAX)
    if not signatures.github_signed(secrets, request.headers.get("x-hub-signature-256", ""), raw):
        raise Problem(401, "bad_signature", "no secret of this server has signed this body")
    event = request.headers.get("x-github-event", "")
    tenants = [tenant.sf for tenant in service.tenants.values()]
    try:
        outcome = await webhooks.take_delivery(tenants, event, raw)
    except msgspec.ValidationError as problem:
        raise Problem(422, "invalid_input", f"the delivery does not fit: {problem}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Problem(400, "broken_json", "the body is not JSON; let GitHub send application/json") from None
    service.meters.count("webhooks", source="github", outcome=outcome)
    return reply(Delivered(outcome))


@router.post(
    "/v1/evidence",
    summary="Evidence about a call",
    **described(
        {200: Recorded}, 404, reads=Reported, bytes_max=BODY_BYTES_MAX, security=[BY_TOKEN, BY_PAGE, BY_STANDARD]
    ),
)
async def evidence(request: Request) -> Response:
    """Say what became of a call: by a token with the permission `evidence`, or signed as Standard Webhooks says.

    The secret is SUREFOOT_EVIDENCE_SECRET. The same webhook-id again with the same body answers as
    the first time, with another body 422.
    """
    service = service_of(request)
    if "webhook-signature" not in request.headers:
        caller = await visit(request)
        caller.need("evidence")
        check_json(request)
        told = decode_json(await read_body(request, BODY_BYTES_MAX), Reported)
        by = f"{caller.caller.name}, {caller.caller.source}"
        return reply(await _record(caller.sf, told, by, "report", service))
    check_json(request)
    sf = service.own.sf
    raw = await read_body(request, BODY_BYTES_MAX)
    refused = signatures.check(service.options.evidence_secrets, request.headers, raw, sf.doors.clock.now().wall)
    if refused is not None:
        raise Problem(401, refused.code, refused.text)
    told, name = decode_json(raw, Reported), request.headers["webhook-id"]
    known = await sf.store.marked(sf.tenant, "evidence", name)
    if known is not None:
        outcome, _, before = known.partition(" ")
        if before and before != digest(raw):
            raise Problem(422, "key_reused", "this webhook-id came with another body before: nothing of it is recorded")
        return reply(Recorded(told.key, outcome == "new"))
    recorded = await _record(sf, told, "a signed request", "webhook", service)
    # Behind the report: a process that ends between the two deals with it once more, and nothing changes.
    await sf.store.mark(sf.tenant, "evidence", name, f"{'new' if recorded.new else 'known'} {digest(raw)}")
    return reply(recorded)


async def _record(sf: Surefoot, told: Reported, by: str, source: str, service: Service) -> Recorded:
    known = told.key.strip() and len(told.key) <= KEY_CHARACTERS_MAX
    checked(known, f"key is the operation key of a call: 1 to {KEY_CHARACTERS_MAX} characters, not blank")
    check_reason(told.reason)
    new = await sf.report(told.key, _verdict(told, by), source=source)
    service.meters.count("webhooks", source="evidence", outcome="settled" if new else "known")
    return Recorded(told.key, new)


def _verdict(told: Reported, by: str) -> Found | Absent | Undetermined:
    coverage = {**told.coverage, "reported_by": by}
    if told.verdict == "found":
        resource_id, url = check_id(told.resource_id, "resource_id"), check_link(told.url, "url")
        if resource_id is None and url is None:
            raise Problem(422, "invalid_input", "say what was found with its id or its link: resource_id or url")
        output = told.output if told.output is not None else {"id": resource_id, "url": url}
        return Found(Receipt(resource_id=resource_id, url=url, output=output), coverage=coverage)
    if told.verdict == "absent":
        return Absent(coverage=coverage)
    return Undetermined(told.reason or "reported", coverage=coverage)
