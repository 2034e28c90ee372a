"""Text as the model writes it: frames for whoever looks on now, never stored. The message replaces them.

Known secrets are taken out, also where they come in pieces. A reader that is too slow loses frames and is told so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager

import msgspec

from surefoot.core.redact import RedactedStream, Redactor

FRAMES_MAX = 256
"""Of one reader; beyond, the oldest go."""


class TextFrame(msgspec.Struct, frozen=True):
    """A piece of the text that one attempt of a model call writes.

    The assistant message of `step_id` replaces all frames of the step; so does the next attempt, with its number.
    """

    step_id: str
    attempt: int
    text: str
    missed: bool = False
    """Frames before this one were lost: wait for the message."""
    over: bool = False
    """The attempt is over, with or without an answer."""


class Reader:
    """One reader's frames, at most FRAMES_MAX."""

    def __init__(self) -> None:
        self._frames: deque[TextFrame] = deque()
        self._missed = False
        self._there = asyncio.Event()

    def put(self, frame: TextFrame) -> None:
        """Hand a frame over; never waits."""
        if len(self._frames) == FRAMES_MAX:
            self._frames.popleft()
            self._missed = True
        self._frames.append(frame)
        self._there.set()

    def take(self) -> TextFrame | None:
        """The oldest frame, or None if there is none now."""
        if not self._frames:
            return None
        frame = self._frames.popleft()
        if self._missed:
            self._missed = False
            frame = msgspec.structs.replace(frame, missed=True)
        return frame

    async def wait(self) -> None:
        """Until there is a frame."""
        while not self._frames:
            self._there.clear()
            await self._there.wait()


class Texts:
    """Who reads along in this process, by run."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._readers: dict[str, list[Reader]] = {}

    @contextmanager
    def reading(self, run_id: str) -> Iterator[Reader]:
        """A reader of the run's texts, from the next model call on."""
        reader = Reader()
        self._readers.setdefault(run_id, []).append(reader)
        try:
            yield reader
        finally:
            self._readers[run_id].remove(reader)
            if not self._readers[run_id]:
                del self._readers[run_id]

    def wanted(self, run_id: str) -> bool:
        """Whether anybody reads along."""
        return run_id in self._readers

    @contextmanager
    def writing(self, run_id: str, step_id: str, attempt: int) -> Iterator[Callable[[str], None]]:
        """What an attempt calls with each piece of text."""
        stream = RedactedStream(self._redactor)

        def tell(text: str, *, over: bool = False) -> None:
            if text or over:
                frame = TextFrame(step_id, attempt, text, over=over)
                for reader in self._readers.get(run_id, ()):
                    reader.put(frame)

        try:
            yield lambda piece: tell(stream.feed(piece))
        except BaseException:
            tell("", over=True)
            raise
        tell(stream.end(), over=True)


async def frames(reader: Reader, ended: Callable[[], Coroutine[object, object, bool]]) -> AsyncIterator[TextFrame]:
    """What the reader gets, until `ended()`, asked again and again, says so; then what is left."""
    end: asyncio.Task[bool] | None = None
    next_frame: asyncio.Task[None] | None = None
    over = False
    try:
        while True:
            while (frame := reader.take()) is not None:
                yield frame
            if over:
                return
            end = end or asyncio.ensure_future(ended())
            next_frame = asyncio.ensure_future(reader.wait())
            await asyncio.wait({end, next_frame}, return_when=asyncio.FIRST_COMPLETED)
            next_frame.cancel()
            if end.done():
                over, end = end.result(), None
    finally:
        for task in (end, next_frame):
            if task is not None:
                task.cancel()
