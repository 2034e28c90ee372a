"""What every endpoint is handed: the tenant that a caller belongs to, its runs and its streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import Request

from surefoot.app import Surefoot
from surefoot.errors import NotFound, SurefootError
from surefoot.server.announce import Announcer
from surefoot.server.callers import DOING, Act, Caller, Doorman
from surefoot.server.meters import CountsKept, EvidenceTotals, Meters
from surefoot.server.options import Options
from surefoot.server.problems import Problem
from surefoot.server.streams import Streams

OpenTenant = Callable[[str], Surefoot]
"""A Surefoot of another tenant on the same store, not yet entered."""


class Tenant:
    """One tenant's runs, and who follows them in this process."""

    def __init__(self, sf: Surefoot) -> None:
        self.sf = sf
        self.streams = Streams(sf)
        self.starting: set[str] = set()
        """Idempotency keys of starts that are under way here."""


class Service:
    """The tenants of this process and the doorman who tells whose a request is."""

    def __init__(
        self, sf: Surefoot, doorman: Doorman, open_tenant: OpenTenant | None = None, options: Options | None = None
    ) -> None:
        self.doorman = doorman
        self.options = options if options is not None else Options()
        self.meters = Meters()
        self.evidence_totals: dict[str, EvidenceTotals] = {}
        self.counts: dict[str, CountsKept] = {}
        self.own = Tenant(sf)
        """The tenant that the process was started for; its worker and store say how the process is."""
        self.tenants = {sf.tenant: self.own}
        self.failure: SurefootError | None = None
        """Why it could not start."""
        self._open_tenant = open_tenant
        self._announcers: list[Announcer] = []
        self._opening = asyncio.Lock()
        self._stopping = False

    async def start(self) -> None:
        """Begin to work for every tenant that the doorman knows. Raises StoreError."""
        self._announce(self.own)
        for name in self.doorman.tenants():
            if self._open_tenant is not None:
                await self.tenant(name)

    def _announce(self, tenant: Tenant) -> None:
        if self.options.announce_url:
            self._announcers.append(Announcer(tenant.sf, self.options, self.meters))
            self._announcers[-1].begin()

    def close_streams(self) -> None:
        """End every live stream; clients come again."""
        for tenant in self.tenants.values():
            tenant.streams.close()

    async def stop(self) -> None:
        """End the streams, and stop the work of the tenants that `start` began."""
        self._stopping = True
        async with self._opening:
            self.close_streams()
        for announcer in self._announcers:
            await announcer.stop()
        for tenant in self.tenants.values():
            if tenant is not self.own:
                await tenant.sf.close()

    async def tenant(self, name: str) -> Tenant:
        """A tenant, begun here where this is the first that is heard of it: a token was made for it just now.

        Only for a name that a caller has proven. Raises NotFound, StoreError, Problem 503 (`stopping`).
        """
        found = self.tenants.get(name)
        if found is not None:
            return found
        if self._open_tenant is None:
            raise NotFound(f"this server does not work for tenant {name!r}", code="unknown_tenant")
        async with self._opening:
            if self._stopping:
                raise Problem(503, "stopping", "the server is stopping; come again", headers={"Retry-After": "1"})
            if name not in self.tenants:
                self.tenants[name] = Tenant(await self._open_tenant(name).__aenter__())
                self._announce(self.tenants[name])
        return self.tenants[name]


class Visit(Tenant):
    """One request: its caller, the caller's tenant, and the language of texts."""

    def __init__(self, tenant: Tenant, caller: Caller, language: str) -> None:
        self.sf = tenant.sf
        self.streams = tenant.streams
        self.starting = tenant.starting
        self.caller = caller
        self.language = language

    def need(
        self, act: Act, *, tool: str | None = None, effect_class: str | None = None, permission: str | None = None
    ) -> None:
        """Raises Problem 403 (`not_permitted`) where the caller may not do this."""
        if not self.caller.may(act, tool=tool, effect_class=effect_class, permission=permission):
            what = f"{act}:permission={permission}" if permission else act
            about = f" of {tool}" if tool else ""
            raise Problem(
                403, "not_permitted", f"{self.caller.name} may not {DOING[act]}{about}; it takes {what}, or admin"
            )


def service_of(request: Request) -> Service:
    """The service of the app that serves this request."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service
