"""Endpoints of runs: start, list, look, follow, talk, cancel."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from msgspec.structs import replace

from surefoot.core.state import RunStatus
from surefoot.errors import RunEnded
from surefoot.server import sse
from surefoot.server.openapi import described
from surefoot.server.problems import Problem, bad_cursor
from surefoot.server.requests import KeyHeader, NeededKeyHeader, Reader, Starter, accepts, body_of, read_key
from surefoot.server.service import Visit, service_of
from surefoot.server.wire import (
    Cancelled,
    EventPage,
    MessagePage,
    NewMessage,
    RunPage,
    Signal,
    Signalled,
    StartRun,
    reply,
)
from surefoot.snapshot import RunSnapshot, message_view, public_event, read_calls, run_summary
from surefoot.views import RUN_ID

router = APIRouter(prefix="/v1/runs", tags=["runs"])

LIMIT_DEFAULT = 50
LIMIT_MAX = 500
SEQUENCE_MAX = 2**53
_DIGITS = frozenset("0123456789")
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="How many at most.")]


@router.post(
    "",
    status_code=201,
    summary="Start a run",
    **described({201: RunSnapshot, 200: RunSnapshot}, 404, 409, reads=StartRun),
)
async def start(
    visit: Starter, asked: Annotated[StartRun, Depends(body_of(StartRun))], key: NeededKeyHeader = None
) -> Response:
    """Start a run: 201 with its snapshot.

    The Idempotency-Key is needed. The same key with the same body answers 200 with the run that was made first, as it
    stands now; with another body 422; while the first request is under way 409. A key holds as long as its run is kept.
    """
    name = read_key(key, needed=True)
    assert name is not None
    if name in visit.starting:
        raise Problem(
            409, "request_under_way", "the first request with this key is under way", headers={"Retry-After": "1"}
        )
    visit.starting.add(name)
    try:
        new = visit.sf.new_run(
            asked.agent,
            asked.input,
            key=name,
            conversation_id=asked.conversation_id,
            metadata=asked.metadata,
            priority=asked.priority,
            by=visit.caller.name,
        )
        run, made = await visit.sf.begin(new)
    finally:
        visit.starting.discard(name)
    snapshot = await visit.sf.snapshot(run.id, visit.language)
    return reply(_told(visit, snapshot), 201 if made else 200, {"Location": f"/v1/runs/{run.id}"})


@router.get("", summary="List runs", **described({200: RunPage}, 422))
async def list_runs(
    visit: Reader,
    status: RunStatus | None = None,
    agent: str | None = None,
    cursor: Annotated[str | None, Query(description="next_cursor of the page before.")] = None,
    limit: Limit = LIMIT_DEFAULT,
) -> Response:
    """Runs, newest first."""
    if cursor is not None and RUN_ID.fullmatch(cursor) is None:
        raise bad_cursor()
    rows = await visit.sf.store.runs(
        visit.sf.tenant, status=status and status.value, agent=agent, before=cursor, limit=limit
    )
    items = rows.shown(lambda row: run_summary(row, visit.language), lambda row: (row.run.id, row.run.id))
    return reply(RunPage(items, items.behind, items.unreadable))


async def _may_read(request: Request) -> None:
    """Raises Problem where the caller of a stream may not read any more: its token or session is over."""
    caller = await service_of(request).doorman.identify(request)
    if not caller.may("read"):
        raise Problem(403, "not_permitted", f"{caller.name} may not read any more")


def _told(visit: Visit, run: RunSnapshot) -> RunSnapshot:
    """What a caller who may start runs but not read them is told of one: where it stands, and nothing that is in it."""
    if visit.caller.may("read"):
        return run
    return replace(run, created_by="", steps=[], pending_actions=[], result=None, metadata={}, unreadable=[])


@router.get("/{run_id}", summary="One run", **described({200: RunSnapshot}, 404))
async def show(visit: Reader, run_id: str) -> Response:
    """The snapshot: then follow the events above its `last_event_sequence`."""
    return reply(await visit.sf.snapshot(run_id, visit.language))


LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="The id of the last event that came, instead of after."),
]


@router.get(
    "/{run_id}/events",
    summary="Events of a run",
    **described(
        {200: EventPage, 204: None}, 404, 409, 422, media={200: {sse.MEDIA_TYPE: {"schema": {"type": "string"}}}}
    ),
)
async def events(
    request: Request,
    visit: Reader,
    run_id: str,
    after: Annotated[int, Query(ge=0, le=SEQUENCE_MAX, description="Events with a higher sequence.")] = 0,
    limit: Limit = LIMIT_MAX,
    last_event_id: LastEventId = None,
) -> Response:
    """Events above a cursor, in order: a live stream with `Accept: text/event-stream`, else a page.

    The ids of a stream are sequences of events. Frames without an id are `text` (what the model writes now, stored
    nowhere) and `end` (the run is over and all is told), after which the stream ends; asked again from there it is 204.
    """
    if last_event_id is not None:
        after = _sequence(last_event_id)
    row = await visit.sf.store.run(visit.sf.tenant, run_id)
    tail, ended = row.run.event_sequence, row.run.ended
    if after > tail:
        raise Problem(
            409,
            "cursor_ahead",
            f"the run has events up to {tail} only: it is not the run, or not the store, that the cursor came from; "
            "read the snapshot again",
            details={"last_event_sequence": tail},
        )
    if accepts(request, sse.MEDIA_TYPE):
        if ended and after == tail:
            return Response(status_code=204, headers={"Cache-Control": "no-store"})
        return sse.EventStream(visit.streams.reading(run_id, after, tail), lambda: _may_read(request))
    lines = await visit.sf.store.events(visit.sf.tenant, run_id, after, limit)
    last = lines[-1].sequence if lines else after
    return reply(EventPage([public_event(line) for line in lines], last, ended and last >= tail))


def _sequence(text: str) -> int:
    if not text or not set(text) <= _DIGITS or len(text) > len(str(SEQUENCE_MAX)):
        raise Problem(422, "invalid_input", "Last-Event-ID is the id of an event, a whole number")
    return int(text)


@router.get("/{run_id}/messages", summary="The conversation of a run", **described({200: MessagePage}, 404, 422))
async def messages(
    visit: Reader,
    run_id: str,
    cursor: Annotated[int | None, Query(ge=0, le=SEQUENCE_MAX, description="next_cursor of the page before.")] = None,
    limit: Limit = LIMIT_DEFAULT,
) -> Response:
    """Messages of the user, the assistant and the tools, in order."""
    return reply(await _messages(visit, run_id, -1 if cursor is None else cursor, limit))


async def _messages(visit: Visit, run_id: str, cursor: int, limit: int) -> MessagePage:
    store, tenant = visit.sf.store, visit.sf.tenant
    conversation = (await store.run(tenant, run_id)).run.conversation_id
    rows = await store.messages(tenant, conversation, cursor, limit + 1)
    items = [message_view(row) for row in rows[:limit]]
    if len(rows) > limit:
        return MessagePage(items, [], str(items[-1].position))
    return MessagePage(items, [message_view(row) for row in await store.queued(tenant, conversation)], None)


@router.post(
    "/{run_id}/messages",
    status_code=202,
    summary="A new message",
    **described({202: RunSnapshot}, 404, 409, reads=NewMessage),
)
async def message(
    visit: Starter, run_id: str, said: Annotated[NewMessage, Depends(body_of(NewMessage))], key: KeyHeader = None
) -> Response:
    """A message of the user to a run under way; an ended run answers 409 with how to go on.

    The same message under the same Idempotency-Key, to the same run, is one message, and is answered as the first
    time; another text under that key is 422.
    """
    try:
        await visit.sf.message(run_id, said.text, key=read_key(key), by=visit.caller.name)
    except RunEnded as ended:
        conversation = (await visit.sf.store.run(visit.sf.tenant, run_id)).run.conversation_id
        raise Problem(
            409,
            ended.code,
            f'the run has ended: POST /v1/runs with "conversation_id": "{conversation}" goes on',
            details={"conversation_id": conversation},
        ) from None
    return reply(_told(visit, await visit.sf.snapshot(run_id, visit.language)), 202)


@router.post(
    "/{run_id}/signals", status_code=202, summary="A signal", **described({202: Signalled}, 404, 409, reads=Signal)
)
async def signal(
    visit: Starter, run_id: str, sent: Annotated[Signal, Depends(body_of(Signal))], key: KeyHeader = None
) -> Response:
    """Tell a run that something has happened; the same signal under the same Idempotency-Key is one signal."""
    new = await visit.sf.signal(run_id, sent.name, sent.value, key=read_key(key), by=visit.caller.name)
    return reply(Signalled(run_id, new), 202)


@router.post(
    "/{run_id}/retry", status_code=201, summary="Take up a run", **described({201: RunSnapshot}, 404, 409, 422)
)
async def retry(visit: Starter, run_id: str) -> Response:
    """Take up a failed or cancelled run in a new one with a fresh budget; asked again, it is the same new run."""
    run = await visit.sf.retry(run_id, by=visit.caller.name)
    run = await visit.sf.snapshot(run.id, visit.language)
    return reply(_told(visit, run), 201, {"Location": f"/v1/runs/{run.id}"})


@router.post("/{run_id}/cancel", status_code=202, summary="Cancel a run", **described({202: Cancelled}, 404, 409))
async def cancel(visit: Starter, run_id: str) -> Response:
    """Stop a run. From this answer on nothing is sent for it; it lists the calls that may have been sent before."""
    sent = await visit.sf.cancel(run_id, by=visit.caller.name)
    run = await visit.sf.snapshot(run_id, visit.language)
    steps = await read_calls(visit.sf.context, sent, visit.language)
    if not visit.caller.may("read"):
        steps = [replace(step, input=None, output=None) for step in steps]
    return reply(Cancelled(run.id, run.status, steps), 202)
