"""A client of event streams on a bare socket, which can be cut after any byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import msgspec

opened: list[Connection] = []
"""Every connection of a test; they are closed at its end."""


class Frame(msgspec.Struct, frozen=True):
    """One frame as it came."""

    id: int | None
    event: str | None
    data: object


class Connection:
    """One request for events; `status` and `headers` are there after `open`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.raw = b""
        """What came of the body so far, transfer coding taken off."""
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str, run_id: str, after: int = 0, **headers: str) -> Connection:
        """Ask for the events behind `after` and read the head of the answer."""
        place = urlsplit(url)
        made = cls(*await asyncio.open_connection(place.hostname, place.port))
        opened.append(made)
        lines = [
            f"GET /v1/runs/{run_id}/events HTTP/1.1",
            f"Host: {place.netloc}",
            "Accept: text/event-stream",
            f"Last-Event-ID: {after}",
            *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
        ]
        made._writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await made._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        made.status = int(head[0].split()[1])
        made.headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        return made

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes, to its end."""
        while True:
            size = int((await self._reader.readline()).strip() or b"0", 16)
            data = await self._reader.readexactly(size) if size else b""
            await self._reader.readline()
            if not size:
                return
            self.raw += data
            yield data

    async def until_bytes(self, count: int) -> bool:
        """Read at least so many bytes of the body and forget what is more; False if the stream ended before."""
        try:
            async for _ in self.chunks():
                if len(self.raw) >= count:
                    self.raw = self.raw[:count]
                    return True
        except (asyncio.IncompleteReadError, ConnectionError):
            return True
        return False

    async def rest(self) -> list[Frame]:
        """Read to the end of the stream; every frame."""
        async for _ in self.chunks():
            pass
        return self.frames()

    def frames(self) -> list[Frame]:
        """The frames that are whole, comments and retry aside."""
        *whole, _ = self.raw.decode(errors="ignore").split("\n\n")
        return [frame for text in whole if (frame := _frame(text)) is not None]

    def cut(self) -> None:
        """Break the connection."""
        self._writer.transport.abort()

    async def closed(self) -> None:
        """Break it and wait until it is gone."""
        self.cut()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def _frame(text: str) -> Frame | None:
    fields = dict(line.split(": ", 1) for line in text.split("\n") if line and not line.startswith(":"))
    if "data" not in fields:
        assert "id" not in fields, f"a control frame moves the cursor: {text}"
        return None
    id = int(fields["id"]) if "id" in fields else None
    return Frame(id, fields.get("event"), json.loads(fields["data"]))


class Follower:
    """Follows one run over connections that break; knows what it received, and complains of a gap or a double."""

    def __init__(self, run_id: str, after: int = 0) -> None:
        self.run_id = run_id
        self.after = after
        self.received: list[int] = []
        self.types: list[str] = []
        self.over = False
        self.connections = 0

    async def connect(self, url: str, cut_after: int | None = None) -> None:
        """One connection, cut after so many bytes of the body, or read to its end."""
        connection = await Connection.open(url, self.run_id, self.after)
        try:
            if connection.status == 204:
                self.over = True
                return
            assert connection.status == 200, connection.status
            self.connections += 1
            if cut_after is None:
                await connection.rest()
            else:
                await connection.until_bytes(cut_after)
        finally:
            connection.cut()
            self._take(connection.frames())

    def _take(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.id is None:
                assert frame.event in ("text", "end"), frame
                self.over |= frame.event == "end"
                continue
            assert isinstance(frame.data, dict) and frame.data["sequence"] == frame.id, frame
            assert frame.id == self.after + 1, f"after {self.after} came {frame.id}"
            self.after = frame.id
            self.received.append(frame.id)
            self.types.append(str(frame.data["type"]))
