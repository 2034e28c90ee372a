"""HTTP on the socket, by uvicorn and httptools: heads are bounded, and what is no HTTP is answered as a problem."""

from __future__ import annotations

import asyncio
import sys

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from surefoot.server.problems import Problem

HEAD_BYTES_MAX = 65_536
"""Of a request's line and headers together. The parser itself knows no limit, and would keep all that comes."""

LINGER_SECONDS = 2.0
"""How long a client that was refused may go on sending."""

UNREAD_SECONDS_MAX = 30.0
"""A client that takes nothing of its answer for so long is let go. uvicorn itself would wait for ever."""


class HeadTooLarge(Exception):
    """Ends the parsing of a head."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    _head_bytes = 0
    _in_head = True
    _head_ended = False
    _refused = False
    _watch: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """It has taken most of it."""
        self._watch_no_more()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Nobody asks for more: the connection is closed once all is taken, or nobody takes it."""
        super().timeout_keep_alive_handler()
        self._watch_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of it."""
        self._watch_no_more()
        super().connection_lost(exc)

    def _watch_reader(self) -> None:
        left = self.transport.get_write_buffer_size()
        if self._watch is None and left > 0:
            self._watch = self.loop.call_later(UNREAD_SECONDS_MAX, self._look_at_reader, left)

    def _look_at_reader(self, before: int) -> None:
        self._watch = None
        if self.transport.get_write_buffer_size() < before:
            self._watch_reader()
        else:
            self.transport.abort()

    def _watch_no_more(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()

    def data_received(self, data: bytes) -> None:
        """What came. A head that does not end is refused, also where no header of it is whole."""
        if self._refused:
            return  # it is heard to its end, so that the answer is not lost in a reset
        goes_on, self._head_ended = self._in_head, False
        super().data_received(data)
        # A head that began behind something else in this piece is counted from the next piece on.
        self._head_bytes = self._head_bytes + len(data) if goes_on and not self._head_ended else 0
        if self._in_head and self._head_bytes > HEAD_BYTES_MAX and not self._refused:
            self._refuse(self._too_large())

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._in_head = True
        self._told_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A piece of the request's line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self._count(len(name) + len(value) + len(b": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head, self._head_ended = False, True
        super().on_headers_complete()

    def _count(self, size: int) -> None:
        # A head that came in one piece is whole before anybody can count its bytes on the wire.
        self._told_bytes += size
        if self._told_bytes > HEAD_BYTES_MAX:
            raise HeadTooLarge

    def send_400_response(self, msg: str) -> None:
        """What the parser could not read."""
        error = sys.exception()
        large = error is not None and isinstance(error.__context__ or error.__cause__, HeadTooLarge)
        text = "this is not a request of HTTP/1.1 that can be read; nothing was done"
        self._refuse(self._too_large() if large else Problem(400, "bad_request", text))

    def _too_large(self) -> Problem:
        text = f"the line and the headers of a request have at most {HEAD_BYTES_MAX} bytes together"
        return Problem(431, "headers_too_large", text)

    def _refuse(self, problem: Problem) -> None:
        answer = problem.response()
        head = [b"HTTP/1.1 %d %s" % (answer.status_code, problem.phrase.encode())]
        head += [name + b": " + value for name, value in answer.raw_headers]
        self._refused = True
        self.transport.write(b"\r\n".join([*head, b"connection: close", b"", bytes(answer.body)]))
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)
