"""A wire between a store and its PostgreSQL that a test can cut, at the moment that it chooses."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

NAME = ".s.PGSQL.5432"
"""What PostgreSQL and its clients call the socket in their folder."""


class Wire:
    """Forwards bytes. `async with`; `url` is the database's by this way."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = str(Path(parse_qs(parts.query)["host"][0]) / NAME)
        self._place = tempfile.TemporaryDirectory(prefix="surefoot-wire-")
        self.url = f"postgresql://{parts.netloc}{parts.path}?host={quote(self._place.name, safe='')}"
        self.mute = False
        """What the server answers is not passed on."""
        self.refuse = False
        """New connections are closed at once."""
        self._listening: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Wire:
        self._listening = await asyncio.start_unix_server(self._connected, str(Path(self._place.name) / NAME))
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._listening is not None
        self._listening.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._place.cleanup()

    def cut(self) -> None:
        """Every connection breaks now, in both directions."""
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            writer.transport.abort()
            return
        to_reader, to_writer = await asyncio.open_unix_connection(self._server)
        self._open |= {writer, to_writer}
        for task in (
            asyncio.ensure_future(self._pass(reader, to_writer, to_server=True)),
            asyncio.ensure_future(self._pass(to_reader, writer, to_server=False)),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_server: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if to_server or not self.mute:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()
