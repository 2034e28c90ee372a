"""surefoot actions: list, show, approve, reject, resolve, answer. Decisions are the system user's, or --by's."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine

from surefoot.cli import human
from surefoot.cli.desk import Decide
from surefoot.cli.local import desk
from surefoot.cli.output import DONE, Output, shown
from surefoot.cli.session import given_value, opened
from surefoot.cli.settings import Settings
from surefoot.errors import InvalidInput
from surefoot.snapshot import iso

HOUR_SECONDS = 3_600.0
PUBLIC_URL_DEFAULT = "http://127.0.0.1:8100"
"""Where `surefoot serve` listens unless it is told otherwise; SUREFOOT_PUBLIC_URL says where people reach it."""
NO_PUBLIC_URL = (
    f"surefoot: nothing says where people reach the server (--public-url, SUREFOOT_PUBLIC_URL): this link leads to "
    f"{PUBLIC_URL_DEFAULT}, so it works on this machine alone, and where `surefoot serve` listens on that port"
)

Command = Callable[[argparse.Namespace, Settings, Output], Coroutine[None, None, int]]


async def list_actions(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Questions of every status, or of one, oldest first."""
    async with desk(found, settings, out) as at:
        actions = await at.actions(found.status, found.run)
    out.document(actions)
    human.print_actions(out, actions)
    human.note_unreadable(out, actions.unreadable)
    return DONE


async def show(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """One question with its preview."""
    async with desk(found, settings, out) as at:
        action = await at.action(found.id)
    out.document(action)
    human.print_action(out, action)
    return DONE


async def approve(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Approve exactly what the question is about."""
    return await _decide(found, settings, out, Decide("approve", reason=found.reason, input_hash=found.hash))


async def reject(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Reject it; the model is told."""
    return await _decide(found, settings, out, Decide("reject", reason=found.reason, input_hash=found.hash))


async def resolve(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Say what became of a call that may have been sent."""
    if found.outcome == "happened" and not (found.resource_id or found.link):
        raise InvalidInput("--happened says what was made: add --id X or --link U", code="wrong_use")
    if found.outcome != "happened" and (found.resource_id or found.link):
        raise InvalidInput("--id and --link say what was made: they go with --happened", code="wrong_use")
    made = {"external_resource_id": found.resource_id, "url": found.link}
    return await _decide(found, settings, out, Decide(found.outcome, found.reason, input_hash=found.hash, **made))


async def answer(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Answer a question by a value."""
    return await _decide(
        found, settings, out, Decide("answer", found.reason, value=given_value(found.value), input_hash=found.hash)
    )


async def link(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """A signed link to one question. With --for it is that person's authority to decide."""
    from surefoot.server.links import link_to, write_link
    from surefoot.server.options import Options

    public = Options(public_url=settings.service.get("public_url")).check().public_url
    async with opened(settings, out) as sf:
        row = await sf.store.action(sf.tenant, found.id)
        wall = sf.doors.clock.now().wall
        seconds = found.hours * HOUR_SECONDS
        made = link_to(row.action, sf.tenant, wall, person=found.person, permission=found.permission, seconds=seconds)
        path = write_link(sf.context.keyring, made)
    if public is None:
        out.note(NO_PUBLIC_URL)
    url = (public or PUBLIC_URL_DEFAULT).rstrip("/") + path
    out.document({"url": url, "expires_at": iso(made.expires_at), "person": made.person})
    out.line(url)
    return DONE


async def _decide(found: argparse.Namespace, settings: Settings, out: Output, decision: Decide) -> int:
    async with desk(found, settings, out) as at:
        action = await at.decide(found.id, decision, found.key)
    out.document(action)
    out.line(f"{action.id}  {action.decision} by {shown(action.decided_by)}")
    out.line(f"  > surefoot runs watch {action.run_id}")
    return DONE


COMMANDS: dict[str, Command] = {
    "list": list_actions,
    "show": show,
    "approve": approve,
    "reject": reject,
    "resolve": resolve,
    "answer": answer,
    "link": link,
}
