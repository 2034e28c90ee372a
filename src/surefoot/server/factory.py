"""The ASGI app: every router, every mount, in one place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from surefoot.app import Surefoot
from surefoot.errors import SurefootError
from surefoot.server import (
    about,
    evidence,
    link_pages,
    metrics,
    openapi,
    people,
    problems,
    runs,
    sessions,
    site,
    statistics,
)
from surefoot.server.callers import Doorman
from surefoot.server.meters import Measured
from surefoot.server.options import Options
from surefoot.server.service import OpenTenant, Service
from surefoot.server.strict import Strict

DESCRIPTION = "Runs of AI agents whose tools change the outside world: each action once, none lost."


def create_app(
    sf: Surefoot, doorman: Doorman, *, open_tenant: OpenTenant | None = None, options: Options | None = None
) -> FastAPI:
    """The app that serves an entered Surefoot. `open_tenant` makes the Surefoot of another tenant of the doorman's.

    `app.state.service` is what endpoints are handed; its `close_streams()` ends the live streams before a shutdown.
    """
    service = Service(sf, doorman, open_tenant, options)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            await service.start()
        except SurefootError as error:
            service.failure = error
            raise
        yield
        await service.stop()

    app = FastAPI(
        title="surefoot",
        version=openapi.package_version(),
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    problems.install(app, lambda line: sf.context.log(line))
    app.include_router(runs.router)
    app.include_router(people.router)
    app.include_router(about.router)
    app.include_router(sessions.router)
    app.include_router(evidence.router)
    app.include_router(metrics.router)
    app.include_router(statistics.router)
    app.include_router(link_pages.router)
    app.add_middleware(Strict)
    app.add_middleware(Measured, meters=service.meters, clock=sf.doors.clock)
    site.mount(app)
    openapi.install(app)
    return app
