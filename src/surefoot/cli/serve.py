"""surefoot serve: the API, the web page and a worker, one process on one store, until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import platform
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from surefoot.app import Surefoot
from surefoot.cli.output import Output
from surefoot.cli.session import opened
from surefoot.cli.settings import Settings, operating_system_user
from surefoot.cli.userfile import UserCode, load
from surefoot.cli.worker import (
    GRACE_SECONDS,
    REPLACE_GRACE_SECONDS,
    End,
    Story,
    collect_less,
    leave,
    replace_process,
    stop_signals,
    until_over,
)
from surefoot.errors import InvalidInput
from surefoot.runtime.worker import Worker

if TYPE_CHECKING:
    from surefoot.server.callers import Doorman
    from surefoot.server.options import Options
    from surefoot.server.service import Service

EXTRA = ("fastapi", "uvicorn")


def serve(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Serve until SIGTERM. Raises InvalidInput (`extra_missing`, `cannot_listen`, `tokens_needed`), StoreError.

    The process ends by os._exit, as a worker's does.
    """
    if any(importlib.util.find_spec(name) is None for name in EXTRA):
        raise InvalidInput("`surefoot serve` needs an extra: pip install 'surefoot[serve]'", code="extra_missing")
    code = load(found.file)
    collect_less()
    leave(asyncio.run(_serve(code, found, settings, out)), out)


async def _serve(code: UserCode, found: argparse.Namespace, settings: Settings, out: Output) -> End:
    from surefoot.server.callers import Loopback
    from surefoot.server.factory import create_app
    from surefoot.server.running import Running, address, is_loopback, listen

    def of_tenant(tenant: str) -> Surefoot:
        own = settings.of_tenant(tenant)
        return opened(own, out, code.agents, code.tools, schedules=code.schedules, worker=True)

    sock = listen(found.host, found.port)
    told = stop_signals(out)
    async with of_tenant(settings.tenant) as sf:
        doorman = await _doorman(sf, found, settings, loopback=is_loopback(sock))
        app = create_app(sf, doorman, open_tenant=of_tenant, options=_options(settings, address(sock)))
        running = Running(app, sock)
        serving = asyncio.ensure_future(running.serve())
        serving.add_done_callback(lambda _: told.set())
        names = ", ".join(a.name for a in code.agents) or "no agent"
        out.note(f"serving {running.url} (process {os.getpid()}) on {sf.store.path}: {names}")
        asks = "without tokens: who is on this machine is its user" if isinstance(doorman, Loopback) else "by token"
        out.note(f"the page is {running.url}/ ({asks})")
        if settings.service.get("announce_url") and not settings.service.get("public_url"):
            out.note(f"announced links lead to {running.url}: SUREFOOT_PUBLIC_URL says where people reach the server")
        end = await _until_over(sf, app.state.service, told, out)
        running.stop()
        await serving
        await _stop_work(sf, end, out)
    return end


def _hosts(found: argparse.Namespace, settings: Settings) -> list[str]:
    """The names by which browsers may call: where it listens, this machine, its public address, what was allowed."""
    public = urlsplit(settings.service.get("public_url", "")).hostname
    return [found.host, platform.node(), *([public] if public else []), *found.allow_host]


def _options(settings: Settings, listens: str) -> Options:
    from surefoot.server.options import Options, secrets_of

    told = settings.service
    # A link without a host leads nowhere from a mail or a chat.
    public_url = told.get("public_url") or (listens if told.get("announce_url") else None)
    return Options(
        public_url=public_url,
        announce_url=told.get("announce_url"),
        announce_secrets=secrets_of(told.get("announce_secret")),
        github_secrets=secrets_of(told.get("github_webhook_secret")),
        evidence_secrets=secrets_of(told.get("evidence_secret")),
    ).check()


async def _doorman(sf: Surefoot, found: argparse.Namespace, settings: Settings, *, loopback: bool) -> Doorman:
    """With tokens, whoever shows one; without, the user of this machine. Raises InvalidInput (`tokens_needed`)."""
    from surefoot.server.callers import Loopback
    from surefoot.server.doorman import TokenDoorman
    from surefoot.server.tokens import Tokens, read_given

    given = read_given(settings.tokens or "", settings.tenant)
    tenants = await sf.store.token_tenants()
    if given or tenants:
        tokens = Tokens(sf.store, sf.doors.clock, sf.doors.entropy, given)
        return TokenDoorman(tokens, tenants, _hosts(found, settings))
    if not loopback:
        raise InvalidInput(
            f"--host {found.host} can be reached from other machines: without tokens only 127.0.0.1 is served; "
            "`surefoot tokens create NAME --permission admin` makes one",
            code="tokens_needed",
        )
    return Loopback(settings.tenant, operating_system_user())


async def _until_over(sf: Surefoot, service: Service, told: asyncio.Event, out: Output) -> End:
    worker = sf.worker
    assert worker is not None, "opened with worker=True"

    def others() -> list[Worker | None]:
        return [tenant.sf.worker for tenant in service.tenants.values()]

    return await until_over(sf, worker, told, Story(sf, worker, out), until_idle=False, others=others)


async def _stop_work(sf: Surefoot, end: End, out: Output) -> None:
    worker = sf.worker
    assert worker is not None, "opened with worker=True"
    await worker.stop(REPLACE_GRACE_SECONDS if end == "unhealthy" else GRACE_SECONDS)
    if end == "unhealthy":
        replace_process()
    if worker.drivers:
        # A call does not end. Closing would wait for it once more; the process's end is what others can prove.
        leave(end, out)
