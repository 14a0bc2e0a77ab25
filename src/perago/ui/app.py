"""The web application: routes, error pages, and the access guard around everything."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from perago.errors import (
    LakeError,
    LakeNotFound,
    LakeUnavailable,
    OrchestratorError,
    OrchestratorNotFound,
    OrchestratorUnavailable,
    PeragoError,
    RuntimeConfigError,
)
from perago.ui import lake_pages, object_pages, row_pages, run_pages, sse, upstream_page
from perago.ui.auth import Guard
from perago.ui.data_source import DataSource
from perago.ui.rendering import STATIC, render

log = logging.getLogger("perago.ui")
Page = Callable[[DataSource, Request], Any]
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_ROUTES: dict[str, Page] = {
    "/runs": run_pages.runs,
    "/run": run_pages.run,
    "/log": run_pages.attempt_output,
    "/branches": lake_pages.branches,
    "/data": lake_pages.branches,
    "/checks": lake_pages.branches,
    "/history": lake_pages.history,
    "/publications": lake_pages.publications,
    "/commit": lake_pages.commit,
    "/compare": object_pages.compare,
    "/upstream": upstream_page.upstream,
    "/rows": row_pages.rows,
    "/folder": object_pages.folder,
    "/object": object_pages.show_object,
    "/download": object_pages.download,
    "/picture": object_pages.picture,
    "/frame": object_pages.frame,
}
_STATUS: tuple[tuple[type[PeragoError], int], ...] = (
    (LakeNotFound, 404),
    (OrchestratorNotFound, 404),
    (RuntimeConfigError, 404),
    (LakeUnavailable, 502),
    (OrchestratorUnavailable, 502),
    (LakeError, 500),
    (OrchestratorError, 500),
)


def make_app(source: DataSource, *, host: str, token: str | None) -> ASGIApp:
    """Build the web application that shows a data source, protected by the access guard."""
    files = {path.name: path.read_bytes() for path in STATIC.iterdir()}

    def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            raise HTTPException(404)
        headers = {"Cache-Control": "max-age=31536000, immutable"}
        return Response(files[name], media_type=_TYPES[name.rpartition(".")[2]], headers=headers)

    def failure(request: Request, error: Exception) -> Response:
        return _failure(source, request, error)

    routes = [Route(path, _handler(source, page), name=path) for path, page in _ROUTES.items()]
    app = Starlette(
        routes=[
            Route("/", lambda _: RedirectResponse("/runs")),
            *routes,
            Route("/live/{what}", sse.endpoint(source)),
            Route("/static/{name}", static),
        ],
        exception_handlers={PeragoError: failure, HTTPException: failure, Exception: failure},
    )
    return Guard(app, host=host, token=token)


def _handler(source: DataSource, page: Page) -> Callable[[Request], Response]:
    def handle(request: Request) -> Response:
        # Not async, so that it runs on a thread: calls to the lake and the orchestrator block.
        answer = page(source, request)
        return answer if isinstance(answer, Response) else HTMLResponse(answer)

    return handle


def _failure(source: DataSource, request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        status, text = error.status_code, str(error.detail)
    elif isinstance(error, PeragoError):
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        text = str(error)
    else:
        status, text = 500, "Internal error. See the terminal for details."
        log.error("page %s failed", request.url.path, exc_info=error)
    body = render("error.html", source=source, view="", status=status, text=source.mask(text))
    return HTMLResponse(body, status_code=status)
