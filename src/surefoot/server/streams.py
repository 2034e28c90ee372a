"""Live events: server-sent events of one run, from any cursor, for many readers at once.

One feed follows a run in the store, whoever and however many read it, and keeps the newest frames as bytes. A reader
has a cursor and no queue: what the feed does not hold any more is read from the store in pages, so a slow reader costs
one chunk of memory. The only ids are the sequences of events; all other frames are control frames and have none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from surefoot.agent.texts import FRAMES_MAX as TEXTS_MAX, TextFrame
from surefoot.app import Surefoot
from surefoot.core.evolve import Recorded
from surefoot.errors import SurefootError
from surefoot.server.problems import Problem
from surefoot.snapshot import public_event

LOOK_AGAIN_SECONDS = 5.0
"""A feed looks at its run again after this even if nothing was noticed."""
PAGE_EVENTS = 200
FEED_FRAMES_MAX = 512
"""Frames that a feed keeps; readers that are further behind read the store."""
CHUNK_BYTES = 65_536
"""About so much is written at once."""
READERS_MAX = 10_000
"""Of one tenant in this process."""
KEEP_ALIVE_SECONDS = 15.0
"""After so long without a frame a comment is sent, so that proxies keep the connection and a dead one is noticed."""
SEND_SECONDS_MAX = 30.0
"""A client that takes nothing for so long is let go; it comes again with its cursor."""
LOOK_SECONDS = 1.0
"""How often readers are looked after: one clock for all of them is cheaper than a timer for each frame."""


def event_frame(line: Recorded) -> bytes:
    """An event with its sequence as id; the type stands in the data, so that one listener gets all of them."""
    return b"id: %d\ndata: %s\n\n" % (line.sequence, msgspec.json.encode(public_event(line)))


def control_frame(name: str, data: object) -> bytes:
    """A frame without id: it never moves a client's cursor."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


class Feed:
    """One run, followed once for all of its readers."""

    def __init__(self, sf: Surefoot, run_id: str, tail: int) -> None:
        self.tail = tail
        """The sequence of the newest event that was read."""
        self.ended = False
        """The run is over and every event that it had then was read."""
        self.failed = False
        """It could not be followed: readers come again."""
        self.readers: set[Reader] = set()
        self._sf = sf
        self._run_id = run_id
        self._frames: deque[bytes] = deque(maxlen=FEED_FRAMES_MAX)
        self._given: tuple[int, int, bytes, int] = (-1, -1, b"", -1)
        """The chunk that was given last: behind which cursor, up to which tail."""
        self._texts: deque[TextFrame] = deque(maxlen=TEXTS_MAX)
        self._texts_count = 0
        self._attempt: tuple[str, int] | None = None
        self._attempt_count = 0
        self._tasks = [asyncio.ensure_future(self._follow()), asyncio.ensure_future(self._read_texts())]

    def close(self) -> None:
        """Follow no longer."""
        for task in self._tasks:
            task.cancel()

    def holds(self, after: int) -> bool:
        """Whether every event above `after` that was read is still at hand."""
        return after >= self.tail - len(self._frames)

    def frames_above(self, after: int) -> tuple[bytes, int]:
        """About a chunk of what stands above `after`, and the cursor behind it. Only where `holds(after)`."""
        if self._given[:2] == (after, self.tail):
            return self._given[2:]  # the next reader stands where the one before it stood
        first = after - (self.tail - len(self._frames))
        out: list[bytes] = []
        size = 0
        for index in range(first, len(self._frames)):
            if size >= CHUNK_BYTES:
                break
            out.append(self._frames[index])
            size += len(out[-1])
        self._given = (after, self.tail, b"".join(out), after + len(out))
        return self._given[2:]

    def texts_cursor(self) -> int:
        """Where a new reader begins: at the start of the text that is being written, if there is one."""
        return self._texts_count if self._attempt is None else self._attempt_count

    def texts_above(self, cursor: int) -> tuple[bytes, int]:
        """The text frames above a cursor, the first marked where others were lost before it, and the new cursor."""
        if cursor == self._texts_count:
            return b"", cursor
        oldest = self._texts_count - len(self._texts)
        frames = list(self._texts)[max(cursor - oldest, 0) :]
        if frames and cursor < oldest:
            frames[0] = msgspec.structs.replace(frames[0], missed=True)
        return b"".join(control_frame("text", frame) for frame in frames), self._texts_count

    async def _follow(self) -> None:
        store, tenant = self._sf.store, self._sf.tenant
        try:
            with contextlib.closing(store.follow(self._run_id)) as following:
                while not self.ended:
                    run = await following.changed(LOOK_AGAIN_SECONDS)
                    run = run or (await store.run(tenant, self._run_id)).run
                    while run.event_sequence > self.tail:
                        self._take(await store.events(tenant, self._run_id, self.tail, PAGE_EVENTS))
                    self.ended = run.ended
                    if self.ended:
                        self._wake()
        except SurefootError:
            self.failed = True
            self._wake()

    def _take(self, lines: list[Recorded]) -> None:
        for line in lines:
            self._frames.append(event_frame(line))
            self.tail = line.sequence
        self._wake()

    async def _read_texts(self) -> None:
        # What cannot be read of texts is no loss: the message that is written down replaces them.
        with contextlib.suppress(SurefootError):
            async for frame in self._sf.texts(self._run_id):
                attempt = (frame.step_id, frame.attempt)
                if frame.over and not frame.text and attempt != self._attempt:
                    continue  # nothing was written in this attempt
                if attempt != self._attempt:
                    self._attempt, self._attempt_count = attempt, self._texts_count
                if frame.over:
                    self._attempt = None
                self._texts.append(frame)
                self._texts_count += 1
                self._wake()

    def _wake(self) -> None:
        for reader in self.readers:
            reader.wake()


class Reader:
    """One client's place in a run's events."""

    def __init__(self, sf: Surefoot, run_id: str, feed: Feed, after: int) -> None:
        self.gone = False
        """The client has left, or the server stops."""
        self.slow = False
        """It took nothing for SEND_SECONDS_MAX."""
        self.after = after
        self.let_go: Callable[[], object] = self.leave
        """Called once it is too slow."""
        self._sf = sf
        self._run_id = run_id
        self._feed = feed
        self._texts = feed.texts_cursor()
        self._there = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self._waiting_since: float | None = None
        self._sending_since: float | None = self._clock()

    def wake(self) -> None:
        """There is something to look at."""
        self._there.set()

    def leave(self) -> None:
        """The client has left, or the server stops."""
        self.gone = True
        self._there.set()

    def look(self, now: float) -> None:
        """Looked after once in a while: let go if it takes nothing, kept alive if there is nothing for it."""
        if self._sending_since is not None and now - self._sending_since >= SEND_SECONDS_MAX:
            self.slow, self._sending_since = True, None
            self.let_go()
        elif self._waiting_since is not None and now - self._waiting_since >= KEEP_ALIVE_SECONDS:
            self.wake()

    @property
    def over(self) -> bool:
        """All events of a run that has ended are sent."""
        return self._feed.ended and self.after >= self._feed.tail

    async def next(self) -> bytes | None:
        """The next chunk of frames, b"" if there was none for KEEP_ALIVE_SECONDS, None at the end of the stream.

        Whoever asks has sent the chunk before.
        """
        self._sending_since, self._waiting_since = None, self._clock()
        try:
            return await self._next(self._waiting_since)
        finally:
            self._waiting_since, self._sending_since = None, self._clock()

    async def _next(self, since: float) -> bytes | None:
        while not self.gone:
            self._there.clear()
            texts, self._texts = self._feed.texts_above(self._texts)
            events = await self._events()
            if texts or events:
                return texts + events
            if self.over or self._feed.failed:
                return None
            if self._clock() - since >= KEEP_ALIVE_SECONDS:
                return b""
            await self._there.wait()
        return None

    async def _events(self) -> bytes:
        if self.after >= self._feed.tail:
            return b""
        if self._feed.holds(self.after):
            chunk, self.after = self._feed.frames_above(self.after)
            return chunk
        lines = await self._sf.store.events(self._sf.tenant, self._run_id, self.after, PAGE_EVENTS)
        self.after = lines[-1].sequence
        return b"".join(map(event_frame, lines))


class Streams:
    """The feeds and readers of one tenant in this process."""

    def __init__(self, sf: Surefoot) -> None:
        self._sf = sf
        self._feeds: dict[str, Feed] = {}
        self._count = 0
        self._closed = False
        self._looking: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """Readers now."""
        return self._count

    @contextlib.contextmanager
    def reading(self, run_id: str, after: int, tail: int) -> Iterator[Reader]:
        """A reader from behind `after` on; `tail` is the run's last sequence as it was just read.

        Raises Problem 503 (`too_many_streams`, `stopping`).
        """
        if self._closed:
            raise Problem(503, "stopping", "the server is stopping; come again", headers={"Retry-After": "1"})
        if self._count >= READERS_MAX:
            raise Problem(503, "too_many_streams", f"{READERS_MAX} clients read already; read pages instead")
        feed = self._feeds.get(run_id)
        if feed is None or feed.failed or (feed.ended and feed.tail < tail):
            # A feed that has ended follows no longer, though something was settled behind the run's end.
            feed = self._feeds[run_id] = Feed(self._sf, run_id, tail)
        reader = Reader(self._sf, run_id, feed, after)
        feed.readers.add(reader)
        self._count += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        try:
            yield reader
        finally:
            self._count -= 1
            feed.readers.discard(reader)
            if not feed.readers:
                feed.close()
                if self._feeds.get(run_id) is feed:
                    del self._feeds[run_id]

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while self._count:
            await self._sf.doors.clock.sleep(min(LOOK_SECONDS, KEEP_ALIVE_SECONDS, SEND_SECONDS_MAX))
            now = loop.time()
            for feed in list(self._feeds.values()):
                for reader in list(feed.readers):
                    reader.look(now)

    def close(self) -> None:
        """End every stream; clients come again with their cursor. No new ones begin."""
        self._closed = True
        for feed in self._feeds.values():
            for reader in feed.readers:
                reader.leave()
            feed.close()
