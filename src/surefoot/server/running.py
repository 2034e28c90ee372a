"""The server process: sockets by uvicorn, and a shutdown that ends streams first and lets answers finish."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from surefoot.errors import InvalidInput
from surefoot.server.protocol import Protocol
from surefoot.server.service import Service

STOP_SECONDS = 5
"""How long answers under way may take once the server stops."""
BACKLOG = 2_048
IDLE_SECONDS = 75
"""How long an unused connection is kept, longer than most proxies keep theirs."""


class Server(uvicorn.Server):
    """A uvicorn server that leaves the signals to whoever started it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """No signal is taken: `stop` is called instead."""
        yield


class Running:
    """An app on a socket. `await serve()` returns after `stop()`."""

    def __init__(self, app: FastAPI, sock: socket.socket) -> None:
        self._service: Service = app.state.service
        self._sock = sock
        self._server = Server(
            uvicorn.Config(
                app,
                # Tracebacks of uvicorn's own would not be redacted; the app tells its bugs itself.
                log_level="critical",
                access_log=False,
                server_header=False,
                lifespan="on",
                backlog=BACKLOG,
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS,
                http=Protocol,
                ws="none",
            )
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        return address(self._sock)

    async def serve(self) -> None:
        """Answer until `stop()`, then let answers under way finish for STOP_SECONDS. Raises StoreError at the start."""
        try:
            # uvicorn ends the process where an app cannot start; why it cannot is for the caller to tell.
            with contextlib.suppress(SystemExit):
                await self._server.serve([self._sock])
        finally:
            # It closes the socket where it began; a server that could not begin would leave it open.
            self._sock.close()
        if self._service.failure is not None:
            raise self._service.failure

    def stop(self) -> None:
        """Take no new connections and end the live streams: their clients come again with their cursor."""
        self._service.close_streams()
        self._server.should_exit = True

    @property
    def began(self) -> bool:
        """Whether it ever answered."""
        return self._server.started


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises InvalidInput (`cannot_listen`) naming why."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, proto)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        # Whoever is told where it is may come at once: what comes before the app is ready waits for it.
        sock.listen(BACKLOG)
    except OSError as problem:
        raise InvalidInput(
            f"cannot listen on {host}:{port}: {problem.strerror or problem}; choose another --port or --host",
            code="cannot_listen",
        ) from None
    sock.setblocking(False)
    return sock


def address(sock: socket.socket) -> str:
    """Where it listens, as a URL."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(sock: socket.socket) -> bool:
    """Whether only this machine reaches the socket."""
    return ipaddress.ip_address(str(sock.getsockname()[0])).is_loopback
