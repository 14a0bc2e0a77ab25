"""The page of `perago ui`, served on a free port to an HTTP client, and the browser that tests and benches use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from perago.backend import Embedded
from perago.lake.base import Lake
from perago.settings import load_settings
from perago.ui.data_source import DataSource
from perago.ui.server import serving


@contextmanager
def served_page(
    root: Path, open_lake: Callable[[], Lake | None] = lambda: None, *, token: str | None = None
) -> Iterator[httpx.Client]:
    """Ask the page of a root; with a token it is bound to all of this machine's addresses."""
    site = DataSource(Embedded(load_settings({}, root=root)), open_lake, where="here")
    host = "127.0.0.1" if token is None else "0.0.0.0"
    with (
        serving(site, host=host, port=0, new_token=lambda: token or "") as served,
        httpx.Client(base_url=f"http://127.0.0.1:{served.port}", trust_env=False, timeout=60) as client,
    ):
        yield client


def chromium() -> str | None:
    """Return the configured Chromium, else Debian's; its headless shell renders the same in half the CPU time."""
    programs = map(shutil.which, ("chromium-headless-shell", "chromium"))
    return os.environ.get("PERAGO_CHROMIUM") or next(filter(None, programs), None)
