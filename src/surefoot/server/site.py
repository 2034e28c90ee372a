"""The web page's files: `/` and what it loads from `/page/`. Nothing comes from elsewhere, nothing inline is run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.types import Scope

POLICY: Mapping[str, str] = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    # A text that becomes markup by mistake is an error of the page, not a way in.
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in POLICY.items()),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Asked for again each time, answered with 304 where nothing changed: an upgraded server has an upgraded page.
    "Cache-Control": "no-cache",
}


class PageFiles(StaticFiles):
    """The page's files, each with the headers of HEADERS."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """The file, or 304."""
        answer = super().file_response(full_path, stat_result, scope, status_code)
        answer.headers.update(HEADERS)
        return answer


def mount(app: FastAPI) -> None:
    """Serve the page."""
    folder = str(files("surefoot.server") / "page")
    app.mount("/page", PageFiles(directory=folder), name="page")

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(f"{folder}/index.html", headers=dict(HEADERS))

    # Browsers ask for it by themselves, whatever the page says.
    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> FileResponse:
        return FileResponse(f"{folder}/icon.svg", headers=dict(HEADERS))
