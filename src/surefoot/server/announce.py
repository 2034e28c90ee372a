"""Tells a hook of yours which questions wait for people: a signed POST for each, again until it was taken.

At least once: what was sent and not acknowledged is sent again, also by another process, with the action's id as
webhook-id, by which a receiver drops repeats. Which questions are due is read from the store, so nothing is lost with a
process. A question that was answered meanwhile is not announced any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib

import msgspec

from surefoot import http
from surefoot.app import Surefoot
from surefoot.core.redact import safe_error
from surefoot.core.state import ActionStatus
from surefoot.effects import InDoubt, NotSent, Refused
from surefoot.errors import InvalidInput, StoreError
from surefoot.server import signatures
from surefoot.server.links import LINK_SECONDS_MAX, link_to, write_link
from surefoot.server.meters import Meters
from surefoot.server.options import Options
from surefoot.snapshot import action_view, iso
from surefoot.store.listed import ODD
from surefoot.store.port import ActionRow

BACKOFF_SECONDS = (5.0, 30.0, 120.0, 600.0, 1_800.0, 3_600.0)
"""After the first, second … failed attempt; the last holds for all further ones."""
ATTEMPTS_MAX = 20
"""About half a day; the question goes on waiting in the inbox."""
SEND_SECONDS_MAX = 10.0
TAKEN_SECONDS = 20.0
"""A process that dies while it sends loses its claim after this."""
AT_ONCE_MAX = 20
LOOK_AGAIN_SECONDS = 5.0
PAUSE_SECONDS = 0.1
GONE = 410
"""The receiver does not want this one, now or later."""
REPLY_BYTES_MAX = 64 * 1024


class Announcer:
    """Announces the questions of one tenant to one hook."""

    def __init__(self, sf: Surefoot, options: Options, meters: Meters) -> None:
        """Raises InvalidInput (`bad_setting`) where there is a URL and no secret to sign with."""
        if not options.check().announce_url:
            raise InvalidInput("set SUREFOOT_ANNOUNCE_URL to where questions are announced", code="bad_setting")
        self._sf = sf
        self._url = options.announce_url or ""
        self._secret = options.announce_secrets[0]
        self._public_url = (options.public_url or "").rstrip("/")
        self._meters = meters
        self._task: asyncio.Task[None] | None = None
        self.hook = hashlib.sha256(self._url.encode()).hexdigest()[:16]
        """The name under which the store keeps what was announced; the URL may hold a secret."""

    def begin(self) -> None:
        """Announce until `stop`."""
        self._task = asyncio.ensure_future(self._forever())

    async def stop(self) -> None:
        """Send nothing more; what is under way is sent again by whoever comes next."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _forever(self) -> None:
        store = self._sf.store
        while True:
            seen = store.change_count()
            try:
                while await self.announce_due():
                    pass
                due = await store.next_announcement(self._sf.tenant, self.hook, ATTEMPTS_MAX)
            except Exception as problem:
                # Whatever it was: an announcer that silently ended would be worse.
                self._sf.context.log(f"announcements wait: {safe_error(problem, self._sf.redactor)}")
                due = None
            await self._rest(seen, due)

    async def _rest(self, seen: int, due: float | None) -> None:
        """Until the next attempt is due, or something was committed (by us too, which costs one look more)."""
        # A store that commits all the time is not looked at all the time.
        await self._sf.doors.clock.sleep(PAUSE_SECONDS)
        left = LOOK_AGAIN_SECONDS if due is None else due - self._sf.doors.clock.now().wall
        with contextlib.suppress(StoreError):
            await self._sf.store.changed(seen, min(max(left, 0.0), LOOK_AGAIN_SECONDS))

    async def announce_due(self) -> int:
        """Announce what is due; how many were tried. Raises StoreError."""
        sf = self._sf
        taken = await sf.store.take_announcements(sf.tenant, self.hook, TAKEN_SECONDS, AT_ONCE_MAX, ATTEMPTS_MAX)
        await asyncio.gather(*(self._announce(action_id, attempt) for action_id, attempt in taken))
        return len(taken)

    async def _announce(self, action_id: str, attempt: int) -> None:
        sf = self._sf
        again_s = BACKOFF_SECONDS[min(attempt, len(BACKOFF_SECONDS)) - 1] if attempt < ATTEMPTS_MAX else None
        try:
            row = await sf.store.action(sf.tenant, action_id)
            if row.action.status is not ActionStatus.waiting:
                return
            outcome, again_s = await self._send(row, again_s)
        except ODD:
            outcome = "unreadable"  # it may be mended meanwhile
        self._meters.count("announcements", outcome=outcome)
        if outcome != "sent":
            when = "not again" if again_s is None else f"again in {again_s:.0f} s"
            sf.context.log(f"announcing {action_id} to the hook: {outcome} (attempt {attempt}), {when}")
        await sf.store.announced(sf.tenant, action_id, self.hook, outcome, again_s)

    async def _send(self, row: ActionRow, again_s: float | None) -> tuple[str, float | None]:
        """What became of one attempt, and when to try again."""
        sf = self._sf
        body = self.body_of(row)
        headers = signatures.sign(self._secret, row.action.id, int(sf.doors.clock.now().wall), body)
        try:
            async with http.client(sf.context.reading(row.run_id, "announce"), timeout=SEND_SECONDS_MAX) as client:
                await client.post(
                    self._url,
                    content=body,
                    headers={**headers, "Content-Type": "application/json", "User-Agent": "surefoot"},
                    body_bytes_max=REPLY_BYTES_MAX,
                )
        except (Refused, InDoubt) as answer:
            if answer.status == GONE:
                return "gone", None
            asked: float | None = getattr(answer, "retry_after", None)
            if asked and again_s is not None:
                # A hook may ask for less or more time, and not for a silence that outlasts the question.
                again_s = min(asked, BACKOFF_SECONDS[-1])
            return f"http_{answer.status}" if answer.status else "no_answer", again_s
        except NotSent:
            return "unreachable", again_s
        except Exception as problem:
            sf.context.log(f"announcing {row.action.id}: {safe_error(problem, sf.redactor)}")
            return "failed", again_s
        return "sent", None

    def body_of(self, row: ActionRow) -> bytes:
        """The announcement: what the person is asked, redacted, and a link to decide."""
        sf = self._sf
        shown, _ = sf.redactor.patterns_value(msgspec.to_builtins(action_view(row)))
        link = link_to(row.action, sf.tenant, sf.doors.clock.now().wall, seconds=self._link_seconds(row))
        data = {"tenant": sf.tenant, "action": shown, "url": self._public_url + write_link(sf.context.keyring, link)}
        told = {"type": "pending_action.waiting", "timestamp": iso(row.created_at), "data": data}
        return msgspec.json.encode(told)

    def _link_seconds(self, row: ActionRow) -> float:
        ends = row.action.expires_wall
        if ends is None:
            return 7 * 86_400.0
        return min(max(ends - self._sf.doors.clock.now().wall, 1.0), LINK_SECONDS_MAX)
