"""Live events: every event once and in order, whatever breaks."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Sequence

import pytest

from surefoot import Agent, Found, Receipt, Surefoot
from surefoot.server import streams
from surefoot.server.running import listen
from tests.places import Place
from tests.server.house import House, Outside, house, surefoot_at
from tests.server.watching import Connection, Follower
from tests.support import eventually

NOTES = 12


def busy(outside: Outside, name: str = "busy", notes: int = NOTES) -> Agent:
    """An agent that jots so many notes, one after another: some 15 events for each."""
    return outside.agent(name, *([("jot", {"text": f"note {n}"})] for n in range(notes)), "Done.")


async def stored(sf: Surefoot, run_id: str) -> list[int]:
    """The sequences in the store."""
    return [line.sequence for line in await sf.store.events(sf.tenant, run_id, 0, 10_000)]


async def test_a_stream_tells_everything_and_ends_behind_the_terminal_event(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, action_id = await at.asked()
        connection = await Connection.open(at.running.url, run_id)
        reading = asyncio.ensure_future(connection.rest())
        await eventually(lambda: b"action_requested" in connection.raw, "the question in the stream")
        await at.decide(action_id, "approve")
        frames = await asyncio.wait_for(reading, 30)
        assert connection.headers["content-type"].startswith("text/event-stream")
        assert connection.headers["cache-control"] == "no-store"
        events = [frame for frame in frames if frame.id is not None]
        page = (await at.client.get(f"/v1/runs/{run_id}/events")).json()
        assert [frame.data for frame in events] == page["items"]
        assert [frame.event for frame in frames if frame.id is None][-1] == "end"
        assert frames[-1].event == "end" and frames[-1].data == {"last_event_sequence": events[-1].id}
        # The terminal event can be had again, and behind it there is nothing.
        again = await Connection.open(at.running.url, run_id, events[-2].id or 0)
        assert [f.data["type"] for f in await again.rest() if isinstance(f.data, dict) and f.id] == ["run_completed"]
        assert (await Connection.open(at.running.url, run_id, events[-1].id or 0)).status == 204


async def test_what_is_settled_behind_the_end_is_told_though_somebody_is_still_reading_the_end(
    place: Place, outside: Outside
) -> None:
    async with house(place, [outside.agent("jotter", [("jot", {"text": "a"})], "Done.")]) as at:
        run = await at.sf.wait((await at.sf.start("jotter", "Go")).id, timeout=20)
        of_tenant, end = streams.Streams(at.sf), run.last_event_sequence
        with of_tenant.reading(run.id, 0, end) as slow:
            while await slow.next() is not None:
                assert not slow.gone
            key = next(step.operation_key for step in run.steps if step.operation_key is not None)
            assert await at.sf.report(key, Found(Receipt(resource_id="another")))
            now = (await at.sf.snapshot(run.id)).last_event_sequence
            with of_tenant.reading(run.id, end, now) as late:
                told = await late.next()
                assert told is not None and f"id: {now}".encode() in told


async def test_text_is_told_as_it_is_written_and_has_no_id(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, action_id = await at.asked()
        connection = await Connection.open(at.running.url, run_id)
        reading = asyncio.ensure_future(connection.rest())
        await eventually(lambda: b"action_requested" in connection.raw, "the question in the stream")
        await at.decide(action_id, "approve")
        texts = [f.data for f in await asyncio.wait_for(reading, 30) if f.event == "text"]
    assert "".join(str(text["text"]) for text in texts if isinstance(text, dict)) == "Written."
    assert isinstance(texts[-1], dict) and texts[-1]["over"] is True


async def test_what_other_processes_commit_is_told(place: Place, outside: Outside) -> None:
    async with house(place, worker=False) as at, surefoot_at(place, [busy(outside)]) as other:
        run = await other.start("busy", "Go")
        follower = Follower(run.id)
        await asyncio.wait_for(follower.connect(at.running.url), 30)
        assert follower.over and follower.types[-1] == "run_completed"
        assert follower.received == await stored(other, run.id)


@pytest.mark.parametrize("seed", range(4))
async def test_cuts_at_random_places(place: Place, outside: Outside, seed: int) -> None:
    await cut_often(place, outside, seed, 75)


@pytest.mark.prove
async def test_ten_thousand_cuts(place: Place, outside: Outside) -> None:
    await cut_often(place, outside, 10_000, 10_000)


async def cut_often(place: Place, outside: Outside, seed: int, cuts: int) -> None:
    """Two servers on one store, one of which is restarted now and then; the run is worked on meanwhile."""
    dice, made = random.Random(seed), 0
    agents = [busy(outside)]
    async with house(place, agents) as steady:
        while made < cuts:
            run_id = await steady.started("busy", f"seed-{seed}-{made}")
            follower = Follower(run_id)
            while not follower.over and made < cuts:
                async with house(place, worker=False) as other:
                    made += await _some_cuts(follower, [steady, other], dice)
            while not follower.over:
                await follower.connect(steady.running.url)
            assert follower.received == await stored(steady.sf, run_id)
            assert follower.types[-1] == "run_completed"


async def _some_cuts(follower: Follower, servers: Sequence[House], dice: random.Random) -> int:
    for made in range(25):
        if follower.over:
            return made
        # Mostly within the first frames, so that a run is not through after a few connections.
        await follower.connect(dice.choice(servers).running.url, dice.choice((0, 1, 14, dice.randrange(600))))
    return 25


async def test_c052_a_cut_behind_control_frames_skips_no_event(
    place: Place, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE_SECONDS", 0.005)
    dice, seen = random.Random(52), b""
    async with house(place, [outside.writer()]) as at:
        run_id, action_id = await at.asked()
        follower = Follower(run_id)
        for _ in range(200):
            connection = await Connection.open(at.running.url, run_id, follower.after)
            enough = dice.randrange(1, 60)
            await connection.until_bytes(enough if follower.after else 4_000)
            connection.cut()
            follower._take(connection.frames())
            seen += connection.raw
        assert seen.count(b": alive\n\n") > 200, "the cuts are behind keep-alives"
        await at.decide(action_id, "approve")
        while not follower.over:
            await follower.connect(at.running.url)
        assert follower.received == await stored(at.sf, run_id)


async def test_a_hundred_readers_share_one_follower_of_the_store(
    place: Place, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(place, [busy(outside), outside.writer()]) as at:
        run_id, action_id = await at.asked()
        follows, reads = 0, 0
        follow, events = at.sf.store.follow, at.sf.store.events

        def counted_follow(id: str) -> object:
            nonlocal follows
            follows += 1
            return follow(id)

        async def counted_events(tenant: str, id: str, after: int, limit: int) -> object:
            nonlocal reads
            reads += 1
            return await events(tenant, id, after, limit)

        tail = (await at.run(run_id))["last_event_sequence"]
        assert isinstance(tail, int)
        monkeypatch.setattr(at.sf.store, "follow", counted_follow)
        monkeypatch.setattr(at.sf.store, "events", counted_events)
        readers = [Follower(run_id, tail) for _ in range(100)]
        tasks = [asyncio.ensure_future(reader.connect(at.running.url)) for reader in readers]
        own = at.running._service.own
        await eventually(lambda: own.streams.count == 100, "a hundred readers")
        before = reads
        await at.decide(action_id, "approve")
        await asyncio.wait_for(asyncio.gather(*tasks), 30)
        assert follows <= 2 + 1, "one for events, one for texts, one that the test's own wait may need"
        assert reads - before <= 12, "what a hundred read is read once for each commit"
        assert all(reader.received == readers[0].received and reader.over for reader in readers)
        await eventually(lambda: own.streams.count == 0 and not own.streams._feeds, "no feed is left")


async def test_a_reader_that_takes_nothing_is_let_go_and_catches_up_later(
    place: Place, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "SEND_SECONDS_MAX", 0.2)
    monkeypatch.setattr(streams, "CHUNK_BYTES", 4_096)
    sock = listen("127.0.0.1", 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    async with house(place, [busy(outside, notes=60)], sock=sock) as at:
        run_id = await at.started("busy")
        lazy = socket.socket()
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        lazy.connect(sock.getsockname())
        words = f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
        lazy.sendall(words.encode())
        own = at.running._service.own
        await eventually(lambda: own.streams.count == 1, "the lazy reader")
        quick = Follower(run_id)
        await asyncio.wait_for(quick.connect(at.running.url), 60)
        assert quick.received == await stored(at.sf, run_id)
        await eventually(lambda: own.streams.count == 0, "the lazy reader to be let go")
        taken = await asyncio.to_thread(_to_the_end, lazy)
        assert 0 < len(taken) < 200_000 and b"event: end" not in taken, "it was let go, it did not reach the end"
        late = Follower(run_id)
        await late.connect(at.running.url)
        assert late.received == quick.received


def _to_the_end(sock: socket.socket) -> bytes:
    """All that a socket still gives."""
    sock.settimeout(10)
    taken = b""
    with sock:
        while data := sock.recv(65_536):
            taken += data
    return taken


async def test_a_stop_ends_streams_and_their_clients_go_on_elsewhere(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, action_id = await at.asked()
        follower = Follower(run_id)
        reading = asyncio.ensure_future(follower.connect(at.running.url))
        await eventually(lambda: at.running._service.own.streams.count == 1, "the reader")
    await asyncio.wait_for(reading, 10)
    assert follower.received and not follower.over
    async with house(place, [outside.writer()]) as at:
        await at.decide(action_id, "approve")
        await asyncio.wait_for(follower.connect(at.running.url), 30)
        assert follower.types[-1] == "run_completed"
        assert follower.received == await stored(at.sf, run_id)


async def test_too_many_readers_are_refused(place: Place, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "READERS_MAX", 2)
    async with house(place, [outside.writer()]) as at:
        run_id, _ = await at.asked()
        held = [await Connection.open(at.running.url, run_id) for _ in range(2)]
        refused = await at.client.get(f"/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"})
        assert refused.status_code == 503 and refused.json()["code"] == "too_many_streams"
        held[0].cut()
        await eventually(lambda: at.running._service.own.streams.count == 1, "the reader to be gone")
        assert (await Connection.open(at.running.url, run_id)).status == 200
