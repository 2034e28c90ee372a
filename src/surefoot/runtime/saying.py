"""Messages of a user to a run under way: each written down once, also where its answer was lost and it comes again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from surefoot.core.decide import add_message
from surefoot.core.draft import Draft
from surefoot.core.ids import RANDOM_BYTES, mint
from surefoot.errors import Conflict, KeyReused
from surefoot.runtime.context import Context
from surefoot.runtime.deciding import handle_of

TRIES_MAX = 100
"""Each is lost to somebody else's append only."""


async def say(ctx: Context, run_id: str, body: bytes, key: str | None) -> bool:
    """Write a message down; False where it was under this key before. Raises NotFound, RunEnded, KeyReused.

    A key gives the message its id, and an id is in a store once: two processes that are told the same at once write
    one message.
    """
    handle = await handle_of(ctx, run_id)
    if key is None:
        new = mint("msg", ctx.doors.clock.now().wall, ctx.doors.entropy.token(RANDOM_BYTES))
        await handle.decide(lambda d: add_message(d, new, "user", body))
        return True
    named = hashlib.sha256(f"{run_id}\n{key}".encode()).digest()
    message_id = mint("msg", handle.run.started.wall, named)
    sure = False
    for _ in range(TRIES_MAX):
        if await _said(ctx, handle.run.conversation_id, message_id, body, key):
            if sure or not await ctx.store.confirm():
                return False
            sure = True
            continue
        try:
            await handle.decide(_once(message_id, body))
            return True
        except _LookAgain:
            continue
    raise Conflict(f"run {run_id}: {TRIES_MAX} conflicts in a row; look at what keeps writing to it")


class _LookAgain(Exception):
    """Somebody else has appended: it may have been this very message."""


def _once(message_id: str, body: bytes) -> Callable[[Draft], None]:
    """A command that is decided once only: before it is decided again somebody has to look whether it is done."""
    first = iter((True,))

    def command(d: Draft) -> None:
        if not next(first, False):
            raise _LookAgain
        add_message(d, message_id, "user", body)

    return command


async def _said(ctx: Context, conversation_id: str, message_id: str, body: bytes, key: str) -> bool:
    # What waits is read first: a message moves from there to its place, and never back.
    waiting = await ctx.store.queued(ctx.tenant_id, conversation_id)
    for row in (*waiting, *await ctx.store.messages(ctx.tenant_id, conversation_id)):
        if row.id == message_id:
            if msgspec.json.decode(row.body) != msgspec.json.decode(body):
                raise KeyReused(f"the key {key!r} came with another message before: use a new key")
            return True
    return False
