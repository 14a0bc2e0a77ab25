"""Live updates: server-sent events with the parts of a page that have changed.

The browser connects once.  While nothing changes, only a keep-alive is sent.  When a run has ended, its final parts
are sent, and the stream ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perago.errors import PeragoError
from perago.runtime.runs.listing import PageStart
from perago.ui.data_source import DataSource
from perago.ui.rendering import Part
from perago.ui.run_pages import map_parts, requested_map, requested_run, run_parts, runs_parts

PAUSE_SECONDS = 0.7
_KEEP_ALIVE_SECONDS = 15.0
_STEP_SECONDS = 0.1
Parts = tuple[list[Part], bool]
"""The current live parts of a page, and whether they are final."""


def endpoint(source: DataSource) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Return the handler that streams changes to a page as server-sent events."""

    async def live(request: Request) -> Response:
        return StreamingResponse(_events(source, _reader(source, request)), media_type="text/event-stream")

    return live


def _reader(source: DataSource, request: Request) -> Callable[[], Parts]:
    if request.path_params["what"] == "runs":
        return lambda: (runs_parts(source, PageStart()), False)
    if request.path_params["what"] != "run":
        raise HTTPException(404)

    def read() -> Parts:
        if (mapped := requested_map(source, request)) is not None:
            return map_parts(source, mapped, request.query_params.get("step"))
        parts, _, over = run_parts(source, *requested_run(source, request))
        return parts, over

    return read


async def _events(source: DataSource, read: Callable[[], Parts]) -> AsyncIterator[str]:
    known: dict[str, str] = {}
    quiet = 0.0
    yield "retry: 2000\n\n"
    while not source.closing.is_set():
        try:
            parts, over = await run_in_threadpool(read)
        except PeragoError as error:
            yield _event("trouble", {"text": source.mask(str(error))})
            parts, over = [], False
        changed = [one for one in parts if known.get(one.id) != one.digest]
        known.update({one.id: one.digest for one in changed})
        quiet = 0.0 if changed else quiet + PAUSE_SECONDS
        if changed:
            sent = [{"id": one.id, "digest": one.digest, "html": one.html} for one in changed]
            yield _event("parts", {"parts": sent})
        elif quiet >= _KEEP_ALIVE_SECONDS:
            quiet = 0.0
            yield ": still here\n\n"
        if over:
            yield _event("over", {})
            return
        await _pause(source)


async def _pause(source: DataSource) -> None:
    """Wait for `PAUSE_SECONDS`, or less if the server is stopping."""
    waited = 0.0
    while waited < PAUSE_SECONDS and not source.closing.is_set():
        await asyncio.sleep(_STEP_SECONDS)
        waited += _STEP_SECONDS


def _event(name: str, data: dict[str, Any]) -> str:
    # Send ASCII on one line, so that no text can end the event or start another one.
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
