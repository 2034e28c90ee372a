"""The World: a double of GitHub that keeps its own log and misbehaves as told. The judge of what really happened.

It is a pure object: no sockets, no clock, no chance. A simulation calls `handle` on its virtual clock; `WorldServer`
(world_server.py) serves the same object over real sockets. Requests that are late on their way take effect when `due`
is called with a time at which they have arrived; `next_due` says when that is.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from surefoot.core.marker import encode_key
from surefoot.testing import faults as f
from surefoot.testing.github_call import Call, View, fail
from surefoot.testing.github_hub import Hub, Made
from surefoot.testing.github_routes import dispatch
from surefoot.testing.github_state import Account, error_body
from surefoot.testing.wire import (
    Applied,
    Close,
    LogEntry,
    Outcome,
    Received,
    Replied,
    Reply,
    WireRequest,
    json_reply,
    received,
)

BOT = Account("surefoot-bot", 41_000_001, "Bot")
TOKEN = "world-token"
"""The token that works if no others are given; its account is BOT."""

RATE_WINDOW_SECONDS = 3_600.0
NOT_NEW = frozenset({"comment_edited", "comment_deleted"})


class Treatment(msgspec.Struct, frozen=True):
    """What a deciding fault makes of a request, in the World's own terms."""

    apply_after: float | None = 0.0
    """Seconds until it takes effect; None: never."""
    reply: Reply | None = None
    """Takes the place of the real reply."""
    close: Close = "keep"
    close_after: float | None = 0.0
    body_bytes: int | None = None
    spoil: str | None = None


class World(Hub):
    """GitHub with faults and a log. All times are seconds of the clock that the caller passes in.

    `accounts` maps tokens to accounts; an unknown token gets 401. `rate_limit` requests an hour are served to each
    account, then 403. `content_per_minute`, if set, is the secondary limit: more writes get 403 with Retry-After.
    `deletion_events` lists deleted comments among the issue's events. `on_log` is called with every new log entry.
    """

    def __init__(
        self,
        *,
        now: float = 1_700_000_000.0,
        accounts: Mapping[str, Account] | None = None,
        rules: Iterable[f.Rule] = (),
        rate_limit: int = 5_000,
        content_per_minute: int | None = None,
        search_lag_seconds: float = 10.0,
        key_lifetime_seconds: float = 86_400.0,
        deletion_events: bool = False,
        on_log: Callable[[LogEntry], None] | None = None,
    ) -> None:
        super().__init__(
            now=now,
            accounts=accounts if accounts is not None else {TOKEN: BOT},
            search_lag_seconds=search_lag_seconds,
            key_lifetime_seconds=key_lifetime_seconds,
            deletion_events=deletion_events,
        )
        self.faults = f.FaultPlan(tuple(rules))
        self.log: list[LogEntry] = []
        self.on_log = on_log
        self.on_change = self._changed
        self._rate_limit = rate_limit
        self._content_per_minute = content_per_minute
        self._requests = 0
        self._windows: dict[str, tuple[float, int]] = {}
        self._writes: dict[str, list[float]] = {}
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._tie = 0

    def handle(self, request: WireRequest, now: float) -> Outcome:
        """Take a request that arrived at `now`; the outcome says what its sender gets to see, and when."""
        self.due(now)
        self.now = now
        self._requests += 1
        number = self._requests
        account = self._account(request)
        login = account.login if account else None
        self._write(received(len(self.log) + 1, now, number, request, login))
        hits = self.faults.hits(request, login, now)
        for hit in hits:
            if isinstance(hit, f.Change):
                self.change(hit.action, hit.arguments)
        treatment = treatment_of(hits, request)
        call = self._apply(request, number, account, now, hits, treatment.apply_after)
        outcome = _outcome(number, now, treatment, call[0] if call else None, hits)
        self._note_answer(outcome, now, hits, call[1] if call else None)
        return outcome

    def due(self, now: float) -> None:
        """Let everything happen that was to happen until `now`, in its order and at its own times."""
        while self._later and self._later[0][0] <= now:
            at, _, action = heapq.heappop(self._later)
            self.now = at
            action()

    def next_due(self) -> float | None:
        """When something happens next without a new request; None if nothing is under way."""
        return self._later[0][0] if self._later else None

    def effects(self, marker_key: str) -> list[Applied]:
        """What requests made that carry this operation key, in a marker or as Idempotency-Key; deleted ones too."""
        # A business key may have what a marker writes in another way.
        written = "|".join(map(re.escape, (marker_key, encode_key(marker_key))))
        marker = re.compile(rf"agent-operation:(?:{written})(?![\w:.%-])")
        made = [e for e in self.log if isinstance(e, Applied) and e.request and e.kind not in NOT_NEW]
        return [e for e in made if e.key == marker_key or marker.search(e.text)]

    def requests(self, method: str = "*", path: str = "**") -> list[Received]:
        """The requests that arrived, by method and by a path pattern as in Rule."""
        entries = [e for e in self.log if isinstance(e, Received)]
        return [e for e in entries if method in ("*", e.method) and f.path_matches(path, e.path)]

    def replies(self, request: int) -> list[Replied]:
        """How the request with that number was answered: one entry once the answer has left."""
        return [e for e in self.log if isinstance(e, Replied) and e.request == request]

    def _account(self, request: WireRequest) -> Account | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return self.accounts.get(token.strip()) if scheme.lower() in ("bearer", "token") else None

    def _apply(
        self,
        request: WireRequest,
        number: int,
        account: Account | None,
        now: float,
        hits: tuple[f.AnyFault, ...],
        after: float | None,
    ) -> tuple[Reply, tuple[int, ...] | None] | None:
        """Serve the request now, put it off, or never: what it answered and listed, if now."""
        if after is None:
            return None
        if after > 0:
            self._put_off(now + after, lambda: self._serve(request, number, account, now + after, hits))
            return None
        return self._serve(request, number, account, now, hits)

    def _serve(
        self, request: WireRequest, number: int, account: Account | None, now: float, hits: tuple[f.AnyFault, ...]
    ) -> tuple[Reply, tuple[int, ...] | None]:
        if account is None:
            return fail(401, "Bad credentials").reply, None
        limited, headers = self._limits(request, account, now)
        if limited is not None:
            return _with(limited, headers), None
        call = Call(self, request, account, now, _view(hits))
        reply = dispatch(call)
        if call.made is not None:
            self._note_effect(number, call.made, account, now, request.headers.get("idempotency-key"))
        return _with(reply, headers), call.listed

    def _limits(self, request: WireRequest, account: Account, now: float) -> tuple[Reply | None, dict[str, str]]:
        """A refusal for too many requests, if there were, and the headers that every reply carries."""
        start, used = self._windows.get(account.login, (now, 0))
        if now >= start + RATE_WINDOW_SECONDS:
            start, used = now, 0
        used += 1
        self._windows[account.login] = (start, used)
        headers = {
            "x-ratelimit-limit": str(self._rate_limit),
            "x-ratelimit-remaining": str(max(self._rate_limit - used, 0)),
            "x-ratelimit-reset": str(int(start + RATE_WINDOW_SECONDS)),
            "x-ratelimit-used": str(min(used, self._rate_limit)),
            "x-ratelimit-resource": "core",
            "x-github-request-id": f"{self._requests:04X}:W",
        }
        if used > self._rate_limit:
            return fail(403, f"API rate limit exceeded for user ID {account.id}.").reply, headers
        return self._secondary(request, account, now), headers

    def _secondary(self, request: WireRequest, account: Account, now: float) -> Reply | None:
        if self._content_per_minute is None or request.method in ("GET", "HEAD"):
            return None
        recent = [at for at in self._writes.get(account.login, []) if at > now - 60]
        if len(recent) < self._content_per_minute:
            self._writes[account.login] = [*recent, now]
            return None
        wait = str(int(recent[0] + 60 - now) + 1)
        return fail(403, "You have exceeded a secondary rate limit.", {"retry-after": wait}).reply

    def _changed(self, made: Made, account: Account) -> None:
        self._note_effect(0, made, account, self.now, None)

    def _note_effect(self, number: int, made: Made, account: Account, at: float, key: str | None) -> None:
        order = len(self.log) + 1
        entry = Applied(order, at, number, made.kind, made.resource_id, made.place, account.login, made.text, key)
        self._write(entry)

    def _note_answer(
        self, outcome: Outcome, now: float, hits: tuple[f.AnyFault, ...], listed: tuple[int, ...] | None
    ) -> None:
        """The answer's line: at once, or when the answer leaves."""
        names = tuple(str(hit.__struct_config__.tag) for hit in hits)
        end = "cut" if outcome.body_bytes is not None else "reply" if outcome.close == "keep" else outcome.close
        status = outcome.reply.status if outcome.reply is not None else None

        def note(at: float) -> None:
            self._write(Replied(len(self.log) + 1, at, outcome.request, status, end, names, listed))

        if outcome.at is None or outcome.at <= now:
            note(now)
        else:
            at = outcome.at
            self._put_off(at, lambda: note(at))

    def _put_off(self, at: float, action: Callable[[], object]) -> None:
        self._tie += 1
        heapq.heappush(self._later, (at, self._tie, lambda: (action(), None)[1]))

    def _write(self, entry: LogEntry) -> None:
        self.log.append(entry)
        if self.on_log is not None:
            self.on_log(entry)


def treatment_of(hits: tuple[f.AnyFault, ...], request: WireRequest) -> Treatment:
    """What the first deciding fault makes of the request; without one it is served."""
    for hit in hits:
        match hit:
            case f.LostRequest(how=how):
                return Treatment(apply_after=None, close=how, close_after=_when(how))
            case f.LostReply(how=how):
                return Treatment(close=how, close_after=_when(how))
            case f.StatusBefore():
                return Treatment(apply_after=None, reply=_made_up(hit, request))
            case f.StatusAfter():
                return Treatment(reply=_made_up(hit, request))
            case f.Hang(seconds=seconds, applied=applied):
                return Treatment(apply_after=0.0 if applied else None, close="hang", close_after=seconds)
            case f.ResetMidBody(after_bytes=count, how=how):
                return Treatment(close=how, body_bytes=count)
            case f.Late(seconds=seconds, answer=int(status)):
                return Treatment(apply_after=seconds, reply=json_reply(status, error_body(status, "Timed out")))
            case f.Late(seconds=seconds, answer="reset" | "fin" | "hang" as how):
                return Treatment(apply_after=seconds, close=how, close_after=_when(how))
            case f.BadJson():
                return Treatment(spoil="half")
            case f.EmptyBody():
                return Treatment(spoil="empty")
    return Treatment()


def _when(how: Close) -> float | None:
    return None if how == "hang" else 0.0


def _made_up(fault: f.StatusBefore | f.StatusAfter, request: WireRequest) -> Reply:
    secret = request.headers.get("authorization", "") if fault.echo_authorization else ""
    body = error_body(fault.status, f"Simulated {fault.status} {secret}".rstrip()) if fault.body is None else fault.body
    headers = {name.lower(): value for name, value in fault.headers.items()}
    return json_reply(fault.status, body, headers | ({"x-echo": secret} if secret else {}))


def _view(hits: tuple[f.AnyFault, ...]) -> View:
    view = View()
    for hit in hits:
        match hit:
            case f.StaleListing(seconds=seconds):
                view = msgspec.structs.replace(view, listing_age_seconds=seconds)
            case f.StaleCount(seconds=seconds):
                view = msgspec.structs.replace(view, count_age_seconds=seconds)
            case f.OrderChanged(shift=shift, newest_first=newest_first):
                view = msgspec.structs.replace(view, shift=0 if newest_first else shift, newest_first=newest_first)
            case _:
                pass
    return view


def _outcome(
    number: int, now: float, treatment: Treatment, real: Reply | None, hits: tuple[f.AnyFault, ...]
) -> Outcome:
    delay = sum(hit.seconds for hit in hits if isinstance(hit, f.Delay))
    at = None if treatment.close_after is None else now + treatment.close_after + delay
    if treatment.close != "keep" and treatment.body_bytes is None:
        return Outcome(number, None, at, treatment.close)
    reply = treatment.reply or real
    if reply is None:
        raise AssertionError("a request that is not served is answered by its fault")
    return Outcome(number, _spoiled(reply, treatment.spoil), at, treatment.close, treatment.body_bytes)


def _spoiled(reply: Reply, spoil: str | None) -> Reply:
    if spoil is None:
        return reply
    return Reply(reply.status, reply.headers, reply.body[: len(reply.body) // 2] if spoil == "half" else b"")


def _with(reply: Reply, headers: Mapping[str, str]) -> Reply:
    return Reply(reply.status, {**headers, **reply.headers}, reply.body)
