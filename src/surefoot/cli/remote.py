"""A server as the desk of a command: the HTTP API by httpcore. No effect of a tool passes here."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpcore
import msgspec

from surefoot import errors
from surefoot.cli.desk import Blocked, Cancelled, Decide, Listener
from surefoot.doors import Doors
from surefoot.errors import CommitUnknown, InvalidInput, NotAllowed, NotFound, StoreUnavailable, SurefootError
from surefoot.http import system_doors
from surefoot.snapshot import ActionView, MessageView, RunEvent, RunSnapshot, RunSummary, at_rest
from surefoot.store.listed import Listed, UnreadableRow
from surefoot.views import UNREADABLE_MAX

T = TypeVar("T")

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
SILENCE_SECONDS = 45.0
"""A stream sends something at least every 15 s: a silent one is dead."""
TRIES = 4
"""Of a request whose answer does not come: a repeat is answered as the first one, by its key."""
PAUSE_SECONDS = 0.5
PAUSE_SECONDS_MAX = 10.0
"""Between two tries of somebody who waits for a server that is down."""
UNREADABLE = "server_unreadable"
UNDER_WAY = "request_under_way"
UNDER_WAY_TRIES = 20
"""A little over two minutes."""
NOTHING_SENT = "nothing_sent"
_NOT_CONNECTED = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout)
KEY_BYTES = 16
PAGE = 200

CLASSES = {
    value.code: value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, SurefootError)
}
STATUSES: Mapping[int, type[SurefootError]] = {
    400: InvalidInput,
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: NotAllowed,
    413: InvalidInput,
    415: InvalidInput,
    422: InvalidInput,
    503: StoreUnavailable,
}


ADVICE = {
    "not_signed_in": "the server asks for a token: set SUREFOOT_TOKEN, or give --token; `surefoot tokens create NAME` "
    "makes one where the server's store is",
    "bad_token": "the server does not know this token (SUREFOOT_TOKEN, --token), or it was revoked or has expired",
}
"""What helps on a command line, where the server speaks to whoever sends requests."""


class _Page(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]
    next_cursor: str | None
    unreadable: list[UnreadableRow] = []


class _EventPage(msgspec.Struct, frozen=True):
    items: list[RunEvent]
    next_after: int
    ended: bool


class _Signalled(msgspec.Struct, frozen=True):
    new: bool


class _Problem(msgspec.Struct, frozen=True):
    code: str
    detail: str
    details: dict[str, object] = {}


class Remote:
    """A server, with a token where it wants one. The errors are those that the store itself would raise."""

    def __init__(
        self, url: str, token: str | None, language: str, note: Callable[[str], None], doors: Doors | None = None
    ) -> None:
        place = urlsplit(url)
        if place.username is not None:
            # It would stand in a header and in messages, and servers of surefoot take no password.
            raise InvalidInput("--url holds a user or a password: leave it out, and give --token", code="bad_setting")
        if place.scheme not in ("http", "https") or not place.netloc or place.query:
            raise InvalidInput(
                f"--url is {url!r}: give the address of a server, http://127.0.0.1:8100", code="bad_setting"
            )
        self._url = url.rstrip("/")
        self._note = note
        self._doors = doors or system_doors()
        self._pool = httpcore.AsyncConnectionPool(keepalive_expiry=5.0)
        self._headers = {"Host": place.netloc, "Accept-Language": language, "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    async def __aenter__(self) -> Remote:
        """Nothing is asked yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._pool.aclose()

    # Runs

    async def start(
        self,
        agent: str,
        text: str,
        *,
        key: str | None,
        conversation: str | None,
        metadata: Mapping[str, object] | None,
        priority: int = 0,
    ) -> RunSnapshot:
        """Start a run; without a key one is made up, so that a lost answer makes no second run."""
        body = {
            "agent": agent,
            "input": text,
            "conversation_id": conversation,
            "metadata": dict(metadata or {}),
            "priority": priority,
        }
        return await self._send("/v1/runs", RunSnapshot, body, key=key, keyed=True)

    async def runs(self, status: str | None, agent: str | None, before: str | None, limit: int) -> Listed[RunSummary]:
        """Runs, newest first."""
        query = {"status": status, "agent": agent}
        return await self._pages("/v1/runs", RunSummary, query, limit, before)

    async def run(self, run_id: str) -> RunSnapshot:
        """One run."""
        return await self._get(_run_path(run_id), RunSnapshot)

    async def messages(self, run_id: str) -> list[MessageView]:
        """Its conversation."""
        return await self._pages(f"{_run_path(run_id)}/messages", MessageView, {}, None, None)

    async def follow(self, run_id: str, after: int, tell: Listener, blocked: Blocked) -> RunSnapshot:
        """Tell its events and where it stands still, until it ends or a person is asked.

        A server that has answered once and is down then is waited for until it answers again: what was told is not
        told again, and nothing is left out. Raises what another try does not mend.
        """
        run = await self.run(run_id)
        waiting = Waiting(self._url, self._note)
        while True:
            try:
                async with contextlib.aclosing(self._events(run_id, after)) as events:
                    async for page in events:
                        run = await self._get(_run_path(run_id), RunSnapshot, tries=1)
                        waiting.over()
                        if page:
                            after = page[-1].sequence
                            tell(page, {step.id: step.tool_name for step in run.steps})
                        if at_rest(run) and run.last_event_sequence <= after:
                            return run
                        blocked.see(run)
                await self._doors.clock.sleep(PAUSE_SECONDS)
            except StoreUnavailable as problem:
                if problem.code == UNREADABLE:
                    raise
                await self._doors.clock.sleep(waiting.pause_s(problem) * (0.5 + self._doors.entropy.fraction() / 2))

    async def message(self, run_id: str, text: str, key: str | None) -> RunSnapshot:
        """A message of the user; where the answer is lost, it is sent again under its key, and is one message."""
        path = f"{_run_path(run_id)}/messages"
        return await self._send(path, RunSnapshot, {"text": text}, key=key, keyed=True)

    async def signal(self, run_id: str, name: str, value: object, key: str | None) -> bool:
        """A signal; whether it was new."""
        path, body = f"{_run_path(run_id)}/signals", {"name": name, "value": value}
        return (await self._send(path, _Signalled, body, key=key, keyed=True)).new

    async def retry(self, run_id: str) -> RunSnapshot:
        """Take it up in a new run."""
        return await self._send(f"{_run_path(run_id)}/retry", RunSnapshot)

    async def cancel(self, run_id: str) -> Cancelled:
        """Stop it. It is not repeated where its answer is lost: a second one would be refused, and tell nothing."""
        try:
            return await self._send(f"{_run_path(run_id)}/cancel", Cancelled, tries=1)
        except StoreUnavailable as problem:
            text = f"{problem} Whether the cancel arrived is not known: `surefoot runs show {run_id}` says it"
            raise StoreUnavailable(text, code=problem.code) from None

    # People

    async def actions(self, status: str | None, run_id: str | None) -> Listed[ActionView]:
        """Questions, oldest first."""
        return await self._pages("/v1/pending-actions", ActionView, {"status": status, "run_id": run_id}, None, None)

    async def action(self, action_id: str) -> ActionView:
        """One question."""
        return await self._get(f"/v1/pending-actions/{quote(action_id, safe='')}", ActionView)

    async def decide(self, action_id: str, decision: Decide, key: str | None) -> ActionView:
        """Decide about it; where the answer is lost, the same decision is said again under its key."""
        path = f"/v1/pending-actions/{quote(action_id, safe='')}/decision"
        return await self._send(path, ActionView, decision, key=key, keyed=True)

    # How it is done

    def _key(self) -> str:
        return self._doors.entropy.token(KEY_BYTES).hex()

    async def _get(self, path: str, kind: type[T], tries: int = TRIES) -> T:
        return _decode(await self._ask("GET", path, tries=tries), kind)

    async def _send(
        self,
        path: str,
        kind: type[T],
        body: object = None,
        *,
        key: str | None = None,
        keyed: bool = False,
        tries: int = TRIES,
    ) -> T:
        """The answer to a POST. With `keyed` a key is made where none is given, and told where the answer is lost."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        named = self._key() if key is None and keyed else key
        if named is not None:
            headers["Idempotency-Key"] = f'"{_escaped(named)}"'
        data = b"" if body is None else msgspec.json.encode(body)
        try:
            return _decode(await self._ask("POST", path, data, headers, tries), kind)
        except (StoreUnavailable, CommitUnknown) as problem:
            if named is None or key is not None or problem.details.get(NOTHING_SENT) is True:
                raise
            text = (
                f"{problem}. Whether it was done is not known: the same command with --key {named} does it once at most"
            )
            raise type(problem)(text, code=problem.code, details={**problem.details, "key": named}) from None

    async def _pages(
        self, path: str, kind: type[T], query: Mapping[str, object], limit: int | None, cursor: str | None
    ) -> Listed[T]:
        """The items of every page, at most `limit`."""
        found: Listed[T] = Listed()
        while limit is None or (len(found) < limit and len(found.unreadable) < UNREADABLE_MAX):
            size = PAGE if limit is None else min(PAGE, limit - len(found))
            data = await self._ask("GET", f"{path}?{_query({**query, 'limit': size, 'cursor': cursor})}")
            page = _decode(data, _Page[kind])  # type: ignore[valid-type]  # msgspec reads the type that it is given
            cursor = page.next_cursor
            found.go_on(Listed(page.items, page.unreadable, cursor))
            if cursor is None:
                break
        return found

    async def _ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, tries: int = TRIES
    ) -> bytes:
        tried, nothing_sent = 0, True
        while True:
            tried += 1
            try:
                async with self._stream(method, path, body, headers or {}, READ_SECONDS) as answer:
                    return await _whole(answer)
            except StoreUnavailable as problem:
                nothing_sent &= problem.details.get(NOTHING_SENT) is True
                if tried >= tries:
                    problem.details[NOTHING_SENT] = nothing_sent
                    raise
            except NotAllowed as problem:
                # An answer was lost before, and what it was to answer is still being done.
                if problem.code != UNDER_WAY or tries == 1:
                    raise
                if tried >= UNDER_WAY_TRIES:
                    raise StoreUnavailable(f"{problem}, and has not ended", code=UNDER_WAY) from None
            await self._doors.clock.sleep(min(PAUSE_SECONDS * tried, PAUSE_SECONDS_MAX))

    @contextlib.asynccontextmanager
    async def _stream(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], read_s: float
    ) -> AsyncIterator[httpcore.Response]:
        sent = [(name.encode(), value.encode()) for name, value in {**self._headers, **headers}.items()]
        if method == "POST":
            sent.append((b"Content-Length", str(len(body)).encode()))
        timeout = {"connect": CONNECT_SECONDS, "read": read_s, "write": READ_SECONDS, "pool": CONNECT_SECONDS}
        try:
            async with self._pool.stream(
                method, self._url + path, headers=sent, content=body or None, extensions={"timeout": timeout}
            ) as answer:
                yield answer
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as problem:
            raise StoreUnavailable(
                f"the server at {self._url} cannot be reached ({type(problem).__name__}); is `surefoot serve` running?",
                code="server_unreachable",
                details={NOTHING_SENT: isinstance(problem, _NOT_CONNECTED)},
            ) from None

    async def _events(self, run_id: str, after: int) -> AsyncGenerator[list[RunEvent], None]:
        """New events as they come; an empty list where there were none for a while, and at the end."""
        path = f"{_run_path(run_id)}/events"
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        async with self._stream("GET", path, b"", headers, SILENCE_SECONDS) as answer:
            if answer.status != HTTPStatus.OK:
                await _whole(answer)
                yield []
                return
            rest = b""
            async for piece in answer.aiter_stream():
                *frames, rest = (rest + piece).split(b"\n\n")
                yield [event for frame in frames if (event := _event(frame)) is not None]
        yield []


class Waiting:
    """Waits for a server that is down: says so once, and that it is back."""

    def __init__(self, url: str, note: Callable[[str], None]) -> None:
        self._url = url
        self._note = note
        self._failures = 0

    def pause_s(self, problem: StoreUnavailable) -> float:
        """How long to wait before the next try."""
        if self._failures == 0:
            self._note(
                f"surefoot: waiting for the server ({problem}). This goes on where it was once it answers; Ctrl-C ends "
                "the waiting, not the run"
            )
        self._failures += 1
        return min(PAUSE_SECONDS * 2.0 ** min(self._failures - 1, 10), PAUSE_SECONDS_MAX)

    def over(self) -> None:
        """It answers."""
        if self._failures:
            self._note(f"surefoot: the server at {self._url} answers again")
        self._failures = 0


def _run_path(run_id: str) -> str:
    return f"/v1/runs/{quote(run_id, safe='')}"


def _query(given: Mapping[str, object]) -> str:
    return urlencode({name: value for name, value in given.items() if value is not None})


def _escaped(key: str) -> str:
    if not key.isascii() or not key.isprintable():
        raise InvalidInput("with a server --key is printable ASCII", code="wrong_use")
    return key.replace("\\", "\\\\").replace('"', '\\"')


def _event(frame: bytes) -> RunEvent | None:
    """The event of a frame; control frames, which have no id, are none."""
    fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if b": " in line)
    return msgspec.json.decode(fields[b"data"], type=RunEvent) if b"id" in fields else None


async def _whole(answer: httpcore.Response) -> bytes:
    """The body of a good answer. Raises what a problem says."""
    body = await answer.aread()
    if answer.status < HTTPStatus.BAD_REQUEST:
        return body
    try:
        problem = msgspec.json.decode(body, type=_Problem)
    except msgspec.MsgspecError:
        raise StoreUnavailable(
            f"the server answered {answer.status} and no problem document: is --url that of a surefoot server?",
            code="server_unreachable",
        ) from None
    kind = CLASSES.get(problem.code) or STATUSES.get(answer.status, SurefootError)
    detail = ADVICE.get(problem.code, problem.detail)
    if problem.code == errors.RunEnded.code and (conversation := problem.details.get("conversation_id")):
        detail = f"the run has ended: `surefoot runs start AGENT TEXT --conversation {conversation}` goes on"
    raise kind(detail, code=problem.code, details=problem.details)


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as problem:
        raise StoreUnavailable(
            f"the server's answer cannot be read ({problem}): is it another version of surefoot?",
            code=UNREADABLE,
        ) from None
