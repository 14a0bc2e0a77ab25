"""The page, served for real on a free port, and a program that asks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from perago.backend import Embedded
from perago.lake.base import Lake
from perago.settings import load_settings
from perago.ui.data_source import Site
from perago.ui.server import serving


@contextmanager
def asking(
    root: Path, open_lake: Callable[[], Lake | None] = lambda: None, *, token: str | None = None
) -> Iterator[httpx.Client]:
    """Ask the page of a root; with a token it is bound to all of this machine's addresses."""
    site = Site(Embedded(load_settings({}, root=root)), open_lake, where="here")
    host = "127.0.0.1" if token is None else "0.0.0.0"
    with (
        serving(site, host=host, port=0, new_token=lambda: token or "") as served,
        httpx.Client(base_url=f"http://127.0.0.1:{served.port}", trust_env=False, timeout=60) as client,
    ):
        yield client
