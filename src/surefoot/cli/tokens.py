"""surefoot tokens: create (shown once), list, revoke. Whoever may write the store's file may make tokens."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine

import msgspec

from surefoot.app import Surefoot
from surefoot.cli.human import note_unreadable
from surefoot.cli.output import DONE, Output, local, shown
from surefoot.cli.session import entered, opened
from surefoot.cli.settings import Settings
from surefoot.errors import NotFound, Unreadable
from surefoot.server.tokens import MARKS, Tokens
from surefoot.snapshot import iso
from surefoot.store.access import Credential

Command = Callable[[argparse.Namespace, Settings, Output], Coroutine[None, None, int]]
DAY_SECONDS = 86_400.0


class TokenView(msgspec.Struct, frozen=True):
    """A token as it is listed: everything but its secret, which is nowhere."""

    id: str
    tenant: str
    name: str
    permissions: tuple[str, ...]
    created_at: str | None
    expires_at: str | None
    revoked_at: str | None
    token: str | None = None
    """The token itself, in the answer that made it and never again."""


def tokens_of(sf: Surefoot) -> Tokens:
    """The tokens of the store."""
    return Tokens(sf.store, sf.doors.clock, sf.doors.entropy)


async def create(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Make a token and show it, once."""
    async with opened(settings, out) as sf:
        expires_s = None if found.expires_days is None else found.expires_days * DAY_SECONDS
        made, text = await tokens_of(sf).create(sf.tenant, found.name, found.permission, expires_s=expires_s)
    out.document(_view(made, text))
    out.line(text)
    out.note(f"{made.id} of {shown(made.name)}: it is shown this once, and kept nowhere")
    return DONE


async def list_tokens(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """The tokens of the tenant, oldest first."""
    sf = await entered(opened(settings, out), settings, out)
    try:
        rows = await sf.store.credentials(sf.tenant, "token")
        now = sf.doors.clock.now().wall
    finally:
        await sf.close()
    out.document([_view(row) for row in rows])
    states = [(row.id, shown(row.name), shown(" ".join(row.permissions)), _state(row, now)) for row in rows]
    none = "" if rows.unreadable else "there is no token; `surefoot tokens create NAME --permission read` makes one"
    out.table(states or [(none,)])
    note_unreadable(out, rows.unreadable)
    return DONE


async def revoke(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """End a token and the sessions that began with it. Said again, it is ended already."""
    async with opened(settings, out) as sf:
        if not found.id.startswith(MARKS["token"] + "_") or not await _is_there(sf, found.id):
            raise NotFound(f"no token {found.id}; `surefoot tokens list` shows what there is")
        await sf.store.revoke_credential(sf.tenant, found.id)
        row = await sf.store.credential(sf.tenant, found.id)
    assert row is not None, "it was there just now, and tokens are kept"
    out.document(_view(row))
    out.line(f"{row.id} of {shown(row.name)} is revoked")
    return DONE


async def _is_there(sf: Surefoot, token_id: str) -> bool:
    """One that cannot be read is there too, until it is revoked."""
    try:
        return await sf.store.credential(sf.tenant, token_id) is not None
    except Unreadable:
        return True


def _view(row: Credential, text: str | None = None) -> TokenView:
    times = (iso(row.created_at), iso(row.expires_at), iso(row.revoked_at))
    return TokenView(row.id, row.tenant_id, row.name, row.permissions, *times, token=text)


def _state(row: Credential, now: float) -> str:
    if row.revoked_at is not None:
        return f"revoked {local(iso(row.revoked_at))}"
    if row.expires_at is None:
        return "no end"
    return f"{'until' if row.expires_at > now else 'expired'} {local(iso(row.expires_at))}"


COMMANDS: dict[str, Command] = {"create": create, "list": list_tokens, "revoke": revoke}
